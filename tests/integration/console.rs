//! The console shows the throughput and the failures of components, and serves nothing to unauthenticated clients.

use http::Method;
use serde_json::Value;

use crate::harness::{Backend, Client, Collector, Oracle, Signal, grpc_to, raw, within, yaml};

/// `password`, as bcrypt with a low cost.
const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuWG29KuyeAicPCJODk1zjyGvyQUU2awu";

fn with_console(yaml: &str, keys: &str) -> String {
    let extension = format!(
        "extensions:\n  console: {{endpoint: '127.0.0.1:0'{keys}}}\nservice:\n  extensions: [console]\n"
    );
    yaml.replace("service:\n", &extension)
}

async fn get(collector: &Collector, path: &str, headers: &[(&str, &str)]) -> raw::Response {
    let address = collector.server("Starting HTTP server", "console");
    raw::http(address, Method::GET, path, headers, "").await
}

/// Requests snapshots until one satisfies the condition.
async fn snapshot(collector: &Collector, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    within(what, async {
        loop {
            let response = get(collector, "/api/v1/pipeline", &[]).await;
            let snapshot: Value = serde_json::from_slice(&response.body).unwrap();
            if holds(&snapshot) {
                return snapshot;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

fn node<'a>(snapshot: &'a Value, id: &str) -> &'a Value {
    let mut nodes = snapshot["nodes"].as_array().unwrap().iter();
    nodes.find(|node| node["id"] == id).unwrap()
}

#[tokio::test]
async fn snapshot_shows_throughput_of_components_and_edges() {
    let backend = Backend::start().await;
    let processors = [
        (
            "attributes",
            "{actions: [{key: a, value: b, action: insert}]}",
        ),
        ("batch", "{timeout: 1ms}"),
    ];
    let yaml = yaml(&processors, &[("otlp_grpc", &grpc_to(&backend, ""))]).replace(
        "    profiles: {receivers: [otlp], processors: [attributes, ",
        "    profiles: {receivers: [otlp], processors: [",
    );
    let collector = Collector::start(&with_console(&yaml, "")).await;
    let oracle = Oracle::default();
    let client = Client::grpc("grpc", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Traces, 7))
        .await
        .unwrap();
    oracle.wait_for_delivery(&backend).await;

    let delivered =
        |snapshot: &Value| node(snapshot, "exporters/otlp_grpc")["accounts"][0]["delivered"] == 7;
    let shown = snapshot(&collector, "a snapshot with the delivery", delivered).await;
    assert_eq!(shown["phase"], "ready");
    for id in [
        "receivers/otlp",
        "pipelines/traces/processors/attributes",
        "pipelines/traces/processors/batch",
        "exporters/otlp_grpc",
    ] {
        let account = &node(&shown, id)["accounts"][0];
        assert_eq!(account["signal"], "traces", "{id}");
        assert_eq!(
            (&account["received"], &account["delivered"]),
            (&7.into(), &7.into()),
            "{id}"
        );
    }
    let edges = shown["edges"].as_array().unwrap();
    let items: Vec<_> = edges
        .iter()
        .filter(|edge| edge["pipeline"] == "traces")
        .map(|edge| {
            (
                edge["from"].as_str().unwrap(),
                edge["items"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        items,
        [
            ("receivers/otlp", 7),
            ("pipelines/traces/processors/attributes", 7),
            ("pipelines/traces/processors/batch", 7),
        ]
    );
    let pipelines = shown["pipelines"].as_array().unwrap();
    let traces = pipelines
        .iter()
        .find(|pipeline| pipeline["id"] == "traces")
        .unwrap();
    assert_eq!(
        (&traces["received"], &traces["forwarded"]),
        (&7.into(), &7.into())
    );
    let sent = &shown["clients"][0];
    assert_eq!(
        (&sent["address"], &sent["items"]),
        (&"127.0.0.1".into(), &7.into())
    );
}

#[tokio::test]
async fn snapshot_names_the_last_error_and_the_oldest_request() {
    let exporter = "{endpoint: '127.0.0.1:1', tls: {insecure: true}, retry_on_failure: {initial_interval: 1ms}}";
    let yaml = yaml(&[], &[("otlp_grpc", exporter)]);
    let collector = Collector::start(&with_console(&yaml, "")).await;
    let client = Client::grpc("grpc", collector.grpc(), &Oracle::default()).await;
    client.send(&client.request(Signal::Logs, 2)).await.unwrap();

    let failed = |snapshot: &Value| !node(snapshot, "exporters/otlp_grpc")["last_error"].is_null();
    let shown = snapshot(&collector, "a snapshot with the error", failed).await;
    let exporter = node(&shown, "exporters/otlp_grpc");
    let error = &exporter["last_error"];
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("Connection refused"),
        "{error}"
    );
    assert_eq!(
        (&error["address"], &error["signal"]),
        (&"127.0.0.1:1".into(), &"logs".into())
    );
    assert!(error["failing_seconds"].is_number());
    let queues = exporter["queues"].as_array().unwrap();
    let logs = queues
        .iter()
        .find(|queue| queue["signal"] == "logs")
        .unwrap();
    assert!(logs["oldest_seconds"].is_number(), "{logs}");
    assert!(logs["capacity"].as_f64().unwrap() > 0.0);
    let events = shown["events"].as_array().unwrap();
    let warned = |event: &Value| {
        event["level"] == "warn" && event["message"].as_str().unwrap().contains("otlp_grpc")
    };
    assert!(events.iter().any(warned), "{events:?}");
}

#[tokio::test]
async fn configuration_is_shown_without_secrets() {
    let exporter = "{endpoint: 'http://127.0.0.1:1/?api_key=hidden', headers: {x-key: hidden}}";
    let yaml = yaml(&[], &[("otlp_http", exporter)]);
    let collector = Collector::start(&with_console(&yaml, "")).await;
    for path in ["/api/v1/config", "/api/v1/pipeline"] {
        let response = get(&collector, path, &[]).await;
        assert_eq!(response.status, 200);
        assert!(
            !response.text().contains("hidden"),
            "{path}: {}",
            response.text()
        );
    }
    let shown = get(&collector, "/api/v1/config", &[]).await;
    assert!(shown.text().contains("otlp_http:"));
}

#[tokio::test]
async fn page_is_served_with_a_strict_policy_to_known_hosts() {
    let yaml = yaml(&[], &[("debug", "{}")]);
    let collector = Collector::start(&with_console(&yaml, ", allowed_hosts: [ops.example]")).await;
    for host in ["localhost:1", "127.0.0.1", "[::1]:80", "ops.example"] {
        let response = get(&collector, "/", &[("host", host)]).await;
        assert_eq!(response.status, 200, "{host}");
        let policy = response.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
    }
    for path in [
        "/",
        "/api/v1/pipeline",
        "/api/v1/config",
        "/api/v1/profiles/stores",
    ] {
        let response = get(&collector, path, &[("host", "rebound.example")]).await;
        assert_eq!(response.status, 421, "{path}");
    }
    assert_eq!(get(&collector, "/../Cargo.toml", &[]).await.status, 404);
    let zipped = get(&collector, "/main.js", &[("accept-encoding", "gzip, br")]).await;
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
}

#[tokio::test]
async fn console_requires_auth_and_logs_reads_of_profiles() {
    let yaml = yaml(&[], &[("debug", "{}")]);
    let keys = ", auth: {authenticator: basicauth}";
    let users =
        format!("extensions:\n  basicauth: {{htpasswd: {{inline: 'jane:{BCRYPT}'}}}}\n  console");
    let yaml = with_console(&yaml, keys)
        .replace("extensions:\n  console", &users)
        .replace("extensions: [console]", "extensions: [basicauth, console]");
    let collector = Collector::start(&yaml).await;
    for path in ["/", "/api/v1/pipeline", "/api/v1/profiles/stores"] {
        assert_eq!(get(&collector, path, &[]).await.status, 401, "{path}");
    }
    let credentials = [("authorization", "Basic amFuZTpwYXNzd29yZA==")];
    let stores = get(&collector, "/api/v1/profiles/stores?x=1", &credentials).await;
    assert!(
        stores.status == 200 || stores.status == 400,
        "{}",
        stores.text()
    );
    let line = collector.wait_for("Profiles were read.").await;
    assert_eq!(
        (line.field("user"), line.field("path")),
        ("jane", "/api/v1/profiles/stores")
    );
    assert!(line.field("client.address").starts_with("127.0.0.1:"));
}
