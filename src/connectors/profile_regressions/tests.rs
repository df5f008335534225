use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::time::{Instant, sleep};

use super::*;
use crate::component::Host;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::testing::Scripted;
use crate::pipeline::{Component, Undelivered};
use tributary_config::{Problems, Validate};
use tributary_memory::Budget;
use tributary_profile_store::Selector;
use tributary_profiles::folded;
use tributary_profiles::write::encode;

mod bounds;
mod simulation;

struct Running {
    input: Arc<dyn crate::pipeline::Consumer>,
    component: Box<dyn Component>,
    next: Arc<Scripted>,
    random: fastrand::Rng,
}

fn config(text: &str) -> Config {
    serde_yaml::from_str(text).unwrap()
}

fn running(text: &str, next: Arc<Scripted>, budget: usize) -> Running {
    let mut outputs = Outputs::default();
    outputs.set(Signal::Logs, next.clone());
    let mut cx = Host::for_tests().context(&"profile_regressions".parse().unwrap());
    cx.budget = Budget::new(budget);
    let built = config(text).build(&cx, &[Signal::Profiles], outputs);
    let Terminal {
        inputs,
        mut component,
    } = built.unwrap();
    component.start();
    Running {
        input: inputs.get(Signal::Profiles).unwrap().clone(),
        component,
        next,
        random: fastrand::Rng::with_seed(1),
    }
}

const SETTINGS: &str = "{window: 10s, windows: 20, console_url: 'http://localhost:55679/'}";

impl Running {
    /// Runs a version for this number of windows. The function `shop.(*Cart).sum` takes `cost`.
    async fn run(&mut self, version: &str, cost: f64, windows: usize) {
        for _ in 0..windows {
            let mut value = |mean: f64| (mean * (0.98 + 0.04 * self.random.f64())) as u64;
            let stacks = format!(
                "main;handle;shop.(*Cart).sum {}\nmain;handle;parse {}\nmain;wait {}\nmain;log {}\n",
                value(20_000.0 * cost),
                value(30_000.0),
                value(40_000.0),
                value(10_000.0),
            );
            let batch = profile(&stacks, ("cpu", "nanoseconds"), 1, version);
            self.input.consume(batch).await.unwrap();
            sleep(Duration::from_secs(11)).await;
        }
    }

    async fn shutdown(self) -> Undelivered {
        let deadline = Instant::now() + Duration::from_secs(5);
        self.component.shutdown(deadline).await
    }

    fn records(&self) -> Vec<(Resource, LogRecord)> {
        let batches = self.next.batches().into_iter();
        let resources = batches.flat_map(|batch| {
            let bytes = batch.into_wire().to_bytes();
            assert!(tributary_otlp::validate(Signal::Logs, &bytes).is_ok());
            ExportLogsServiceRequest::decode(bytes)
                .unwrap()
                .resource_logs
        });
        let records = resources.flat_map(|from| {
            let records = from
                .scope_logs
                .into_iter()
                .flat_map(|scope| scope.log_records);
            let resource = from.resource.unwrap();
            records
                .map(move |record| (resource.clone(), record))
                .collect::<Vec<_>>()
        });
        records.collect()
    }
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
        key_strindex: 0,
    }
}

/// Folded stacks as a profile of a version of the service `shop`.
fn profile(stacks: &str, kind: (&str, &str), duration: u64, version: &str) -> Batch {
    let mut profiles = folded::read(stacks).unwrap();
    let dictionary = &mut profiles.dictionary;
    for resource in &mut profiles.resources {
        resource.resource = Some(Resource {
            attributes: vec![
                attribute("service.name", "shop"),
                attribute("service.version", version),
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
            profile.header.duration = duration;
        }
    }
    let request = encode(dictionary, &profiles.resources);
    let items = tributary_otlp::count(Signal::Profiles, &request);
    Batch::new(Signal::Profiles, items, request)
}

fn attributes(record: &LogRecord) -> BTreeMap<String, Value> {
    let attributes = record.attributes.iter();
    let pairs = attributes.map(|one| {
        let value = one.value.clone().unwrap().value.unwrap();
        (one.key.clone(), value)
    });
    pairs.collect()
}

fn text_of(attributes: &BTreeMap<String, Value>, key: &str) -> String {
    match attributes.get(key) {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{key}: {other:?}"),
    }
}

fn number_of(attributes: &BTreeMap<String, Value>, key: &str) -> f64 {
    match attributes.get(key) {
        Some(Value::DoubleValue(number)) => *number,
        other => panic!("{key}: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn slower_function_of_a_new_version_becomes_an_event() {
    let mut running = running(SETTINGS, Scripted::new([]), 1 << 30);
    running.run("1.4", 1.0, 25).await;
    assert!(running.records().is_empty());
    running.run("1.5", 1.3, 25).await;
    let records = running.records();
    let (resource, record) = &records[0];
    assert_eq!(resource.attributes, [attribute("service.name", "shop")]);
    assert_eq!(record.event_name, "profile.regression");
    assert_eq!(
        (record.severity_number, &*record.severity_text),
        (13, "WARN")
    );
    assert!(record.time_unix_nano > 0);
    let found = attributes(record);
    for (key, value) in [
        ("service.name", "shop"),
        ("service.version.before", "1.4"),
        ("service.version", "1.5"),
        ("code.function.name", "shop.(*Cart).sum"),
        ("profile.sample_type", "cpu"),
        ("profile.kind", "self"),
        ("profile.comparison", "previous_version"),
    ] {
        assert_eq!(text_of(&found, key), value, "{key}");
    }
    assert!((number_of(&found, "profile.share.before") - 0.2).abs() < 0.01);
    assert!((number_of(&found, "profile.share.after") - 0.26 / 1.06).abs() < 0.01);
    assert!((number_of(&found, "profile.change") - 0.226).abs() < 0.02);
    assert!(number_of(&found, "profile.p_value") <= 0.001);
    for (key, version) in [("profile.query.before", "1.4"), ("profile.query", "1.5")] {
        let query = text_of(&found, key);
        let begin = format!(
            "{{service_name=\"shop\", service_version=\"{version}\", __profile_type__=\"cpu:cpu:nanoseconds:"
        );
        assert!(query.starts_with(&begin), "{query}");
        assert!(query.parse::<Selector>().is_ok(), "{query}");
    }
    let link = text_of(&found, "url.full");
    assert!(
        link.starts_with("http://localhost:55679/#profiles?type=cpu%3Acpu%3Ananoseconds%3A"),
        "{link}"
    );
    for part in [
        "&query=%7Bservice_name%3D%22shop%22%2C%20service_version%3D%221.5%22%7D&",
        "&compare=diff&bquery=%7Bservice_name%3D%22shop%22%2C%20service_version%3D%221.4%22%7D&",
        "&find=%5Eshop%5C.%5C%28%5C%2ACart%5C%29%5C.sum%24&fn=shop.%28%2ACart%29.sum",
    ] {
        assert!(link.contains(part), "{part} in {link}");
    }
    let body = record.body.clone().unwrap().value.unwrap();
    let Value::StringValue(body) = body else {
        panic!("{body:?}");
    };
    assert!(
        body.starts_with("The self share of function `shop.(*Cart).sum` in the cpu profiles of `shop` rose from version `1.4` to `1.5`: "),
        "{body}"
    );
    // The others only have a smaller share; the caller has a larger one.
    let others = records.iter().skip(1).map(|(_, record)| attributes(record));
    let others: Vec<_> = others
        .map(|found| text_of(&found, "code.function.name"))
        .collect();
    assert_eq!(others, ["handle"]);
    assert!(running.component.idle());
    assert_eq!(running.shutdown().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn cheaper_function_is_an_improvement() {
    let mut running = running(SETTINGS, Scripted::new([]), 1 << 30);
    running.run("1.4", 1.0, 20).await;
    running.run("1.5", 0.5, 20).await;
    let (_, record) = running.records().remove(0);
    assert_eq!(record.event_name, "profile.improvement");
    assert_eq!(record.severity_number, 9);
    assert!(number_of(&attributes(&record), "profile.change") < -0.4);
}

#[tokio::test(start_paused = true)]
async fn events_are_retried_until_accepted() {
    let later = || Err(Nack::unavailable("later"));
    let mut running = running(SETTINGS, Scripted::new([later(), later()]), 1 << 30);
    running.run("1.4", 1.0, 20).await;
    running.run("1.5", 1.3, 20).await;
    assert!(!running.records().is_empty());
    assert_eq!(running.shutdown().await, Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn profiles_are_accepted_while_events_are_refused() {
    let refusing = std::iter::repeat_with(|| Err(Nack::unavailable("later"))).take(100_000);
    let mut running = running(SETTINGS, Scripted::new(refusing), 1 << 30);
    running.run("1.4", 1.0, 20).await;
    // More windows than the queue of closed windows has room for.
    running.run("1.5", 1.3, 40).await;
    assert!(running.records().is_empty());
    assert!(!running.component.idle());
    let input = running.input.clone();
    assert!(running.shutdown().await.items > 0);
    let late = profile("f 1\n", ("cpu", "nanoseconds"), 1, "1.5");
    assert!(input.consume(late).await.unwrap_err().retryable);
}

#[tokio::test(start_paused = true)]
async fn profiles_are_accepted_without_memory() {
    let mut running = running(SETTINGS, Scripted::new([]), 1);
    running.run("1.4", 1.0, 20).await;
    running.run("1.5", 2.0, 20).await;
    assert!(running.records().is_empty());
}

#[test]
fn mistakes_are_reported_with_their_keys() {
    let found = |text: &str| {
        let mut problems = Problems::default();
        config(text).validate(&mut problems);
        let problems = problems.found().iter();
        problems
            .map(|problem| problem.path.join("."))
            .collect::<Vec<_>>()
    };
    assert!(found("{}").is_empty());
    assert!(found(SETTINGS).is_empty());
    assert_eq!(
        found(
            "{compare_with: [day_before, day_before], window: 2h, windows: 9, error_rate: 0, min_change: -1,
              min_share: 1, max_functions: 0, max_series: 0, max_bytes: 1, console_url: 'localhost'}"
        ),
        [
            "compare_with.1",
            "window",
            "windows",
            "error_rate",
            "min_change",
            "min_share",
            "max_functions",
            "max_series",
            "max_bytes",
            "console_url"
        ]
    );
    assert_eq!(
        found(
            "{compare_with: [], min_windows: 4, error_rate: .nan, min_change: .nan, min_share: .nan}"
        ),
        [
            "compare_with",
            "min_windows",
            "error_rate",
            "min_change",
            "min_share"
        ]
    );
    assert_eq!(
        found("{compare_with: [day_before], window: 10m}"),
        ["window"]
    );
}
