// Sends a known set of telemetry with the OpenTelemetry SDK for JavaScript, as OTLP/JSON.
//
// usage: NODE_PATH=.../node_modules node send.js http://HOST:PORT
// What it sends is what tests/integration/sdk.rs expects.

const { trace, context, SpanKind, SpanStatusCode } = require("@opentelemetry/api");
const { SeverityNumber } = require("@opentelemetry/api-logs");
const { OTLPLogExporter } = require("@opentelemetry/exporter-logs-otlp-http");
const { OTLPMetricExporter } = require("@opentelemetry/exporter-metrics-otlp-http");
const { OTLPTraceExporter } = require("@opentelemetry/exporter-trace-otlp-http");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { LoggerProvider, BatchLogRecordProcessor } = require("@opentelemetry/sdk-logs");
const {
  AggregationType,
  MeterProvider,
  PeriodicExportingMetricReader,
} = require("@opentelemetry/sdk-metrics");
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");

const ATTRIBUTES = {
  text: "Gr\u00fc\u00dfe \u{1f680}",
  empty: "",
  whole: 9007199254740991,
  negative: -1,
  fraction: 0.1,
  yes: true,
  no: false,
  texts: ["a", "b"],
  numbers: [1, 2, 3],
};

const endpoint = process.argv[2];
const resource = resourceFromAttributes({ "service.name": "node-http", ...ATTRIBUTES });

async function sendTraces() {
  const exporter = new OTLPTraceExporter({ url: `${endpoint}/v1/traces`, compression: "gzip" });
  const provider = new BasicTracerProvider({
    resource,
    spanProcessors: [new BatchSpanProcessor(exporter)],
  });
  const tracer = provider.getTracer("integration", "1.0");
  const parent = tracer.startSpan("parent", { kind: SpanKind.SERVER, attributes: ATTRIBUTES });
  parent.addEvent("event", { text: "something" });
  const links = [{ context: parent.spanContext(), attributes: { text: "linked" } }];
  const child = tracer.startSpan("child", { links }, trace.setSpan(context.active(), parent));
  child.setStatus({ code: SpanStatusCode.ERROR, message: "it failed" });
  child.end();
  parent.end();
  await provider.shutdown();
}

async function sendMetrics() {
  const exporter = new OTLPMetricExporter({ url: `${endpoint}/v1/metrics` });
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3600000 });
  const provider = new MeterProvider({
    resource,
    readers: [reader],
    views: [
      {
        instrumentName: "exponential",
        aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM },
      },
    ],
  });
  const meter = provider.getMeter("integration", "1.0");
  meter.createCounter("counter", { unit: "1", description: "how many" }).add(3, ATTRIBUTES);
  meter.createHistogram("histogram", { unit: "s" }).record(0.25, ATTRIBUTES);
  meter.createHistogram("exponential").record(2, ATTRIBUTES);
  meter.createObservableGauge("gauge").addCallback((result) => result.observe(-1.5, ATTRIBUTES));
  await provider.shutdown();
}

async function sendLogs() {
  const exporter = new OTLPLogExporter({ url: `${endpoint}/v1/logs` });
  const provider = new LoggerProvider({
    resource,
    processors: [new BatchLogRecordProcessor({ exporter })],
  });
  provider.getLogger("integration", "1.0").emit({
    timestamp: [1700000000, 123456789],
    severityText: "WARN",
    severityNumber: SeverityNumber.WARN,
    body: "something happened",
    attributes: ATTRIBUTES,
  });
  await provider.shutdown();
}

sendTraces()
  .then(sendMetrics)
  .then(sendLogs)
  .catch((error) => {
    console.error(error);
    process.exit(1);
  });
