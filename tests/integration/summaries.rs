//! Compression and counting lose no item, whether items are equal within a batch or buffered over a window.

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, yaml, yaml_of,
};

fn refuse_every_third(backend: &Backend) {
    let mut requests = 0;
    backend.script(move |_| {
        requests += 1;
        match requests % 3 {
            0 => Answer::Refuse(Refusal::UNAVAILABLE),
            _ => Answer::Accept,
        }
    });
}

/// Sends items of the signals through the processors, some of them while earlier items are buffered.
async fn check(processors: &[(&str, &str)], signals: &[Signal]) {
    let backend = Backend::start().await;
    refuse_every_third(&backend);
    let exporter = grpc_to(&backend, "");
    let yaml = yaml_of(signals, processors, &[("otlp_grpc", &exporter)]);
    let collector = Collector::start(&yaml).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for number in 0..30 {
        for signal in signals {
            client
                .send(&client.request(*signal, 1 + number % 7))
                .await
                .unwrap();
        }
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn equal_resources_merge_and_every_item_arrives_once() {
    let processors = [
        (
            "batch",
            "{timeout: 50ms, send_batch_size: 40, send_batch_max_size: 50}",
        ),
        ("compression", "{mode: compact}"),
    ];
    check(&processors, &Signal::ALL).await;
}

#[tokio::test]
async fn every_sample_of_a_summary_arrives_once() {
    let compression = ("compression", "{mode: aggregate, interval: 100ms}");
    check(&[compression], &[Signal::Profiles]).await;
    let batch = (
        "batch",
        "{timeout: 50ms, send_batch_size: 5, send_batch_max_size: 5}",
    );
    check(&[compression, batch], &[Signal::Profiles]).await;
    check(&[batch, compression], &[Signal::Profiles]).await;
}

#[tokio::test]
async fn termination_within_a_window_loses_nothing() {
    let backend = Backend::start().await;
    let compression = ("compression", "{mode: aggregate, interval: 1h}");
    let exporter = grpc_to(&backend, "");
    let collector = Collector::start(&yaml(&[compression], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..10 {
        client
            .send(&client.request(Signal::Profiles, 3))
            .await
            .unwrap();
    }
    collector.terminate().await;
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
}

#[tokio::test]
async fn every_counted_log_record_arrives_once() {
    let counting = ("log_dedup", "{interval: 100ms}");
    check(&[("dedup", "{}"), counting], &[Signal::Logs]).await;
    check(&[counting, ("batch", "{timeout: 50ms}")], &[Signal::Logs]).await;
}

#[tokio::test]
async fn reload_and_termination_keep_counted_records() {
    let backend = Backend::start().await;
    let exporter = grpc_to(&backend, "");
    let counting = |interval: &str| {
        let log_dedup = format!("{{interval: {interval}}}");
        yaml_of(
            &[Signal::Logs],
            &[("log_dedup", &log_dedup)],
            &[("otlp_grpc", &exporter)],
        )
    };
    let collector = Collector::start(&counting("1h")).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    let send = async || {
        for _ in 0..5 {
            client.send(&client.request(Signal::Logs, 3)).await.unwrap();
        }
    };
    send().await;
    collector.reload(&counting("2h")).await.unwrap();
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    send().await;
    collector.terminate().await;
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
}
