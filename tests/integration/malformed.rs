//! Malformed requests are refused with the name of the fault, and do not affect other clients.

use http::Method;
use tonic::Code;

use crate::harness::telemetry::{ID, text};
use crate::harness::{
    Backend, Client, Collector, Oracle, Signal, Telemetry, codec, grpc_to, raw, yaml,
};

/// A length-delimited field, by hand.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut rest = content.len();
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
    bytes.extend_from_slice(content);
    bytes
}

fn around(span: &[u8]) -> Vec<u8> {
    field(1, &field(2, &field(2, span)))
}

/// Malformed protobuf, and text that the response must contain.
fn protobuf() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let whole = Telemetry::of(Signal::Traces, &["bad".to_owned()]).encode();
    let mut truncated = whole.clone();
    truncated.truncate(whole.len() - 3);
    // An attribute whose value is a list of lists.
    let mut deep = Vec::new();
    for _ in 0..200 {
        deep = field(5, &field(1, &deep));
    }
    let mut deep_attribute = field(1, b"deep");
    deep_attribute.extend(field(2, &deep));
    vec![
        ("garbage", vec![0xff; 100], "at byte 0"),
        ("truncated", truncated, "resource_spans"),
        ("wrong wire type", vec![0x08, 1], "resource_spans"),
        (
            "wrong wire type, deeper",
            around(&[5 << 3, 1]),
            "resource_spans.scope_spans.spans.name",
        ),
        (
            "no UTF-8",
            around(&field(5, b"\xc3\x28")),
            "resource_spans.scope_spans.spans.name",
        ),
        (
            "too deep",
            around(&field(9, &deep_attribute)),
            "100 levels deep",
        ),
        ("text", b"hello, I am a log line\n".to_vec(), "at byte"),
    ]
}

/// Malformed JSON, and text that the response must contain.
const JSON: [(&str, &str, &str); 6] = [
    ("unfinished", r#"{"resourceSpans": ["#, "resource"),
    ("no object", "[]", "line 1 column 2"),
    ("wrong type", r#"{"resourceSpans": 5}"#, "resource"),
    (
        "no hex digits",
        r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}"#,
        "trace",
    ),
    (
        "no number",
        r#"{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "soon"}]}]}]}"#,
        "start",
    ),
    ("no JSON", "<html>", "line 1 column 1"),
];

#[tokio::test]
async fn malformed_requests_are_refused_alone() {
    let backend = Backend::start().await;
    let exporter = grpc_to(&backend, "compression: none");
    let batch = ("batch", "{timeout: 5ms, send_batch_size: 50}");
    let collector = Collector::start(&yaml(&[batch], &[("otlp_grpc", &exporter)])).await;
    let oracle = Oracle::default();
    let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
    let http = Client::http("http", collector.http(), &oracle);
    let good = async || {
        grpc.send(&grpc.request(Signal::Traces, 3)).await.unwrap();
        http.send(&http.request(Signal::Traces, 2)).await.unwrap();
    };

    let mut bad = 0;
    for (what, body, mentions) in protobuf() {
        for encoding in codec::GRPC {
            let frame = raw::frame(encoding != "identity", &codec::compress(encoding, &body));
            let headers = [("grpc-encoding", encoding)];
            let method = raw::method(Signal::Traces);
            let (reply, ()) =
                tokio::join!(raw::grpc(collector.grpc(), method, &headers, frame), good());
            assert_eq!(
                reply.code,
                Code::InvalidArgument as i32,
                "{what}: {reply:?}"
            );
            assert!(reply.message.contains(mentions), "{what}: {reply:?}");
            bad += 1;
        }
        let headers = [("content-type", "application/x-protobuf")];
        let path = raw::path(Signal::Traces);
        let (response, ()) = tokio::join!(
            raw::http(collector.http(), Method::POST, path, &headers, body),
            good()
        );
        assert_eq!(response.status, 400, "{what}: {response:?}");
        let status: crate::harness::status::Status =
            prost::Message::decode(response.body.clone()).unwrap();
        assert!(status.message.contains(mentions), "{what}: {status:?}");
        bad += 1;
    }
    for (what, body, mentions) in JSON {
        let headers = [("content-type", "application/json")];
        let path = raw::path(Signal::Traces);
        let (response, ()) = tokio::join!(
            raw::http(collector.http(), Method::POST, path, &headers, body),
            good()
        );
        assert_eq!(response.status, 400, "{what}: {response:?}");
        assert_eq!(response.header("content-type"), Some("application/json"));
        let status: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(mentions), "{what}: {message}");
        bad += 1;
    }

    assert_eq!(oracle.wait_for_delivery(&backend).await, 0);
    let metrics = collector.assert_conservation().await;
    assert_eq!(
        metrics.sum("tributary_receiver_unreadable_requests", &[]),
        f64::from(bad)
    );
    assert_eq!(metrics.sum("otelcol_receiver_refused_spans", &[]), 0.0);
}

#[tokio::test]
async fn bodies_contradicting_headers_are_refused() {
    let backend = Backend::start().await;
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
    let body = Telemetry::of(Signal::Logs, &["bad".to_owned()]).encode();
    for encoding in codec::HTTP.into_iter().filter(|name| *name != "identity") {
        let mut broken = codec::compress(encoding, &body);
        broken.truncate(broken.len() / 2);
        let headers = [
            ("content-type", "application/x-protobuf"),
            ("content-encoding", encoding),
        ];
        for body in [broken, b"this is plain text".to_vec()] {
            let path = raw::path(Signal::Logs);
            let response = raw::http(collector.http(), Method::POST, path, &headers, body).await;
            assert_eq!(response.status, 400, "{encoding}: {response:?}");
        }
    }
    let path = raw::path(Signal::Logs);
    let post = |content_type: &'static str, encoding: &'static str| {
        let headers = [
            ("content-type", content_type),
            ("content-encoding", encoding),
        ];
        let body = body.clone();
        let address = collector.http();
        async move { raw::http(address, Method::POST, path, &headers, body).await }
    };
    let response = post("application/x-protobuf", "br").await;
    assert_eq!(response.status, 400);
    assert!(response.text().contains("br"), "{}", response.text());
    assert_eq!(post("text/plain", "identity").await.status, 415);
    let response = raw::http(collector.http(), Method::GET, path, &[], "").await;
    assert_eq!(
        (response.status.as_u16(), response.header("allow")),
        (405, Some("POST"))
    );
    let response = raw::http(collector.http(), Method::POST, "/v1/trace", &[], "").await;
    assert_eq!(response.status, 404);
    assert!(
        response.text().contains("/v1/traces"),
        "{}",
        response.text()
    );

    let oracle = Oracle::default();
    let client = Client::http("client", collector.http(), &oracle);
    client.send(&client.request(Signal::Logs, 1)).await.unwrap();
    oracle.wait_for_delivery(&backend).await;
    collector.assert_conservation().await;
}

#[tokio::test]
async fn unusual_legal_requests_are_accepted() {
    let backend = Backend::start().await;
    let collector = Collector::start(&yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])).await;
    let headers = [("content-type", "application/x-protobuf")];
    let path = raw::path(Signal::Traces);
    let empty = raw::http(collector.http(), Method::POST, path, &headers, "").await;
    assert_eq!((empty.status.as_u16(), empty.body.len()), (200, 0));

    // Unknown fields survive: field 900 of a span, which no version of OTLP has.
    let attribute = |id: &str| prost::Message::encode_to_vec(&text(ID, id));
    let mut span = field(9, &attribute("unusual"));
    span.extend([0xa2, 0x38, 3, b'n', b'e', b'w']);
    let body = around(&span);
    let taken = raw::http(collector.http(), Method::POST, path, &headers, body).await;
    assert_eq!(taken.status, 200, "{taken:?}");
    backend
        .wait_for("the span", |record| record.arrivals.contains_key("unusual"))
        .await;
    collector.assert_conservation().await;
}
