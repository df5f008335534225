//! Unknown clients are refused, credentials change without a refused request, and no output shows
//! credentials.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use prost::Message;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tributary_net::tls::ClientTls;

use crate::harness::collector::BINARY;
use crate::harness::status::Status;
use crate::harness::{
    Authority, Backend, Client, Collector, Oracle, Signal, grpc_at, grpc_to, http_at, raw, within,
    yaml,
};

/// The secret that must not appear in any output.
const TOKEN: &str = "correct-horse-battery-staple";
const OTHER: &str = "tired-donkey-empty-nail";
/// `password`, as bcrypt with a low cost.
const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu";

fn with_extensions(yaml: &str, extensions: &[(&str, &str)]) -> String {
    let mut section = "extensions:\n".to_owned();
    for (id, body) in extensions {
        section.push_str(&format!("  {id}: {body}\n"));
    }
    let ids: Vec<&str> = extensions.iter().map(|(id, _)| *id).collect();
    section.push_str(&format!("service:\n  extensions: [{}]\n", ids.join(", ")));
    yaml.replace("service:\n", &section)
}

/// A receiver that lets in whom the extension `id` lets in, in front of the backend.
fn guarded(backend: &Backend, id: &str, body: &str) -> String {
    let open = "endpoint: '127.0.0.1:0'";
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(backend, ""))])
        .replace(open, &format!("{open}, auth: {{authenticator: {id}}}"));
    with_extensions(&yaml, &[(id, body)])
}

/// A collector that sends both ways to `server`, with the extension `bearertokenauth`.
fn sending(server: &Collector, body: &str) -> String {
    let auth = "auth: {authenticator: bearertokenauth}";
    let exporters = [
        ("otlp_grpc", grpc_at(server.grpc(), auth)),
        ("otlp_http", http_at(server.http(), auth)),
    ];
    let exporters = exporters.each_ref().map(|(id, body)| (*id, body.as_str()));
    with_extensions(&yaml(&[], &exporters), &[("bearertokenauth", body)])
}

/// An empty request with these headers, over gRPC: the status code and the message.
async fn call(address: SocketAddr, headers: &[(&str, &str)]) -> (i32, String) {
    let method = raw::method(Signal::Traces);
    let reply = raw::grpc(address, method, headers, raw::frame(false, &[])).await;
    (reply.code, reply.message)
}

/// An empty request with these headers, over HTTP.
async fn post(address: SocketAddr, headers: &[(&str, &str)]) -> raw::Response {
    let mut all = vec![("content-type", "application/x-protobuf")];
    all.extend_from_slice(headers);
    raw::http(address, Method::POST, raw::path(Signal::Traces), &all, "").await
}

/// Asserts that the output of a collector contains none of the secrets, neither in plain text nor in base64.
async fn assert_secret(collector: &Collector, yaml: &str, secrets: &[&str]) {
    let mut said: Vec<String> = collector
        .lines()
        .into_iter()
        .map(|line| line.text)
        .collect();
    let address = collector.server("Starting metrics server", "service");
    let page = raw::http(address, Method::GET, "/metrics", &[], "").await;
    said.push(page.text().to_owned());
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("collector.yaml");
    std::fs::write(&config, yaml).unwrap();
    let print = Command::new(BINARY)
        .arg("print-config")
        .arg(format!("--config={}", config.display()))
        .output()
        .unwrap();
    assert!(print.status.success());
    for output in [print.stdout, print.stderr] {
        said.push(String::from_utf8(output).unwrap());
    }
    for text in &said {
        for secret in secrets {
            assert!(!text.contains(secret), "{secret} shows in: {text}");
        }
    }
}

#[tokio::test]
async fn only_matching_tokens_pass_between_collectors() {
    let backend = Backend::start().await;
    let config = format!("{{tokens: [{OTHER}, {TOKEN}]}}");
    let server_yaml = guarded(&backend, "bearertokenauth/door", &config);
    let server = Collector::start(&server_yaml).await;
    let oracle = Oracle::default();
    let good_yaml = sending(&server, &format!("{{token: {TOKEN}}}"));
    let good = Collector::start(&good_yaml).await;
    let client = Client::http("good", good.http(), &oracle);
    for signal in Signal::ALL {
        client.send(&client.request(signal, 10)).await.unwrap();
    }
    within(
        "both copies",
        backend.until(|record| {
            record.arrivals.len() == 40 && record.arrivals.values().all(|times| *times == 2)
        }),
    )
    .await;
    oracle.wait_for_delivery(&backend).await;
    good.assert_conservation().await;

    let bad_yaml = sending(&server, "{token: a-wrong-token-of-ours}");
    let bad = Collector::start_with(&bad_yaml, &["--drain-timeout=1"]).await;
    let client = Client::grpc("bad", bad.grpc(), &Oracle::default()).await;
    client.send(&client.request(Signal::Logs, 3)).await.unwrap();
    for exporter in ["otlp_grpc", "otlp_http"] {
        let line = bad
            .wait_for_line("the refusal", 0, |line| {
                line.message()
                    .starts_with("The next hop refuses the credentials")
                    && line.field("otelcol.component.id") == exporter
            })
            .await;
        let error = line.field("error");
        assert!(
            error.contains("`authorization` header are not valid"),
            "{error}"
        );
    }
    let line = server
        .wait_for_line("the refusal", 0, |line| {
            line.message().starts_with("Refused a client")
        })
        .await;
    assert!(
        line.field("client.address").starts_with("127.0.0.1:"),
        "{}",
        line.text
    );
    assert_eq!(line.field("reason"), "the credentials are not valid");

    let (code, message) = call(server.grpc(), &[]).await;
    assert_eq!(code, 16);
    assert!(message.contains("requires authentication"), "{message}");
    let metrics = server.metrics().await;
    let refused = |transport, reason| {
        let labels = [
            ("receiver", "otlp"),
            ("transport", transport),
            ("reason", reason),
        ];
        metrics.sum("tributary_server_unauthenticated", &labels)
    };
    // Credentials may be renewed, so the exporters retry.
    assert!(refused("grpc", "wrong") >= 1.0);
    assert!(refused("http", "wrong") >= 1.0);
    assert_eq!(refused("grpc", "missing"), 1.0);
    assert_eq!(refused("http", "missing"), 0.0);

    let secrets = [TOKEN, OTHER, "a-wrong-token-of-ours"];
    assert_secret(&server, &server_yaml, &secrets).await;
    assert_secret(&good, &good_yaml, &secrets).await;
    assert_secret(&bad, &bad_yaml, &secrets).await;
}

/// A file of tokens, to be replaced as a whole.
struct Tokens {
    directory: TempDir,
}

impl Tokens {
    fn new(content: &str) -> Self {
        let tokens = Tokens {
            directory: TempDir::new().unwrap(),
        };
        tokens.write(content);
        tokens
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("tokens")
    }

    fn write(&self, content: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    fn extension(&self) -> String {
        format!("{{filename: '{}'}}", self.path().display())
    }
}

/// Waits until the collector has taken over changed credentials this often.
async fn reloaded(collector: &Collector, outcome: &str, times: f64) {
    let labels = [("outcome", outcome)];
    collector
        .wait_for_metrics("credentials are taken over", |metrics| {
            metrics.sum("tributary_auth_reloads", &labels) == times
        })
        .await;
}

#[tokio::test]
async fn token_changes_under_load_without_refusals() {
    let backend = Backend::start().await;
    let (accepted, sent) = (
        Tokens::new("old-token-of-all"),
        Tokens::new("old-token-of-all"),
    );
    let yaml = guarded(&backend, "bearertokenauth", &accepted.extension());
    let server = Collector::start(&yaml).await;
    let sender = Collector::start(&sending(&server, &sent.extension())).await;
    let oracle = Oracle::default();
    let enough = CancellationToken::new();
    let load = {
        let client = Client::grpc("load", sender.grpc(), &oracle).await;
        let enough = enough.clone();
        tokio::spawn(async move {
            while !enough.is_cancelled() {
                client
                    .send(&client.request(Signal::Traces, 5))
                    .await
                    .unwrap();
            }
        })
    };
    let more = async || {
        let seen = backend.record().accepted.len();
        let what = "load under the tokens that count now";
        backend
            .wait_for(what, |record| record.accepted.len() > seen + 20)
            .await;
    };
    more().await;
    accepted.write("new-token-of-all\nold-token-of-all\n");
    reloaded(&server, "success", 1.0).await;
    more().await;
    sent.write("new-token-of-all\n");
    reloaded(&sender, "success", 1.0).await;
    more().await;
    accepted.write("new-token-of-all\n");
    reloaded(&server, "success", 2.0).await;
    more().await;
    accepted.write("\n");
    reloaded(&server, "failure", 1.0).await;
    let bad = "Cannot load the changed credentials file; still using the previous credentials.";
    assert!(
        server
            .wait_for(bad)
            .await
            .field("error")
            .contains("the file has no token")
    );
    more().await;
    enough.cancel();
    load.await.unwrap();
    oracle.wait_for_delivery(&backend).await;
    let metrics = server.metrics().await;
    assert_eq!(metrics.sum("tributary_server_unauthenticated", &[]), 0.0);
    let metrics = sender.assert_conservation().await;
    assert_eq!(metrics.sum("otelcol_exporter_send_failed_spans", &[]), 0.0);
    let with = |token: &str| format!("Bearer {token}");
    let old = [("authorization", &*with("old-token-of-all"))];
    let new = [("authorization", &*with("new-token-of-all"))];
    assert_eq!(call(server.grpc(), &old).await.0, 16);
    assert_eq!(call(server.grpc(), &new).await.0, 0);
    accepted.write("new-token-of-all\n");
    assert_secret(&server, &yaml, &["old-token-of-all", "new-token-of-all"]).await;
}

#[tokio::test]
async fn new_token_on_server_first_loses_no_data() {
    let backend = Backend::start().await;
    let sent = Tokens::new("old-token-of-all");
    let with = |token: &str| guarded(&backend, "bearertokenauth", &format!("{{token: {token}}}"));
    let server = Collector::start(&with("old-token-of-all")).await;
    let sender = Collector::start(&sending(&server, &sent.extension())).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", sender.grpc(), &oracle).await;
    client.send(&client.request(Signal::Logs, 5)).await.unwrap();
    oracle.wait_for_delivery(&backend).await;
    // The file has the new token, but the client checks it only every two seconds. A refusal triggers a check.
    server.reload(&with("new-token-of-all")).await.unwrap();
    sent.write("new-token-of-all");
    client.send(&client.request(Signal::Logs, 5)).await.unwrap();
    oracle.wait_for_delivery(&backend).await;
    let metrics = sender.assert_conservation().await;
    assert_eq!(metrics.sum("tributary_exporter_dropped_items", &[]), 0.0);
}

#[tokio::test]
async fn reload_with_new_token_applies_to_unchanged_receiver() {
    let backend = Backend::start().await;
    let with = |token: &str| guarded(&backend, "bearertokenauth", &format!("{{token: {token}}}"));
    let server = Collector::start(&with(TOKEN)).await;
    let (old, new) = (format!("Bearer {TOKEN}"), format!("Bearer {OTHER}"));
    let (old, new) = ([("authorization", &*old)], [("authorization", &*new)]);
    assert_eq!(call(server.grpc(), &old).await.0, 0);
    assert_eq!(post(server.http(), &new).await.status, 401);
    server.reload(&with(OTHER)).await.unwrap();
    assert_eq!(call(server.grpc(), &new).await.0, 0);
    assert_eq!(post(server.http(), &new).await.status, 200);
    assert_eq!(call(server.grpc(), &old).await.0, 16);
    // Unchanged components are not rebuilt.
    let starts = |server: &Collector| {
        let lines = server.lines();
        lines
            .iter()
            .filter(|line| line.message() == "Starting GRPC server")
            .count()
    };
    let before = starts(&server);
    server.reload(&with(OTHER)).await.unwrap();
    assert_eq!(starts(&server), before);
    assert_eq!(call(server.grpc(), &new).await.0, 0);
}

#[tokio::test]
async fn valid_passwords_pass_and_invalid_ones_get_a_hint() {
    let backend = Backend::start().await;
    let body = format!("{{htpasswd: {{inline: \"alice:{BCRYPT}\\nbob:{TOKEN}\"}}}}");
    let yaml = guarded(&backend, "basicauth", &body).replace(
        "endpoint: '127.0.0.1:0'",
        "include_metadata: true, endpoint: '127.0.0.1:0'",
    );
    let server = Collector::start(&yaml).await;
    let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
    let bob = basic(&format!("bob:{TOKEN}"));
    for (value, status, code) in [
        (basic("alice:password"), 200, 0),
        (bob.clone(), 200, 0),
        (basic("alice:guess"), 401, 16),
        (basic(&format!("mallory:{TOKEN}")), 401, 16),
        (format!("Bearer {TOKEN}"), 401, 16),
    ] {
        let headers = [("authorization", value.as_str())];
        let response = post(server.http(), &headers).await;
        assert_eq!(response.status, status, "{value}");
        assert_eq!(call(server.grpc(), &headers).await.0, code, "{value}");
        if status == 401 {
            let challenge = "Basic realm=\"collector\", charset=\"UTF-8\"";
            assert_eq!(response.header("www-authenticate"), Some(challenge));
            let status = Status::decode(response.body).unwrap();
            assert_eq!(status.code, 16);
            assert!(
                status.message.contains("`authorization` header"),
                "{}",
                status.message
            );
        }
    }
    // The response is sent before the body has arrived, and does not depend on it. A client that is still sending
    // receives the response.
    let megabytes = vec![0xff; 5 << 20];
    let headers = [("content-type", "application/json")];
    let path = raw::path(Signal::Logs);
    let some = megabytes.get(..100_000).unwrap_or_default().to_vec();
    let response = raw::http(server.http(), Method::POST, path, &headers, some).await;
    assert_eq!(response.status, 401);
    let json: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(json["code"], 16);
    let reply = raw::grpc(server.grpc(), raw::method(Signal::Logs), &[], megabytes).await;
    assert_eq!(reply.code, 16);
    let mut busy = None;
    for number in 0..60 {
        let guess = basic(&format!("alice:guess {number}"));
        let response = post(server.http(), &[("authorization", &guess)]).await;
        if response.status == 429 {
            busy = Some(response);
            break;
        }
    }
    assert_eq!(busy.unwrap().header("retry-after"), Some("1"));
    assert_eq!(
        post(server.http(), &[("authorization", &bob)]).await.status,
        200
    );
    let metrics = server.metrics().await;
    let of = |reason| metrics.sum("tributary_server_unauthenticated", &[("reason", reason)]);
    assert_eq!(
        (of("malformed"), of("missing"), of("busy")),
        (2.0, 2.0, 1.0)
    );
    let secrets = [TOKEN, BCRYPT, &STANDARD.encode(format!("bob:{TOKEN}"))];
    assert_secret(&server, &yaml, &secrets).await;
}

/// Sends a GET over TLS, trusting `ca`.
async fn get(address: SocketAddr, ca: &str, path: &str, token: Option<&str>) -> (u16, String) {
    let tls = ClientTls {
        ca_pem: ca.to_owned(),
        ..ClientTls::default()
    };
    let name = tls.server_name("127.0.0.1").unwrap();
    let connector = TlsConnector::from(Arc::new(tls.build(&[b"http/1.1"]).unwrap()));
    let mut request = Request::get(path).header("host", "127.0.0.1");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
    within("an answer over TLS", async {
        let tcp = TcpStream::connect(address).await.unwrap();
        let io = TokioIo::new(connector.connect(name, tcp).await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    })
    .await
}

#[tokio::test]
async fn prometheus_exporter_requires_auth_and_tls() {
    let authority = Authority::new();
    let yaml = format!(
        "extensions:
  bearertokenauth: {{token: '{TOKEN}'}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:0'}}}}}}
exporters:
  prometheus:
    endpoint: '127.0.0.1:0'
    tls: {{{}}}
    auth: {{authenticator: bearertokenauth}}
    response_headers: {{strict-transport-security: max-age=60}}
service:
  extensions: [bearertokenauth]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus]}}
",
        authority.certificate("page")
    );
    let collector = Collector::start(&yaml).await;
    let metrics = r#"{"resourceMetrics": [{"scopeMetrics": [{"metrics": [
        {"name": "private", "gauge": {"dataPoints": [{"timeUnixNano": "1", "asInt": "5"}]}}]}]}]}"#;
    let json = [("content-type", "application/json")];
    let path = raw::path(Signal::Metrics);
    let sent = raw::http(collector.http(), Method::POST, path, &json, metrics).await;
    assert_eq!(sent.status, 200);
    let page = collector.server("Starting HTTP server", "prometheus");
    let scrape = async |token| get(page, authority.pem(), "/metrics", token).await;
    let (status, text) = scrape(Some(TOKEN)).await;
    assert!(
        status == 200 && text.ends_with("private 5\n"),
        "{status} {text}"
    );
    for token in [None, Some(OTHER)] {
        let (status, text) = scrape(token).await;
        assert!(
            status == 401 && !text.contains("private"),
            "{status} {text}"
        );
    }
    // The page is not served in plain text.
    let mut plain = TcpStream::connect(page).await.unwrap();
    let request = format!("GET /metrics HTTP/1.0\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    plain.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The connection may also be reset.
    let _ = within("the end", plain.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        !answer.contains("private") && !answer.contains("200 OK"),
        "{answer}"
    );
    assert_secret(&collector, &yaml, &[TOKEN]).await;
}

#[tokio::test]
async fn health_and_metrics_require_auth_and_tls() {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("cert.pem"), cert.pem()).unwrap();
    std::fs::write(path("key.pem"), signing_key.serialize_pem()).unwrap();
    let keys = format!(
        "tls: {{cert_file: '{}', key_file: '{}'}}, auth: {{authenticator: bearertokenauth}}, \
         limits: {{max_connections: 100}}",
        path("cert.pem").display(),
        path("key.pem").display()
    );
    let backend = Backend::start().await;
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))]);
    let health = format!("{{endpoint: '127.0.0.1:0', {keys}}}");
    // The health check comes first and depends on later extensions.
    let extensions = [
        ("health_check", health.as_str()),
        ("bearertokenauth", &format!("{{token: {TOKEN}}}")),
    ];
    let yaml = with_extensions(&yaml, &extensions).replace(
        "  pipelines:\n",
        &format!("  telemetry: {{metrics: {{{keys}}}}}\n  pipelines:\n"),
    );
    let collector = Collector::start(&yaml).await;
    for (message, component, content) in [
        ("Starting HTTP server", "health_check", "Server available"),
        (
            "Starting metrics server",
            "service",
            "otelcol_process_uptime",
        ),
    ] {
        let address = collector.server(message, component);
        let ca = cert.pem();
        let (status, body) = get(address, &ca, "/metrics", Some(TOKEN)).await;
        assert_eq!(status, 200);
        assert!(body.contains(content), "{body}");
        let (status, body) = get(address, &ca, "/metrics", Some(OTHER)).await;
        assert_eq!(status, 401);
        assert!(
            !body.contains(content) && body.contains("not valid"),
            "{body}"
        );
        assert_eq!(get(address, &ca, "/metrics", None).await.0, 401);
    }
    let address = collector.server("Starting metrics server", "service");
    let (_, page) = get(address, &cert.pem(), "/metrics", Some(TOKEN)).await;
    for (kind, component) in [("extension", "health_check"), ("service", "service")] {
        let metrics = crate::harness::metrics::Metrics::parse(&page);
        let labels = [(kind, component), ("transport", "http")];
        assert_eq!(
            metrics.sum("tributary_server_unauthenticated", &labels),
            2.0
        );
    }
    assert!(!page.contains(TOKEN));
}
