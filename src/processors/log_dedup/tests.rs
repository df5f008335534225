use std::sync::Arc;
use std::time::Duration as StdDuration;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::time::Instant;

use super::count::Output;
use super::fields::{NoPath, Path, without};
use super::*;
use crate::component::Host;
use crate::pipeline::account::Account;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::testing::Scripted;
use crate::pipeline::{Component, Consumer, Next};
use crate::processors::dedup;
use tributary_memory::Budget;

struct Fixture {
    consumer: Arc<dyn Consumer>,
    component: Box<dyn Component>,
    exporter: Arc<Scripted>,
    budget: Arc<Budget>,
}

fn fixture(config: &dyn ProcessorConfig, exporter: Arc<Scripted>) -> Fixture {
    let host = Host::for_tests();
    let cx = host.context(&"log_dedup".parse().unwrap());
    let Stage::Buffering(connect) = config.build(&cx, Signal::Logs).unwrap() else {
        panic!("counting takes time");
    };
    let next = Next {
        consumer: exporter.clone(),
        account: Account::of_pipeline("logs"),
    };
    let (consumer, mut component) = connect(next);
    component.start();
    Fixture {
        consumer,
        component,
        exporter,
        budget: host.budget.clone(),
    }
}

fn text(value: &str) -> AnyValue {
    AnyValue {
        value: Some(Value::StringValue(value.to_owned())),
    }
}

fn pair(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
        ..KeyValue::default()
    }
}

fn map(pairs: Vec<KeyValue>) -> AnyValue {
    AnyValue {
        value: Some(Value::KvlistValue(KeyValueList { values: pairs })),
    }
}

fn record(body: &str, attributes: &[(&str, &str)]) -> LogRecord {
    LogRecord {
        body: Some(text(body)),
        severity_number: 9,
        attributes: attributes
            .iter()
            .map(|(key, value)| pair(key, text(value)))
            .collect(),
        ..LogRecord::default()
    }
}

/// Records of a resource, each with a time and a span of its own.
fn logs(service: &str, records: Vec<LogRecord>) -> Batch {
    let items = records.len();
    let own = |(at, mut record): (u64, LogRecord)| {
        record.time_unix_nano = 5 + at;
        record.span_id = at.to_be_bytes().to_vec();
        record
    };
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(Resource {
                attributes: vec![pair("service.name", text(service))],
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                log_records: (0..).zip(records).map(own).collect(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    Batch::new(Signal::Logs, items, Bytes::from(request.encode_to_vec()))
}

impl Fixture {
    async fn send(&self, service: &str, records: Vec<LogRecord>) -> Result<(), Nack> {
        self.consumer.consume(logs(service, records)).await
    }

    fn requests(&self) -> Vec<ExportLogsServiceRequest> {
        let taken = self.exporter.batches().into_iter().map(|batch| {
            let (items, bytes) = (batch.items(), batch.into_wire().to_bytes());
            assert_eq!(tributary_otlp::validate(Signal::Logs, &bytes), Ok(items));
            ExportLogsServiceRequest::decode(bytes).unwrap()
        });
        taken.collect()
    }

    /// Returns all accepted records.
    fn records(&self) -> Vec<LogRecord> {
        let resources = self.requests().into_iter();
        let resources = resources.flat_map(|request| request.resource_logs);
        let scopes = resources.flat_map(|resource| resource.scope_logs);
        scopes.flat_map(|scope| scope.log_records).collect()
    }

    /// Returns the bodies of all accepted records, sorted, with their counts.
    fn counts(&self) -> Vec<(String, i64)> {
        let count = |record: LogRecord| match (value(&record, "log_count"), record.body) {
            (Some(Value::IntValue(count)), Some(body)) => match body.value {
                Some(Value::StringValue(text)) => (text, count),
                other => (format!("{other:?}"), count),
            },
            other => panic!("no count: {other:?}"),
        };
        let mut counts: Vec<_> = self.records().into_iter().map(count).collect();
        counts.sort();
        counts
    }
}

fn value(record: &LogRecord, key: &str) -> Option<Value> {
    let mut attributes = record.attributes.iter();
    let found = attributes.find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

fn counted(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter()
        .map(|(body, count)| ((*body).to_owned(), *count))
        .collect()
}

async fn later(millis: u64) {
    tokio::time::sleep(StdDuration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn equal_records_become_one_with_count_and_times() {
    let f = fixture(&Config::default(), Scripted::new([]));
    let a = || record("a", &[("k", "v"), ("log_count", "before")]);
    f.send("s", vec![a(), record("b", &[]), a()]).await.unwrap();
    later(4000).await;
    f.send("s", vec![a()]).await.unwrap();
    later(5999).await;
    assert!(f.exporter.taken().is_empty());
    later(2).await;
    assert_eq!(f.counts(), counted(&[("a", 3), ("b", 1)]));
    let one = f.records().swap_remove(0);
    // Four seconds between the first and the last record, ten seconds until the emission.
    let nanos = StdDuration::from_nanos(one.time_unix_nano - one.observed_time_unix_nano);
    assert_eq!(nanos.as_secs(), 10);
    let time = |key| match value(&one, key) {
        Some(Value::StringValue(text)) => text.parse::<jiff::Timestamp>().unwrap(),
        other => panic!("{key} is {other:?}"),
    };
    let (first, last) = (
        time("first_observed_timestamp"),
        time("last_observed_timestamp"),
    );
    assert_eq!(last.as_second() - first.as_second(), 4);
    let observed = i64::try_from(one.observed_time_unix_nano / 1_000_000_000).unwrap();
    assert_eq!(first.as_second(), observed);
    // All other fields are those of the first record.
    assert_eq!(value(&one, "k"), Some(Value::StringValue("v".to_owned())));
    assert_eq!((one.attributes.len(), one.severity_number), (4, 9));
    assert_eq!(one.span_id, [0; 8]);
    assert!(f.component.idle());
    // The next interval begins with its first record.
    later(60_000).await;
    f.send("s", vec![a()]).await.unwrap();
    later(10_001).await;
    assert_eq!(f.counts(), counted(&[("a", 1), ("a", 3), ("b", 1)]));
}

#[tokio::test(start_paused = true)]
async fn records_differing_in_content_count_separately() {
    let f = fixture(&Config::default(), Scripted::new([]));
    let plain = || record("a", &[("x", "1"), ("y", "2")]);
    let mut turned = plain();
    turned.attributes.reverse();
    let mut severe = plain();
    severe.severity_number = 17;
    let mut event = plain();
    event.event_name = "e".to_owned();
    let other = record("a", &[("x", "1"), ("y", "3")]);
    f.send("s", vec![plain(), turned, severe, event, other])
        .await
        .unwrap();
    f.send("t", vec![plain()]).await.unwrap();
    f.send("s", vec![plain()]).await.unwrap();
    later(10_001).await;
    let all = [("a", 1), ("a", 1), ("a", 1), ("a", 1), ("a", 3)];
    assert_eq!(f.counts(), counted(&all));
    let resources = f.requests().swap_remove(0).resource_logs;
    assert_eq!(resources.len(), 2, "each resource once");
}

#[tokio::test(start_paused = true)]
async fn excluded_fields_are_neither_compared_nor_kept() {
    let config = Config {
        exclude_fields: ["body.at", "attributes.host\\.name", "attributes.src.ip"]
            .map(str::to_owned)
            .to_vec(),
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    let one = |unique: &str| LogRecord {
        body: Some(map(vec![pair("at", text(unique)), pair("m", text("x"))])),
        attributes: vec![
            pair("host.name", text(unique)),
            pair(
                "src",
                map(vec![pair("ip", text(unique)), pair("port", text("1"))]),
            ),
        ],
        ..LogRecord::default()
    };
    f.send("s", vec![one("1"), one("2")]).await.unwrap();
    later(10_001).await;
    let records = f.records();
    assert_eq!(records.len(), 1);
    assert_eq!(value(&records[0], "log_count"), Some(Value::IntValue(2)));
    assert_eq!(value(&records[0], "host.name"), None);
    let left = map(vec![pair("port", text("1"))]);
    assert_eq!(value(&records[0], "src"), left.value);
    assert_eq!(records[0].body, Some(map(vec![pair("m", text("x"))])));
}

#[tokio::test(start_paused = true)]
async fn included_fields_or_all_fields_are_compared() {
    let config = Config {
        include_fields: ["attributes.id", "attributes.name"]
            .map(str::to_owned)
            .to_vec(),
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    let records = vec![
        record("a", &[("id", "1")]),
        record("b", &[("id", "1"), ("z", "z")]),
        // The same value in another field.
        record("c", &[("name", "1")]),
        record("d", &[]),
        record("e", &[]),
    ];
    f.send("s", records).await.unwrap();
    later(10_001).await;
    assert_eq!(
        f.counts(),
        counted(&[("a", 2), ("c", 1), ("d", 1), ("e", 1)])
    );
}

#[tokio::test(start_paused = true)]
async fn counted_records_are_retried_until_accepted() {
    let busy = Err(Nack::unavailable("busy"));
    let f = fixture(&Config::default(), Scripted::new(vec![busy; 5]));
    f.send("s", vec![record("a", &[]), record("a", &[])])
        .await
        .unwrap();
    later(10_001).await;
    assert!(!f.component.idle());
    later(60_000).await;
    assert_eq!(f.counts(), counted(&[("a", 2)]));
    assert!(f.component.idle());
    drop(f.exporter.batches());
}

#[tokio::test(start_paused = true)]
async fn permanently_refused_record_is_dropped_alone() {
    let refuses = |batch: &Batch| {
        let bytes = batch.clone().into_wire().to_bytes();
        let bad = bytes.windows(3).any(|window| window == b"bad");
        bad.then(|| Nack::invalid("bad"))
    };
    let f = fixture(&Config::default(), Scripted::refusing(refuses));
    f.send(
        "s",
        ["a", "bad", "c"].map(|body| record(body, &[])).to_vec(),
    )
    .await
    .unwrap();
    later(60_000).await;
    assert_eq!(f.counts(), counted(&[("a", 1), ("c", 1)]));
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn memory_bound_ends_interval_early_without_loss() {
    let config = Config {
        max_bytes: ByteSize(64 << 10),
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    for at in 0..20 {
        let bodies = (0..100).map(|n| record(&format!("record {at} {n}"), &[]));
        f.send("s", bodies.collect()).await.unwrap();
        later(1).await;
    }
    assert!(
        !f.exporter.taken().is_empty(),
        "before the interval is over"
    );
    later(10_001).await;
    assert_eq!(f.counts().len(), 2000);
}

#[tokio::test(start_paused = true)]
async fn counted_records_hold_budget_until_sent() {
    let f = fixture(&Config::default(), Scripted::new([]));
    f.send("s", vec![record(&"long ".repeat(1000), &[])])
        .await
        .unwrap();
    assert!((5000..10_000).contains(&f.budget.used()));
    later(10_001).await;
    let taken: usize = f.exporter.batches().iter().map(Batch::bytes).sum();
    assert_eq!(f.budget.used(), taken);
}

#[tokio::test(start_paused = true)]
async fn blocked_next_stage_refuses_clients_and_is_reported() {
    let config = Config {
        interval: Duration::secs(1),
        ..Config::default()
    };
    let stopped = Scripted::refusing(|_| Some(Nack::unavailable("stopped")));
    let f = fixture(&config, stopped);
    let mut accepted = 0;
    let nack = loop {
        match f.send("s", vec![record("a", &[])]).await {
            Ok(()) => accepted += 1,
            Err(nack) => break nack,
        }
        later(1001).await;
        assert!(accepted < 100);
    };
    assert!(nack.retryable);
    let deadline = Instant::now() + StdDuration::from_secs(1);
    assert_eq!(f.component.shutdown(deadline).await.items, accepted);
}

#[tokio::test(start_paused = true)]
async fn shutdown_sends_counted_and_refuses_new_records() {
    let f = fixture(&Config::default(), Scripted::new([]));
    f.send("s", vec![record("a", &[]), record("a", &[])])
        .await
        .unwrap();
    let deadline = Instant::now() + StdDuration::from_secs(1);
    assert_eq!(f.component.shutdown(deadline).await.items, 0);
    assert_eq!(f.exporter.taken(), [1]);
    let late = f.consumer.consume(logs("s", vec![record("b", &[])]));
    assert!(late.await.unwrap_err().retryable);
}

#[tokio::test(start_paused = true)]
async fn replaced_processor_flushes_at_once() {
    let f = fixture(&Config::default(), Scripted::new([]));
    f.send("s", vec![record("a", &[])]).await.unwrap();
    f.component.flush();
    later(1).await;
    assert_eq!(f.exporter.taken(), [1]);
    // Records that arrive now are refused, too.
    f.send("s", vec![record("b", &[])]).await.unwrap();
    later(1).await;
    assert_eq!(f.exporter.taken(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn client_headers_count_in_memory_limit() {
    let config = Config {
        metadata_keys: vec!["x-tenant".to_owned()],
        max_bytes: ByteSize(64 << 10),
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    for tenant in 0..10 {
        let mut batch = logs("s", vec![record("a", &[])]);
        let tenant = ("x-tenant".to_owned(), vec![tenant.to_string()]);
        let other = ("cookie".to_owned(), vec!["c".repeat(8 << 10)]);
        batch.metadata = Some(Arc::new([tenant, other].into()));
        f.consumer.consume(batch).await.unwrap();
    }
    later(1).await;
    assert!(!f.exporter.batches().is_empty(), "the interval ends early");
    later(10_001).await;
    assert_eq!(f.exporter.batches().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn clients_with_other_headers_are_counted_apart_up_to_the_limit() {
    let config = Config {
        metadata_keys: vec!["X-Tenant".to_owned()],
        metadata_cardinality_limit: 2,
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    let send = async |tenant: &str| {
        let mut batch = logs("s", vec![record("a", &[])]);
        let header = ("x-tenant".to_owned(), vec![tenant.to_owned()]);
        batch.metadata = Some(Arc::new([header].into()));
        f.consumer.consume(batch).await
    };
    for tenant in ["one", "two", "one"] {
        send(tenant).await.unwrap();
    }
    assert!(!send("three").await.unwrap_err().retryable);
    later(10_001).await;
    let mut tenants = Vec::new();
    for batch in f.exporter.batches() {
        tenants.push(batch.metadata.unwrap()["x-tenant"][0].clone());
    }
    tenants.sort();
    assert_eq!(tenants, ["one", "two"]);
    assert_eq!(f.counts(), counted(&[("a", 1), ("a", 2)]));
    // The limit applies to each interval.
    send("three").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn redelivery_through_dedup_is_not_counted_again() {
    let f = fixture(&Config::default(), Scripted::new([]));
    let cx = Host::for_tests().context(&"dedup".parse().unwrap());
    let Stage::Buffering(connect) = dedup::Config::default().build(&cx, Signal::Logs).unwrap()
    else {
        panic!("duplicates wait for the outcome");
    };
    let (dedup, _) = connect(Next {
        consumer: f.consumer.clone(),
        account: Account::of_pipeline("logs"),
    });
    for _ in 0..3 {
        let batch = logs("s", vec![record("a", &[]), record("a", &[])]);
        dedup.consume(batch).await.unwrap();
    }
    later(10_001).await;
    assert_eq!(f.counts(), counted(&[("a", 2)]));
}

#[test]
fn times_are_written_in_the_zone() {
    let nanos = 1_728_069_707_900_000_000;
    for (name, expected) in [
        ("UTC", "2024-10-04T19:21:47Z"),
        ("America/New_York", "2024-10-04T15:21:47-04:00"),
        ("Asia/Kolkata", "2024-10-05T00:51:47+05:30"),
    ] {
        let output = Output {
            count_attribute: String::new(),
            zone: zone(name).unwrap(),
        };
        assert_eq!(output.time(nanos), expected);
    }
}

#[test]
fn names_of_fields_are_read_as_the_collector_reads_them() {
    for (name, expected) in [
        ("body", NoPath::WholeBody),
        ("not.value", NoPath::Root),
        ("attributes.", NoPath::EmptyKey),
        ("body..x", NoPath::EmptyKey),
    ] {
        assert_eq!(Path::parse(name), Err(expected), "{name}");
    }
    let record = record("a", &[("a.b", "1"), ("a\\b", "2"), ("c", "3")]).encode_to_vec();
    for (name, value) in [
        ("attributes.a\\.b", Some("1")),
        ("attributes.a\\b", Some("2")),
        ("attributes.a.b", None),
        ("attributes.c.d", None),
        ("body.a", None),
    ] {
        let path = Path::parse(name).unwrap();
        let expected = value.map(|value| text(value).encode_to_vec());
        assert_eq!(path.find(&record).map(<[u8]>::to_vec), expected, "{name}");
        assert_eq!(without(&record, &[path]).is_some(), value.is_some());
    }
    let all = Path::parse("attributes").unwrap();
    let left = LogRecord::decode(without(&record, &[all]).unwrap().as_slice()).unwrap();
    assert!(left.attributes.is_empty() && left.body.is_some());
}

fn paths(config: &dyn Validate) -> Vec<String> {
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let found = problems.found().iter();
    found.map(|problem| problem.path.join("::")).collect()
}

#[test]
fn violated_rules_are_reported_at_their_keys() {
    assert!(paths(&Config::default()).is_empty());
    let wrong = "{interval: 0s, log_count_attribute: '', timezone: Nowhere/Town, \
                 exclude_fields: [body, attributes.a, attributes.a], \
                 include_fields: [attributes], conditions: ['body =='], \
                 metadata_keys: [a, A], max_bytes: 1KiB}";
    let all = [
        "interval",
        "log_count_attribute",
        "timezone",
        "exclude_fields::0",
        "exclude_fields::2",
        "include_fields::0",
        "include_fields",
        "conditions::0",
        "metadata_keys::1",
        "max_bytes",
    ];
    assert_eq!(paths(&serde_yaml::from_str::<Config>(wrong).unwrap()), all);
}

#[tokio::test(start_paused = true)]
async fn only_records_matching_a_condition_are_counted() {
    let config = Config {
        conditions: vec![
            "attributes[\"kind\"] == \"noise\"".to_owned(),
            "body == \"ping\"".to_owned(),
        ],
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    let records = vec![
        record("x", &[("kind", "noise")]),
        record("ping", &[]),
        record("x", &[("kind", "news")]),
        record("x", &[("kind", "noise")]),
    ];
    f.send("s", records).await.unwrap();
    tokio::time::sleep(StdDuration::from_millis(1)).await;
    let bodies = |records: Vec<LogRecord>| -> Vec<(Option<AnyValue>, usize)> {
        let each = records.into_iter();
        each.map(|record| (record.body, record.attributes.len()))
            .collect()
    };
    // The passing record is unchanged, without a count.
    assert_eq!(bodies(f.records()), [(Some(text("x")), 1)]);
    tokio::time::sleep(StdDuration::from_secs(11)).await;
    assert_eq!(f.records().len(), 3);
    assert!(f.component.idle());
}

#[tokio::test(start_paused = true)]
async fn uncountable_request_is_refused_whole() {
    let config = Config {
        conditions: vec!["body == \"ping\"".to_owned()],
        metadata_keys: vec!["tenant".to_owned()],
        metadata_cardinality_limit: 1,
        ..Config::default()
    };
    let f = fixture(&config, Scripted::new([]));
    let send = async |tenant: &str| {
        let mut batch = logs("s", vec![record("ping", &[]), record("x", &[])]);
        let headers = [("tenant".to_owned(), vec![tenant.to_owned()])];
        batch.metadata = Some(Arc::new(headers.into()));
        f.consumer.consume(batch).await
    };
    send("a").await.unwrap();
    assert!(send("b").await.is_err());
    tokio::time::sleep(StdDuration::from_millis(1)).await;
    assert_eq!(f.records().len(), 1);
}
