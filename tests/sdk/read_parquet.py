"""Reads Parquet files with all engines that are installed and prints what each of them found, as JSON.

python read_parquet.py DIRECTORY FACTS DOCUMENT: FACTS says what is asked, by kind of file and column; the queries are
those of DOCUMENT that are for the layout of profiles that is there, run by DuckDB, and by ClickHouse unless they say that they
are for DuckDB, with each file they name replaced by all files of that kind. pandas and Spark are left out where they are not
installed; Spark needs Java.
"""

import glob
import json
import importlib.util
import re
import shutil
import sys

import chdb
import duckdb
import polars
import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet

directory, facts, document = sys.argv[1:]
facts = json.loads(facts)


def files(kind):
    return sorted(glob.glob(f"{directory}/signal={kind}/**/*.parquet", recursive=True))


def in_sql(kind, engine):
    """What DuckDB and ClickHouse call the facts."""
    length = {"duckdb": "cardinality", "chdb": "length"}[engine]
    size = {"duckdb": "strlen", "chdb": "length"}[engine]
    entries = {"duckdb": "list_sum({})", "chdb": "arraySum({})"}[engine]
    one = {
        "sum": "sum({})",
        "present": "count({})",
        "bytes": f"sum({size}({{}}))",
        "keys": f"sum({length}({{}}))",
        "entries": "sum(length({}))",
        "total": f"sum({entries})",
    }
    return ["count(*)"] + [one[what].format(column) for what, column in facts[kind]]


def by_duckdb(kind):
    found = duckdb.sql(f"SELECT {', '.join(in_sql(kind, 'duckdb'))} FROM read_parquet({files(kind)})")
    return list(found.fetchall()[0])


def by_chdb(kind):
    found = [0] * (1 + len(facts[kind]))
    for file in files(kind):
        query = f"SELECT {', '.join(in_sql(kind, 'chdb'))} FROM file('{file}', Parquet)"
        row = json.loads(str(chdb.query(query, "JSONCompactEachRow")))
        found = [a + (b or 0) for a, b in zip(found, row)]
    return found


def by_pyarrow(kind):
    found = [0] * (1 + len(facts[kind]))

    def fact(column, what):
        if what == "sum":
            return compute.sum(column).as_py()
        if what == "present":
            return compute.count(column).as_py()
        if what == "bytes":
            return compute.sum(compute.binary_length(column)).as_py()
        if what == "total":
            return compute.sum(compute.list_flatten(column)).as_py()
        if what == "keys":
            return sum(len(chunk.keys) for chunk in column.chunks)
        return compute.sum(compute.list_value_length(column)).as_py()

    for file in files(kind):
        # Without the columns of the directories' names.
        table = pyarrow.parquet.ParquetFile(file).read()
        row = [table.num_rows] + [fact(table[column], what) for what, column in facts[kind]]
        found = [a + (b or 0) for a, b in zip(found, row)]
    return found


def by_polars(kind):
    one = {
        "sum": lambda column: column.sum(),
        "present": lambda column: column.count(),
        "bytes": lambda column: column.str.len_bytes().sum(),
        "keys": lambda column: column.map.len().sum(),
        "entries": lambda column: column.list.len().sum(),
        "total": lambda column: column.list.sum().sum(),
    }
    found = [0] * (1 + len(facts[kind]))
    for file in files(kind):
        asked = [one[what](polars.col(column)).alias(str(at)) for at, (what, column) in enumerate(facts[kind])]
        row = polars.scan_parquet(file, hive_partitioning=False).select(polars.len().alias("rows"), *asked).collect().row(0)
        found = [a + (b or 0) for a, b in zip(found, row)]
    return found


def by_pandas(kind):
    """The default engine, with all columns of all files."""
    import pandas

    one = {
        "sum": lambda column: column.sum(),
        "present": lambda column: column.count(),
        "bytes": lambda column: column.dropna().str.encode("utf-8").str.len().sum(),
        "keys": lambda column: column.map(len).sum(),
        "entries": lambda column: column.map(len).sum(),
        "total": lambda column: sum(sum(values) for values in column),
    }
    frame = pandas.concat(pandas.read_parquet(file, partitioning=None) for file in files(kind))
    return [len(frame)] + [one[what](frame[column]) for what, column in facts[kind]]


def by_spark(kind):
    from pyspark.sql import functions

    one = {
        "sum": lambda column: functions.sum(column),
        "present": lambda column: functions.count(column),
        "bytes": lambda column: functions.sum(functions.octet_length(column)),
        "keys": lambda column: functions.sum(functions.size(column)),
        "entries": lambda column: functions.sum(functions.size(column)),
        "total": lambda column: functions.sum(
            functions.aggregate(column, functions.lit(0.0), lambda sum, value: sum + value.cast("double"))
        ),
    }
    table = spark().read.parquet(*files(kind))
    # All columns are read, not only those that are asked for.
    assert len(table.collect()) == table.count()
    asked = [one[what](column).alias(str(at)) for at, (what, column) in enumerate(facts[kind])]
    return list(table.agg(functions.count("*").alias("rows"), *asked).collect()[0])


def spark():
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    return SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()


def told(rows):
    """Bytes and whole numbers as both engines are to print them."""
    return [[str(value) for value in row] for row in rows]


def queries():
    with open(document) as text:
        for query in re.findall(r"```sql\n(.*?)```", text.read(), re.DOTALL):
            if bool(files("stacks")) != ("stacks.parquet" in query):
                continue
            theirs = re.sub(r"'(\w+)\.parquet'", lambda name: str(files(name[1])), query)
            yield told(duckdb.sql(theirs).fetchall()), None if "quantile_cont" in query else by_clickhouse(query)


def by_clickhouse(query):
    """The answer of ClickHouse, where files are `file(...)`."""

    def table(name):
        paths = [path.removeprefix(f"{directory}/") for path in files(name[1])]
        return f"file('{directory}/{{{','.join(paths)}}}', Parquet)"

    query = re.sub(r"read_parquet\('(\w+)\.parquet'\)", table, query)
    answer = str(chdb.query(query.strip().rstrip(";"), "JSONCompactStringsEachRow"))
    return [json.loads(line) for line in answer.splitlines()]


duckdb.sql("SET TimeZone = 'UTC'")
engines = {"DuckDB": by_duckdb, "ClickHouse": by_chdb, "pyarrow": by_pyarrow, "Polars": by_polars}
if importlib.util.find_spec("pandas"):
    engines["pandas"] = by_pandas
if importlib.util.find_spec("pyspark") and shutil.which("java"):
    engines["Spark"] = by_spark
found = {
    name: {kind: [float(fact or 0) for fact in engine(kind)] for kind in facts} for name, engine in engines.items()
}
answers, others = zip(*queries())
print(json.dumps({"found": found, "answers": answers, "clickhouse": others}))
