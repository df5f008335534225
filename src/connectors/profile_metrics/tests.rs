use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1 as metrics;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::time::{Instant, sleep};

use super::*;
use crate::component::Host;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::testing::Scripted;
use crate::pipeline::{Component, Undelivered};
use tributary_profiles::frames::Selection;
use tributary_profiles::top::{sample_type, top};
use tributary_profiles::write::encode;
use tributary_profiles::{Profiles, folded};

struct Running {
    inputs: Outputs,
    component: Box<dyn Component>,
    next: Arc<Scripted>,
}

fn running(config: &str, answers: impl IntoIterator<Item = Result<(), Nack>>) -> Running {
    let next = Scripted::new(answers);
    let mut outputs = Outputs::default();
    outputs.set(Signal::Metrics, next.clone());
    let config: Config = serde_yaml::from_str(config).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    assert!(problems.found().is_empty());
    let cx = Host::for_tests().context(&"profile_metrics".parse().unwrap());
    let signals = [Signal::Profiles, Signal::Traces, Signal::Metrics];
    let Terminal { inputs, component } = config.build(&cx, &signals, outputs).unwrap();
    let mut running = Running {
        inputs,
        component,
        next,
    };
    running.component.start();
    running
}

impl Running {
    async fn offer(&self, batch: Batch) -> Result<(), Nack> {
        let input = self.inputs.get(batch.signal()).unwrap();
        input.consume(batch).await
    }

    async fn shutdown(self) -> (Undelivered, Arc<Scripted>) {
        let deadline = Instant::now() + Duration::from_secs(5);
        let left = self.component.shutdown(deadline).await;
        (left, self.next)
    }

    /// Flushes all windows, and returns all emitted data points.
    async fn points(self) -> Vec<Point> {
        let (left, next) = self.shutdown().await;
        assert_eq!(left, Undelivered::default());
        next.batches().into_iter().flat_map(points).collect()
    }
}

/// Resource and data point attributes as `key=value`, separated by spaces.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    resource: String,
    name: String,
    attributes: String,
    value: f64,
    times: (u64, u64),
}

fn words(attributes: &[KeyValue]) -> String {
    let word = |attribute: &KeyValue| {
        let value = attribute.value.clone().unwrap().value.unwrap();
        let value = match value {
            Value::StringValue(text) => text,
            Value::BoolValue(value) => value.to_string(),
            other => panic!("{other:?}"),
        };
        let key = attribute.key.rsplit('.').next().unwrap();
        format!("{key}={value}")
    };
    attributes.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn points(batch: Batch) -> Vec<Point> {
    let bytes = batch.into_wire().to_bytes();
    assert!(tributary_otlp::validate(Signal::Metrics, &bytes).is_ok());
    let request = ExportMetricsServiceRequest::decode(bytes).unwrap();
    let mut found = Vec::new();
    for resource in request.resource_metrics {
        let of = words(&resource.resource.unwrap().attributes);
        for metric in resource
            .scope_metrics
            .into_iter()
            .flat_map(|scope| scope.metrics)
        {
            let points = match metric.data.unwrap() {
                Data::Sum(sum) => {
                    assert!(sum.is_monotonic && sum.aggregation_temporality == 1);
                    sum.data_points
                }
                Data::Gauge(gauge) => gauge.data_points,
                other => panic!("{other:?}"),
            };
            found.extend(points.into_iter().map(|point| Point {
                resource: of.clone(),
                name: metric.name.clone(),
                attributes: words(&point.attributes),
                value: match point.value.unwrap() {
                    Number::AsInt(value) => value as f64,
                    Number::AsDouble(value) => value,
                },
                times: (point.start_time_unix_nano, point.time_unix_nano),
            }));
        }
    }
    found
}

/// Attributes and values of a metric.
fn of(points: &[Point], name: &str) -> Vec<(String, f64)> {
    let named = points.iter().filter(|point| point.name == name);
    named
        .map(|point| (point.attributes.clone(), point.value))
        .collect()
}

fn one(points: &[Point], name: &str) -> f64 {
    let found = of(points, name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0].1
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        key_strindex: 0,
    }
}

/// Folded stacks as a profile of a sample type, taken by an instance of the service `shop` at a time.
fn profile(stacks: &str, kind: (&str, &str), instance: &str, time: u64) -> Batch {
    let mut profiles = folded::read(stacks).unwrap();
    let Profiles {
        dictionary,
        resources,
    } = &mut profiles;
    for resource in resources.iter_mut() {
        resource.resource = Some(Resource {
            attributes: vec![
                text("service.name", "shop"),
                text("service.instance.id", instance),
            ],
            ..Resource::default()
        });
        for profile in resource
            .scopes
            .iter_mut()
            .flat_map(|scope| &mut scope.profiles)
        {
            profile.header.sample_type.kind = dictionary.string(kind.0);
            profile.header.sample_type.unit = dictionary.string(kind.1);
            profile.header.time = time;
            profile.header.duration = 0;
        }
    }
    let request = encode(dictionary, resources);
    let items = tributary_otlp::count(Signal::Profiles, &request);
    Batch::new(Signal::Profiles, items, request)
}

const CPU: (&str, &str) = ("cpu", "nanoseconds");

const STACKS: &str =
    "main;f;f;f 3000000\nmain;f;g 2000000\nmain;h 1000000\nmain;f 500000\nmain 1\n";

#[tokio::test(start_paused = true)]
async fn totals_and_functions_match_profiles_top() {
    let running = running("top_functions: 100", []);
    running.offer(profile(STACKS, CPU, "a", 1)).await.unwrap();
    let points = running.points().await;
    let profiles = folded::read(STACKS).unwrap();
    let kind = sample_type(&profiles, None).unwrap();
    let top = top(&profiles, kind, &Selection::default());
    let seconds = |value: i64| value as f64 / 1e9;
    assert_eq!(one(&points, "profile.cpu.time"), seconds(top.total));
    let row = |name: &str, value| (format!("name={name}"), seconds(value));
    let own: Vec<_> = top.rows.iter().map(|of| row(&of.name, of.flat)).collect();
    assert_eq!(of(&points, "profile.function.self.cpu.time"), own);
    let mut total: Vec<_> = top
        .rows
        .iter()
        .map(|of| row(&of.name, of.cumulative))
        .collect();
    total.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    assert_eq!(of(&points, "profile.function.inclusive.cpu.time"), total);
    let shares = of(&points, "profile.function.hotness");
    assert_eq!(shares.len(), own.len());
    assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(shares[0].0.ends_with("name=profile.cpu.time"));
}

#[tokio::test(start_paused = true)]
async fn top_functions_have_points_and_rest_is_other() {
    let running = running("top_functions: 2", []);
    // Among equal functions the first by name; a function called `other` is part of the rest.
    let stacks = "main;c 5000000000\nmain;b 5000000000\nmain;a 5000000000\nother 9000000000\n";
    running.offer(profile(stacks, CPU, "a", 1)).await.unwrap();
    let points = running.points().await;
    let expected = [("name=a", 5.0), ("name=b", 5.0), ("name=other", 14.0)];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(of(&points, "profile.function.self.cpu.time"), expected);
    assert_eq!(one(&points, "profile.cpu.time"), 24.0);
}

#[tokio::test(start_paused = true)]
async fn windows_are_complete_and_adjacent() {
    let running = running("{interval: 10s, top_functions: 0}", []);
    for time in [1, 2, 3] {
        running
            .offer(profile("f 1000000000\n", CPU, "a", time))
            .await
            .unwrap();
        sleep(Duration::from_secs(4)).await;
    }
    running
        .offer(profile("f 500000000\n", CPU, "b", 4))
        .await
        .unwrap();
    let all = running.points().await;
    let cpu: Vec<_> = all
        .iter()
        .filter(|point| point.name == "profile.cpu.time")
        .collect();
    let values: Vec<f64> = cpu.iter().map(|point| point.value).collect();
    assert_eq!(values, [3.0, 0.5]);
    assert_eq!(cpu[1].times.0, cpu[0].times.1);
    assert!(cpu.iter().all(|point| point.resource == "name=shop"));
    let received: Vec<_> = of(&all, "profile.received.profiles");
    assert_eq!(received, [(String::new(), 3.0), (String::new(), 1.0)]);
}

#[tokio::test(start_paused = true)]
async fn window_is_retried_until_accepted() {
    let later = || Err(Nack::unavailable("later"));
    let running = running("interval: 1s", [later(), later()]);
    running.offer(profile(STACKS, CPU, "a", 1)).await.unwrap();
    assert!(!running.component.idle());
    sleep(Duration::from_secs(5)).await;
    assert_eq!(running.next.taken().len(), 1);
    assert!(running.component.idle());
    let (left, _) = running.shutdown().await;
    assert_eq!(left, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn undelivered_windows_are_reported_at_shutdown() {
    let refusing = std::iter::repeat_with(|| Err(Nack::unavailable("later"))).take(10_000);
    let running = running("interval: 1s", refusing);
    running.offer(profile(STACKS, CPU, "a", 1)).await.unwrap();
    let input = running.inputs.get(Signal::Profiles).unwrap().clone();
    let (left, next) = running.shutdown().await;
    assert!(left.items > 0);
    assert!(next.taken().is_empty());
    let late = input.consume(profile(STACKS, CPU, "a", 2)).await;
    assert!(late.unwrap_err().retryable);
}

#[tokio::test(start_paused = true)]
async fn while_windows_wait_senders_are_refused() {
    let refusing = std::iter::repeat_with(|| Err(Nack::unavailable("later"))).take(10_000);
    let running = running("{interval: 1s, top_functions: 0}", refusing);
    let mut refused = None;
    for time in 0..20 {
        let offered = running.offer(profile(STACKS, CPU, "a", time)).await;
        refused = refused.or(offered.err());
        sleep(Duration::from_secs(2)).await;
    }
    assert!(refused.unwrap().retryable);
}

#[tokio::test(start_paused = true)]
async fn levels_are_sum_of_last_values_of_instances() {
    let running = running("{}", []);
    let used = ("inuse_space", "bytes");
    for (stacks, instance, time) in [
        ("f 100\n", "a", 1),
        ("f 70\ng 5\n", "a", 3),
        ("f 999\n", "a", 2),
        ("f 1000\n", "b", 1),
    ] {
        running
            .offer(profile(stacks, used, instance, time))
            .await
            .unwrap();
    }
    let points = running.points().await;
    assert_eq!(one(&points, "profile.memory.used"), 1075.0);
    let functions = of(&points, "profile.function.self.memory.used");
    assert_eq!(
        functions,
        [("name=f".to_owned(), 1070.0), ("name=g".to_owned(), 5.0)]
    );
}

#[tokio::test(start_paused = true)]
async fn cumulative_values_count_from_the_second_profile() {
    let running = running("interval: 10s", []);
    let allocated = ("alloc_space", "bytes");
    for (stacks, instance, time) in [
        ("f 100\n", "a", 1),
        ("f 5000\n", "b", 1),
        ("f 110\ng 5\n", "a", 2),
        // Another process.
        ("f 7\n", "a", 3),
    ] {
        running
            .offer(profile(stacks, allocated, instance, time))
            .await
            .unwrap();
    }
    let points = running.points().await;
    assert_eq!(one(&points, "profile.memory.allocated"), 22.0);
}

fn spans(service: &str, kinds: &[i32]) -> Batch {
    let span = |kind: &i32| Span {
        kind: *kind,
        ..Span::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource {
                attributes: vec![text("service.name", service), text("host.name", "h")],
                ..Resource::default()
            }),
            scope_spans: vec![ScopeSpans {
                spans: kinds.iter().map(span).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    Batch::new(
        Signal::Traces,
        kinds.len(),
        bytes::Bytes::from(request.encode_to_vec()),
    )
}

fn durations(count: u64, temporality: i32) -> Batch {
    let point = metrics::HistogramDataPoint {
        count,
        start_time_unix_nano: 1,
        ..Default::default()
    };
    of_scopes(&[("", "http.server.request.duration", point)], temporality)
}

fn of_scopes(all: &[(&str, &str, metrics::HistogramDataPoint)], temporality: i32) -> Batch {
    let metric = |name: &str, point: &metrics::HistogramDataPoint| metrics::Metric {
        name: name.to_owned(),
        data: Some(Data::Histogram(metrics::Histogram {
            data_points: vec![point.clone()],
            aggregation_temporality: temporality,
        })),
        ..Default::default()
    };
    let scope = |(scope, name, point): &(&str, &str, _)| metrics::ScopeMetrics {
        scope: Some(InstrumentationScope {
            name: (*scope).to_owned(),
            ..Default::default()
        }),
        metrics: vec![metric(name, point)],
        ..Default::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![metrics::ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![text("service.name", "shop")],
                ..Resource::default()
            }),
            scope_metrics: all.iter().map(scope).collect(),
            ..Default::default()
        }],
    };
    Batch::new(
        Signal::Metrics,
        all.len(),
        bytes::Bytes::from(request.encode_to_vec()),
    )
}

#[tokio::test(start_paused = true)]
async fn cost_per_request_is_total_divided_by_requests() {
    let running = running("top_functions: 0", []);
    running
        .offer(profile("f 3000000000\n", CPU, "a", 1))
        .await
        .unwrap();
    // Server, client, consumer, internal.
    running.offer(spans("shop", &[2, 3, 5, 1])).await.unwrap();
    running.offer(spans("bank", &[2])).await.unwrap();
    running.offer(spans("idle", &[1])).await.unwrap();
    let points = running.points().await;
    let requests = points
        .iter()
        .filter(|point| point.name == "profile.requests");
    let requests: Vec<_> = requests
        .map(|point| (&*point.resource, point.value))
        .collect();
    assert_eq!(requests, [("name=bank", 1.0), ("name=shop", 2.0)]);
    assert_eq!(one(&points, "profile.request.cpu.time"), 1.5);
}

#[tokio::test(start_paused = true)]
async fn counters_of_requests_win_over_spans() {
    let running = running("top_functions: 0", []);
    running
        .offer(profile("f 3000000000\n", CPU, "a", 1))
        .await
        .unwrap();
    running.offer(spans("shop", &[2])).await.unwrap();
    // The start of the first cumulative point is unknown.
    for count in [100, 104] {
        running.offer(durations(count, 2)).await.unwrap();
    }
    running.offer(durations(2, 1)).await.unwrap();
    let points = running.points().await;
    assert_eq!(one(&points, "profile.requests"), 6.0);
    assert_eq!(one(&points, "profile.request.cpu.time"), 0.5);
}

/// A point of the count since the start, at that time.
fn at(time: u64, count: u64, flags: u32) -> metrics::HistogramDataPoint {
    metrics::HistogramDataPoint {
        count,
        flags,
        start_time_unix_nano: 1,
        time_unix_nano: time,
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn requests_count_once_in_all_cases() {
    const NEW: &str = "http.server.request.duration";
    const OLD: &str = "http.server.duration";
    let running = running("top_functions: 0", []);
    for all in [
        // Two scopes count separately; the metric with the older name repeats the same requests.
        &[
            ("a", NEW, at(10, 100, 0)),
            ("b", NEW, at(10, 7, 0)),
            ("a", OLD, at(10, 100, 0)),
        ][..],
        &[
            ("a", NEW, at(20, 105, 0)),
            ("b", NEW, at(20, 8, 0)),
            ("a", OLD, at(20, 105, 0)),
        ],
        // A late point.
        &[("a", NEW, at(15, 103, 0))],
        // The end of a series.
        &[("b", NEW, at(30, 0, 1))],
        &[("a", NEW, at(40, 106, 0))],
    ] {
        running.offer(of_scopes(all, 2)).await.unwrap();
    }
    // For services that have only the older metric, that metric counts.
    running
        .offer(of_scopes(&[("a", "rpc.server.duration", at(1, 3, 0))], 1))
        .await
        .unwrap();
    assert_eq!(one(&running.points().await, "profile.requests"), 10.0);
}

#[tokio::test(start_paused = true)]
async fn resources_beyond_the_limit_are_one() {
    let running = running(
        "{max_resources: 2, resource_attributes: [service.instance.id], top_functions: 0}",
        [],
    );
    for instance in ["a", "b", "c", "d", "a"] {
        running
            .offer(profile("f 1000000000\n", CPU, instance, 1))
            .await
            .unwrap();
    }
    let points = running.points().await;
    let cpu = points
        .iter()
        .filter(|point| point.name == "profile.cpu.time");
    let cpu: Vec<_> = cpu.map(|point| (&*point.resource, point.value)).collect();
    let mut sorted = cpu.clone();
    sorted.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(
        sorted,
        [("id=a", 2.0), ("id=b", 1.0), ("overflow=true", 2.0)]
    );
}

#[tokio::test(start_paused = true)]
async fn too_large_window_ends_early() {
    let running = running("{interval: 1h, max_bytes: 64KiB}", []);
    let mut stacks = String::new();
    for at in 0..2_000 {
        stacks.push_str(&format!("main;function_{at} 1\n"));
    }
    running.offer(profile(&stacks, CPU, "a", 1)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(running.next.taken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unnamed_frames_and_unknown_profiles_are_counted() {
    let running = running("{}", []);
    running
        .offer(profile("a;b 1\na 2\n", ("sheep", "count"), "a", 1))
        .await
        .unwrap();
    let request = ExportProfilesServiceRequest::default();
    let empty = Batch::new(
        Signal::Profiles,
        0,
        bytes::Bytes::from(request.encode_to_vec()),
    );
    running.offer(empty).await.unwrap();
    let points = running.points().await;
    assert_eq!(one(&points, "profile.received.samples"), 2.0);
    let frames = of(&points, "profile.received.frames");
    assert_eq!(
        frames,
        [
            ("symbolized=true".to_owned(), 3.0),
            ("symbolized=false".to_owned(), 0.0)
        ]
    );
    assert!(
        points
            .iter()
            .all(|point| point.name.starts_with("profile.received."))
    );
}

#[tokio::test(start_paused = true)]
async fn broken_dictionary_does_not_affect_other_profiles() {
    let running = running("{}", []);
    running
        .offer(profile("f 1000000000\n", CPU, "a", 1))
        .await
        .unwrap();
    // A sample type whose string is missing in the dictionary.
    let broken = [0x0a, 0x08, 0x12, 0x06, 0x12, 0x04, 0x0a, 0x02, 0x08, 0x63];
    let broken = Batch::new(Signal::Profiles, 0, bytes::Bytes::copy_from_slice(&broken));
    let refused = running.offer(broken).await.unwrap_err();
    assert!(!refused.retryable);
    assert_eq!(one(&running.points().await, "profile.cpu.time"), 1.0);
}
