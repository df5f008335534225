//! Dashboards, alerts and probes made for the OpenTelemetry Collector work.

use http::Method;

use crate::harness::{Backend, Client, Collector, Oracle, Signal, grpc_to, raw, yaml};

/// With the extension `health_check`.
fn with_health(yaml: &str, body: &str) -> String {
    let extension =
        format!("extensions:\n  health_check: {body}\nservice:\n  extensions: [health_check]\n");
    yaml.replace("service:\n", &extension)
}

#[tokio::test]
async fn own_metrics_match_collector_names_and_labels() {
    let backend = Backend::start().await;
    let processors = [
        ("memory_limiter", "{limit_mib: 100}"),
        (
            "attributes",
            "{actions: [{key: a, value: b, action: insert}]}",
        ),
        ("batch", "{timeout: 1ms}"),
    ];
    let yaml = yaml(&processors, &[("otlp_grpc", &grpc_to(&backend, ""))]).replace(
        "    profiles: {receivers: [otlp], processors: [memory_limiter, attributes, ",
        "    profiles: {receivers: [otlp], processors: [memory_limiter, ",
    );
    let collector = Collector::start(&yaml).await;
    let oracle = Oracle::default();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    let http = Client::http("http", collector.http(), &oracle);
    for signal in Signal::ALL {
        grpc.send(&grpc.request(signal, 3)).await.unwrap();
        http.send(&http.request(signal, 2)).await.unwrap();
    }
    oracle.wait_for_delivery(&backend).await;
    let metrics = collector.assert_conservation().await;
    for items in ["spans", "metric_points", "log_records", "profile_samples"] {
        for (transport, count) in [("grpc", 3.0), ("http", 2.0)] {
            let labels = [("receiver", "otlp"), ("transport", transport)];
            let name = format!("otelcol_receiver_accepted_{items}");
            assert_eq!(metrics.sum(&name, &labels), count, "{name}");
            assert!(metrics.has(&format!("otelcol_receiver_refused_{items}"), &labels));
        }
        let labels = [("exporter", "otlp_grpc")];
        for (outcome, count) in [("sent", 5.0), ("send_failed", 0.0), ("enqueue_failed", 0.0)] {
            let name = format!("otelcol_exporter_{outcome}_{items}");
            assert!(metrics.has(&name, &labels), "{name}");
            assert_eq!(metrics.sum(&name, &labels), count, "{name}");
            assert_eq!(metrics.types[&name], "counter");
        }
    }
    for signal in Signal::ALL {
        let labels = [("exporter", "otlp_grpc"), ("data_type", signal.name())];
        assert_eq!(metrics.sum("otelcol_exporter_queue_size", &labels), 0.0);
        assert_eq!(
            metrics.sum("otelcol_exporter_queue_capacity", &labels),
            1000.0
        );
        assert!(metrics.has("otelcol_exporter_in_flight_requests", &labels));
    }
    for signal in [Signal::Traces, Signal::Metrics, Signal::Logs] {
        let labels = [("processor", "attributes"), ("otel_signal", signal.name())];
        assert_eq!(
            metrics.sum("otelcol_processor_incoming_items", &labels),
            5.0
        );
        assert_eq!(
            metrics.sum("otelcol_processor_outgoing_items", &labels),
            5.0
        );
    }
    let batch = [("processor", "batch")];
    assert!(metrics.sum("otelcol_processor_batch_timeout_trigger_send", &batch) > 0.0);
    assert!(metrics.sum("otelcol_processor_batch_batch_send_size_count", &batch) > 0.0);
    assert_eq!(
        metrics.types["otelcol_processor_batch_batch_send_size"],
        "histogram"
    );
    // The kernel counts CPU time in ticks; a new process may have used none.
    assert!(metrics.has("otelcol_process_cpu_seconds", &[]));
    for process in ["otelcol_process_uptime", "otelcol_process_memory_rss"] {
        assert!(metrics.sum(process, &[]) > 0.0, "{process}");
    }
    assert!(metrics.has("target_info", &[("service_name", "collector")]));
}

#[tokio::test]
async fn metrics_endpoint_follows_http_for_other_requests() {
    let backend = Backend::start().await;
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
    let address = collector.server("Starting metrics server", "service");
    let page = raw::http(address, Method::GET, "/metrics", &[], "").await;
    assert_eq!(page.status, 200);
    let format = "text/plain; version=0.0.4; charset=utf-8";
    assert_eq!(page.header("content-type"), Some(format));
    let other = raw::http(address, Method::GET, "/metricz", &[], "").await;
    assert_eq!(other.status, 404);
    let post = raw::http(address, Method::POST, "/metrics", &[], "x").await;
    assert_eq!(
        (post.status.as_u16(), post.header("allow")),
        (405, Some("GET, HEAD"))
    );
    let head = raw::http(address, Method::HEAD, "/metrics", &[], "").await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn health_check_is_200_while_running_and_503_while_stopping() {
    let backend = Backend::start().await;
    let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))]);
    let body = "{endpoint: '127.0.0.1:0', path: /health}";
    let collector = Collector::start(&with_health(&yaml, body)).await;
    let address = collector.server("Starting HTTP server", "health_check");
    let healthy = raw::http(address, Method::GET, "/health", &[], "").await;
    assert_eq!(healthy.status, 200);
    assert!(
        healthy.text().contains("Server available"),
        "{}",
        healthy.text()
    );
    assert_eq!(
        raw::http(address, Method::GET, "/", &[], "").await.status,
        404
    );

    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    backend.hold();
    client.send(&client.request(Signal::Logs, 1)).await.unwrap();
    collector.signal("TERM");
    collector
        .wait_for("Received signal from OS. Starting shutdown...")
        .await;
    let ending = raw::http(address, Method::GET, "/health", &[], "").await;
    assert_eq!(ending.status, 503);
    backend.release();
    assert!(collector.ended().await.status.success());
    oracle.wait_for_delivery(&backend).await;
}

#[tokio::test]
async fn health_check_is_503_while_exporter_fails() {
    let backend = Backend::start().await;
    backend.hold();
    let exporter = grpc_to(&backend, "sending_queue: {queue_size: 1}");
    let yaml = yaml(&[], &[("otlp_grpc", &exporter)]);
    let body = "{endpoint: '127.0.0.1:0', recovery_duration: 1ms}";
    let collector = Collector::start(&with_health(&yaml, body)).await;
    let address = collector.server("Starting HTTP server", "health_check");
    let status = async || raw::http(address, Method::GET, "/", &[], "").await.status;
    assert_eq!(status().await, 200);
    let oracle = Oracle::default();
    let client = Client::grpc("client", collector.grpc(), &oracle).await;
    client.send(&client.request(Signal::Logs, 1)).await.unwrap();
    client
        .send(&client.request(Signal::Logs, 1))
        .await
        .unwrap_err();
    crate::harness::within("503", async {
        while status().await != 503 {
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    })
    .await;
    let page = raw::http(address, Method::GET, "/", &[], "").await;
    assert!(page.text().contains("otlp_grpc"), "{}", page.text());
    backend.release();
    crate::harness::within("200 again", async {
        while status().await != 200 {
            tokio::time::sleep(crate::harness::POLL_INTERVAL).await;
        }
    })
    .await;
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn calls_are_measured_on_both_sides_at_level_detailed() {
    for (level, calls) in [("normal", 0.0), ("detailed", 1.0)] {
        let backend = Backend::start().await;
        let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))]);
        let level = format!("--set=service.telemetry.metrics.level={level}");
        let collector = Collector::start_with(&yaml, &[&level]).await;
        let oracle = Oracle::default();
        let client = Client::grpc("client", collector.grpc(), &oracle).await;
        let request = client.request(Signal::Traces, 3);
        client.send(&request).await.unwrap();
        oracle.wait_for_delivery(&backend).await;
        let metrics = collector.assert_conservation().await;
        let method = "opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let of_server = [
            ("rpc_method", method),
            ("rpc_response_status_code", "OK"),
            ("rpc_system_name", "grpc"),
        ];
        let port = backend.grpc().port().to_string();
        let address = [("server_address", "127.0.0.1"), ("server_port", &port)];
        let of_client = [&of_server[..], &address].concat();
        for (side, labels) in [("server", &of_server[..]), ("client", &of_client)] {
            let name = format!("rpc_{side}_call_duration_count");
            assert_eq!(metrics.sum(&name, labels), calls, "{level}: {name}");
        }
    }
}
