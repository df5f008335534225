//! Telemetry of real SDKs arrives: see tests/sdk/README.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{Metric, number_data_point};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;

use crate::harness::{Backend, Collector, Telemetry, grpc_at, grpc_to, within, yaml};

type Attributes = BTreeMap<String, Option<Value>>;

/// Attributes that the scripts add to all telemetry.
fn expected() -> Attributes {
    let text = |text: &str| Value::StringValue(text.to_owned());
    let list = |values: Vec<Value>| {
        let any = |value| AnyValue { value: Some(value) };
        Value::ArrayValue(ArrayValue {
            values: values.into_iter().map(any).collect(),
        })
    };
    [
        ("text", text("Gr\u{fc}\u{df}e \u{1f680}")),
        ("empty", text("")),
        ("whole", Value::IntValue(9_007_199_254_740_991)),
        ("negative", Value::IntValue(-1)),
        ("fraction", Value::DoubleValue(0.1)),
        ("yes", Value::BoolValue(true)),
        ("no", Value::BoolValue(false)),
        ("texts", list(vec![text("a"), text("b")])),
        ("numbers", list((1..4).map(Value::IntValue).collect())),
    ]
    .map(|(key, value)| (key.to_owned(), Some(value)))
    .into()
}

fn attributes(list: &[KeyValue]) -> Attributes {
    let value = |attribute: &KeyValue| attribute.value.clone().and_then(|any| any.value);
    list.iter()
        .map(|attribute| (attribute.key.clone(), value(attribute)))
        .collect()
}

/// Two collectors, rack and zone, with batching in both, and a backend behind.
struct Chain {
    backend: Backend,
    zone: Collector,
    rack: Collector,
}

impl Chain {
    async fn start() -> Self {
        let backend = Backend::start().await;
        let batch = ("batch", "{timeout: 10ms}");
        let exporter = grpc_to(&backend, "compression: zstd");
        let zone = Collector::start(&yaml(&[batch], &[("otlp_grpc", &exporter)])).await;
        let exporter = grpc_at(zone.grpc(), "compression: gzip");
        let rack = Collector::start(&yaml(&[batch], &[("otlp_grpc", &exporter)])).await;
        Chain {
            backend,
            zone,
            rack,
        }
    }

    /// Runs a script and compares the arrived items after its end.
    async fn check(&self, service: &str, mut script: Command) {
        let run = tokio::task::spawn_blocking(move || script.output().unwrap());
        let Output { status, stderr, .. } = within("the end of the script", run).await.unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        let (spans, metrics, logs) = within("everything that was sent", async {
            let mut found = Found::default();
            let complete = |record: &crate::harness::backend::Record| {
                found = Found::default();
                for accepted in &record.accepted {
                    found.add(service, &accepted.telemetry);
                }
                found.spans.len() == 2 && found.metrics.len() == 4 && found.logs.len() == 1
            };
            self.backend.until(complete).await;
            (found.spans, found.metrics, found.logs)
        })
        .await;
        check_spans(&spans);
        check_metrics(&metrics);
        check_log(&logs[0]);
        self.rack.assert_conservation().await;
        self.zone.assert_conservation().await;
    }
}

/// Telemetry received from one service.
#[derive(Default)]
struct Found {
    spans: BTreeMap<String, Span>,
    metrics: BTreeMap<String, Metric>,
    logs: Vec<LogRecord>,
}

impl Found {
    fn add(&mut self, service: &str, telemetry: &Telemetry) {
        match telemetry {
            Telemetry::Traces(request) => {
                for resource in &request.resource_spans {
                    if is_from(service, resource.resource.as_ref()) {
                        let spans = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
                        self.spans
                            .extend(spans.map(|span| (span.name.clone(), span.clone())));
                    }
                }
            }
            Telemetry::Metrics(request) => {
                for resource in &request.resource_metrics {
                    if is_from(service, resource.resource.as_ref()) {
                        let scopes = resource.scope_metrics.iter();
                        let metrics = scopes.flat_map(|scope| &scope.metrics);
                        self.metrics
                            .extend(metrics.map(|metric| (metric.name.clone(), metric.clone())));
                    }
                }
            }
            Telemetry::Logs(request) => {
                for resource in &request.resource_logs {
                    if is_from(service, resource.resource.as_ref()) {
                        let scopes = resource.scope_logs.iter();
                        self.logs
                            .extend(scopes.flat_map(|scope| scope.log_records.clone()));
                    }
                }
            }
            Telemetry::Profiles(_) => panic!("no SDK sends profiles yet"),
        }
    }
}

/// Whether the resource belongs to the service. If so, its attributes are checked.
fn is_from(service: &str, resource: Option<&Resource>) -> bool {
    let found = attributes(&resource.unwrap().attributes);
    if found["service.name"] != Some(Value::StringValue(service.to_owned())) {
        return false;
    }
    for (key, value) in expected() {
        assert_eq!(
            found.get(&key),
            Some(&value),
            "{service}: resource attribute {key}"
        );
    }
    true
}

fn check_spans(spans: &BTreeMap<String, Span>) {
    let (parent, child) = (&spans["parent"], &spans["child"]);
    assert_eq!(attributes(&parent.attributes), expected());
    assert_eq!((parent.kind, child.kind), (2, 1));
    assert_eq!((parent.trace_id.len(), parent.span_id.len()), (16, 8));
    assert_eq!(
        (&child.trace_id, &child.parent_span_id),
        (&parent.trace_id, &parent.span_id)
    );
    assert!(parent.end_time_unix_nano >= parent.start_time_unix_nano);
    assert!(parent.start_time_unix_nano > 1_700_000_000_000_000_000);
    assert_eq!(parent.events[0].name, "event");
    let said = |attributes: &[KeyValue], expected: &str| {
        let value = attributes[0].value.clone().unwrap().value;
        assert_eq!(value, Some(Value::StringValue(expected.to_owned())));
    };
    said(&parent.events[0].attributes, "something");
    assert_eq!(child.links[0].span_id, parent.span_id);
    said(&child.links[0].attributes, "linked");
    let status = child.status.as_ref().unwrap();
    assert_eq!((status.code, status.message.as_str()), (2, "it failed"));
}

fn check_metrics(metrics: &BTreeMap<String, Metric>) {
    let counter = &metrics["counter"];
    assert_eq!(
        (counter.unit.as_str(), counter.description.as_str()),
        ("1", "how many")
    );
    let Some(Data::Sum(sum)) = &counter.data else {
        panic!("{counter:?}");
    };
    assert!(sum.is_monotonic);
    assert_eq!(sum.aggregation_temporality, 2);
    let point = &sum.data_points[0];
    assert_eq!(attributes(&point.attributes), expected());
    // JavaScript does not distinguish 3 and 3.0.
    let three = [
        number_data_point::Value::AsInt(3),
        number_data_point::Value::AsDouble(3.0),
    ];
    assert!(three.contains(&point.value.unwrap()), "{point:?}");

    let Some(Data::Histogram(histogram)) = &metrics["histogram"].data else {
        panic!("{metrics:?}");
    };
    let point = &histogram.data_points[0];
    assert_eq!(attributes(&point.attributes), expected());
    assert_eq!((point.count, point.sum), (1, Some(0.25)));
    assert_eq!((point.min, point.max), (Some(0.25), Some(0.25)));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), 1);

    let Some(Data::ExponentialHistogram(exponential)) = &metrics["exponential"].data else {
        panic!("{metrics:?}");
    };
    let point = &exponential.data_points[0];
    assert_eq!(attributes(&point.attributes), expected());
    assert_eq!((point.count, point.sum), (1, Some(2.0)));
    let buckets = point.positive.as_ref().unwrap();
    assert_eq!(buckets.bucket_counts.iter().sum::<u64>(), 1);

    let Some(Data::Gauge(gauge)) = &metrics["gauge"].data else {
        panic!("{metrics:?}");
    };
    let point = &gauge.data_points[0];
    assert_eq!(attributes(&point.attributes), expected());
    assert_eq!(point.value, Some(number_data_point::Value::AsDouble(-1.5)));
}

fn check_log(log: &LogRecord) {
    assert_eq!(attributes(&log.attributes), expected());
    assert_eq!(log.time_unix_nano, 1_700_000_000_123_456_789);
    assert_eq!(
        (log.severity_number, log.severity_text.as_str()),
        (13, "WARN")
    );
    let body = log.body.clone().unwrap().value;
    assert_eq!(
        body,
        Some(Value::StringValue("something happened".to_owned()))
    );
}

/// Returns an environment variable; if it is unset, prints why the test is skipped.
pub fn told(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok();
    if value.is_none() {
        eprintln!("skipped: {variable} is not set; see tests/sdk/README.md");
    }
    value
}

/// Returns the path of a script in tests/sdk.
pub fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/sdk")
        .join(name)
}

#[tokio::test]
async fn python_sdk_attributes_pass_two_collectors() {
    let Some(python) = told("SDK_PYTHON") else {
        return;
    };
    let chain = Chain::start().await;
    for (protocol, endpoint) in [
        ("grpc", chain.rack.grpc().to_string()),
        ("http", format!("http://{}", chain.rack.http())),
    ] {
        let mut command = Command::new(&python);
        command.arg(script("send.py")).args([protocol, &endpoint]);
        chain.check(&format!("python-{protocol}"), command).await;
    }
}

#[tokio::test]
async fn javascript_sdk_attributes_pass_two_collectors() {
    let Some(modules) = told("SDK_NODE_MODULES") else {
        return;
    };
    let chain = Chain::start().await;
    let mut command = Command::new("node");
    command
        .env("NODE_PATH", modules)
        .arg(script("send.js"))
        .arg(format!("http://{}", chain.rack.http()));
    chain.check("node-http", command).await;
}
