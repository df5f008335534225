"""Sends a known set of telemetry with the OpenTelemetry SDK for Python.

usage: send.py grpc HOST:PORT | send.py http http://HOST:PORT
What it sends is what tests/integration/sdk.rs expects.
"""

import logging
import sys

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.metrics import Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

ATTRIBUTES = {
    "text": "Gr\u00fc\u00dfe \U0001f680",
    "empty": "",
    "whole": 9007199254740991,
    "negative": -1,
    "fraction": 0.1,
    "yes": True,
    "no": False,
    "texts": ["a", "b"],
    "numbers": [1, 2, 3],
}


def exporters(protocol, endpoint):
    """The three exporters of a protocol."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return [
            kind(endpoint=endpoint, insecure=True)
            for kind in (OTLPSpanExporter, OTLPMetricExporter, OTLPLogExporter)
        ]
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return [
        OTLPSpanExporter(endpoint=endpoint + "/v1/traces", compression=Compression.Gzip),
        OTLPMetricExporter(endpoint=endpoint + "/v1/metrics", compression=Compression.Deflate),
        OTLPLogExporter(endpoint=endpoint + "/v1/logs"),
    ]


def send_traces(resource, exporter):
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("integration", "1.0")
    with tracer.start_as_current_span("parent", kind=SpanKind.SERVER, attributes=ATTRIBUTES) as span:
        span.add_event("event", {"text": "something"})
        link = Link(span.get_span_context(), {"text": "linked"})
        with tracer.start_as_current_span("child", links=[link]) as child:
            child.set_status(Status(StatusCode.ERROR, "it failed"))
    provider.shutdown()


def send_metrics(resource, exporter):
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    exponential = View(
        instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation()
    )
    provider = MeterProvider(resource=resource, metric_readers=[reader], views=[exponential])
    meter = provider.get_meter("integration", "1.0")
    meter.create_counter("counter", unit="1", description="how many").add(3, ATTRIBUTES)
    meter.create_histogram("histogram", unit="s").record(0.25, ATTRIBUTES)
    meter.create_histogram("exponential").record(2.0, ATTRIBUTES)
    meter.create_observable_gauge("gauge", [lambda _: [Observation(-1.5, ATTRIBUTES)]])
    provider.shutdown()


def send_logs(resource, exporter):
    provider = LoggerProvider(resource=resource)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    record = LogRecord(
        timestamp=1_700_000_000_123_456_789,
        severity_text="WARN",
        severity_number=SeverityNumber.WARN,
        body="something happened",
        attributes=ATTRIBUTES,
    )
    provider.get_logger("integration", "1.0").emit(record)
    provider.shutdown()


def main():
    logging.basicConfig(level=logging.WARNING)
    protocol, endpoint = sys.argv[1:]
    resource = Resource.create({"service.name": f"python-{protocol}", **ATTRIBUTES})
    spans, metrics, logs = exporters(protocol, endpoint)
    send_traces(resource, spans)
    send_metrics(resource, metrics)
    send_logs(resource, logs)


main()
