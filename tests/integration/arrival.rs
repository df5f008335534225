//! Telemetry arrives unchanged, in every signal, protocol and encoding.

mod json;

use http::Method;

use crate::harness::{
    Backend, Client, Collector, Oracle, Signal, Telemetry, codec, grpc_at, grpc_to, http_at,
    http_to, raw, yaml,
};

/// A collector without processors.
async fn start_without_processors(backend: &Backend) -> Collector {
    let exporter = grpc_to(backend, "compression: none");
    Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await
}

/// Waits until these requests have arrived, one by one, and compares all fields.
async fn assert_arrived(backend: &Backend, sent: &[Telemetry]) {
    let all = |record: &crate::harness::backend::Record| record.accepted.len() >= sent.len();
    backend.wait_for("every request", all).await;
    let record = backend.record();
    for request in sent {
        let ids = request.ids();
        let arrived = record
            .accepted
            .iter()
            .find(|accepted| accepted.telemetry.ids() == ids);
        assert_eq!(&arrived.unwrap().telemetry, request);
    }
    assert_eq!(record.accepted.len(), sent.len(), "nothing arrives twice");
}

#[tokio::test]
async fn all_fields_arrive_over_grpc_in_every_encoding() {
    let backend = Backend::start().await;
    let collector = start_without_processors(&backend).await;
    let mut sent = Vec::new();
    for signal in Signal::ALL {
        for encoding in codec::GRPC {
            let request = Telemetry::with_every_field(signal, &format!("{signal}-{encoding}"));
            let body = codec::compress(encoding, &request.encode());
            let frame = raw::frame(encoding != "identity", &body);
            let headers = [("grpc-encoding", encoding)];
            let reply = raw::grpc(collector.grpc(), raw::method(signal), &headers, frame).await;
            assert_eq!(reply.code, 0, "{signal} {encoding}: {}", reply.message);
            sent.push(request);
        }
    }
    assert_arrived(&backend, &sent).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn all_fields_arrive_over_http_in_every_encoding() {
    let backend = Backend::start().await;
    let collector = start_without_processors(&backend).await;
    let mut sent = Vec::new();
    for signal in Signal::ALL {
        for encoding in codec::HTTP {
            let request = Telemetry::with_every_field(signal, &format!("{signal}-{encoding}"));
            let body = codec::compress(encoding, &request.encode());
            let headers = [
                ("content-type", "application/x-protobuf"),
                ("content-encoding", encoding),
            ];
            let path = raw::path(signal);
            let response = raw::http(collector.http(), Method::POST, path, &headers, body).await;
            assert_eq!(response.status, 200, "{signal} {encoding}: {response:?}");
            assert_eq!(
                response.header("content-type"),
                Some("application/x-protobuf")
            );
            sent.push(request);
        }
    }
    assert_arrived(&backend, &sent).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn every_signal_as_json_arrives_field_by_field() {
    let backend = Backend::start().await;
    let collector = start_without_processors(&backend).await;
    let mut sent = Vec::new();
    for signal in Signal::ALL {
        for encoding in ["identity", "gzip"] {
            let name = format!("{signal}-{encoding}");
            let body = json::with_every_field(signal, &name).to_string();
            let body = codec::compress(encoding, body.as_bytes());
            let headers = [
                ("content-type", "application/json"),
                ("content-encoding", encoding),
            ];
            let path = raw::path(signal);
            let response = raw::http(collector.http(), Method::POST, path, &headers, body).await;
            assert_eq!(
                (response.status.as_u16(), response.text()),
                (200, "{}"),
                "{signal}"
            );
            sent.push(Telemetry::with_every_field(signal, &name));
        }
    }
    assert_arrived(&backend, &sent).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn tonic_and_hyper_clients_are_served_in_every_compression() {
    let backend = Backend::start().await;
    let collector = start_without_processors(&backend).await;
    let oracle = Oracle::default();
    let mut clients = vec![
        Client::grpc("grpc", collector.grpc(), &oracle).await,
        Client::grpc("grpc-gzip", collector.grpc(), &oracle)
            .await
            .compressed("gzip"),
        Client::grpc("grpc-zstd", collector.grpc(), &oracle)
            .await
            .compressed("zstd"),
    ];
    for encoding in codec::HTTP {
        let client = Client::http(&format!("http-{encoding}"), collector.http(), &oracle);
        clients.push(client.compressed(encoding));
    }
    for client in &clients {
        for signal in Signal::ALL {
            client.send(&client.request(signal, 100)).await.unwrap();
        }
    }
    assert_eq!(oracle.acknowledged_count(), clients.len() * 4 * 100);
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn exporters_send_every_field_in_every_compression() {
    for compression in ["none", "gzip", "zstd"] {
        let backend = Backend::start().await;
        let more = format!("compression: {compression}, headers: {{x-tenant: a}}");
        let over_grpc = grpc_to(&backend, &more);
        let over_http = http_to(&backend, &more);
        for exporter in [("otlp_grpc", &over_grpc), ("otlp_http", &over_http)] {
            let collector = Collector::start(&yaml(&[], &[(exporter.0, exporter.1)])).await;
            send_every_field(&collector, exporter.0).await;
            collector.assert_conservation().await;
        }
        let mut sent = Vec::new();
        for signal in Signal::ALL {
            sent.push(Telemetry::with_every_field(
                signal,
                &format!("{signal}-otlp_grpc"),
            ));
            sent.push(Telemetry::with_every_field(
                signal,
                &format!("{signal}-otlp_http"),
            ));
        }
        assert_arrived(&backend, &sent).await;
        for accepted in &backend.record().accepted {
            assert_eq!(accepted.headers["x-tenant"], "a");
            let agent = accepted.headers["user-agent"].to_str().unwrap();
            assert!(agent.starts_with("tributary/"), "{agent}");
        }
    }
}

#[tokio::test]
async fn chained_collectors_keep_every_field() {
    let backend = Backend::start().await;
    let zone = start_without_processors(&backend).await;
    let mut sent = Vec::new();
    let exporters = ["none", "gzip", "zstd", "snappy"]
        .map(|name| ("otlp_grpc", name))
        .into_iter()
        .chain(
            [
                "none",
                "gzip",
                "zstd",
                "snappy",
                "zlib",
                "deflate",
                "lz4",
                "x-snappy-framed",
            ]
            .map(|name| ("otlp_http", name)),
        );
    for (exporter, compression) in exporters {
        let more = format!("compression: {compression}");
        let body = match exporter {
            "otlp_grpc" => grpc_at(zone.grpc(), &more),
            _ => http_at(zone.http(), &more),
        };
        let rack = Collector::start(&yaml(&[], &[(exporter, &body)])).await;
        let name = format!("{exporter}-{compression}");
        sent.extend(send_every_field(&rack, &name).await);
        rack.assert_conservation().await;
        assert!(rack.terminate().await.status.success());
    }
    assert_arrived(&backend, &sent).await;
    zone.assert_conservation().await;
}

#[tokio::test]
async fn batching_changes_only_the_size_of_requests() {
    let backend = Backend::start().await;
    let batch = ("batch", "{timeout: 1h, send_batch_size: 20}");
    let exporter = grpc_to(&backend, "");
    let collector = Collector::start(&yaml(&[batch], &[("otlp_grpc", &exporter)])).await;
    // Ten requests of two spans or log records, four of five data points: one batch each.
    let requests = [
        (Signal::Traces, 10),
        (Signal::Logs, 10),
        (Signal::Metrics, 4),
    ];
    let mut sent = std::collections::BTreeSet::new();
    for (signal, count) in requests {
        for number in 0..count {
            let request = Telemetry::with_every_field(signal, &format!("{signal}-{number}"));
            let body = raw::frame(false, &request.encode());
            let reply = raw::grpc(collector.grpc(), raw::method(signal), &[], body).await;
            assert_eq!(reply.code, 0, "{reply:?}");
            sent.extend(request.resources());
        }
    }
    backend
        .wait_for("three batches", |record| record.accepted.len() == 3)
        .await;
    let record = backend.record();
    let arrived = record
        .accepted
        .iter()
        .flat_map(|accepted| accepted.telemetry.resources());
    assert_eq!(arrived.collect::<std::collections::BTreeSet<_>>(), sent);
    drop(record);
    collector.assert_conservation().await;
}

/// Requests, one of each signal, with every field; the ids begin with the signal and `name`.
async fn send_every_field(collector: &Collector, name: &str) -> Vec<Telemetry> {
    let mut sent = Vec::new();
    for signal in Signal::ALL {
        let request = Telemetry::with_every_field(signal, &format!("{signal}-{name}"));
        let body = raw::frame(false, &request.encode());
        let reply = raw::grpc(collector.grpc(), raw::method(signal), &[], body).await;
        assert_eq!(reply.code, 0, "{signal} {name}: {}", reply.message);
        sent.push(request);
    }
    sent
}
