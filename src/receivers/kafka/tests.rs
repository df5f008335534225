//! Guarantees of the receiver, with brokers inside this process.

mod brokers;
mod order;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::*;
use crate::component::Host;
use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Code, Nack};
use crate::testing::Recorded;
use crate::testing::named_batch;
use futures_util::future::BoxFuture;
use tributary_config::{Problems, Sources, Validate as _};
use tributary_net::kafka::testing::{Cluster, begun, bodies, logs, soon, write};
use tributary_otlp::Signal;
use tributary_profiles::testing_requests::sample_names;

/// A next stage with scripted outcomes, which then accepts everything.
struct Sink {
    answers: Mutex<VecDeque<Nack>>,
    taken: mpsc::UnboundedSender<Batch>,
}

/// Body of log records that are refused temporarily.
const AWAY: &str = "away";

impl Consumer for Sink {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        let mut answer = self.answers.lock().unwrap().pop_front();
        if batch.signal() == Signal::Logs
            && bodies(&batch.clone().into_wire().to_bytes())[0].starts_with(AWAY)
        {
            answer = Some(Nack::unavailable(AWAY));
        }
        Box::pin(async move {
            if let Some(nack) = answer {
                return Err(nack);
            }
            let _ = self.taken.send(batch);
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// A receiver at work.
struct Trial {
    receiver: Box<dyn Component>,
    taken: mpsc::UnboundedReceiver<Batch>,
    recorded: Recorded,
}

impl Trial {
    fn start(cluster: &Cluster, yaml: &str, answers: impl IntoIterator<Item = Nack>) -> Self {
        Trial::within(Host::for_tests(), &cluster.brokers, yaml, answers)
    }

    fn within(
        host: Host,
        brokers: &str,
        yaml: &str,
        answers: impl IntoIterator<Item = Nack>,
    ) -> Self {
        let mut config: Config = serde_yaml::from_str(yaml).unwrap();
        config.brokers = vec![brokers.to_owned()];
        if !yaml.contains("initial_offset") {
            config.initial_offset = InitialOffset::Earliest;
        }
        // The group would wait for members that do not leave.
        config.session_timeout = tributary_config::units::Duration::secs(6);
        config.heartbeat_interval = tributary_config::units::Duration::millis(100);
        let (taken, receiver) = mpsc::unbounded_channel();
        let sink = Arc::new(Sink {
            answers: Mutex::new(answers.into_iter().collect()),
            taken,
        });
        let mut outputs = Outputs::default();
        for signal in Signal::ALL {
            outputs.set(signal, sink.clone());
        }
        let recorded = Recorded::new();
        let cx = host.context(&"kafka".parse().unwrap());
        let mut component = recorded.within(|| config.build(&cx, outputs)).unwrap();
        component.start();
        Trial {
            receiver: component,
            taken: receiver,
            recorded,
        }
    }

    async fn batch(&mut self) -> Batch {
        soon(self.taken.recv()).await.unwrap()
    }

    /// Returns the bodies of the next `number` requests of logs.
    async fn bodies(&mut self, requests: usize) -> Vec<String> {
        let mut all = Vec::new();
        for _ in 0..requests {
            let batch = self.batch().await;
            assert_eq!(batch.signal(), Signal::Logs);
            all.extend(bodies(&batch.into_wire().to_bytes()));
        }
        all
    }

    /// Stops the receiver; returns the bodies of the remaining accepted requests.
    async fn end(mut self) -> Vec<String> {
        self.receiver
            .shutdown(Instant::now() + Duration::from_secs(30))
            .await;
        let mut rest = Vec::new();
        while let Ok(batch) = self.taken.try_recv() {
            rest.extend(bodies(&batch.into_wire().to_bytes()));
        }
        rest
    }
}

fn log(body: &str) -> Vec<u8> {
    logs(&[(&[], &[body])])
}

async fn write_logs(cluster: &Cluster, partition: i32, bodies: &[&str]) {
    let requests: Vec<Vec<u8>> = bodies.iter().map(|body| log(body)).collect();
    let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
    write(&cluster.brokers, ("otlp_logs", partition), &requests, &[]).await;
}

const TOPICS: &[(&str, i32)] = &[
    ("otlp_logs", 2),
    ("otlp_spans", 1),
    ("otlp_metrics", 1),
    ("otlp_profiles", 1),
];

const QUICK: &str =
    "error_backoff: {initial_interval: 10ms, multiplier: 1, randomization_factor: 0}";

#[tokio::test]
async fn restart_continues_at_committed_offset() {
    for autocommit in ["{}", "{enable: false}"] {
        let cluster = Cluster::new(TOPICS);
        let yaml = format!("{{autocommit: {autocommit}}}");
        write_logs(&cluster, 0, &["1", "2", "3"]).await;
        let mut first = Trial::start(&cluster, &yaml, []);
        assert_eq!(first.bodies(3).await, ["1", "2", "3"]);
        assert_eq!(first.end().await, Vec::<String>::new());
        write_logs(&cluster, 0, &["4"]).await;
        let mut second = Trial::start(&cluster, &yaml, []);
        assert_eq!(second.bodies(1).await, ["4"], "{autocommit}");
        assert_eq!(second.end().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn refused_messages_are_retried_in_order() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["1", "2", "3"]).await;
    // The message is refused until the receiver ends.
    let away = || std::iter::repeat_n(Nack::unavailable("away"), 1_000_000);
    let first = Trial::start(&cluster, &format!("{{{QUICK}}}"), away());
    let refused = || first.recorded.sum("otelcol_receiver_refused_log_records");
    while refused() < 5.0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(first.end().await, Vec::<String>::new());
    let mut second = Trial::start(&cluster, &format!("{{{QUICK}}}"), away().take(3));
    assert_eq!(second.bodies(3).await, ["1", "2", "3"]);
    assert_eq!(
        second.recorded.sum("otelcol_receiver_refused_log_records"),
        3.0
    );
    second.end().await;
}

#[tokio::test]
async fn unreadable_message_is_skipped_and_counted() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["1"]).await;
    write(
        &cluster.brokers,
        ("otlp_logs", 0),
        &[b"no request", b""],
        &[],
    )
    .await;
    write_logs(&cluster, 0, &["2"]).await;
    let mut trial = Trial::start(&cluster, "{}", []);
    assert_eq!(trial.bodies(2).await, ["1", "2"]);
    let skipped = trial
        .recorded
        .sum("tributary_receiver_kafka_skipped_messages");
    assert_eq!(skipped, 1.0);
    trial.end().await;
}

#[tokio::test]
async fn unreadable_message_stops_partition_if_configured() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["1"]).await;
    write(&cluster.brokers, ("otlp_logs", 0), &[b"no request"], &[]).await;
    write_logs(&cluster, 0, &["2"]).await;
    let yaml = "{message_marking: {on_permanent_error: false}}";
    let mut first = Trial::start(&cluster, yaml, []);
    assert_eq!(first.bodies(1).await, ["1"]);
    // The other partition is not affected.
    write_logs(&cluster, 1, &["3"]).await;
    assert_eq!(first.bodies(1).await, ["3"]);
    assert_eq!(first.end().await, Vec::<String>::new());
    let mut second = Trial::start(&cluster, "{}", []);
    assert_eq!(second.bodies(1).await, ["2"]);
    let skipped = second
        .recorded
        .sum("tributary_receiver_kafka_skipped_messages");
    assert_eq!(skipped, 1.0, "the one where it stopped comes again");
    second.end().await;
}

#[tokio::test]
async fn refused_message_is_skipped_only_if_configured() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["never", "given up", "taken"]).await;
    let yaml = "{message_marking: {on_error: true}, error_backoff: {enabled: false}}";
    let answers = [Nack::invalid("never"), Nack::unavailable("not now")];
    let mut trial = Trial::start(&cluster, yaml, answers);
    assert_eq!(trial.bodies(1).await, ["taken"]);
    let skipped = trial
        .recorded
        .sum("tributary_receiver_kafka_skipped_messages");
    assert_eq!(skipped, 2.0);
    trial.end().await;
}

#[tokio::test]
async fn signals_have_topics_encodings_and_headers() {
    let cluster = Cluster::new(&[
        ("app-1", 1),
        ("app-2", 1),
        ("app-3", 1),
        ("otlp_profiles", 1),
    ]);
    let yaml = "{logs: {topics: ['^app-'], exclude_topics: ['-2$'], encoding: otlp_json}, \
                header_extraction: {extract_headers: true, headers: [tenant]}}";
    let json =
        br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;
    for topic in ["app-1", "app-2", "app-3"] {
        write(
            &cluster.brokers,
            (topic, 0),
            &[json],
            &[("tenant", topic), ("other", "o")],
        )
        .await;
    }
    let profile = named_batch("shop", ["work"]).into_wire().to_bytes();
    write(&cluster.brokers, ("otlp_profiles", 0), &[&profile], &[]).await;
    let mut trial = Trial::start(&cluster, yaml, []);
    let mut found = Vec::new();
    for _ in 0..3 {
        let batch = trial.batch().await;
        let (signal, bytes) = (batch.signal(), batch.into_wire().to_bytes());
        found.push(match signal {
            Signal::Profiles => sample_names(&bytes).join(" "),
            _ => {
                let request = ExportLogsServiceRequest::decode(bytes).unwrap();
                let resource = request.resource_logs[0].resource.clone().unwrap();
                assert_eq!(resource.attributes.len(), 1);
                format!("{:?}", resource.attributes[0])
            }
        });
    }
    found.sort();
    assert!(
        found[0].contains("kafka.header.tenant") && found[0].contains("app-1"),
        "{found:?}"
    );
    assert!(found[1].contains("app-3"), "{found:?}");
    assert_eq!(found[2], "work");
    assert!(trial.end().await.is_empty());
}

#[tokio::test]
async fn refusal_pauses_fetching_without_a_gap() {
    let cluster = Cluster::new(TOPICS);
    let numbers: Vec<String> = (0..60)
        .map(|number| format!("{number} {}", "x".repeat(400)))
        .collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    write_logs(&cluster, 0, &numbers).await;
    let yaml = "{max_fetch_size: 2000, max_partition_fetch_size: 2000, \
                error_backoff: {initial_interval: 100ms, multiplier: 1, randomization_factor: 0}}";
    // Twice the time after which the receiver pauses partitions.
    let answers = std::iter::repeat_n(Nack::unavailable("away"), 25);
    let mut trial = Trial::start(&cluster, yaml, answers);
    assert_eq!(trial.bodies(60).await, numbers);
    assert_eq!(trial.end().await, Vec::<String>::new());
}

#[tokio::test]
async fn partitions_go_on_while_one_has_more_than_its_share_refused() {
    let cluster = Cluster::new(TOPICS);
    let long = |body: &str, number: usize| format!("{body} {number} {}", "x".repeat(400));
    let numbered = |body: &'static str| (0..40).map(move |number| long(body, number));
    let (refused, taken): (Vec<_>, Vec<_>) = (numbered(AWAY).collect(), numbered("ok").collect());
    for (partition, texts) in [(0, &refused), (1, &taken)] {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        write_logs(&cluster, partition, &texts).await;
    }
    let yaml = format!("{{max_fetch_size: 2000, max_partition_fetch_size: 2000, {QUICK}}}");
    let mut trial = Trial::start(&cluster, &yaml, []);
    assert_eq!(trial.bodies(40).await, taken);
    assert_eq!(trial.end().await, Vec::<String>::new());
}

#[tokio::test]
async fn group_started_at_latest_keeps_start_offset() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["of before"]).await;
    let yaml = format!("{{initial_offset: latest, {QUICK}}}");
    let first = Trial::start(&cluster, &yaml, []);
    soon(begun(&cluster, ("otlp_logs", 0), "otel-collector")).await;
    // None of these messages counts as consumed.
    write_logs(&cluster, 0, &[AWAY]).await;
    while first.recorded.sum("otelcol_receiver_refused_log_records") < 1.0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(first.end().await, Vec::<String>::new());
    write_logs(&cluster, 0, &["of in between"]).await;
    let second = Trial::start(&cluster, &yaml, []);
    while second.recorded.sum("otelcol_receiver_refused_log_records") < 1.0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(second.end().await, Vec::<String>::new());
}

#[tokio::test]
async fn refusal_unrelated_to_message_blocks_partition() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["1", "2"]).await;
    let mistakes = [
        Code::Unauthenticated,
        Code::PermissionDenied,
        Code::Unimplemented,
    ];
    for marking in ["{}", "{on_permanent_error: false}"] {
        let yaml = format!("{{group_id: '{marking}', message_marking: {marking}, {QUICK}}}");
        let refusals = mistakes.map(|code| Nack::permanent(code, "not you"));
        let mut trial = Trial::start(&cluster, &yaml, refusals);
        assert_eq!(trial.bodies(2).await, ["1", "2"], "{marking}");
        let skipped = trial
            .recorded
            .sum("tributary_receiver_kafka_skipped_messages");
        assert_eq!(skipped, 0.0);
        trial.end().await;
    }
}

#[tokio::test]
async fn fetching_waits_for_memory() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["1"]).await;
    let host = Host::for_tests();
    let (limit, bound) = (host.budget.limit(), 10_000);
    let others = host.budget.acquire(limit - 2 * bound).unwrap();
    let yaml = format!("{{max_fetch_size: {bound}}}");
    let mut trial = Trial::within(host.clone(), &cluster.brokers, &yaml, []);
    tokio::task::yield_now().await;
    assert_eq!(host.budget.used(), limit - 2 * bound);
    drop(others);
    let batch = trial.batch().await;
    assert!(
        host.budget.used() > 3 * bound,
        "what waits, and the message itself"
    );
    drop(batch);
    trial.end().await;
    assert_eq!(host.budget.used(), 0);
}

#[tokio::test]
async fn group_members_share_partitions() {
    let cluster = Cluster::new(TOPICS);
    let mut both = HashSet::new();
    let mut first = Trial::start(&cluster, "{}", []);
    write_logs(&cluster, 0, &["1"]).await;
    write_logs(&cluster, 1, &["2"]).await;
    both.extend(first.bodies(2).await);
    let mut second = Trial::start(&cluster, "{}", []);
    // Each partition has messages until each member has had some.
    let (mut of_first, mut of_second, mut written) = (0, 0, 2);
    while of_first == 0 || of_second == 0 {
        for partition in [0, 1] {
            written += 1;
            write_logs(&cluster, partition, &[&written.to_string()]).await;
            let (batch, count) = soon(async {
                tokio::select! {
                    batch = first.taken.recv() => (batch, &mut of_first),
                    batch = second.taken.recv() => (batch, &mut of_second),
                }
            })
            .await;
            *count += 1;
            both.extend(bodies(&batch.unwrap().into_wire().to_bytes()));
        }
    }
    both.extend(first.end().await);
    for partition in [0, 1] {
        written += 1;
        write_logs(&cluster, partition, &[&written.to_string()]).await;
    }
    while both.len() < written {
        both.extend(second.bodies(1).await);
    }
    assert!((1..=written).all(|number| both.contains(&number.to_string())));
    second.end().await;
}

#[tokio::test]
async fn shutdown_does_not_wait_for_unreachable_brokers() {
    let cluster = Cluster::new(TOPICS);
    write_logs(&cluster, 0, &["1"]).await;
    let mut trial = Trial::start(&cluster, "{}", []);
    assert_eq!(trial.bodies(1).await, ["1"]);
    cluster.mock.broker_down(1).unwrap();
    let begun = Instant::now();
    trial.end().await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn the_example_is_a_configuration_without_warnings() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/configs/kafka.yaml");
    let sources = Sources {
        configs: vec![path.to_owned()],
        sets: Vec::new(),
    };
    let report = crate::app::config::load(&sources, true).report.render();
    assert_eq!(report, "");
}

#[test]
fn mistakes_are_found_at_their_keys() {
    let found = |yaml: &str| {
        let mut problems = Problems::default();
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        config.validate(&mut problems);
        let paths = problems
            .found()
            .iter()
            .map(|problem| problem.path.join("."));
        paths.collect::<Vec<_>>()
    };
    assert_eq!(found("{}"), Vec::<String>::new());
    for (yaml, path) in [
        ("{group_id: ''}", "group_id"),
        ("{heartbeat_interval: 10s}", "heartbeat_interval"),
        ("{max_fetch_size: 10}", "max_fetch_size"),
        ("{min_fetch_size: 2000000}", "max_fetch_size"),
        ("{autocommit: {interval: 0}}", "autocommit.interval"),
        ("{message_marking: {after: false}}", "message_marking.after"),
        (
            "{error_backoff: {initial_interval: 0}}",
            "error_backoff.initial_interval",
        ),
        (
            "{error_backoff: {multiplier: 0}}",
            "error_backoff.multiplier",
        ),
        (
            "{header_extraction: {extract_headers: true}}",
            "header_extraction.headers",
        ),
        ("{logs: {topics: ['^(']}}", "logs.topics.0"),
    ] {
        assert_eq!(found(yaml), [path], "{yaml}");
    }
}
