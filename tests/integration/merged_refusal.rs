//! Invalid data of one client does not affect other clients, even if their requests are merged.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, http_to, yaml,
};

/// Refuses every request with an item of the client `bad`. Counts the refused requests that also
/// had items of other clients.
fn refuse_items_of_bad_client(backend: &Backend) -> Arc<AtomicUsize> {
    let mixed = Arc::new(AtomicUsize::new(0));
    let counter = mixed.clone();
    backend.script(move |telemetry| {
        let ids = telemetry.ids();
        let bad = ids.iter().filter(|id| id.starts_with("bad")).count();
        if bad == 0 {
            return Answer::Accept;
        }
        counter.fetch_add(usize::from(bad < ids.len()), Relaxed);
        Answer::Refuse(Refusal::INVALID)
    });
    mixed
}

/// Sends requests of twenty clients and an invalid request, in one batch.
async fn check(processors: &[(&str, &str)], exporter: (&str, &str), backend: &Backend) {
    let mixed = refuse_items_of_bad_client(backend);
    let collector = Collector::start(&yaml(processors, &[exporter])).await;
    let oracle = Oracle::default();
    let good = Client::grpc("good", collector.grpc(), &oracle).await;
    let bad = Client::http("bad", collector.http(), &Oracle::default());
    for signal in Signal::ALL {
        for number in 0..20 {
            good.send(&good.request(signal, 2)).await.unwrap();
            if number == 13 {
                bad.send(&bad.request(signal, 2)).await.unwrap();
            }
        }
    }
    assert_eq!(oracle.wait_for_delivery(backend).await, 0);
    let metrics = collector.assert_conservation().await;
    assert!(
        mixed.load(Relaxed) >= 4,
        "the bad ones travelled with good ones"
    );
    let lost = [("reason", "permanent")];
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &lost), 8.0);
    assert_eq!(
        metrics.sum("tributary_exporter_delivered_items", &[]),
        160.0
    );
}

#[tokio::test]
async fn refused_request_in_processor_batch_is_dropped_alone() {
    let batch = ("batch", "{timeout: 1h, send_batch_size: 42}");
    for over_http in [false, true] {
        let backend = Backend::start().await;
        let exporter = match over_http {
            false => ("otlp_grpc", grpc_to(&backend, "")),
            true => ("otlp_http", http_to(&backend, "")),
        };
        check(&[batch], (exporter.0, &exporter.1), &backend).await;
    }
}

#[tokio::test]
async fn refused_request_in_merged_profiles_is_dropped_alone() {
    let backend = Backend::start().await;
    let batch = ("batch", "{timeout: 1h, send_batch_size: 42}");
    let exporter = grpc_to(&backend, "");
    let processors = [batch, ("compression", "{mode: compact}")];
    check(&processors, ("otlp_grpc", &exporter), &backend).await;
}

#[tokio::test]
async fn refused_request_in_compressed_batch_is_dropped_alone() {
    let backend = Backend::start().await;
    backend.hold();
    let mixed = refuse_items_of_bad_client(&backend);
    let queue = "sending_queue: {num_consumers: 1, compression: lz4}";
    let exporter = grpc_to(&backend, queue);
    let batch = ("batch", "{timeout: 1h, send_batch_size: 10}");
    let collector = Collector::start(&yaml(&[batch], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let good = Client::grpc("good", collector.grpc(), &oracle).await;
    let bad = Client::http("bad", collector.http(), &Oracle::default());
    // Batches of four valid requests and an invalid request.
    for _ in 0..5 {
        bad.send(&bad.request(Signal::Logs, 2)).await.unwrap();
        for _ in 0..4 {
            good.send(&good.request(Signal::Logs, 2)).await.unwrap();
        }
    }
    collector
        .wait_for_metrics("all batches in the queue", |metrics| {
            metrics.sum("tributary_exporter_in_flight_items", &[]) == 50.0
        })
        .await;
    backend.release();
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    let metrics = collector.assert_conservation().await;
    assert!(mixed.load(Relaxed) >= 5);
    let lost = [("reason", "permanent")];
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &lost), 10.0);
}

#[tokio::test]
async fn refused_request_without_queue_is_dropped_alone() {
    let backend = Backend::start().await;
    let mixed = refuse_items_of_bad_client(&backend);
    let exporter = grpc_to(&backend, "sending_queue: {enabled: false}");
    let batch = ("batch", "{timeout: 1h, send_batch_size: 42}");
    let collector = Collector::start(&yaml(&[batch], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let good = Client::grpc("good", collector.grpc(), &oracle).await;
    let bad = Client::http("bad", collector.http(), &Oracle::default());
    for number in 0..20 {
        good.send(&good.request(Signal::Logs, 2)).await.unwrap();
        if number == 13 {
            bad.send(&bad.request(Signal::Logs, 2)).await.unwrap();
        }
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    let metrics = collector.assert_conservation().await;
    assert!(mixed.load(Relaxed) >= 1);
    let lost = [("reason", "permanent")];
    assert_eq!(metrics.sum("tributary_pipeline_dropped_items", &lost), 2.0);
}

#[tokio::test]
async fn refusal_by_one_exporter_causes_no_duplicate_at_other() {
    let (picky_one, other) = (Backend::start().await, Backend::start().await);
    let mixed = refuse_items_of_bad_client(&picky_one);
    let more = "sending_queue: {enabled: false}";
    let (to_picky, to_other) = (grpc_to(&picky_one, more), http_to(&other, more));
    let exporters = [
        ("otlp_grpc", to_picky.as_str()),
        ("otlp_http", to_other.as_str()),
    ];
    let batch = ("batch", "{timeout: 1h, send_batch_size: 10}");
    let collector = Collector::start(&yaml(&[batch], &exporters)).await;
    let (good_items, bad_items) = (Oracle::default(), Oracle::default());
    let good = Client::grpc("good", collector.grpc(), &good_items).await;
    let bad = Client::http("bad", collector.http(), &bad_items);
    for _ in 0..4 {
        good.send(&good.request(Signal::Logs, 2)).await.unwrap();
    }
    bad.send(&bad.request(Signal::Logs, 2)).await.unwrap();
    assert_eq!(good_items.wait_for_delivery(&picky_one).await, 0);
    collector.assert_conservation().await;
    // Refused with items of other clients: the batch of five requests, and its half of two.
    assert_eq!(mixed.load(Relaxed), 2);
    let record = other.record();
    assert_eq!(record.arrivals.len(), 10);
    assert!(record.arrivals.values().all(|times| *times == 1));
}

#[tokio::test]
async fn refused_request_in_queue_batch_is_dropped_alone() {
    let queue = "sending_queue: {batch: {flush_timeout: 1h, min_size: 42}}";
    for over_http in [false, true] {
        let backend = Backend::start().await;
        let exporter = match over_http {
            false => ("otlp_grpc", grpc_to(&backend, queue)),
            true => ("otlp_http", http_to(&backend, queue)),
        };
        check(&[], (exporter.0, &exporter.1), &backend).await;
    }
}

#[tokio::test]
async fn batches_too_large_for_the_next_hop_are_split() {
    for over_http in [false, true] {
        let backend = Backend::start().await;
        backend.script(|telemetry| match telemetry.ids().len() {
            0..=6 => Answer::Accept,
            _ => Answer::Refuse(Refusal {
                grpc: tonic::Code::ResourceExhausted,
                http: 413,
                retry_after: None,
                message: "too large",
            }),
        });
        let exporter = match over_http {
            false => ("otlp_grpc", grpc_to(&backend, "")),
            true => ("otlp_http", http_to(&backend, "")),
        };
        let batch = ("batch", "{timeout: 1h, send_batch_size: 50}");
        let collector = Collector::start(&yaml(&[batch], &[(exporter.0, &exporter.1)])).await;
        let oracle = Oracle::default();
        let client = Client::grpc("client", collector.grpc(), &oracle).await;
        for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
            for _ in 0..5 {
                client.send(&client.request(signal, 10)).await.unwrap();
            }
        }
        assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
        let metrics = collector.assert_conservation().await;
        assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
    }
}
