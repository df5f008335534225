//! Failures, restarts, reloads and the shutdown at once, in seeded random order: acknowledged items arrive.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, http_to, yaml,
};

/// A configuration of many: the number decides on batching, protocol and the exporter's identity.
fn configuration(backend: &Backend, number: u64) -> String {
    let more = format!("timeout: {}s", 10 + number);
    let exporter = match number % 3 {
        0 => ("otlp_http", http_to(backend, &more)),
        _ => ("otlp_grpc", grpc_to(backend, &more)),
    };
    let batch = ("batch", "{timeout: 20ms, send_batch_size: 50}");
    let processors = if number.is_multiple_of(2) {
        vec![batch]
    } else {
        Vec::new()
    };
    yaml(&processors, &[(exporter.0, &exporter.1)])
}

#[tokio::test]
async fn acknowledged_items_survive_concurrent_failures() {
    for seed in 0..2 {
        let backend = Backend::start().await;
        let mut random = fastrand::Rng::with_seed(seed);
        backend.script(move |_| match random.u8(..100) {
            0..15 => Answer::Refuse(Refusal::UNAVAILABLE),
            15..18 => Answer::Disconnect,
            18..20 => Answer::AcceptAndDisconnect,
            _ => Answer::Accept,
        });
        let collector = Collector::start(&configuration(&backend, seed)).await;
        let oracle = Oracle::default();
        let enough = CancellationToken::new();
        let mut load = JoinSet::new();
        for number in 0..2 {
            let grpc = Client::grpc(&format!("grpc{number}"), collector.grpc(), &oracle).await;
            let http = Client::http(&format!("http{number}"), collector.http(), &oracle);
            for client in [grpc, http] {
                let enough = enough.clone();
                load.spawn(async move {
                    while !enough.is_cancelled() {
                        for signal in Signal::ALL {
                            let _ = client.send(&client.request(signal, 3)).await;
                        }
                    }
                });
            }
        }
        for number in 1..=6 {
            let seen = backend.record().accepted.len();
            backend
                .wait_for("load", |record| record.accepted.len() > seen + 20)
                .await;
            collector
                .reload(&configuration(&backend, seed + number))
                .await
                .unwrap();
            if number.is_multiple_of(2) {
                backend.stop().await;
                let acknowledged_count = oracle.acknowledged_count();
                collector
                    .wait_for_metrics("something acknowledged meanwhile", |_| {
                        oracle.acknowledged_count() > acknowledged_count
                    })
                    .await;
                backend.restart();
            }
        }
        collector.signal("TERM");
        let ended = collector.ended().await;
        enough.cancel();
        load.join_all().await;
        assert!(ended.status.success(), "{}", ended.status);
        let twice = oracle.wait_for_delivery(&backend).await;
        eprintln!(
            "{twice} of {} items arrived more than once",
            oracle.acknowledged_count()
        );
        assert!(oracle.acknowledged_count() > 300, "there was load");
    }
}
