"""Compares the exporter `parquet` with pyarrow writing the same columns, one run of each after the other.

    cargo bench --bench parquet --no-run                  # says where the program is
    python benches/parquet_pyarrow.py PROGRAM [ROUNDS]

Ours begins with the bytes of requests; pyarrow begins with columns in memory, of texts as a decoder leaves them, and
has only to write. Both on one thread with zstd at level 3. The fastest of all rounds counts.
"""

import collections
import re
import subprocess
import sys
import tempfile
import time

import pyarrow
import pyarrow.parquet

program = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
ours, theirs, sizes = collections.defaultdict(list), collections.defaultdict(list), {}
pyarrow.set_cpu_count(1)
with tempfile.TemporaryDirectory() as directory:
    for _ in range(rounds):
        said = subprocess.run([program, "--bench", directory], check=True, capture_output=True, text=True).stdout
        for kind, time_per_row in re.findall(r"^(\w+) .*? (\d+) ns/row", said, re.MULTILINE):
            ours[kind].append(int(time_per_row))
            table = pyarrow.parquet.read_table(f"{directory}/{kind}.parquet", use_threads=False)
            buffer = pyarrow.BufferOutputStream()
            began = time.process_time()
            pyarrow.parquet.write_table(table, buffer, compression="zstd", compression_level=3)
            theirs[kind].append((time.process_time() - began) / table.num_rows * 1e9)
            with open(f"{directory}/{kind}.parquet", "rb") as file:
                sizes[kind] = (len(file.read()) / table.num_rows, len(buffer.getvalue()) / table.num_rows)
print("signal     ours ns/row  pyarrow ns/row  ratio   ours bytes/row  pyarrow bytes/row")
for kind in ours:
    mine, other = min(ours[kind]), min(theirs[kind])
    print(f"{kind:<10} {mine:>11} {other:>15.0f} {mine / other:>6.2f} {sizes[kind][0]:>16.1f} {sizes[kind][1]:>18.1f}")
