//! Interoperability over TLS with openssl, curl, and gRPC for Python. If a tool is missing, its
//! tests report that and pass.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use opentelemetry_proto::tonic::common::v1::any_value::Value;

use crate::harness::certificates::{Certificates, installed};
use crate::harness::collector::Line;
use crate::harness::{Backend, Collector, Telemetry, grpc_to, within, yaml};
use crate::sdk;

/// A collector that requires mutual TLS, and stamps the items it receives.
struct Rack {
    certificates: Certificates,
    backend: Backend,
    collector: Collector,
}

/// The identity in the certificate of the sidecar.
const IDENTITY: &str = "spiffe://example.com/sidecar";

impl Rack {
    async fn start() -> Option<Self> {
        let certificates = Certificates::make()?;
        let backend = Backend::start().await;
        let tls = format!(
            "endpoint: '127.0.0.1:0', tls: {{cert_file: '{}', key_file: '{}', client_ca_file: '{}', min_version: '1.3', \
             client_identity_attribute: who}}",
            certificates.file("rack.crt"),
            certificates.file("rack.key"),
            certificates.file("ca.crt"),
        );
        let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))]);
        let collector = Collector::start(&yaml.replace("endpoint: '127.0.0.1:0'", &tls)).await;
        Some(Rack {
            certificates,
            backend,
            collector,
        })
    }

    /// Runs curl against the HTTP server, with an export of one span as JSON.
    async fn curl(&self, scheme: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--max-time", "20"])
            .args(["--write-out", "\n%{http_code} HTTP/%{http_version}"])
            .args(["--header", "content-type: application/json"])
            .args(["--data", SPAN])
            .args(arguments)
            .arg(format!("{scheme}://{}/v1/traces", self.collector.http()));
        run(command, "").await
    }

    /// Runs `openssl s_client` against the HTTP server, with that input.
    async fn openssl(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = Command::new("openssl");
        command
            .args(["s_client", "-ign_eof", "-verify_return_error"])
            .args(["-connect", &self.collector.http().to_string()])
            .args(["-CAfile", &self.certificates.file("ca.crt")])
            .args(arguments);
        run(command, input).await
    }

    fn sidecar(&self) -> [String; 2] {
        ["sidecar.crt", "sidecar.key"].map(|name| self.certificates.file(name))
    }

    /// Waits until this many requests have arrived, all of them stamped.
    async fn arrived(&self, requests: usize) {
        let what = format!("{requests} requests");
        let arrived = |record: &crate::harness::backend::Record| record.accepted.len() == requests;
        self.backend.wait_for(&what, arrived).await;
        for accepted in &self.backend.record().accepted {
            let Telemetry::Traces(request) = &accepted.telemetry else {
                panic!("traces were sent");
            };
            let resource = request.resource_spans[0].resource.as_ref().unwrap();
            let [stamp] = resource.attributes.as_slice() else {
                panic!("{resource:?}");
            };
            let value = stamp.value.clone().unwrap().value.unwrap();
            let expected = Value::StringValue(IDENTITY.to_owned());
            assert_eq!((stamp.key.as_str(), value), ("who", expected));
        }
    }
}

const SPAN: &str = r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "from outside",
    "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}]}]}]}"#;

/// The same request as HTTP/1.1 bytes, for tools without an HTTP client.
fn post() -> String {
    format!(
        "POST /v1/traces HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{SPAN}",
        SPAN.len()
    )
}

async fn run(mut command: Command, input: &str) -> Output {
    let input = input.to_owned();
    let run = tokio::task::spawn_blocking(move || {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A refused client may not read its input.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    });
    within("the end of a command", run).await.unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[tokio::test]
async fn openssl_client_keeps_identity_on_resumption() {
    let Some(rack) = Rack::start().await else {
        return;
    };
    let [certificate, key] = rack.sidecar();
    let session = rack.certificates.file("session");
    let own = ["-cert", &certificate, "-key", &key];
    let first = [&own[..], &["-sess_out", &session]].concat();
    let output = said(&rack.openssl(&first, &post()).await);
    assert!(output.contains("New, TLSv1.3"), "{output}");
    assert!(output.contains("HTTP/1.1 200"), "{output}");

    let again = [&own[..], &["-sess_in", &session]].concat();
    let output = said(&rack.openssl(&again, &post()).await);
    assert!(output.contains("Reused, TLSv1.3"), "{output}");
    assert!(output.contains("HTTP/1.1 200"), "{output}");
    rack.arrived(2).await;
}

#[tokio::test]
async fn openssl_is_refused_without_a_certificate_and_with_tls_1_2() {
    let Some(rack) = Rack::start().await else {
        return;
    };
    let [certificate, key] = rack.sidecar();
    let old = ["-cert", &certificate, "-key", &key, "-tls1_2"];
    for (arguments, alert) in [
        (&[][..], "certificate required"),
        (&old[..], "protocol version"),
    ] {
        let output = said(&rack.openssl(arguments, &post()).await);
        assert!(output.contains(alert), "{output}");
        assert!(!output.contains("HTTP/1.1 200"), "{output}");
    }
    assert_eq!(rack.backend.record().attempts, 0);
}

#[tokio::test]
async fn openssl_negotiates_http2_with_the_grpc_port() {
    let Some(rack) = Rack::start().await else {
        return;
    };
    let [certificate, key] = rack.sidecar();
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-alpn", "h2", "-verify_return_error"])
        .args(["-connect", &rack.collector.grpc().to_string()])
        .args(["-CAfile", &rack.certificates.file("ca.crt")])
        .args(["-cert", &certificate, "-key", &key]);
    let output = said(&run(command, "Q\n").await);
    assert!(output.contains("ALPN protocol: h2"), "{output}");
    assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
}

#[tokio::test]
async fn error_of_certified_client_is_logged_with_identity() {
    let Some(rack) = Rack::start().await else {
        return;
    };
    let [certificate, key] = rack.sidecar();
    let mut command = Command::new("openssl");
    command
        .args(["s_client", "-quiet", "-verify_return_error"])
        .args(["-connect", &rack.collector.grpc().to_string()])
        .args(["-CAfile", &rack.certificates.file("ca.crt")])
        .args(["-cert", &certificate, "-key", &key]);
    let request = "GET / HTTP/1.1\r\nhost: rack\r\n\r\n";
    let answer = said(&run(command, request).await);
    assert!(answer.contains("this port speaks OTLP/gRPC"), "{answer}");
    let mistake = "Cannot serve a client";
    let is_it = |line: &Line| line.message().starts_with(mistake);
    let line = rack.collector.wait_for_line(mistake, 0, is_it).await;
    assert_eq!(line.field("reason"), "http1_to_grpc", "{}", line.text);
    assert_eq!(line.field("transport"), "grpc", "{}", line.text);
    assert_eq!(line.field("client.identity"), IDENTITY, "{}", line.text);
}

#[tokio::test]
async fn curl_exports_json_over_both_versions_of_http() {
    if !installed("curl") {
        return;
    }
    let Some(rack) = Rack::start().await else {
        return;
    };
    let authority = rack.certificates.file("ca.crt");
    let [certificate, key] = rack.sidecar();
    let tls = [
        "--cacert",
        &authority,
        "--cert",
        &certificate,
        "--key",
        &key,
    ];
    for (flag, answer) in [("--http1.1", "200 HTTP/1.1"), ("--http2", "200 HTTP/2")] {
        let output = rack.curl("https", &[&tls[..], &[flag]].concat()).await;
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains(answer), "{}", said(&output));
    }
    rack.arrived(2).await;
}

#[tokio::test]
async fn curl_needs_certificate_and_trusted_server() {
    if !installed("curl") {
        return;
    }
    let (Some(rack), Some(others)) = (Rack::start().await, Certificates::make()) else {
        return;
    };
    let authority = rack.certificates.file("ca.crt");
    let output = rack.curl("https", &["--cacert", &authority]).await;
    // Over TLS 1.3 a client detects the refusal on its first read.
    assert!(!output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("000"), "{}", said(&output));

    let [certificate, key] = ["sidecar.crt", "sidecar.key"].map(|name| others.file(name));
    let strange = [
        "--cacert",
        &authority,
        "--cert",
        &certificate,
        "--key",
        &key,
    ];
    let output = rack.curl("https", &strange).await;
    assert!(!output.status.success(), "{}", said(&output));

    let [certificate, key] = rack.sidecar();
    let authority = others.file("ca.crt");
    let trusting = [
        "--cacert",
        &authority,
        "--cert",
        &certificate,
        "--key",
        &key,
    ];
    let output = rack.curl("https", &trusting).await;
    assert_eq!(output.status.code(), Some(60), "{}", said(&output));
    assert_eq!(rack.backend.record().attempts, 0);
}

#[tokio::test]
async fn refused_client_is_in_log_and_metrics() {
    if !installed("curl") {
        return;
    }
    let Some(rack) = Rack::start().await else {
        return;
    };
    let authority = rack.certificates.file("ca.crt");
    let [certificate, key] = rack.sidecar();
    let tls = [
        "--cacert",
        &authority,
        "--cert",
        &certificate,
        "--key",
        &key,
    ];
    let broken = [&tls[..], &["--data", "nonsense"]].concat();
    let answer = said(&rack.curl("https", &broken).await);
    assert!(answer.contains("400 HTTP/"), "{answer}");
    let line = rack.collector.wait_for("Refused a request").await;
    assert_eq!(line.field("client.identity"), IDENTITY, "{}", line.text);
    let metrics = rack.collector.metrics().await;
    let labels = [
        ("receiver", "otlp"),
        ("transport", "http"),
        ("client", IDENTITY),
    ];
    let refused = metrics.sum("tributary_receiver_refused_requests", &labels);
    assert_eq!(refused, 1.0, "{metrics}");
}

#[tokio::test]
async fn curl_without_tls_gets_hint() {
    if !installed("curl") {
        return;
    }
    let Some(rack) = Rack::start().await else {
        return;
    };
    let output = rack.curl("http", &["--http1.1"]).await;
    let answer = said(&output);
    assert!(output.status.success(), "{answer}");
    assert!(answer.contains("400 HTTP/1.1"), "{answer}");
    assert!(answer.contains("TLS"), "{answer}");
    assert_eq!(rack.backend.record().attempts, 0);
}

#[tokio::test]
async fn grpc_for_python_needs_a_certificate() {
    let Some(python) = sdk::told("SDK_PYTHON") else {
        return;
    };
    let Some(rack) = Rack::start().await else {
        return;
    };
    let call = |own: &[String]| {
        let mut command = Command::new(&python);
        command
            .arg(sdk::script("mutual_tls.py"))
            .arg(rack.collector.grpc().to_string())
            .arg(rack.certificates.file("ca.crt"))
            .args(own);
        run(command, "")
    };
    let output = said(&call(&rack.sidecar()).await);
    assert!(output.starts_with("OK"), "{output}");
    rack.arrived(1).await;
    let output = said(&call(&[]).await);
    assert!(output.starts_with("UNAVAILABLE"), "{output}");
    rack.arrived(1).await;
}
