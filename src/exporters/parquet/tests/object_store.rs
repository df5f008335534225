//! Tests of the exporter with an object store that fails.

use super::super::place::store::testing::{Fault, Server};
use super::*;

/// An exporter that finishes files and retries at once, and the server that it uploads to.
async fn start(more: &str) -> (Bench, Server) {
    let (server, object_store) = Server::start().await;
    let yaml = format!(
        "{{rotation: {{interval: 10ms}}, retry_on_failure: {{initial_interval: 10ms, max_interval: 10ms}}{more}}}"
    );
    let config: Config = serde_yaml::from_str(&yaml).unwrap();
    let config = Config {
        object_store: tributary_config::Section(Some(object_store)),
        ..config
    };
    (Bench::of(&config, TempDir::new().unwrap()), server)
}

/// All bodies in the objects, in order.
fn rows(server: &Server) -> Vec<String> {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("object");
    let mut rows = Vec::new();
    for object in server.bucket().objects.values() {
        fs::write(&path, object).unwrap();
        rows.extend(bodies(&path));
    }
    rows.sort();
    rows
}

/// Returns a text that takes several parts even after compression.
fn noise() -> String {
    (0..20_000).map(|_| fastrand::alphanumeric()).collect()
}

#[tokio::test]
async fn refused_object_is_rewritten_exactly_once() {
    let (mut bench, server) = start("").await;
    // A refusal is permanent for the client library; only the queue retries.
    server.will("begin", [Fault::Status(403); 3]);
    for body in ["a", "b", "c"] {
        bench.send(&[(body, 0)]).await.unwrap();
    }
    bench.idle().await;
    assert_eq!(rows(&server), ["a", "b", "c"]);
    assert!(server.requests("begin") > 3);
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 3);
    assert_eq!(bench.recorded.items("dropped", Signal::Logs), 0);
    assert_eq!(bench.stop().await, Undelivered::default());
}

#[tokio::test]
async fn failed_and_slow_parts_lose_no_rows() {
    let (mut bench, server) = start(", row_group: {max_rows: 2}").await;
    let parts = [
        Fault::Slow,
        Fault::Status(403),
        Fault::Status(503),
        Fault::Lost,
        Fault::Slow,
    ];
    server.will("part", parts);
    server.will("complete", [Fault::Lost, Fault::Slow]);
    let mut sent: Vec<String> = Vec::new();
    for number in 0..6 {
        let body = format!("{number} {}", noise());
        bench.send(&[(&body, 0)]).await.unwrap();
        sent.push(body);
    }
    bench.idle().await;
    assert!(rows(&server) == sent);
    assert!(server.bucket().uploads.is_empty());
    assert_eq!(bench.recorded.items("delivered", Signal::Logs), 6);
    assert_eq!(bench.stop().await, Undelivered::default());
    drop(bench.terminal);
    assert_eq!(bench.cx.budget.used(), 0);
}

#[tokio::test]
async fn shutdown_uploads_unfinished_files() {
    let (mut bench, server) = start("").await;
    server.will("complete", [Fault::Slow]);
    bench.send(&[("a", 0), ("b", 1)]).await.unwrap();
    assert_eq!(bench.stop().await, Undelivered::default());
    assert_eq!(rows(&server), ["a", "b"]);
}
