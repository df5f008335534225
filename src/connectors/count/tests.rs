use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::*;
use crate::component::Host;
use crate::pipeline::testing::Scripted;
use crate::testing::named_batch;
use tributary_config::{Problems, Validate};

fn config(yaml: &str) -> Config {
    serde_yaml::from_str(yaml).unwrap()
}

fn built(config: &Config, signal: Signal, next: &Arc<Scripted>) -> Arc<dyn Consumer> {
    let mut outputs = Outputs::default();
    outputs.set(Signal::Metrics, next.clone());
    let cx = Host::for_tests().context(&"count".parse().unwrap());
    let terminal = config.build(&cx, &[signal], outputs).unwrap();
    terminal.inputs.get(signal).unwrap().clone()
}

fn batch(signal: Signal, request: &impl Message) -> Batch {
    let request = bytes::Bytes::from(request.encode_to_vec());
    let items = tributary_otlp::count(signal, &request);
    Batch::new(signal, items, request)
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        key_strindex: 0,
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, Value::StringValue(value.to_owned()))
}

/// Returns the request that the connector emits for a batch.
async fn counted(config: &Config, batch: Batch) -> ExportMetricsServiceRequest {
    let next = Scripted::new([]);
    let entrance = built(config, batch.signal(), &next);
    entrance.consume(batch).await.unwrap();
    let made = next.batches().remove(0);
    assert_eq!(made.signal(), Signal::Metrics);
    let bytes = made.clone().into_wire().to_bytes();
    assert!(tributary_otlp::validate(Signal::Metrics, &bytes).is_ok());
    assert_eq!(tributary_otlp::count(Signal::Metrics, &bytes), made.items());
    ExportMetricsServiceRequest::decode(bytes).unwrap()
}

/// Name, attributes as text, and count of a data point.
type Point = (String, String, i64);

/// Returns the data points of each resource. The points of a resource have the same time, distinct from all others.
fn points(request: &ExportMetricsServiceRequest) -> Vec<Vec<Point>> {
    let mut last = 0;
    let of_resource = |resource: &metrics::ResourceMetrics| {
        let before = last;
        let [scope] = &resource.scope_metrics[..] else {
            panic!("one scope for each resource");
        };
        assert_eq!(
            scope.scope.as_ref().unwrap().name,
            "tributary/connector/count"
        );
        let mut found = Vec::new();
        for metric in &scope.metrics {
            let Some(Data::Sum(sum)) = &metric.data else {
                panic!("counts are sums");
            };
            assert!(sum.is_monotonic);
            assert_eq!(sum.aggregation_temporality, 1);
            for point in &sum.data_points {
                let Some(Number::AsInt(count)) = point.value else {
                    panic!("counts are whole numbers");
                };
                let attributes: Vec<String> = point
                    .attributes
                    .iter()
                    .map(|found| match found.value.as_ref().unwrap().value.as_ref() {
                        Some(Value::StringValue(value)) => format!("{}={value:?}", found.key),
                        Some(Value::IntValue(value)) => format!("{}={value}", found.key),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                assert!(point.start_time_unix_nano >= before);
                assert!(point.time_unix_nano > point.start_time_unix_nano);
                last = point.time_unix_nano;
                found.push((metric.name.clone(), attributes.join(" "), count));
            }
        }
        found
    };
    request.resource_metrics.iter().map(of_resource).collect()
}

fn span(events: usize) -> Span {
    Span {
        events: vec![Event::default(); events],
        ..Span::default()
    }
}

#[tokio::test]
async fn spans_and_their_events_are_counted_by_resource() {
    let resource = |name: &str, scopes: Vec<Vec<Span>>| ResourceSpans {
        resource: Some(Resource {
            attributes: vec![text("service.name", name)],
            ..Resource::default()
        }),
        schema_url: format!("https://{name}"),
        scope_spans: scopes
            .into_iter()
            .map(|spans| ScopeSpans {
                spans,
                ..ScopeSpans::default()
            })
            .collect(),
    };
    let first = vec![vec![span(2), span(0)], vec![span(1)]];
    let request = ExportTraceServiceRequest {
        resource_spans: vec![
            resource("a", first),
            resource("empty", vec![vec![]]),
            resource("b", vec![vec![span(0)]]),
        ],
    };
    let made = counted(&Config::default(), batch(Signal::Traces, &request)).await;
    let spans = |count| ("trace.span.count".into(), String::new(), count);
    let events = ("trace.span.event.count".into(), String::new(), 3);
    assert_eq!(points(&made), [vec![spans(3), events], vec![spans(1)]]);
    for (after, before) in [(0, 0), (1, 2)] {
        let after = &made.resource_metrics[after];
        let before = &request.resource_spans[before];
        assert_eq!(after.resource, before.resource);
        assert_eq!(after.schema_url, before.schema_url);
    }
    let metric = &made.resource_metrics[0].scope_metrics[0].metrics[0];
    assert_eq!(metric.description, "The number of spans observed.");
}

fn records(records: &[&[KeyValue]]) -> ExportLogsServiceRequest {
    let record = |attributes: &&[KeyValue]| LogRecord {
        attributes: attributes.to_vec(),
        ..LogRecord::default()
    };
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: vec![text("zone", "z")],
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                scope: Some(InstrumentationScope {
                    attributes: vec![text("library", "l")],
                    ..InstrumentationScope::default()
                }),
                log_records: records.iter().map(record).collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    }
}

#[tokio::test]
async fn attributes_group_counts_and_conditions_select_items() {
    let config = config(
        r#"
        logs:
          by.attributes:
            attributes: [{key: env}, {key: zone}, {key: library}, {key: tier, default_value: 3}]
          of.prod:
            conditions: ['attributes["env"] == "prod"', 'attributes["env"] == 1']
        "#,
    );
    let request = records(&[
        &[text("env", "prod")],
        &[text("env", "prod"), attribute("tier", Value::IntValue(1))],
        &[attribute("env", Value::IntValue(1))],
        &[text("env", "prod")],
        &[text("zone", "of the record"), text("env", "test")],
        // A record without `env`, which a metric grouped by `env` does not count.
        &[],
    ]);
    let made = counted(&config, batch(Signal::Logs, &request)).await;
    let point =
        |name: &str, attributes: &str, count| (name.to_owned(), attributes.to_owned(), count);
    let by = |attributes, count| point("by.attributes", attributes, count);
    assert_eq!(
        points(&made),
        [[
            by(r#"env="prod" zone="z" library="l" tier=3"#, 2),
            by(r#"env="prod" zone="z" library="l" tier=1"#, 1),
            by(r#"env=1 zone="z" library="l" tier=3"#, 1),
            by(r#"env="test" zone="of the record" library="l" tier=3"#, 1),
            point("of.prod", "", 4),
        ]]
    );
}

#[tokio::test]
async fn metrics_and_data_points_of_every_form_are_counted() {
    let metric = |name: &str, data| metrics::Metric {
        name: name.to_owned(),
        data: Some(data),
        ..metrics::Metric::default()
    };
    let number = metrics::NumberDataPoint::default;
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![metrics::ResourceMetrics {
            scope_metrics: vec![metrics::ScopeMetrics {
                metrics: vec![
                    metric(
                        "gauge",
                        Data::Gauge(metrics::Gauge {
                            data_points: vec![number(), number()],
                        }),
                    ),
                    metric(
                        "histogram",
                        Data::Histogram(metrics::Histogram {
                            data_points: vec![metrics::HistogramDataPoint::default()],
                            aggregation_temporality: 1,
                        }),
                    ),
                    metric(
                        "exponential",
                        Data::ExponentialHistogram(metrics::ExponentialHistogram {
                            data_points: vec![metrics::ExponentialHistogramDataPoint::default()],
                            aggregation_temporality: 1,
                        }),
                    ),
                    metric(
                        "summary",
                        Data::Summary(metrics::Summary {
                            data_points: vec![metrics::SummaryDataPoint::default()],
                        }),
                    ),
                ],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let config = config(
        r#"
        metrics: {all: {}, gauges: {conditions: ["type == METRIC_DATA_TYPE_GAUGE"]}}
        datapoints: {points: {}, of.gauge: {conditions: ['metric.name == "gauge"']}}
        "#,
    );
    let made = counted(&config, batch(Signal::Metrics, &request)).await;
    let found = points(&made).remove(0);
    let counts: Vec<_> = found
        .iter()
        .map(|(name, _, count)| (&**name, *count))
        .collect();
    assert_eq!(
        counts,
        [("all", 4), ("gauges", 1), ("of.gauge", 2), ("points", 5)]
    );
}

#[tokio::test]
async fn profiles_are_counted_not_their_samples() {
    let made = counted(&Config::default(), named_batch("shop", ["f", "g"])).await;
    let found = points(&made).remove(0);
    assert_eq!(found, [("profile.count".into(), String::new(), 1)]);
    let resource = made.resource_metrics[0].resource.clone().unwrap();
    assert_eq!(resource.attributes, [text("service.name", "shop")]);
    let by_service = config("profiles: {n: {attributes: [{key: service.name}]}}");
    let made = counted(&by_service, named_batch("shop", ["f"])).await;
    assert_eq!(points(&made)[0][0].1, r#"service.name="shop""#);
}

/// Counts of equal items in another order, or of one resource twice in a request, are not duplicates.
#[tokio::test]
async fn counts_have_distinct_times() {
    let next = Scripted::new([]);
    let entrance = built(&Config::default(), Signal::Logs, &next);
    let mut request = records(&[&[]]);
    request.resource_logs = vec![request.resource_logs[0].clone(); 3];
    let mut ends = Vec::new();
    for _ in 0..3 {
        entrance
            .consume(batch(Signal::Logs, &request))
            .await
            .unwrap();
        let bytes = next.batches().pop().unwrap().into_wire().to_bytes();
        let made = ExportMetricsServiceRequest::decode(bytes).unwrap();
        points(&made);
        for resource in made.resource_metrics {
            let Some(Data::Sum(sum)) = &resource.scope_metrics[0].metrics[0].data else {
                panic!("counts are sums");
            };
            ends.push(sum.data_points[0].time_unix_nano);
        }
    }
    assert!(
        ends.len() == 9 && ends.is_sorted_by(|a, b| a < b),
        "{ends:?}"
    );
}

#[tokio::test]
async fn request_has_outcome_of_its_counts() {
    let nack = Nack::unavailable("later");
    let next = Scripted::new([Err(nack.clone())]);
    let entrance = built(&Config::default(), Signal::Logs, &next);
    let request = batch(Signal::Logs, &records(&[&[]]));
    assert_eq!(entrance.consume(request.clone()).await, Err(nack));
    assert_eq!(entrance.consume(request.clone()).await, Ok(()));
    assert_eq!(next.taken(), [1]);
    // Without counted items, no request is sent.
    let entrance = built(&config("logs: {}"), Signal::Logs, &next);
    assert_eq!(entrance.consume(request).await, Ok(()));
    assert_eq!(next.taken(), [1]);
}

#[test]
fn invalid_count_settings_are_reported_with_position() {
    let config = config(
        r#"
        spans: {a: {conditions: ["nonsense ="]}}
        metrics: {b: {attributes: [{key: k}]}}
        logs: {c: {attributes: [{key: ""}, {key: k}, {key: k}]}}
        "#,
    );
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let places: Vec<String> = problems
        .found()
        .iter()
        .map(|problem| problem.path.join("."))
        .collect();
    assert_eq!(
        places,
        [
            "spans.a.conditions.0",
            "metrics.b.attributes",
            "logs.c.attributes.0.key",
            "logs.c.attributes.2.key"
        ]
    );
}

/// Attributes of a resource and a scope are looked up once, and their copies in data points are
/// limited.
#[tokio::test]
async fn large_resource_is_not_repeated_per_item() {
    let config = config(
        "{logs: {all: {attributes: [{key: large}]}, own: {attributes: [{key: id}, {key: kind}]}}}",
    );
    let request = |records: usize, large: usize| ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: vec![text("large", &"x".repeat(large)), text("kind", "resource")],
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                scope: Some(InstrumentationScope {
                    attributes: vec![text("kind", "scope")],
                    ..InstrumentationScope::default()
                }),
                log_records: (0..records)
                    .map(|at| LogRecord {
                        attributes: vec![text("id", &(at % 2).to_string())],
                        ..LogRecord::default()
                    })
                    .collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    let made = counted(&config, batch(Signal::Logs, &request(10, 3))).await;
    let mut found: Vec<_> = points(&made).remove(0);
    found.sort();
    let point =
        |name: &str, attributes: &str, count| (name.to_owned(), attributes.to_owned(), count);
    let expected = [
        point("all", "large=\"xxx\"", 10),
        point("own", "id=\"0\" kind=\"scope\"", 5),
        point("own", "id=\"1\" kind=\"scope\"", 5),
    ];
    assert_eq!(found, expected);
    let next = Scripted::new([]);
    let entrance = built(&config, Signal::Logs, &next);
    let refused = entrance.consume(batch(Signal::Logs, &request(300, 200_000)));
    let refused = refused.await.unwrap_err();
    assert!(
        refused.to_string().contains("send smaller requests"),
        "{refused}"
    );
    assert!(next.batches().is_empty());
}
