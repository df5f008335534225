//! With `dedup`, duplicates arrive once, and only accepted items count as delivered.

use std::net::SocketAddr;

use futures_util::future::join_all;
use tokio::net::TcpSocket;

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_at, grpc_to, yaml,
};

/// Configuration of exporters without a queue: the client learns the outcome.
const DIRECT: &str = "sending_queue: {enabled: false}";
const QUEUE: &str = "sending_queue: {queue_size: 100000}";
const DEDUP: (&str, &str) = ("dedup", "{window: 10m, max_bytes: 1MiB}");

const REQUESTS: usize = 5;
const ITEMS: usize = 20;
/// Over all signals.
const ALL: usize = 4 * REQUESTS * ITEMS;

async fn zone(backend: &Backend) -> Collector {
    let exporter = grpc_to(backend, QUEUE);
    Collector::start(&yaml(&[DEDUP], &[("otlp_grpc", &exporter)])).await
}

async fn send_all(client: &Client) {
    for _ in 0..REQUESTS {
        for signal in Signal::ALL {
            client.send(&client.request(signal, ITEMS)).await.unwrap();
        }
    }
}

async fn assert_duplicates(zone: &Collector, items: usize) {
    let metrics = zone.assert_conservation().await;
    let dropped = metrics.sum(
        "tributary_pipeline_dropped_items",
        &[("reason", "duplicate")],
    );
    assert_eq!(dropped, items as f64);
    let told = metrics.sum("tributary_processor_dedup_duplicate_items", &[]);
    assert_eq!(told, items as f64);
}

#[tokio::test]
async fn killed_rack_causes_no_duplicates() {
    let backend = Backend::start().await;
    let zone = zone(&backend).await;
    // The rack acknowledges after both the zone and this backend have acknowledged. Therefore at some time only the
    // zone has the items.
    let other = Backend::start().await;
    other.hold();
    let to_zone = grpc_at(zone.grpc(), DIRECT);
    let to_other = grpc_to(&other, DIRECT);
    let exporters = [
        ("otlp_grpc/zone", &*to_zone),
        ("otlp_grpc/other", &*to_other),
    ];
    let rack_yaml = yaml(&[], &exporters);
    // Bound but not listening: no other process gets the port while the rack is down.
    let place = TcpSocket::new_v4().unwrap();
    place.set_reuseaddr(true).unwrap();
    place.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address: SocketAddr = place.local_addr().unwrap();
    let endpoint = format!("--set=receivers.otlp.protocols.grpc.endpoint={address}");
    let rack = Collector::start_with(&rack_yaml, &[&endpoint]).await;
    let sidecar = Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_at(address, QUEUE))])).await;

    let oracle = Oracle::default();
    let client = Client::grpc("client", sidecar.grpc(), &oracle).await;
    send_all(&client).await;
    // The zone has accepted all items in flight, and the other backend delays its response.
    other
        .wait_for("all requests", |record| record.held == 4 * REQUESTS)
        .await;
    zone.wait_for_metrics("all items", |metrics| {
        metrics.sum("tributary_pipeline_forwarded_items", &[]) == ALL as f64
    })
    .await;
    drop(rack);
    other.release();
    let _rack = Collector::start_with(&rack_yaml, &[&endpoint]).await;

    sidecar
        .wait_for_metrics("everything to be delivered", |metrics| {
            metrics.sum("tributary_exporter_delivered_items", &[]) == ALL as f64
        })
        .await;
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    assert_duplicates(&zone, ALL).await;
    sidecar.assert_conservation().await;
}

#[tokio::test]
async fn two_racks_of_one_sidecar_cause_no_duplicates() {
    let backend = Backend::start().await;
    let zone = zone(&backend).await;
    let to_zone = grpc_at(zone.grpc(), QUEUE);
    // The racks batch requests differently.
    let batches = [
        "{timeout: 0s}",
        "{timeout: 10ms, send_batch_size: 30, send_batch_max_size: 30}",
    ];
    let racks = batches.map(|batch| {
        let yaml = yaml(&[("batch", batch)], &[("otlp_grpc", &to_zone)]);
        async move { Collector::start(&yaml).await }
    });
    let racks = join_all(racks).await;
    let [one, two] = [0, 1].map(|at| grpc_at(racks[at].grpc(), QUEUE));
    let exporters = [("otlp_grpc/one", &*one), ("otlp_grpc/two", &*two)];
    let sidecar = Collector::start(&yaml(&[], &exporters)).await;

    let oracle = Oracle::default();
    let client = Client::grpc("client", sidecar.grpc(), &oracle).await;
    send_all(&client).await;
    for rack in &racks {
        rack.wait_for_metrics("everything to be delivered", |metrics| {
            metrics.sum("tributary_exporter_delivered_items", &[]) == ALL as f64
        })
        .await;
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    assert_duplicates(&zone, ALL).await;
}

#[tokio::test]
async fn refused_data_is_delivered_on_retry() {
    let backend = Backend::start().await;
    let mut random = fastrand::Rng::with_seed(7);
    backend.script(move |_| match random.u8(..100) {
        0..40 => Answer::Refuse(Refusal::UNAVAILABLE),
        _ => Answer::Accept,
    });
    let no_retries = format!("{DIRECT}, retry_on_failure: {{enabled: false}}");
    let exporter = format!(
        "{{endpoint: '{}', tls: {{insecure: true}}, {no_retries}}}",
        backend.grpc()
    );
    let zone = Collector::start(&yaml(&[DEDUP], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", zone.grpc(), &oracle).await;
    let mut refusals = 0;
    for _ in 0..10 {
        for signal in Signal::ALL {
            let request = client.request(signal, ITEMS);
            refusals += client.send_until_acknowledged(&request).await.len();
            // The client sends again, as after a lost response.
            refusals += client.send_until_acknowledged(&request).await.len();
        }
    }
    assert!(refusals > 0);
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    assert_duplicates(&zone, 40 * ITEMS).await;
}

#[tokio::test]
async fn retry_after_reload_causes_no_duplicate() {
    let backend = Backend::start().await;
    let with = |batch: &str| {
        let exporter = grpc_to(&backend, QUEUE);
        yaml(&[DEDUP, ("batch", batch)], &[("otlp_grpc", &exporter)])
    };
    let zone = Collector::start(&with("{timeout: 5ms}")).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", zone.grpc(), &oracle).await;
    let requests = Signal::ALL.map(|signal| client.request(signal, ITEMS));
    for request in &requests {
        client.send(request).await.unwrap();
    }
    zone.reload(&with("{timeout: 6ms}")).await.unwrap();
    for request in &requests {
        client.send(request).await.unwrap();
    }
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    assert_duplicates(&zone, 4 * ITEMS).await;
}
