//! Spans of Zipkin and Jaeger arrive as OTLP, clients learn the true outcome, and dropped UDP packets are counted.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use tokio::net::UdpSocket;

use crate::harness::{Answer, Backend, Collector, Refusal, Signal, Telemetry, raw};

/// Inputs in all formats, with the translation of the Collector.
const CASES: &str = include_str!("../../crates/span_formats/tests/translators/cases.jsonl");
const POST_SPANS: &str = "/jaeger.api_v2.CollectorService/PostSpans";

/// Inputs of a format, each with the number of its spans.
fn inputs(kind: &str) -> Vec<(Vec<u8>, usize)> {
    let cases = CASES
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let of_kind = cases.filter(|case: &serde_json::Value| case["kind"] == kind);
    let bytes =
        |value: &serde_json::Value| STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    of_kind
        .map(|case| {
            let expected = ExportTraceServiceRequest::decode(&*bytes(&case["expected"])).unwrap();
            let scopes = expected
                .resource_spans
                .iter()
                .flat_map(|resource| &resource.scope_spans);
            (
                bytes(&case["input"]),
                scopes.map(|scope| scope.spans.len()).sum(),
            )
        })
        .collect()
}

/// Starts a collector with all protocols, which forwards to the backend.
async fn start(backend: &Backend, exporter: &str) -> Collector {
    let exporter = format!(
        "{{endpoint: '{}', tls: {{insecure: true}}, {exporter}}}",
        backend.grpc()
    );
    let yaml = format!(
        "receivers:
  zipkin: {{endpoint: '127.0.0.1:0'}}
  jaeger/tcp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}, thrift_http: {{endpoint: '127.0.0.1:0'}}}}}}
  jaeger/compact: {{protocols: {{thrift_compact: {{endpoint: '127.0.0.1:0', socket_buffer_size: 1000000}}}}}}
  jaeger/binary: {{protocols: {{thrift_binary: {{endpoint: '127.0.0.1:0', max_packet_size: 60000}}}}}}
exporters: {{otlp_grpc: {exporter}}}
service: {{pipelines: {{traces: {{receivers: [zipkin, jaeger/tcp, jaeger/compact, jaeger/binary], exporters: [otlp_grpc]}}}}}}
"
    );
    Collector::start(&yaml).await
}

/// The spans that have arrived.
fn arrived(backend: &Backend) -> Vec<Span> {
    let record = backend.record();
    let requests = record
        .telemetry(Signal::Traces)
        .map(|telemetry| match telemetry {
            Telemetry::Traces(request) => request,
            other => panic!("{other:?}"),
        });
    let resources = requests.flat_map(|request| &request.resource_spans);
    let scopes = resources.flat_map(|resource| &resource.scope_spans);
    scopes.flat_map(|scope| scope.spans.clone()).collect()
}

async fn send_packet(to: SocketAddr, packet: &[u8]) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    assert_eq!(socket.send_to(packet, to).await.unwrap(), packet.len());
}

#[tokio::test]
async fn spans_of_every_format_arrive_as_otlp() {
    let backend = Backend::start().await;
    let collector = start(&backend, "").await;
    let zipkin = collector.server("Starting HTTP server", "zipkin");
    let thrift = collector.server("Starting HTTP server", "jaeger/tcp");
    let grpc = collector.server("Starting GRPC server", "jaeger/tcp");
    let mut sent = Vec::new();
    for (kind, address, path, content_type, transport) in [
        (
            "ZipkinV1Json",
            zipkin,
            "/api/v1/spans",
            "application/json",
            "http_v1_json",
        ),
        (
            "ZipkinV1Thrift",
            zipkin,
            "/api/v1/spans",
            "application/x-thrift",
            "http_v1_thrift",
        ),
        (
            "ZipkinV2Json",
            zipkin,
            "/api/v2/spans",
            "application/json; charset=utf-8",
            "http_v2_json",
        ),
        (
            "ZipkinV2Proto",
            zipkin,
            "/api/v2/spans",
            "application/x-protobuf",
            "http_v2_proto",
        ),
        (
            "JaegerThrift",
            thrift,
            "/api/traces?format=jaeger.thrift",
            "application/x-thrift",
            "collector_http",
        ),
    ] {
        let mut total = 0;
        for (input, spans) in inputs(kind) {
            let headers = [("content-type", content_type)];
            let response = raw::http(address, Method::POST, path, &headers, input).await;
            assert_eq!(
                response.status,
                StatusCode::ACCEPTED,
                "{kind}: {}",
                response.text()
            );
            total += spans;
        }
        sent.push((transport, total));
    }
    let mut total = 0;
    for (input, spans) in inputs("JaegerProto") {
        let reply = raw::grpc(grpc, POST_SPANS, &[], raw::frame(false, &input)).await;
        assert_eq!(reply.code, 0, "{}", reply.message);
        total += spans;
    }
    sent.push(("grpc", total));
    for (kind, receiver, transport) in [
        ("JaegerAgentCompact", "jaeger/compact", "udp_thrift_compact"),
        ("JaegerAgentBinary", "jaeger/binary", "udp_thrift_binary"),
    ] {
        let address = collector.server("Starting UDP server", receiver);
        let mut total = 0;
        for (input, spans) in inputs(kind) {
            send_packet(address, &input).await;
            total += spans;
        }
        sent.push((transport, total));
    }
    let accepted = |transport: &'static str| {
        (
            "otelcol_receiver_accepted_spans",
            [("transport", transport)],
        )
    };
    let metrics = collector
        .wait_for_metrics("all spans are accepted", |metrics| {
            sent.iter().all(|(transport, spans)| {
                let (name, labels) = accepted(transport);
                metrics.sum(name, &labels) == *spans as f64
            })
        })
        .await;
    assert_eq!(metrics.sum("otelcol_receiver_refused_spans", &[]), 0.0);
    let total: usize = sent.iter().map(|(_, spans)| spans).sum();
    assert!(total > 40);
    backend
        .until(|record| record.telemetry(Signal::Traces).count() > 0)
        .await;
    collector.assert_conservation().await;
    assert_eq!(arrived(&backend).len(), total);
}

#[tokio::test]
async fn refusals_reach_clients_and_udp_counts_them() {
    let backend = Backend::start().await;
    backend.always(Answer::Refuse(Refusal::UNAVAILABLE));
    let exporter = "sending_queue: {enabled: false}, retry_on_failure: {enabled: false}";
    let collector = start(&backend, exporter).await;
    let zipkin = collector.server("Starting HTTP server", "zipkin");
    let thrift = collector.server("Starting HTTP server", "jaeger/tcp");
    let grpc = collector.server("Starting GRPC server", "jaeger/tcp");
    let with_spans = |kind: &str| {
        let mut all = inputs(kind).into_iter();
        all.find(|(_, spans)| *spans > 0).unwrap()
    };

    // Temporary.
    let (input, _) = with_spans("ZipkinV2Json");
    let response = raw::http(zipkin, Method::POST, "/api/v2/spans", &[], input).await;
    assert_eq!(
        response.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        response.text()
    );
    assert!(response.header("retry-after").is_some());
    let (input, _) = with_spans("JaegerProto");
    let reply = raw::grpc(grpc, POST_SPANS, &[], raw::frame(false, &input)).await;
    assert_eq!(reply.code, 14, "{}", reply.message);

    // Malformed.
    let malformed = r#"[{"traceId":"1","id":"x"}]"#;
    let response = raw::http(zipkin, Method::POST, "/api/v2/spans", &[], malformed).await;
    assert_eq!(response.status, StatusCode::BAD_REQUEST);
    assert!(
        response.text().contains("span 0: `id` must have"),
        "{}",
        response.text()
    );
    let types = [("content-type", "application/x-thrift")];
    let response = raw::http(thrift, Method::POST, "/api/traces", &types, "\x0c").await;
    assert_eq!(response.status, StatusCode::BAD_REQUEST);
    assert!(response.text().contains("at byte 1"), "{}", response.text());
    let reply = raw::grpc(grpc, POST_SPANS, &[], raw::frame(false, b"\x0a")).await;
    assert_eq!(reply.code, 3, "{}", reply.message);

    // Misdirected.
    let response = raw::http(zipkin, Method::GET, "/api/v2/spans", &[], "").await;
    assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
    let response = raw::http(thrift, Method::POST, "/api/spans", &types, "").await;
    assert_eq!(response.status, StatusCode::NOT_FOUND);
    let response = raw::http(thrift, Method::POST, "/api/traces", &[], "").await;
    assert_eq!(response.status, StatusCode::BAD_REQUEST);
    let reply = raw::grpc(
        grpc,
        "/jaeger.api_v2.QueryService/GetTrace",
        &[],
        raw::frame(false, b""),
    )
    .await;
    assert_eq!(reply.code, 12, "{}", reply.message);

    // UDP.
    let (input, spans) = with_spans("JaegerAgentCompact");
    let compact = collector.server("Starting UDP server", "jaeger/compact");
    let binary = collector.server("Starting UDP server", "jaeger/binary");
    send_packet(compact, &input).await;
    send_packet(compact, b"\x82\x81").await;
    send_packet(binary, &[0; 60_001]).await;
    collector
        .wait_for_metrics("dropped packets are counted", |metrics| {
            let dropped = |reason: &str, receiver: &str| {
                let labels = [("reason", reason), ("receiver", receiver)];
                metrics.sum("tributary_receiver_dropped_packets", &labels)
            };
            let labels = [("transport", "udp_thrift_compact")];
            metrics.sum("otelcol_receiver_refused_spans", &labels) == spans as f64
                && dropped("refused", "jaeger/compact") == 1.0
                && dropped("malformed", "jaeger/compact") == 1.0
                && dropped("too_large", "jaeger/binary") == 1.0
        })
        .await;
    assert_eq!(arrived(&backend), []);
}

#[tokio::test]
async fn full_queue_drops_packets_and_counts_spans() {
    const PACKETS: usize = 6;
    let backend = Backend::start().await;
    backend.hold();
    let collector = Collector::start(&format!(
        "receivers:
  jaeger: {{protocols: {{thrift_compact: {{endpoint: '127.0.0.1:0', queue_size: 1, workers: 1}}}}}}
exporters: {{otlp_grpc: {{endpoint: '{}', tls: {{insecure: true}}, sending_queue: {{enabled: false}}}}}}
service: {{pipelines: {{traces: {{receivers: [jaeger], exporters: [otlp_grpc]}}}}}}
",
        backend.grpc()
    ))
    .await;
    let address = collector.server("Starting UDP server", "jaeger");
    let (input, spans) = inputs("JaegerAgentCompact")
        .into_iter()
        .find(|(_, spans)| *spans > 1)
        .unwrap();
    for _ in 0..PACKETS {
        send_packet(address, &input).await;
    }
    let full = [("reason", "queue_full")];
    let dropped = "tributary_receiver_dropped_packets";
    collector
        .wait_for_metrics("packets are dropped", |metrics| {
            // One packet is with the worker, and one waits.
            metrics.sum(dropped, &full) >= (PACKETS - 2) as f64
        })
        .await;
    backend.release();
    let metrics = collector
        .wait_for_metrics("every span is accepted or refused", |metrics| {
            let accepted = metrics.sum("otelcol_receiver_accepted_spans", &[]);
            let refused = metrics.sum("otelcol_receiver_refused_spans", &[]);
            accepted > 0.0 && accepted + refused == (PACKETS * spans) as f64
        })
        .await;
    let refused = metrics.sum("otelcol_receiver_refused_spans", &[]);
    assert_eq!(refused, metrics.sum(dropped, &full) * spans as f64);
}

#[tokio::test]
async fn exporter_writes_what_receiver_restores() {
    for format in ["json", "proto"] {
        let backend = Backend::start().await;
        let behind = start(&backend, "").await;
        let zipkin = behind.server("Starting HTTP server", "zipkin");
        let collector = Collector::start(&format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:0'}}}}}}}}
exporters: {{zipkin: {{endpoint: 'http://{zipkin}/api/v2/spans', format: {format}, compression: gzip}}}}
service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [zipkin]}}}}}}
"
        ))
        .await;
        let json = r#"{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}},
            {"key":"host.name","value":{"stringValue":"h"}}]},"scopeSpans":[{"scope":{"name":"lib","version":"2"},"spans":[
            {"traceId":"5b8efff798038103d269b633813fc60c","spanId":"eee19b7ec3c1b174","parentSpanId":"eee19b7ec3c1b173",
            "name":"get /x","kind":3,"startTimeUnixNano":"1600000000000001000","endTimeUnixNano":"1600000000000005000",
            "attributes":[{"key":"a","value":{"stringValue":"b"}}],"status":{"code":2,"message":"bad"},"traceState":"k=v",
            "events":[{"timeUnixNano":"1600000000000002000","name":"e","attributes":[{"key":"n","value":{"intValue":"7"}}]}],
            "links":[{"traceId":"5b8efff798038103d269b633813fc60d","spanId":"eee19b7ec3c1b175",
            "attributes":[{"key":"l","value":{"boolValue":true}}]}]}]}]}]}"#;
        let headers = [("content-type", "application/json")];
        let otlp = collector.http();
        let response = raw::http(otlp, Method::POST, "/v1/traces", &headers, json).await;
        assert_eq!(response.status, StatusCode::OK, "{}", response.text());
        backend
            .wait_for("the span", |record| {
                record.telemetry(Signal::Traces).count() == 1
            })
            .await;
        let wire = tributary_otlp::json::to_wire(Signal::Traces, json.as_bytes()).unwrap();
        let sent = ExportTraceServiceRequest::decode(&*wire).unwrap();
        let record = backend.record();
        let found = record.telemetry(Signal::Traces).next().unwrap();
        assert_eq!(*found, Telemetry::Traces(sent), "{format}");
        drop(record);
        collector.assert_conservation().await;
    }
}
