//! Detected attributes are on every resource that leaves the collector.

use std::process::Command;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::harness::collector::binary;
use crate::harness::{Backend, Collector, Signal, Telemetry, grpc_to, raw, yaml};

/// Starts an instance metadata service, and returns its URL.
async fn instance_metadata() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(|request: Request<Incoming>| async move {
                let body = match request.uri().path() {
                    "/latest/dynamic/instance-identity/document" => {
                        r#"{"instanceId": "i-0123456789", "region": "eu-west-1"}"#
                    }
                    _ => "text",
                };
                let body = Full::new(Bytes::from_static(body.as_bytes()));
                Ok::<_, hyper::Error>(Response::new(body))
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    url
}

fn has(bytes: &[u8], text: &str) -> bool {
    let mut parts = bytes.windows(text.len());
    parts.any(|part| part == text.as_bytes())
}

#[tokio::test]
async fn detected_attributes_are_on_resources_of_all_signals() {
    let backend = Backend::start().await;
    let detection = (
        "resourcedetection",
        "{detectors: [env, ec2], ec2: {resource_attributes: {cloud.region: {enabled: false}}}}",
    );
    let exporter = grpc_to(&backend, "sending_queue: {enabled: false}");
    let mut command = Command::new(binary());
    command.env(
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        instance_metadata().await,
    );
    command.env(
        "OTEL_RESOURCE_ATTRIBUTES",
        "deployment.environment.name=prod%20eu",
    );
    let config = yaml(&[detection], &[("otlp_grpc", &exporter)]);
    let collector = Collector::run(command, &config, &[]).await;
    for signal in Signal::ALL {
        let request = Telemetry::of(signal, &["item".to_owned()]);
        let frame = raw::frame(false, &request.encode());
        let reply = raw::grpc(collector.grpc(), raw::method(signal), &[], frame).await;
        assert_eq!(reply.code, 0, "{reply:?}");
        let arrived: Vec<Telemetry> = backend.record().telemetry(signal).cloned().collect();
        let encoded = arrived[0].encode();
        for text in ["host.id", "i-0123456789", "prod eu", "schemas/1.43.0"] {
            assert!(has(&encoded, text), "{signal:?}: {text}");
        }
        assert!(!has(&encoded, "eu-west-1"), "{signal:?}");
    }
    collector.assert_conservation().await;
}

#[tokio::test]
async fn failing_detector_prevents_the_start() {
    let directory = tempfile::TempDir::new().unwrap();
    let file = directory.path().join("collector.yaml");
    let detection = (
        "resource_detection",
        "{detectors: [env], retry: {enabled: false}}",
    );
    std::fs::write(&file, yaml(&[detection], &[("nop", "{}")])).unwrap();
    let ended = Command::new(binary())
        .arg(format!("--config={}", file.display()))
        .env("OTEL_RESOURCE_ATTRIBUTES", "no pair")
        .output()
        .unwrap();
    assert!(!ended.status.success());
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        said.contains("detector `env`: OTEL_RESOURCE_ATTRIBUTES"),
        "{said}"
    );
}
