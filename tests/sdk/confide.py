"""Sends spans and log records that say what should stay private, with the OpenTelemetry SDK for Python.

usage: confide.py grpc HOST:PORT | confide.py http http://HOST:PORT
What it says is what tests/integration/sdk_redaction.rs looks for.
"""

import sys

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Status, StatusCode

# In two parts, so that nobody takes this file for one that leaks them.
MAIL = "jane.roe" + "@example.com"
CARD = "4111 1111 " + "1111 1111"
KEY = "AKIA" + "IOSFODNN7EXAMPLE"
URL = "postgres://app:" + "s3cretpw@db.example.com/shop"
HOME = "/home/" + "janeroe/src/main.py"
BEARER = "Bearer " + "mF_9.B5f-4.1JqM"


def exporters(protocol, endpoint):
    """The exporters of spans and of log records."""
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return [kind(endpoint=endpoint, insecure=True) for kind in (OTLPSpanExporter, OTLPLogExporter)]
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return [
        OTLPSpanExporter(endpoint=endpoint + "/v1/traces"),
        OTLPLogExporter(endpoint=endpoint + "/v1/logs"),
    ]


def send_traces(resource, exporter):
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("confidences", "1.0")
    with tracer.start_as_current_span(f"GET /users/{MAIL}", attributes={"to": [MAIL, CARD]}) as span:
        span.add_event(f"paid with {CARD}", {"header": f"Authorization: {BEARER}"})
        try:
            raise ConnectionError(f"cannot connect to {URL}")
        except ConnectionError as error:
            span.record_exception(error, {"code.file.path": HOME})
        link = Link(span.get_span_context(), {"key": KEY})
        with tracer.start_as_current_span("child", links=[link]) as child:
            child.set_status(Status(StatusCode.ERROR, f"{URL} said no"))
    provider.shutdown()


def send_logs(resource, exporter):
    provider = LoggerProvider(resource=resource)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    logger = provider.get_logger("confidences", "1.0")
    bodies = [f"mail to {MAIL} from {HOME}", {"user": {"cards": [CARD], "key": KEY}}]
    for body in bodies:
        logger.emit(
            LogRecord(
                timestamp=1_700_000_000_123_456_789,
                severity_text="WARN",
                severity_number=SeverityNumber.WARN,
                body=body,
                attributes={"header": BEARER, "nested": {"url": URL}},
            )
        )
    provider.shutdown()


def main():
    protocol, endpoint = sys.argv[1:]
    resource = Resource.create({"service.name": "confidences", "process.executable.path": HOME})
    spans, logs = exporters(protocol, endpoint)
    send_traces(resource, spans)
    send_logs(resource, logs)


main()
