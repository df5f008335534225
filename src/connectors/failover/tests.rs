//! Guarantees of the connector to senders.

use std::time::Duration;

use super::*;
use crate::component::Host;
use crate::pipeline::Consumer;
use crate::pipeline::batch::{Code, Nack};
use crate::pipeline::testing::{Scripted, spans};
use crate::testing::Recorded;

fn build(yaml: &str, levels: &[(&str, &Arc<Scripted>)]) -> Terminal {
    build_in(&Host::for_tests(), yaml, levels)
}

fn build_in(host: &Host, yaml: &str, levels: &[(&str, &Arc<Scripted>)]) -> Terminal {
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut outputs = Outputs::default();
    let pipelines = levels.iter().map(|(id, consumer)| {
        (
            id.parse().unwrap(),
            (*consumer).clone() as Arc<dyn Consumer>,
        )
    });
    outputs.set_pipelines(pipelines.collect());
    let cx = host.context(&"failover".parse().unwrap());
    config.build(&cx, &[Signal::Traces], outputs).unwrap()
}

async fn offer(terminal: &Terminal, name: &str) -> Result<(), Nack> {
    let entry = terminal.inputs.get(Signal::Traces).unwrap();
    entry.consume(spans([name])).await
}

fn down() -> Result<(), Nack> {
    Err(Nack::unavailable("down"))
}

const TWO: &str = "{priority_levels: [[traces/a], [traces/b]], retry_interval: 1m}";

#[tokio::test(start_paused = true)]
async fn first_accepting_level_stays_for_the_interval() {
    let (a, b) = (Scripted::new([down()]), Scripted::new([]));
    let failover = build(TWO, &[("traces/a", &a), ("traces/b", &b)]);
    for name in ["1", "2", "3"] {
        offer(&failover, name).await.unwrap();
    }
    assert_eq!(
        b.span_names(),
        ["1", "2", "3"],
        "the first level was up again, and not asked yet"
    );
    tokio::time::advance(Duration::from_secs(61)).await;
    offer(&failover, "4").await.unwrap();
    offer(&failover, "5").await.unwrap();
    assert_eq!(a.span_names(), ["4", "5"]);
}

#[tokio::test(start_paused = true)]
async fn reload_keeps_the_level_of_unchanged_levels() {
    let (a, b) = (Scripted::new([down()]), Scripted::new([]));
    let levels = [("traces/a", &a), ("traces/b", &b)];
    let (host, recorded) = (Host::for_tests(), Recorded::new());
    let level = || recorded.sum("tributary_connector_failover_level");
    let mut first = recorded.within(|| build_in(&host, TWO, &levels));
    assert_eq!(level(), 0.0);
    first.component.start();
    assert_eq!(level(), 1.0);
    offer(&first, "1").await.unwrap();
    assert_eq!(level(), 2.0);
    let again = TWO.replace("1m", "2m");
    let mut second = recorded.within(|| build_in(&host, &again, &levels));
    second.component.start();
    offer(&second, "2").await.unwrap();
    assert_eq!(
        (level(), b.span_names()),
        (2.0, vec!["1".into(), "2".into()])
    );
    // Changed levels start again, after they are started.
    let other = "{priority_levels: [[traces/b], [traces/a]]}";
    let mut third = recorded.within(|| build_in(&host, other, &levels));
    assert_eq!(level(), 2.0);
    third.component.start();
    assert_eq!(level(), 1.0);
}

#[tokio::test(start_paused = true)]
async fn exhausted_quota_falls_through_to_the_next_level() {
    let quota = || Err(Nack::permanent(Code::ResourceExhausted, "quota"));
    let bad = || Err(Nack::invalid("bad"));
    let (a, b) = (
        Scripted::new([quota(), down()]),
        Scripted::new([Ok(()), bad()]),
    );
    let failover = build(TWO, &[("traces/a", &a), ("traces/b", &b)]);
    offer(&failover, "1").await.unwrap();
    assert_eq!(b.span_names(), ["1"]);
    tokio::time::advance(Duration::from_secs(61)).await;
    let nack = offer(&failover, "2").await.unwrap_err();
    assert!(
        nack.retryable,
        "the first level may take it later: {nack:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_level_is_probed_once_per_interval() {
    let a = Scripted::new([down(), down()]);
    let b = Scripted::new([]);
    let failover = build(TWO, &[("traces/a", &a), ("traces/b", &b)]);
    offer(&failover, "1").await.unwrap();
    tokio::time::advance(Duration::from_secs(61)).await;
    offer(&failover, "2").await.unwrap();
    // The first level would accept the batch if it were tried.
    offer(&failover, "3").await.unwrap();
    assert_eq!(b.span_names(), ["1", "2", "3"]);
    assert!(a.taken().is_empty());
}

#[tokio::test(start_paused = true)]
async fn batch_is_refused_only_if_all_levels_refuse() {
    let a = Scripted::new([down(), down()]);
    let b = Scripted::new([down(), Ok(()), down()]);
    let failover = build(TWO, &[("traces/a", &a), ("traces/b", &b)]);
    let nack = offer(&failover, "1").await.unwrap_err();
    assert!(nack.retryable, "{nack:?}");
    offer(&failover, "1").await.unwrap();
    // The second level is the current one and fails; the first one works, but its probe is not due
    // yet.
    offer(&failover, "2").await.unwrap();
    assert_eq!(
        (a.span_names(), b.span_names()),
        (vec!["2".into()], vec!["1".into()])
    );
}

#[tokio::test]
async fn bad_data_causes_no_failover() {
    let a = Scripted::new([Err(Nack::invalid("bad"))]);
    let b = Scripted::new([]);
    let failover = build(TWO, &[("traces/a", &a), ("traces/b", &b)]);
    let nack = offer(&failover, "1").await.unwrap_err();
    assert_eq!(nack.code, Code::InvalidArgument);
    offer(&failover, "2").await.unwrap();
    assert_eq!((a.span_names(), b.taken()), (vec!["2".into()], vec![]));
}

#[tokio::test]
async fn wrong_credentials_at_one_level_cause_failover() {
    let a = Scripted::new([Err(Nack::permanent(Code::Unauthenticated, "who?"))]);
    let b = Scripted::new([]);
    let failover = build(TWO, &[("traces/a", &a), ("traces/b", &b)]);
    offer(&failover, "1").await.unwrap();
    assert_eq!(b.span_names(), ["1"]);
}

#[tokio::test]
async fn level_refuses_if_one_pipeline_refuses() {
    let (a, also_a, b) = (
        Scripted::new([]),
        Scripted::new([down()]),
        Scripted::new([]),
    );
    let yaml = "{priority_levels: [[traces/a, traces/also_a], [traces/b]]}";
    let pipelines = [
        ("traces/a", &a),
        ("traces/also_a", &also_a),
        ("traces/b", &b),
    ];
    let failover = build(yaml, &pipelines);
    offer(&failover, "1").await.unwrap();
    assert_eq!(b.span_names(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn queued_batch_is_offered_until_a_level_accepts() {
    let a = Scripted::new((0..200).map(|_| down()));
    let yaml = "{priority_levels: [[traces/a]], sending_queue: {queue_size: 10}}";
    let mut failover = build(yaml, &[("traces/a", &a)]);
    failover.component.start();
    offer(&failover, "1").await.unwrap();
    // Two hundred retries take longer than an exporter would retry.
    tokio::time::sleep(Duration::from_secs(200 * 45)).await;
    assert_eq!(a.span_names(), ["1"]);
}
