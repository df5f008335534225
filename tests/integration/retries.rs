//! Temporary failures lose nothing; permanent failures are counted.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, http_to, yaml,
};

const QUEUE: &str = "sending_queue: {queue_size: 100000}";

#[tokio::test]
async fn randomly_failing_next_hop_loses_nothing() {
    for (seed, over_http) in [(1, false), (2, true)] {
        let backend = Backend::start().await;
        let mut random = fastrand::Rng::with_seed(seed);
        backend.script(move |_| match random.u8(..100) {
            0..30 => Answer::Refuse(Refusal::UNAVAILABLE),
            30..40 => Answer::Disconnect,
            40..45 => Answer::AcceptAndDisconnect,
            _ => Answer::Accept,
        });
        let exporter = match over_http {
            false => ("otlp_grpc", grpc_to(&backend, QUEUE)),
            true => ("otlp_http", http_to(&backend, QUEUE)),
        };
        let batch = ("batch", "{timeout: 10ms, send_batch_size: 40}");
        let collector = Collector::start(&yaml(&[batch], &[(exporter.0, &exporter.1)])).await;
        let oracle = Oracle::default();
        let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
        let http = Client::http("http", collector.http(), &oracle);
        for _ in 0..25 {
            for signal in Signal::ALL {
                grpc.send_until_acknowledged(&grpc.request(signal, 10))
                    .await;
                http.send_until_acknowledged(&http.request(signal, 3)).await;
            }
        }
        let twice = oracle.wait_for_delivery(&backend).await;
        eprintln!(
            "{twice} of {} items arrived more than once",
            oracle.acknowledged_count()
        );
        let metrics = collector.assert_conservation().await;
        assert_eq!(
            metrics.sum("tributary_exporter_delivered_items", &[]),
            1300.0
        );
        assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
    }
}

#[tokio::test]
async fn retry_waits_for_delay_of_next_hop() {
    let delay = Duration::from_secs(1);
    let backend = Backend::start().await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut seen = HashSet::new();
    backend.script(move |telemetry| {
        tell.send((telemetry.signal(), Instant::now())).unwrap();
        match seen.insert(telemetry.signal()) {
            true => Answer::Refuse(Refusal {
                retry_after: Some(delay),
                ..Refusal::UNAVAILABLE
            }),
            false => Answer::Accept,
        }
    });
    let (over_grpc, over_http) = (grpc_to(&backend, QUEUE), http_to(&backend, QUEUE));
    let oracle = Oracle::default();
    for exporter in [("otlp_grpc", &over_grpc), ("otlp_http", &over_http)] {
        let signal = match exporter.0 {
            "otlp_grpc" => Signal::Logs,
            _ => Signal::Traces,
        };
        let collector = Collector::start(&yaml(&[], &[(exporter.0, exporter.1)])).await;
        let client = Client::grpc(exporter.0, collector.grpc(), &oracle).await;
        client.send(&client.request(signal, 1)).await.unwrap();
        oracle.wait_for_delivery(&backend).await;
        let (_, first) = told.recv().await.unwrap();
        let (_, second) = told.recv().await.unwrap();
        assert!(
            second - first >= delay,
            "{}: {:?}",
            exporter.0,
            second - first
        );
        collector.assert_conservation().await;
    }
}

#[tokio::test]
async fn partial_success_is_counted_and_not_retried() {
    let backend = Backend::start().await;
    let partial = Answer::Partial {
        rejected: 3,
        message: "three of them are too old",
    };
    backend.always(partial);
    let exporters = [
        ("otlp_grpc", grpc_to(&backend, QUEUE)),
        ("otlp_http", http_to(&backend, QUEUE)),
    ];
    for (at, (exporter, body)) in exporters.iter().enumerate() {
        let collector = Collector::start(&yaml(&[], &[(exporter, body)])).await;
        let oracle = Oracle::default();
        let client = Client::http(exporter, collector.http(), &oracle);
        client
            .send(&client.request(Signal::Metrics, 10))
            .await
            .unwrap();
        let dropped = [("reason", "partial_success")];
        collector
            .wait_for_metrics("three items rejected, seven delivered", |metrics| {
                metrics.sum("tributary_exporter_dropped_items", &dropped) == 3.0
                    && metrics.sum("tributary_exporter_delivered_items", &[]) == 7.0
            })
            .await;
        let line = collector.wait_for("Partial success response").await;
        assert!(
            line.text.contains("three of them are too old"),
            "{}",
            line.text
        );
        collector.assert_conservation().await;
        assert_eq!(backend.record().attempts, at + 1);
    }
}

#[tokio::test]
async fn dropped_data_is_counted_and_logged() {
    let backend = Backend::start().await;
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let exporter = format!(
        "{{endpoint: '{}', tls: {{insecure: true}}, \
         retry_on_failure: {{initial_interval: 10ms, max_interval: 20ms, max_elapsed_time: 100ms}}}}",
        backend.grpc()
    );
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 7))
        .await
        .unwrap();
    let line = collector.wait_for("Exporting failed. Dropping data.").await;
    assert_eq!(line.field("otelcol.component.id"), "otlp_grpc");
    assert_eq!(line.number("dropped_items"), 7);
    assert!(
        line.field("error").contains("no more retries left"),
        "{}",
        line.text
    );
    assert!(
        line.field("error").contains("the backend is busy"),
        "{}",
        line.text
    );
    let metrics = collector.assert_conservation().await;
    let reason = [("reason", "retries_exhausted")];
    assert_eq!(
        metrics.sum("tributary_exporter_dropped_items", &reason),
        7.0
    );
    assert_eq!(metrics.sum("otelcol_exporter_send_failed_spans", &[]), 7.0);
    assert!(backend.record().attempts > 1);
}

#[tokio::test]
async fn retrying_clients_without_queue_lose_nothing() {
    let backend = Backend::start().await;
    let mut random = fastrand::Rng::with_seed(3);
    backend.script(move |_| match random.u8(..100) {
        0..50 => Answer::Refuse(Refusal::UNAVAILABLE),
        _ => Answer::Accept,
    });
    let exporter = format!(
        "{{endpoint: '{}', tls: {{insecure: true}}, sending_queue: {{enabled: false}}, \
         retry_on_failure: {{enabled: false}}}}",
        backend.grpc()
    );
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let grpc = Arc::new(Client::grpc("grpc", collector.grpc(), &oracle).await);
    let requests: Vec<_> = (0..50).map(|_| grpc.request(Signal::Logs, 5)).collect();
    join_all(
        requests
            .iter()
            .map(|request| grpc.send_until_acknowledged(request)),
    )
    .await;
    assert_eq!(
        oracle.wait_for_delivery(&backend).await,
        0,
        "a refusal is a promise not to have it"
    );
    assert_eq!(oracle.acknowledged_count(), 250);
    collector.assert_conservation().await;
}
