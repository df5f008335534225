"""Sends spans with py_zipkin in each of its formats: spans.py URL"""

import sys
import urllib.request

from py_zipkin import Encoding, Kind
from py_zipkin.zipkin import create_attrs_for_span, zipkin_span

FORMATS = [
    (Encoding.V1_JSON, "/api/v1/spans", "application/json"),
    (Encoding.V2_JSON, "/api/v2/spans", "application/json"),
    (Encoding.V2_PROTO3, "/api/v2/spans", "application/x-protobuf"),
]


def sender(path, content_type):
    def send(body):
        if isinstance(body, str):
            body = body.encode()
        request = urllib.request.Request(sys.argv[1] + path, data=body, headers={"Content-Type": content_type})
        with urllib.request.urlopen(request) as response:
            assert response.status == 202, response.status

    return send


for encoding, path, content_type in FORMATS:
    name = f"py-{encoding.value.lower()}"
    for at in range(20):
        with zipkin_span(
            service_name=name,
            span_name=f"parent {at}",
            transport_handler=sender(path, content_type),
            zipkin_attrs=create_attrs_for_span(sample_rate=100.0, use_128bit_trace_id=at % 2 == 0),
            host="10.1.2.3",
            port=8080,
            kind=Kind.SERVER,
            encoding=encoding,
        ) as parent:
            parent.update_binary_annotations({"error": "true", "text": "Gr\u00fc\u00dfe"})
            with zipkin_span(service_name=name, span_name="child", kind=Kind.CLIENT) as child:
                child.add_annotation("cache miss")
                child.add_sa_binary_annotation(port=5432, service_name="db", host="10.9.8.7")
