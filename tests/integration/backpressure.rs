//! If the next hop is too slow, clients are told to retry; no acknowledged data is lost.

use std::time::Duration;

use futures_util::future::join_all;
use tonic::Code;

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Refused, Signal, grpc_to, http_to, yaml,
};

/// Sends until a request is refused. Returns how many were not, and the refusal.
async fn fill(client: &Client, items: usize) -> (usize, Refused) {
    for accepted in 0..1000 {
        if let Err(refused) = client.send(&client.request(Signal::Traces, items)).await {
            return (accepted, refused);
        }
    }
    panic!("nothing fills the collector");
}

#[tokio::test]
async fn full_queue_refuses_with_retry_delay_and_recovers() {
    let backend = Backend::start().await;
    backend.hold();
    let exporter = grpc_to(
        &backend,
        "sending_queue: {queue_size: 20, num_consumers: 2}",
    );
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    let http = Client::http("http", collector.http(), &oracle);

    let (accepted, refused) = fill(&grpc, 10).await;
    assert_eq!(accepted, 20, "exactly what the queue may hold");
    assert_eq!(refused.code, Code::ResourceExhausted, "{refused:?}");
    assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
    let (accepted, refused) = fill(&http, 10).await;
    assert_eq!(accepted, 0);
    assert_eq!(refused.http, Some(429), "{refused:?}");
    assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
    backend
        .wait_for("as many requests as there are consumers", |record| {
            record.held == 2
        })
        .await;

    let metrics = collector.assert_conservation_in_flight().await;
    let of_queue = [("exporter", "otlp_grpc"), ("data_type", "traces")];
    assert_eq!(metrics.sum("otelcol_exporter_queue_size", &of_queue), 20.0);
    assert_eq!(
        metrics.sum("otelcol_exporter_queue_capacity", &of_queue),
        20.0
    );
    assert_eq!(
        metrics.sum("otelcol_exporter_enqueue_failed_spans", &[]),
        20.0
    );
    assert_eq!(
        metrics.sum("tributary_exporter_in_flight_items", &of_queue),
        200.0
    );

    let waiting: Vec<_> = (0..40).map(|_| grpc.request(Signal::Traces, 10)).collect();
    let resent = join_all(
        waiting
            .iter()
            .map(|request| grpc.send_until_acknowledged(request)),
    );
    let (refusals, ()) = tokio::join!(resent, async {
        let full = |metrics: &crate::harness::metrics::Metrics| {
            metrics.sum("otelcol_exporter_enqueue_failed_spans", &[]) > 20.0
        };
        collector
            .wait_for_metrics("a request that was refused and will come back", full)
            .await;
        backend.release();
    });
    assert!(refusals.iter().any(|refusals| !refusals.is_empty()));
    assert_eq!(oracle.acknowledged_count(), 200 + 400);
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn next_hop_outage_loses_no_acknowledged_data() {
    for over_http in [false, true] {
        let backend = Backend::start().await;
        let more = "sending_queue: {queue_size: 200, sizer: items}, compression: gzip";
        let exporter = match over_http {
            false => ("otlp_grpc", grpc_to(&backend, more)),
            true => ("otlp_http", http_to(&backend, more)),
        };
        let collector = Collector::start(&yaml(&[], &[(exporter.0, &exporter.1)])).await;
        let oracle = Oracle::default();
        let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
        let http = Client::http("http", collector.http(), &oracle);
        grpc.send(&grpc.request(Signal::Logs, 10)).await.unwrap();
        oracle.wait_for_delivery(&backend).await;

        backend.stop().await;
        let mut refused = 0;
        for _ in 0..100 {
            let request = grpc.request(Signal::Logs, 10);
            refused += usize::from(grpc.send(&request).await.is_err());
            let request = http.request(Signal::Logs, 10);
            refused += usize::from(http.send(&request).await.is_err());
        }
        assert_eq!(refused, 180, "the queue holds 200 items");
        collector.assert_conservation_in_flight().await;
        assert_eq!(oracle.missing(&backend), 200);

        backend.restart();
        assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
        let metrics = collector.assert_conservation().await;
        assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
        http.send(&http.request(Signal::Logs, 10)).await.unwrap();
        oracle.wait_for_delivery(&backend).await;
    }
}

#[tokio::test]
async fn backlog_stays_within_memory_budget() {
    const MIB: u64 = 1 << 20;
    let backend = Backend::start().await;
    backend.hold();
    let limiter = "{limit_mib: 24, spike_limit_mib: 8}";
    let exporter = grpc_to(
        &backend,
        "sending_queue: {queue_size: 100000}, compression: none",
    );
    let yaml = yaml(&[("memory_limiter", limiter)], &[("otlp_grpc", &exporter)]);
    let collector = Collector::start(&yaml).await;
    let oracle = Oracle::default();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    let http = Client::http("http", collector.http(), &oracle);
    let before = collector.peak_memory();

    let items = 4000;
    let size = grpc.request(Signal::Traces, items).encode().len();
    let (accepted, refused) = fill(&grpc, items).await;
    assert_eq!(refused.code, Code::ResourceExhausted, "{refused:?}");
    assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
    assert!(refused.message.contains("memory"), "{refused:?}");
    let held = (accepted * size) as u64;
    assert!((12 * MIB..=16 * MIB).contains(&held), "{held} bytes held");
    let (_, refused) = fill(&http, items).await;
    assert_eq!(refused.http, Some(429), "{refused:?}");

    // Clients that keep waiting take no memory.
    let requests: Vec<_> = (0..8)
        .map(|_| grpc.request(Signal::Traces, items))
        .collect();
    for _ in 0..5 {
        let refused = join_all(requests.iter().map(|request| grpc.send(request))).await;
        assert!(refused.iter().all(Result::is_err));
    }
    let grown = collector.peak_memory().saturating_sub(before);
    assert!(grown < 64 * MIB, "the process grew by {grown} bytes");
    collector.assert_conservation_in_flight().await;

    backend.release();
    join_all(
        requests
            .iter()
            .map(|request| grpc.send_until_acknowledged(request)),
    )
    .await;
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn full_queue_blocks_clients_if_configured() {
    let backend = Backend::start().await;
    backend.hold();
    let queue = "sending_queue: {queue_size: 2, num_consumers: 1, block_on_overflow: true}";
    let exporter = grpc_to(&backend, queue);
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    let http = Client::http("http", collector.http(), &oracle);
    for _ in 0..2 {
        grpc.send(&grpc.request(Signal::Logs, 1)).await.unwrap();
    }
    let requests = [(); 2].map(|()| (grpc.request(Signal::Logs, 1), http.request(Signal::Logs, 1)));
    let waiting = join_all(requests.iter().map(|(over_grpc, over_http)| async {
        grpc.send(over_grpc).await.unwrap();
        http.send(over_http).await.unwrap();
    }));
    tokio::join!(waiting, async {
        let waiting = |metrics: &crate::harness::metrics::Metrics| {
            metrics.sum("tributary_pipeline_in_flight_items", &[]) == 2.0
        };
        collector
            .wait_for_metrics("two requests that wait for room", waiting)
            .await;
        assert_eq!(
            oracle.acknowledged_count(),
            2,
            "they are not acknowledged yet"
        );
        backend.release();
    });
    assert_eq!(oracle.acknowledged_count(), 6);
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn clients_get_delivery_outcome_if_configured() {
    let backend = Backend::start().await;
    let queue = "sending_queue: {wait_for_result: true, batch: {flush_timeout: 10ms}}";
    let exporter = grpc_to(&backend, queue);
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    let http = Client::http("http", collector.http(), &oracle);
    let (over_grpc, over_http) = tokio::join!(
        async { grpc.send(&grpc.request(Signal::Traces, 2)).await },
        async { http.send(&http.request(Signal::Traces, 2)).await },
    );
    over_grpc.unwrap();
    over_http.unwrap();
    assert_eq!(
        oracle.missing(&backend),
        0,
        "an acknowledgement means delivered"
    );
    backend.always(Answer::Refuse(Refusal::INVALID));
    let refused = grpc.send(&grpc.request(Signal::Traces, 2)).await;
    assert_eq!(refused.unwrap_err().code, Code::InvalidArgument);
    let refused = http.send(&http.request(Signal::Traces, 2)).await;
    assert_eq!(refused.unwrap_err().http, Some(400));
    let metrics = collector.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_exporter_refused_items", &[]), 4.0);
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
}
