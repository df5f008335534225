//! SIGTERM delivers acknowledged data, or reports how many items were not delivered.

use tokio::task::JoinSet;

use crate::harness::{
    Answer, Backend, Client, Collector, Oracle, Refusal, Signal, grpc_to, http_to, yaml,
};

const STOPPING: &str = "Received signal from OS. Starting shutdown...";

#[tokio::test]
async fn sigterm_delivers_acknowledged_data_and_exits_with_0() {
    for over_http in [false, true] {
        let backend = Backend::start().await;
        let exporter = match over_http {
            false => ("otlp_grpc", grpc_to(&backend, "")),
            true => ("otlp_http", http_to(&backend, "")),
        };
        // Batches that are far from full: the shutdown must flush their content.
        let batch = ("batch", "{timeout: 1h, send_batch_size: 1000}");
        let collector = Collector::start(&yaml(&[batch], &[(exporter.0, &exporter.1)])).await;
        let oracle = Oracle::default();
        let mut load = JoinSet::new();
        for number in 0..2 {
            let grpc = Client::grpc(&format!("grpc{number}"), collector.grpc(), &oracle).await;
            let http = Client::http(&format!("http{number}"), collector.http(), &oracle);
            for client in [grpc, http] {
                load.spawn(async move {
                    loop {
                        for signal in Signal::ALL {
                            if client.send(&client.request(signal, 7)).await.is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        }
        backend
            .wait_for("batches", |record| record.accepted.len() > 4)
            .await;
        let ended = collector.terminate().await;
        load.join_all().await;
        assert!(ended.status.success(), "{}", ended.status);
        ended.line("Shutdown complete.");
        assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    }
}

#[tokio::test]
async fn slow_next_hop_gets_data_until_deadline() {
    let backend = Backend::start().await;
    backend.hold();
    let exporter = grpc_to(&backend, "sending_queue: {num_consumers: 1}");
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    for _ in 0..20 {
        client.send(&client.request(Signal::Logs, 5)).await.unwrap();
    }
    collector.assert_conservation_in_flight().await;
    collector.signal("TERM");
    collector.wait_for(STOPPING).await;
    backend.release();
    let ended = collector.ended().await;
    assert!(ended.status.success(), "{}", ended.status);
    assert_eq!(oracle.acknowledged_count(), 100);
    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
}

#[tokio::test]
async fn dead_next_hop_loss_is_reported_with_exit_code_1() {
    let backend = Backend::start().await;
    let batch = ("batch", "{timeout: 1h, send_batch_size: 1000}");
    let exporters = [
        ("otlp_grpc", grpc_to(&backend, "")),
        ("otlp_http", http_to(&backend, "")),
    ];
    backend.stop().await;
    for (exporter, body) in &exporters {
        let yaml = yaml(&[batch], &[(exporter, body)]);
        let collector = Collector::start_with(&yaml, &["--drain-timeout=1"]).await;
        let oracle = Oracle::default();
        let client = Client::http("client", collector.http(), &oracle);
        for _ in 0..3 {
            client
                .send(&client.request(Signal::Traces, 5))
                .await
                .unwrap();
        }
        let ended = collector.terminate().await;
        assert_eq!(ended.status.code(), Some(1));
        let report = ended.line("Shutdown complete, but some items were not delivered.");
        assert_eq!(report.number("undelivered_items"), 15);
        let loss = "Shutdown ended before the sending queue was delivered; its items are lost. Raise \
                    `--drain-timeout`, or set `sending_queue.storage` to persist the queue.";
        let loss = ended.line(loss);
        assert_eq!(loss.number("undelivered_items"), 15);
        assert_eq!(loss.field("otelcol.component.id"), *exporter);
    }
}

#[tokio::test]
async fn next_hop_restarting_during_shutdown_gets_everything() {
    let backend = Backend::start().await;
    let batch = ("batch", "{timeout: 1h, send_batch_size: 1000}");
    let exporters = [
        ("otlp_grpc", grpc_to(&backend, "")),
        ("otlp_http", http_to(&backend, "")),
    ];
    for (exporter, body) in &exporters {
        let collector = Collector::start(&yaml(&[batch], &[(exporter, body)])).await;
        let oracle = Oracle::default();
        let client = Client::http(exporter, collector.http(), &oracle);
        for _ in 0..3 {
            client
                .send(&client.request(Signal::Traces, 5))
                .await
                .unwrap();
        }
        // The first two attempts fail, as they would while the next hop restarts.
        let mut failures = 2;
        backend.script(move |_| {
            if failures == 0 {
                return Answer::Accept;
            }
            failures -= 1;
            Answer::Refuse(Refusal::UNAVAILABLE)
        });
        let ended = collector.terminate().await;
        assert!(ended.status.success(), "{}", ended.status);
        assert_eq!(oracle.acknowledged_count(), 15);
        let complete = |record: &crate::harness::backend::Record| !record.accepted.is_empty();
        backend.wait_for("the data", complete).await;
        assert_eq!(oracle.missing(&backend), 0);
    }
}

#[tokio::test]
async fn permanent_refusal_during_shutdown_is_logged() {
    let backend = Backend::start().await;
    let batch = ("batch", "{timeout: 1h, send_batch_size: 1000}");
    let collector =
        Collector::start(&yaml(&[batch], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    backend.always(Answer::Refuse(Refusal::INVALID));
    client
        .send(&client.request(Signal::Traces, 5))
        .await
        .unwrap();
    let ended = collector.terminate().await;
    let drop = ended.line("Exporting failed. Dropping data.");
    assert_eq!(drop.number("dropped_items"), 5);
    assert!(
        drop.text.contains("the backend does not like it"),
        "{}",
        drop.text
    );
}

#[tokio::test]
async fn silent_next_hop_does_not_outlast_drain_timeout() {
    let backend = Backend::start().await;
    backend.hold();
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, "timeout: 0s"))]);
    let collector = Collector::start_with(&yaml, &["--drain-timeout=1"]).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client.send(&client.request(Signal::Logs, 5)).await.unwrap();
    backend
        .wait_for("the request", |record| record.held == 1)
        .await;
    let ended = collector.terminate().await;
    assert_eq!(ended.status.code(), Some(1));
    let report = ended.line("Shutdown complete, but some items were not delivered.");
    assert_eq!(report.number("undelivered_items"), 5);
}

#[tokio::test]
async fn second_signal_ends_the_process_at_once() {
    let backend = Backend::start().await;
    backend.hold();
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client.send(&client.request(Signal::Logs, 5)).await.unwrap();
    collector.signal("TERM");
    collector.wait_for(STOPPING).await;
    let waiting = "Waiting for items in flight: exporter otlp_grpc (logs): 5. A second signal";
    let says = |line: &crate::harness::collector::Line| line.message().starts_with(waiting);
    collector.wait_for_line(waiting, 0, says).await;
    let ended = collector.terminate().await;
    assert_eq!(ended.status.code(), Some(1));
    ended.line(
        "Received a second signal. Ending at once; items lost unless their senders retry: exporter otlp_grpc \
         (logs): 5.",
    );
}

#[tokio::test]
async fn idle_collector_exits_with_0_on_either_signal() {
    for signal in ["TERM", "INT"] {
        let backend = Backend::start().await;
        let collector =
            Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
        collector.signal(signal);
        assert!(collector.ended().await.status.success());
    }
}

#[tokio::test]
async fn sigterm_during_configuration_read_exits_cleanly() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(crate::harness::collector::BINARY)
        .args([
            "--config=/dev/stdin",
            "--set=service.telemetry.metrics.level=none",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    // proc_pid_status(5): the caught signals, as bits; SIGTERM is number 15.
    crate::harness::within("a process that catches SIGTERM", async {
        loop {
            let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
            if caught >> 14 & 1 == 1 {
                return;
            }
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    })
    .await;
    let killed = Command::new("kill").args(["-TERM", &id]).status().unwrap();
    assert!(killed.success());
    // The end of the configuration is never sent.
    let stdin = child.stdin.take();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap());
    assert!(status.await.unwrap().success());
    drop(stdin);
}
