"""A service under load with the endpoints of pypprof. It prints its address, and ends with its standard input."""

import sys
import threading
import time

import mprofile
from pypprof.net_http import start_pprof_server

kept = []


def checksum(text):
    total = 0
    for _ in range(200):
        for character in text:
            total = (total * 31 + ord(character)) & 0xFFFFFFFF
    return total


def handle(route):
    kept.append(bytearray(16 << 10))
    if len(kept) > 1000:
        del kept[:500]
    return checksum(route)


def serve(route):
    while True:
        handle(route)
        # Others need the processor, too.
        time.sleep(0.001)


mprofile.start(sample_rate=16 << 10)
server = start_pprof_server("127.0.0.1", 0)
for route in ("/cart", "/pay", "/search"):
    threading.Thread(target=serve, args=(route,), daemon=True).start()
print(f"127.0.0.1:{server.server_port}", flush=True)
sys.stdin.read()
