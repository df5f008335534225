//! Collectors accept only peers with trusted certificates.

use std::path::Path;

use http::{Method, StatusCode};

use crate::harness::collector::Line;
use crate::harness::{Authority, Backend, Client, Collector, Oracle, Signal, grpc_to, raw, yaml};

/// Starts a collector that only accepts clients with a certificate of this authority.
async fn rack(authority: &Authority, backend: &Backend) -> Collector {
    let tls = format!(
        "endpoint: '127.0.0.1:0', tls: {{{}, client_ca_file: '{}'}}",
        authority.certificate("rack"),
        authority.file("ca.pem").display()
    );
    let yaml =
        yaml(&[], &[("otlp_grpc", &grpc_to(backend, ""))]).replace("endpoint: '127.0.0.1:0'", &tls);
    Collector::start(&yaml).await
}

/// A collector next to an application. It presents its certificate, if configured.
async fn sidecar(rack: &Collector, exporter: &str, trusted: &Path, certificate: &str) -> Collector {
    let endpoint = match exporter {
        "otlp_grpc" => rack.grpc().to_string(),
        _ => format!("https://{}", rack.http()),
    };
    let body = format!(
        "{{endpoint: '{endpoint}', tls: {{ca_file: '{}', {certificate}}}, \
         retry_on_failure: {{initial_interval: 10ms}}}}",
        trusted.display()
    );
    Collector::start_with(&yaml(&[], &[(exporter, &body)]), &["--drain-timeout=1"]).await
}

#[tokio::test]
async fn all_signals_arrive_over_mutual_tls() {
    let authority = Authority::new();
    let backend = Backend::start().await;
    let rack = rack(&authority, &backend).await;
    let oracle = Oracle::default();
    for exporter in ["otlp_grpc", "otlp_http"] {
        let certificate = authority.certificate(exporter);
        let sidecar = sidecar(&rack, exporter, &authority.file("ca.pem"), &certificate).await;
        let client = Client::grpc(exporter, sidecar.grpc(), &oracle).await;
        for signal in Signal::ALL {
            client.send(&client.request(signal, 100)).await.unwrap();
        }
        assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
        sidecar.assert_conservation().await;
        assert!(sidecar.terminate().await.status.success());
    }
    rack.assert_conservation().await;
}

#[tokio::test]
async fn mutual_tls_requires_trusted_certificates() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let backend = Backend::start().await;
    let rack = rack(&authority, &backend).await;
    let (ours, theirs) = (authority.file("ca.pem"), stranger.file("ca.pem"));
    for exporter in ["otlp_grpc", "otlp_http"] {
        let wanted = "set tls::cert_file and tls::key_file";
        for (trusted, certificate, advice, reason) in [
            (&ours, String::new(), wanted, "no_certificate"),
            (
                &ours,
                stranger.certificate(exporter),
                "add our authority to the server's client_ca_file",
                "unknown_authority",
            ),
            (
                &theirs,
                authority.certificate(exporter),
                "tls::ca_file",
                "distrusted",
            ),
        ] {
            let sidecar = sidecar(&rack, exporter, trusted, &certificate).await;
            let client = Client::grpc(exporter, sidecar.grpc(), &Oracle::default()).await;
            client
                .send(&client.request(Signal::Traces, 1))
                .await
                .unwrap();
            let retry = "Exporting failed. Will retry the request after interval.";
            let line = sidecar.wait_for(retry).await;
            let error = line.field("error");
            assert!(error.contains(advice), "{}", line.text);
            // No retry can succeed, so the failure is logged as an error at once.
            let hopeless =
                |line: &Line| line.message().starts_with("TLS handshakes fail; retrying");
            let line = sidecar
                .wait_for_line("an error about TLS", 0, hopeless)
                .await;
            assert_eq!(line.field("level"), "error", "{}", line.text);
            assert!(line.field("reason").contains(advice), "{}", line.text);
            // The metrics of the other side have the reason.
            let label = format!("\"reason\":\"{reason}\"");
            rack.wait_for_line(reason, 0, |line| line.text.contains(&label))
                .await;
            let ended = sidecar.terminate().await;
            assert_eq!(ended.status.code(), Some(1), "it could not deliver");
        }
    }
    // Plain text is refused too, with an explanation.
    let answer = raw::http(rack.http(), Method::POST, "/v1/traces", &[], "").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(answer.text().contains("TLS"), "{}", answer.text());
    assert_eq!(backend.record().attempts, 0);
}
