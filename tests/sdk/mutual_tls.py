"""Sends one span with gRPC for Python, over TLS.

usage: mutual_tls.py HOST:PORT CA_FILE [CERTIFICATE_FILE KEY_FILE]
Prints the name of the status code, and what came with it.
"""

import sys
from pathlib import Path

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub


def main():
    address, *files = sys.argv[1:]
    authority, *own = [Path(file).read_bytes() for file in files]
    chain, key = own if own else (None, None)
    credentials = grpc.ssl_channel_credentials(authority, private_key=key, certificate_chain=chain)
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.name = "from Python"
    span.trace_id, span.span_id = bytes([1] * 16), bytes([2] * 8)
    with grpc.secure_channel(address, credentials) as channel:
        try:
            TraceServiceStub(channel).Export(request, timeout=20)
            print("OK")
        except grpc.RpcError as error:
            print(error.code().name, error.details())


main()
