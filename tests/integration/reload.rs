//! A reload refuses nothing and loses nothing; a bad configuration changes nothing.

use std::process::Command;
use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::{Backend, Client, Collector, Oracle, Signal, Telemetry, grpc_to, yaml};

/// A configuration that marks every span with its number.
fn marking(backend: &Backend, number: usize) -> String {
    let mark = format!("{{actions: [{{key: mark, value: '{number}', action: upsert}}]}}");
    // Another timeout makes the exporter a changed one.
    let exporter = grpc_to(backend, &format!("timeout: {}s", number + 5));
    yaml(
        &[("attributes", &mark), ("batch", "{timeout: 5ms}")],
        &[("otlp_grpc", &exporter)],
    )
    .replace("    profiles:", "    #")
}

fn mark(backend: &Backend, id: &str) -> Vec<String> {
    let record = backend.record();
    let mut marks = Vec::new();
    for telemetry in record.telemetry(Signal::Traces) {
        let Telemetry::Traces(request) = telemetry else {
            continue;
        };
        let scopes = request
            .resource_spans
            .iter()
            .flat_map(|resource| &resource.scope_spans);
        for span in scopes.flat_map(|scope| &scope.spans) {
            let value = |key: &str| {
                let found = span
                    .attributes
                    .iter()
                    .find(|attribute| attribute.key == key)?;
                match found.value.as_ref()?.value.as_ref()? {
                    Value::StringValue(text) => Some(text.clone()),
                    Value::IntValue(number) => Some(number.to_string()),
                    _ => None,
                }
            };
            if value("test.id").as_deref() == Some(id) {
                marks.extend(value("mark"));
            }
        }
    }
    marks
}

#[tokio::test]
async fn reload_under_load_refuses_and_loses_nothing() {
    let backend = Backend::start().await;
    let collector = Collector::start(&marking(&backend, 0)).await;
    let oracle = Oracle::default();
    let enough = CancellationToken::new();
    let mut load = JoinSet::new();
    for number in 0..2 {
        let grpc = Client::grpc(&format!("grpc{number}"), collector.grpc(), &oracle).await;
        let http = Client::http(&format!("http{number}"), collector.http(), &oracle);
        for client in [grpc, http] {
            let (client, enough) = (Arc::new(client), enough.clone());
            load.spawn(async move {
                let mut sent = 0;
                while !enough.is_cancelled() {
                    for signal in [Signal::Traces, Signal::Logs] {
                        client
                            .send(&client.request(signal, 5))
                            .await
                            .expect("no refusal");
                        sent += 1;
                    }
                }
                sent
            });
        }
    }
    let probe = Client::grpc("probe", collector.grpc(), &oracle).await;
    for number in 1..=5 {
        let seen = backend.record().accepted.len();
        backend
            .wait_for("load", |record| record.accepted.len() > seen + 5)
            .await;
        collector.reload(&marking(&backend, number)).await.unwrap();
        // Requests after a reload go to the new exporter.
        let request = probe.request(Signal::Traces, 1);
        probe.send(&request).await.unwrap();
        oracle.wait_for_delivery(&backend).await;
        assert_eq!(mark(&backend, &request.ids()[0]), [number.to_string()]);
        // New clients are served too.
        let late = Client::http(&format!("late{number}"), collector.http(), &oracle);
        late.send(&late.request(Signal::Logs, 1)).await.unwrap();
    }
    enough.cancel();
    let sent: i32 = load.join_all().await.iter().sum();
    assert!(sent > 50, "there was load: {sent} requests");
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn old_queue_of_changed_exporter_drains() {
    let (old, new) = (Backend::start().await, Backend::start().await);
    old.hold();
    let to = |backend| yaml(&[], &[("otlp_grpc", &grpc_to(backend, ""))]);
    let collector = Collector::start(&to(&old)).await;
    let (before, after) = (Oracle::default(), Oracle::default());
    let client = Client::grpc("before", collector.grpc(), &before).await;
    for _ in 0..30 {
        client
            .send(&client.request(Signal::Metrics, 2))
            .await
            .unwrap();
    }
    collector.reload(&to(&new)).await.unwrap();
    let client = Client::grpc("after", collector.grpc(), &after).await;
    client
        .send(&client.request(Signal::Metrics, 2))
        .await
        .unwrap();
    assert_eq!(after.wait_for_delivery(&new).await, 0);
    assert_eq!(old.record().accepted.len(), 0);
    collector.assert_conservation_in_flight().await;

    old.release();
    assert_eq!(before.wait_for_delivery(&old).await, 0);
    collector.assert_conservation().await;
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn unchanged_exporter_keeps_its_queue() {
    let backend = Backend::start().await;
    backend.hold();
    let queue = "sending_queue: {num_consumers: 1, queue_size: 10}";
    let exporter = grpc_to(&backend, queue);
    let batch = ("batch", "{timeout: 1ms}");
    let plain = yaml(&[], &[("otlp_grpc", &exporter)]);
    let batching = yaml(&[batch], &[("otlp_grpc", &exporter)]);
    let collector = Collector::start(&plain).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..10 {
        client
            .send(&client.request(Signal::Metrics, 2))
            .await
            .unwrap();
    }
    for yaml in [&batching, &plain] {
        collector.reload(yaml).await.unwrap();
    }
    let full = client.send(&client.request(Signal::Metrics, 2)).await;
    assert!(full.unwrap_err().is_retryable(), "it is as full as it was");
    let metrics = collector.assert_conservation_in_flight().await;
    assert_eq!(metrics.sum("tributary_exporter_in_flight_items", &[]), 20.0);
    backend.release();
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn reload_opens_new_listeners_and_closes_old_ones() {
    let backend = Backend::start().await;
    let exporter = grpc_to(&backend, "");
    let before = yaml(&[], &[("otlp_grpc", &exporter)]);
    let after = before.replace("      http: {endpoint: '127.0.0.1:0'}\n", "");
    assert_ne!(before, after);
    let collector = Collector::start(&before).await;
    let oracle = Oracle::default();
    let http = Client::http("http", collector.http(), &oracle);
    http.send(&http.request(Signal::Logs, 1)).await.unwrap();
    collector.reload(&after).await.unwrap();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    grpc.send(&grpc.request(Signal::Logs, 1)).await.unwrap();
    let refused = Client::http("late", collector.http(), &oracle);
    let refused = refused.send(&refused.request(Signal::Logs, 1)).await;
    assert!(
        refused.unwrap_err().message.contains("no answer"),
        "no listener"
    );
    collector.reload(&before).await.unwrap();
    let http = Client::http("again", collector.http(), &oracle);
    http.send(&http.request(Signal::Logs, 1)).await.unwrap();
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    collector.assert_conservation().await;
}

#[tokio::test]
async fn sigterm_waits_for_old_queue_of_changed_exporter() {
    let (old, new) = (Backend::start().await, Backend::start().await);
    old.hold();
    let to = |backend| yaml(&[], &[("otlp_grpc", &grpc_to(backend, ""))]);
    let collector = Collector::start(&to(&old)).await;
    let oracle = Oracle::default();
    let client = Client::grpc("before", collector.grpc(), &oracle).await;
    client
        .send(&client.request(Signal::Metrics, 2))
        .await
        .unwrap();
    collector.reload(&to(&new)).await.unwrap();
    collector.signal("TERM");
    collector
        .wait_for("Received signal from OS. Starting shutdown...")
        .await;
    old.release();
    assert_eq!(oracle.wait_for_delivery(&old).await, 0);
    assert!(collector.ended().await.status.success());
}

#[tokio::test]
async fn bad_configuration_keeps_previous_one_running() {
    let backend = Backend::start().await;
    let good = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, "timeout: 7s"))]);
    let collector = Collector::start(&good).await;
    let taken = backend.http().to_string();
    for (bad, reasons) in [
        (
            good.replace("processors: []", "processors: [batsh]"),
            ["batsh", "collector.yaml:"],
        ),
        (
            good.replace("timeout:", "timeuot:"),
            ["timeuot", "did you mean"],
        ),
        (String::new(), ["", ""]),
        ("receivers: [".to_owned(), ["collector.yaml:", ""]),
        (
            good.replace("127.0.0.1:0'}\nproc", &format!("{taken}'}}\nproc")),
            [&taken, "use"],
        ),
    ] {
        assert_ne!(bad, good);
        let lines = collector.reload(&bad).await.unwrap_err();
        let said: String = lines.iter().map(|line| line.text.clone() + "\n").collect();
        for reason in reasons {
            assert!(said.contains(reason), "{reason:?} is not in:\n{said}");
        }
        let oracle = Oracle::default();
        for client in [
            Client::grpc("grpc", collector.grpc(), &oracle).await,
            Client::http("http", collector.http(), &oracle),
        ] {
            client
                .send(&client.request(Signal::Profiles, 1))
                .await
                .unwrap();
        }
        oracle.wait_for_delivery(&backend).await;
    }
    collector.reload(&good).await.unwrap();
    collector.assert_conservation().await;
    assert!(collector.terminate().await.status.success());
}

#[tokio::test]
async fn unreadable_configuration_delays_neither_traffic_nor_shutdown() {
    let backend = Backend::start().await;
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, "timeout: 7s"))]);
    let collector = Collector::start(&yaml).await;
    // The FIFO has no writer.
    std::fs::remove_file(collector.config()).unwrap();
    let made = Command::new("mkfifo").arg(collector.config()).status();
    assert!(made.unwrap().success());
    collector.signal("HUP");
    collector.wait_for("Reloading the configuration.").await;
    let oracle = Oracle::default();
    let client = Client::grpc("grpc", collector.grpc(), &oracle).await;
    client.send(&client.request(Signal::Logs, 1)).await.unwrap();
    oracle.wait_for_delivery(&backend).await;
    assert!(collector.terminate().await.status.success());
}
