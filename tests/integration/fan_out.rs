//! Failures of one exporter do not affect other exporters.

use crate::harness::metrics::Metrics;
use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, http_to, yaml,
};

#[tokio::test]
async fn dead_exporter_does_not_block_live_one_and_catches_up() {
    let (live, dead) = (Backend::start().await, Backend::start().await);
    let (to_live, to_dead) = (grpc_to(&live, ""), http_to(&dead, ""));
    dead.stop().await;
    let exporters = [
        ("otlp_grpc", to_live.as_str()),
        ("otlp_http", to_dead.as_str()),
    ];
    let collector = Collector::start(&yaml(&[], &exporters)).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..50 {
        for signal in Signal::ALL {
            client.send(&client.request(signal, 2)).await.unwrap();
        }
    }
    assert_eq!(oracle.wait_for_delivery(&live).await, 0);
    let items = |metrics: &Metrics, outcome: &str, exporter: &str| {
        let name = format!("tributary_exporter_{outcome}_items");
        metrics.sum(&name, &[("exporter", exporter)])
    };
    let metrics = collector
        .wait_for_metrics("everything delivered by the live exporter", |metrics| {
            items(metrics, "delivered", "otlp_grpc") == 400.0
        })
        .await;
    assert_eq!(items(&metrics, "delivered", "otlp_http"), 0.0);
    assert_eq!(items(&metrics, "in_flight", "otlp_http"), 400.0);
    collector.assert_conservation_in_flight().await;

    dead.restart();
    assert_eq!(oracle.wait_for_delivery(&dead).await, 0);
    assert_eq!(oracle.wait_for_delivery(&live).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn permanent_refusal_does_not_affect_other_exporters() {
    let (live, picky) = (Backend::start().await, Backend::start().await);
    picky.always(Answer::Refuse(Refusal::INVALID));
    let (to_live, to_picky) = (grpc_to(&live, ""), grpc_to(&picky, ""));
    let exporters = [
        ("otlp_grpc/live", to_live.as_str()),
        ("otlp_grpc/picky", to_picky.as_str()),
    ];
    let batch = ("batch", "{timeout: 5ms, send_batch_size: 20}");
    let collector = Collector::start(&yaml(&[batch], &exporters)).await;
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    for _ in 0..20 {
        client.send(&client.request(Signal::Logs, 2)).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&live).await, 0);
    let metrics = collector.assert_conservation().await;
    let lost = [("exporter", "otlp_grpc/picky"), ("reason", "permanent")];
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &lost), 40.0);
    let delivered = [("exporter", "otlp_grpc/live")];
    assert_eq!(
        metrics.sum("tributary_exporter_delivered_items", &delivered),
        40.0
    );
}

#[tokio::test]
async fn retries_behind_batch_go_only_to_refusing_branches() {
    let (live, full) = (Backend::start().await, Backend::start().await);
    let mut refusals = 5;
    full.script(move |_| {
        if refusals == 0 {
            return Answer::Accept;
        }
        refusals -= 1;
        Answer::Refuse(Refusal::UNAVAILABLE)
    });
    let to = |backend: &Backend| {
        format!(
            "{{endpoint: '{}', tls: {{insecure: true}}, sending_queue: {{enabled: false}}, \
             retry_on_failure: {{enabled: false}}}}",
            backend.grpc()
        )
    };
    let (to_live, to_full) = (to(&live), to(&full));
    let exporters = [
        ("otlp_grpc/live", to_live.as_str()),
        ("otlp_grpc/full", to_full.as_str()),
    ];
    let batch = ("batch", "{timeout: 1ms, send_batch_size: 1}");
    let collector = Collector::start(&yaml(&[batch], &exporters)).await;
    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    client.send(&client.request(Signal::Logs, 2)).await.unwrap();
    client
        .send(&client.request(Signal::Traces, 2))
        .await
        .unwrap();
    assert_eq!(oracle.wait_for_delivery(&full).await, 0);
    assert_eq!(oracle.wait_for_delivery(&live).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn full_queue_does_not_delay_or_duplicate_other_branches() {
    let (live, full) = (Backend::start().await, Backend::start().await);
    full.hold();
    let queue = |requests| format!("sending_queue: {{queue_size: {requests}, num_consumers: 1}}");
    let (to_live, to_full) = (grpc_to(&live, &queue(1000)), grpc_to(&full, &queue(2)));
    let exporters = [
        ("otlp_grpc/live", to_live.as_str()),
        ("otlp_grpc/full", to_full.as_str()),
    ];
    let collector = Collector::start(&yaml(&[], &exporters)).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..2 {
        client.send(&client.request(Signal::Logs, 5)).await.unwrap();
    }
    let requests = [5, 5].map(|items| client.request(Signal::Logs, items));
    for _ in 0..10 {
        for request in &requests {
            client.send(request).await.unwrap_err();
        }
    }
    let of = |metrics: &Metrics, outcome: &str, exporter: &str| {
        let name = format!("tributary_exporter_{outcome}_items");
        metrics.sum(&name, &[("exporter", exporter), ("data_type", "logs")])
    };
    collector
        .wait_for_metrics("everything in time where there is room", |metrics| {
            of(metrics, "delivered", "otlp_grpc/live") == 20.0
        })
        .await;
    full.release();
    for request in &requests {
        client.send_until_acknowledged(request).await;
    }
    assert_eq!(oracle.wait_for_delivery(&full).await, 0);
    assert_eq!(oracle.wait_for_delivery(&live).await, 0);
    let metrics = collector.assert_conservation().await;
    assert_eq!(of(&metrics, "received", "otlp_grpc/live"), 20.0);
    assert_eq!(of(&metrics, "delivered", "otlp_grpc/full"), 20.0);
}
