use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::profiles::v1development::{
    Profile, ProfilesDictionary, ResourceProfiles, Sample, ScopeProfiles, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;

use super::Config;
use crate::component::{BuildContext, Host, ProcessorConfig, Stage};
use crate::pipeline::Consumer;
use crate::pipeline::Next;
use crate::pipeline::account::Account;
use crate::pipeline::batch::{Batch, Nack, Progress};
use crate::pipeline::testing::Scripted;
use futures_util::future::BoxFuture;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// A processor in front of a double, with its metrics.
struct Bench {
    dedup: Arc<dyn Consumer>,
    next: Arc<Scripted>,
    metrics: PrometheusHandle,
    host: Host,
}

impl Bench {
    fn new(signal: Signal) -> Self {
        Bench::before(signal, Scripted::new([]))
    }

    fn before(signal: Signal, next: Arc<Scripted>) -> Self {
        Bench::with(&Config::default(), signal, next, 1 << 30)
    }

    fn with(config: &Config, signal: Signal, next: Arc<Scripted>, budget: usize) -> Self {
        let host = Host {
            budget: Budget::new(budget),
            ..Host::for_tests()
        };
        Bench::within(&host, "", config, signal, next)
    }

    /// Creates the processor in a pipeline of a process.
    fn within(
        host: &Host,
        pipeline: &str,
        config: &Config,
        signal: Signal,
        next: Arc<Scripted>,
    ) -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = recorder.handle();
        let dedup = metrics::with_local_recorder(&recorder, || {
            let cx = BuildContext {
                pipeline: pipeline.to_owned(),
                ..host.context(&"dedup".parse().unwrap())
            };
            let Ok(Stage::Buffering(connect)) = config.build(&cx, signal) else {
                panic!("not a stage that waits");
            };
            let account = Account::of_pipeline("test");
            let consumer = next.clone();
            connect(Next { consumer, account }).0
        });
        Bench {
            dedup,
            next,
            metrics,
            host: host.clone(),
        }
    }

    fn metric(&self, name: &str, label: &str) -> u64 {
        let page = self.metrics.render();
        let mut lines = page.lines().filter(|line| line.starts_with(name));
        let line = lines.find(|line| line.contains(label)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn dropped(&self) -> u64 {
        self.metric("tributary_pipeline_dropped_items", "duplicate")
    }

    /// Returns the accepted requests, each encoded as a whole.
    fn requests(&self) -> Vec<Bytes> {
        let taken = self.next.batches().into_iter();
        taken.map(|batch| batch.into_wire().to_bytes()).collect()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}

fn resource(name: &str, rack: &str) -> Option<Resource> {
    Some(Resource {
        attributes: vec![text("service.name", name), text("rack.identity", rack)],
        ..Resource::default()
    })
}

/// Items, one for each number, of a resource, at a time (0: without).
fn items(signal: Signal, numbers: &[u64], resource: Option<Resource>, time: u64) -> Batch {
    let name = |number: &u64| format!("item {number}");
    let encoded = match signal {
        Signal::Traces => {
            let span = |number: &u64| Span {
                // Spans without ids and without a time are never dropped, so a time comes with ids.
                trace_id: vec![1; if time == 0 { 0 } else { 16 }],
                span_id: vec![1; 8],
                name: name(number),
                start_time_unix_nano: time,
                ..Span::default()
            };
            let scope_spans = vec![ScopeSpans {
                spans: numbers.iter().map(span).collect(),
                ..ScopeSpans::default()
            }];
            let entry = ResourceSpans {
                resource,
                scope_spans,
                ..ResourceSpans::default()
            };
            let resource_spans = vec![entry];
            ExportTraceServiceRequest { resource_spans }.encode_to_vec()
        }
        Signal::Logs => {
            let record = |number: &u64| LogRecord {
                observed_time_unix_nano: time,
                event_name: name(number),
                ..LogRecord::default()
            };
            let scope_logs = vec![ScopeLogs {
                log_records: numbers.iter().map(record).collect(),
                ..ScopeLogs::default()
            }];
            let entry = ResourceLogs {
                resource,
                scope_logs,
                ..ResourceLogs::default()
            };
            let resource_logs = vec![entry];
            ExportLogsServiceRequest { resource_logs }.encode_to_vec()
        }
        Signal::Metrics => {
            let point = |number: &u64| NumberDataPoint {
                attributes: vec![text("name", &name(number))],
                time_unix_nano: time,
                ..NumberDataPoint::default()
            };
            let data_points = numbers.iter().map(point).collect();
            let metric = Metric {
                name: "depth".to_owned(),
                data: Some(Data::Gauge(Gauge { data_points })),
                ..Metric::default()
            };
            let scope_metrics = vec![ScopeMetrics {
                metrics: vec![metric],
                ..ScopeMetrics::default()
            }];
            let entry = ResourceMetrics {
                resource,
                scope_metrics,
                ..ResourceMetrics::default()
            };
            let resource_metrics = vec![entry];
            ExportMetricsServiceRequest { resource_metrics }.encode_to_vec()
        }
        Signal::Profiles => {
            let profile = |number: &u64| Profile {
                sample_type: Some(ValueType {
                    type_strindex: 1,
                    unit_strindex: 2,
                }),
                samples: vec![Sample {
                    values: vec![i64::try_from(*number).unwrap()],
                    ..Sample::default()
                }],
                time_unix_nano: time,
                ..Profile::default()
            };
            let scope_profiles = vec![ScopeProfiles {
                profiles: numbers.iter().map(profile).collect(),
                ..ScopeProfiles::default()
            }];
            let entry = ResourceProfiles {
                resource,
                scope_profiles,
                ..ResourceProfiles::default()
            };
            ExportProfilesServiceRequest {
                resource_profiles: vec![entry],
                dictionary: Some(dictionary()),
            }
            .encode_to_vec()
        }
    };
    Batch::new(signal, numbers.len(), Bytes::from(encoded))
}

fn dictionary() -> ProfilesDictionary {
    ProfilesDictionary {
        mapping_table: vec![Default::default()],
        location_table: vec![Default::default()],
        function_table: vec![Default::default()],
        link_table: vec![Default::default()],
        string_table: ["", "samples", "count"].map(str::to_owned).to_vec(),
        attribute_table: vec![Default::default()],
        stack_table: vec![Default::default()],
    }
}

fn plain(signal: Signal, numbers: &[u64]) -> Batch {
    items(signal, numbers, resource("shop", "one"), 5)
}

#[tokio::test]
async fn accepted_item_is_dropped_as_duplicate() {
    for signal in Signal::ALL {
        let bench = Bench::new(signal);
        bench
            .dedup
            .consume(plain(signal, &[1, 2, 3]))
            .await
            .unwrap();
        for again in 1..3 {
            bench
                .dedup
                .consume(plain(signal, &[1, 2, 3]))
                .await
                .unwrap();
            assert_eq!((bench.next.taken(), bench.dropped()), (vec![3], 3 * again));
        }
        let duplicates = "tributary_processor_dedup_duplicate_items";
        assert_eq!(bench.metric(duplicates, "known_by=\"request\""), 6);
        // Another request with one known and one new item.
        bench.dedup.consume(plain(signal, &[2, 4])).await.unwrap();
        assert_eq!(
            (bench.next.taken(), bench.dropped()),
            (vec![3, 1], 7),
            "{signal}"
        );
        assert_eq!(bench.metric(duplicates, "known_by=\"item\""), 1);
        let left = bench.requests().pop().unwrap();
        assert_eq!(tributary_otlp::validate(signal, &left), Ok(1));
        let alone = plain(signal, &[4]).into_wire().to_bytes();
        assert_eq!(contents(signal, &left), contents(signal, &alone));
        if signal != Signal::Profiles {
            assert_eq!(left, alone);
        }
    }
}

#[tokio::test]
async fn refused_item_passes_on_retry() {
    for signal in Signal::ALL {
        let refusals = [Err(Nack::unavailable("full")), Err(Nack::invalid("bad"))];
        let bench = Bench::before(signal, Scripted::new(refusals));
        for _ in 0..2 {
            bench
                .dedup
                .consume(plain(signal, &[1, 2]))
                .await
                .unwrap_err();
        }
        bench.dedup.consume(plain(signal, &[1, 2])).await.unwrap();
        assert_eq!((bench.next.taken(), bench.dropped()), (vec![2], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_delivery_leaves_no_state() {
    let bench = Bench::before(Signal::Logs, Scripted::slow(Duration::from_secs(10)));
    let first = bench.dedup.consume(plain(Signal::Logs, &[1]));
    let second = Duration::from_secs(1);
    tokio::time::timeout(second, first).await.unwrap_err();
    bench
        .dedup
        .consume(plain(Signal::Logs, &[1]))
        .await
        .unwrap();
    assert_eq!((bench.next.taken(), bench.dropped()), (vec![1], 0));
}

#[tokio::test(start_paused = true)]
async fn duplicate_of_item_in_flight_waits_for_outcome() {
    for (answer, outcome) in [
        (Ok(()), (vec![1], 1)),
        (Err(Nack::unavailable("full")), (vec![1], 0)),
    ] {
        let accepted = answer.is_ok();
        let next = Scripted::slow_then(Duration::from_secs(10), [answer]);
        let bench = Bench::before(Signal::Traces, next);
        let start = tokio::time::Instant::now();
        let both = join_all((0..2).map(|_| bench.dedup.consume(plain(Signal::Traces, &[1])))).await;
        assert_eq!(both[0].is_ok(), accepted);
        assert!(both[1].is_ok());
        // The second delivery was offered after the refusal of the first, not concurrently.
        let seconds = if accepted { 10 } else { 20 };
        assert_eq!(start.elapsed().as_secs(), seconds);
        assert_eq!((bench.next.taken(), bench.dropped()), outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn cyclically_overlapping_deliveries_do_not_deadlock() {
    let bench = Bench::before(Signal::Logs, Scripted::slow(Duration::from_secs(1)));
    let batches = [[1, 2], [2, 3], [3, 1]].map(|numbers| plain(Signal::Logs, &numbers));
    let all = join_all(batches.map(|batch| bench.dedup.consume(batch))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!((bench.next.taken(), bench.dropped()), (vec![2, 1], 3));
}

#[tokio::test]
async fn item_without_id_and_time_is_never_dropped() {
    for signal in Signal::ALL {
        let bench = Bench::new(signal);
        for _ in 0..3 {
            let undated = items(signal, &[1, 2], resource("shop", "one"), 0);
            bench.dedup.consume(undated).await.unwrap();
        }
        assert_eq!(
            (bench.next.taken(), bench.dropped()),
            (vec![2, 2, 2], 0),
            "{signal}"
        );
    }
}

#[tokio::test]
async fn batch_without_duplicates_passes_unchanged() {
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        let bench = Bench::new(signal);
        let mut batch = plain(signal, &[1, 2]);
        batch.metadata = Some(Arc::default());
        batch.progress = Some(Arc::<Progress>::default());
        batch.hold(bench.host.budget.acquire(1000).unwrap());
        let bytes = batch.wire().parts()[0].clone();
        bench.dedup.consume(batch).await.unwrap();
        let taken = bench.next.batches();
        assert!(taken[0].metadata.is_some() && taken[0].progress.is_some());
        assert_eq!(taken[0].wire().parts()[0].as_ptr(), bytes.as_ptr());
        assert!(bench.host.budget.used() >= 1000);
    }
}

#[tokio::test]
async fn different_resource_or_time_is_no_duplicate() {
    for signal in Signal::ALL {
        let bench = Bench::new(signal);
        for (name, time) in [("shop", 5), ("shop", 6), ("till", 5)] {
            let batch = items(signal, &[1], resource(name, "one"), time);
            bench.dedup.consume(batch).await.unwrap();
        }
        // Spans are known by their ids alone, and these are the same.
        let passed = if signal == Signal::Traces { 2 } else { 3 };
        assert_eq!(bench.next.taken().len(), passed, "{signal}");
    }
}

#[tokio::test]
async fn ignored_attributes_and_order_do_not_matter() {
    for signal in Signal::ALL {
        let config = Config {
            ignore_resource_attributes: vec!["rack.identity".to_owned()],
            ..Config::default()
        };
        let bench = Bench::with(&config, signal, Scripted::new([]), 1 << 30);
        let mut turned = resource("shop", "two");
        turned.as_mut().unwrap().attributes.reverse();
        for resource in [resource("shop", "one"), turned] {
            let batch = items(signal, &[1], resource, 5);
            bench.dedup.consume(batch).await.unwrap();
        }
        assert_eq!(
            (bench.next.taken(), bench.dropped()),
            (vec![1], 1),
            "{signal}"
        );
    }
}

#[tokio::test]
async fn equal_items_need_identity_to_be_duplicates() {
    for (signal, pass) in [
        (Signal::Traces, 1),
        (Signal::Metrics, 1),
        (Signal::Logs, 2),
        (Signal::Profiles, 1),
    ] {
        let bench = Bench::new(signal);
        bench.dedup.consume(plain(signal, &[7, 7])).await.unwrap();
        assert_eq!(bench.next.taken(), [pass], "{signal}");
        assert_eq!(bench.dropped(), 2 - pass as u64);
        // All later deliveries are recognized, in any combination.
        for again in [&[7][..], &[7, 7], &[7, 8]] {
            bench.dedup.consume(plain(signal, again)).await.unwrap();
        }
        assert_eq!(bench.next.taken(), [pass, 1], "{signal}");
        // Where items are distinct, one of three is new.
        bench
            .dedup
            .consume(plain(signal, &[7, 7, 7]))
            .await
            .unwrap();
        let third = usize::from(signal == Signal::Logs);
        assert_eq!(bench.next.taken().iter().sum::<usize>(), pass + 1 + third);
    }
}

#[tokio::test]
async fn request_merged_with_its_duplicate_is_recognized() {
    for (signal, pass) in [(Signal::Traces, 1), (Signal::Metrics, 1), (Signal::Logs, 2)] {
        let bench = Bench::new(signal);
        let one = plain(signal, &[7, 7]).wire().parts()[0].clone();
        let both = Bytes::from([one.clone(), one].concat());
        bench
            .dedup
            .consume(Batch::new(signal, 4, both))
            .await
            .unwrap();
        assert_eq!(bench.next.taken(), [pass], "{signal}");
    }
}

#[tokio::test]
async fn profile_id_survives_later_edits() {
    let first = Bench::new(Signal::Profiles);
    first
        .dedup
        .consume(plain(Signal::Profiles, &[1, 2]))
        .await
        .unwrap();
    let filled = first.requests().pop().unwrap();
    let mut decoded = ExportProfilesServiceRequest::decode(filled.clone()).unwrap();
    let profiles = &mut decoded.resource_profiles[0].scope_profiles[0].profiles;
    assert!(
        profiles
            .iter()
            .all(|profile| profile.profile_id.len() == 16)
    );
    assert_ne!(profiles[0].profile_id, profiles[1].profile_id);
    // The next hop has received one item with its id, and receives both without ids.
    profiles.truncate(1);
    let next = Bench::new(Signal::Profiles);
    let one = Batch::new(Signal::Profiles, 1, Bytes::from(decoded.encode_to_vec()));
    next.dedup.consume(one).await.unwrap();
    next.dedup
        .consume(plain(Signal::Profiles, &[1, 2]))
        .await
        .unwrap();
    assert_eq!((next.next.taken(), next.dropped()), (vec![1, 1], 1));
    // The same ids with another time are duplicates, because the id decides.
    let mut again = ExportProfilesServiceRequest::decode(filled).unwrap();
    again.resource_profiles[0].scope_profiles[0].profiles[1].time_unix_nano = 77;
    let again = Batch::new(Signal::Profiles, 2, Bytes::from(again.encode_to_vec()));
    next.dedup.consume(again).await.unwrap();
    assert_eq!((next.next.taken(), next.dropped()), (vec![1, 1], 3));
}

#[tokio::test]
async fn profiles_of_several_sample_types_may_share_an_id() {
    let bench = Bench::new(Signal::Profiles);
    let decoded = |kinds: &[i32]| {
        let numbers: Vec<u64> = kinds.iter().map(|_| 1).collect();
        let bytes = plain(Signal::Profiles, &numbers).into_wire().to_bytes();
        let mut request = ExportProfilesServiceRequest::decode(bytes).unwrap();
        let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
        for (profile, kind) in profiles.iter_mut().zip(kinds) {
            profile.profile_id = vec![9; 16];
            profile.sample_type.as_mut().unwrap().type_strindex = *kind;
        }
        Batch::new(
            Signal::Profiles,
            kinds.len(),
            Bytes::from(request.encode_to_vec()),
        )
    };
    bench.dedup.consume(decoded(&[1, 2])).await.unwrap();
    bench.dedup.consume(decoded(&[2, 1, 0])).await.unwrap();
    assert_eq!((bench.next.taken(), bench.dropped()), (vec![2, 1], 2));
}

#[tokio::test]
async fn unreadable_profiles_pass_unchanged() {
    let bench = Bench::new(Signal::Profiles);
    let bytes = plain(Signal::Profiles, &[1]).into_wire().to_bytes();
    let mut request = ExportProfilesServiceRequest::decode(bytes).unwrap();
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.samples[0].stack_index = 99;
    for _ in 0..2 {
        let bytes = Bytes::from(request.encode_to_vec());
        let batch = Batch::new(Signal::Profiles, 1, bytes.clone());
        bench.dedup.consume(batch).await.unwrap();
        assert_eq!(bench.requests().pop(), Some(bytes));
    }
    assert_eq!(bench.next.taken(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn after_the_window_the_same_passes_again() {
    let config = Config {
        window: tributary_config::units::Duration::secs(60),
        ..Config::default()
    };
    let bench = Bench::with(&config, Signal::Logs, Scripted::new([]), 1 << 30);
    for (seconds, taken) in [(0, 1), (59, 1), (2, 2)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        bench
            .dedup
            .consume(plain(Signal::Logs, &[1]))
            .await
            .unwrap();
        assert_eq!(bench.next.taken().len(), taken);
    }
}

#[tokio::test]
async fn items_without_memory_pass_and_are_counted() {
    let numbers: Vec<u64> = (0..100).collect();
    for signal in Signal::ALL {
        let config = Config::default();
        let bench = Bench::with(&config, signal, Scripted::new([]), 1 << 30);
        bench.dedup.consume(plain(signal, &[1])).await.unwrap();
        let free = (1 << 30) - bench.host.budget.used();
        let held = bench.host.budget.acquire(free - 1000).unwrap();
        for _ in 0..2 {
            bench.dedup.consume(plain(signal, &numbers)).await.unwrap();
        }
        assert_eq!(bench.next.taken(), [1, 100, 100]);
        let unexamined = "tributary_processor_dedup_unexamined_items";
        assert_eq!(bench.metric(unexamined, ""), 200);
        drop(held);
        bench.dedup.consume(plain(signal, &numbers)).await.unwrap();
        assert_eq!(bench.next.taken(), [1, 100, 100, 99]);
    }
}

#[tokio::test]
async fn remembered_keys_take_budget_until_shutdown() {
    let bench = Bench::new(Signal::Logs);
    let numbers: Vec<u64> = (0..10_000).collect();
    bench
        .dedup
        .consume(plain(Signal::Logs, &numbers))
        .await
        .unwrap();
    let used = bench.host.budget.used();
    assert!((400_000..450_000).contains(&used), "{used}");
    let remembered = "tributary_processor_dedup_remembered_items";
    // The request as a whole is known, too.
    assert_eq!(bench.metric(remembered, ""), 10_001);
    let Bench {
        dedup,
        metrics,
        host,
        ..
    } = bench;
    drop(dedup);
    assert_eq!(host.budget.used(), 0);
    let page = metrics.render();
    let line = page.lines().find(|line| line.starts_with(remembered));
    assert!(line.unwrap().ends_with(" 0"));
}

/// Numbers in groups: each group is a request, which the next stage may refuse the first time.
fn deliveries() -> impl Strategy<Value = Vec<(Vec<u64>, bool)>> {
    let numbers = proptest::collection::btree_set(0..20_u64, 1..10)
        .prop_map(|numbers| numbers.into_iter().collect::<Vec<_>>());
    proptest::collection::vec((numbers, any::<bool>()), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_items_are_grouped_and_refused_each_arrives_once(
        deliveries in deliveries(),
        joined in any::<bool>(),
    ) {
        for signal in Signal::ALL {
            let refusals = deliveries.iter().map(|(_, refused)| match refused {
                true => Err(Nack::unavailable("full")),
                false => Ok(()),
            });
            let bench = Bench::before(signal, Scripted::new(refusals));
            let mut sent = std::collections::BTreeSet::new();
            for (numbers, _) in &deliveries {
                let batch = || match numbers.split_first() {
                    Some((first, others)) if joined && signal != Signal::Profiles => {
                        let mut batch = plain(signal, &[*first]);
                        batch.append(plain(signal, others));
                        batch
                    }
                    _ => plain(signal, numbers),
                };
                sent.extend(numbers.iter().copied());
                while now(bench.dedup.consume(batch())).is_err() {}
            }
            let all: Vec<u64> = sent.iter().copied().collect();
            prop_assert_eq!(bench.next.taken().iter().sum::<usize>(), all.len());
            let requests = bench.requests();
            let arrived = requests.iter().flat_map(|request| contents(signal, request));
            let mut arrived: Vec<String> = arrived.collect();
            arrived.sort_unstable();
            let mut expected = contents(signal, &plain(signal, &all).into_wire().to_bytes());
            expected.sort_unstable();
            prop_assert_eq!(arrived, expected);
            for request in bench.requests() {
                prop_assert!(tributary_otlp::validate(signal, &request).is_ok());
            }
        }
    }
}

/// Returns the outcome of a future that completes at once.
fn now(delivery: BoxFuture<'_, Result<(), Nack>>) -> Result<(), Nack> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(delivery)
}

/// The items of a request, as text, without ids that were filled in.
fn contents(signal: Signal, request: &[u8]) -> Vec<String> {
    macro_rules! all {
        ($request:ty, $resources:ident, $scopes:ident, $items:ident) => {
            <$request>::decode(request)
                .unwrap()
                .$resources
                .into_iter()
                .flat_map(|resource| resource.$scopes)
                .flat_map(|scope| scope.$items)
        };
    }
    match signal {
        Signal::Traces => all!(
            ExportTraceServiceRequest,
            resource_spans,
            scope_spans,
            spans
        )
        .map(|span| format!("{span:?}"))
        .collect(),
        Signal::Logs => all!(
            ExportLogsServiceRequest,
            resource_logs,
            scope_logs,
            log_records
        )
        .map(|record| format!("{record:?}"))
        .collect(),
        Signal::Metrics => all!(
            ExportMetricsServiceRequest,
            resource_metrics,
            scope_metrics,
            metrics
        )
        .flat_map(|metric| match metric.data {
            Some(Data::Gauge(gauge)) => gauge.data_points,
            _ => Vec::new(),
        })
        .map(|point| format!("{point:?}"))
        .collect(),
        Signal::Profiles => all!(
            ExportProfilesServiceRequest,
            resource_profiles,
            scope_profiles,
            profiles
        )
        .map(|profile| format!("{:?} {}", profile.samples, profile.time_unix_nano))
        .collect(),
    }
}

#[tokio::test]
async fn reload_keeps_delivered_keys() {
    for signal in Signal::ALL {
        let host = Host::for_tests();
        let (config, name) = (Config::default(), format!("{signal}/reloaded"));
        let of = |pipeline: &str, config: &Config| {
            Bench::within(&host, pipeline, config, signal, Scripted::new([]))
        };
        let before = of(&name, &config);
        before.dedup.consume(plain(signal, &[1])).await.unwrap();
        let after = of(&name, &config);
        drop(before);
        after.dedup.consume(plain(signal, &[1])).await.unwrap();
        assert_eq!(after.next.taken(), [0; 0], "{signal}");
        // Another pipeline, or other ignored attributes, have a state of their own.
        let elsewhere = of(&format!("{signal}/other"), &config);
        let ignoring = Config {
            ignore_resource_attributes: vec!["rack.identity".to_owned()],
            ..Config::default()
        };
        for other in [elsewhere, of(&name, &ignoring)] {
            other.dedup.consume(plain(signal, &[1])).await.unwrap();
            assert_eq!(other.next.taken(), [1], "{signal}");
        }
        // The state is removed when it is no longer needed.
        drop(after);
        assert_eq!(host.budget.used(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn reload_keeps_deliveries_in_flight() {
    let host = Host::for_tests();
    let of = |next| Bench::within(&host, "logs/slow", &Config::default(), Signal::Logs, next);
    let before = of(Scripted::slow(Duration::from_secs(60)));
    let slow = before.dedup.clone();
    let delivery = tokio::spawn(async move { slow.consume(plain(Signal::Logs, &[1])).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = of(Scripted::new([]));
    after
        .dedup
        .consume(plain(Signal::Logs, &[1]))
        .await
        .unwrap();
    assert!(delivery.await.unwrap().is_ok());
    assert_eq!(after.next.taken(), [0; 0]);
}

#[tokio::test]
async fn profiles_without_samples_reserve_memory_first() {
    let signal = Signal::Profiles;
    let mut request =
        ExportProfilesServiceRequest::decode(plain(signal, &[1]).into_wire().to_bytes()).unwrap();
    let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
    profiles.resize(10_000, Profile::default());
    let bytes = Bytes::from(request.encode_to_vec());
    let bench = Bench::with(&Config::default(), signal, Scripted::new([]), 1 << 20);
    for _ in 0..2 {
        let batch = Batch::new(signal, 1, bytes.clone());
        bench.dedup.consume(batch).await.unwrap();
    }
    assert_eq!(bench.next.taken(), [1, 1]);
    let unexamined = "tributary_processor_dedup_unexamined_items";
    assert_eq!(bench.metric(unexamined, ""), 2);
}
