//! Fuzz targets for responses of servers.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message;
use tributary::pipeline::batch::{Code, Nack};
use tributary::fuzzing::{exporters, receiver};
use tributary::queue::SendError;

use crate::generator::Entropy;

/// Any server response is read as a second implementation of the definitions reads it, and its
/// error message stays short.
pub fn answers(input: &[u8]) {
    let (decisions, body) = input.split_at(input.len().min(8));
    let mut entropy = Entropy(decisions);
    let status = StatusCode::from_u16(100 + 2 * u16::from(entropy.byte())).unwrap();
    let content_type = [
        "application/json",
        "application/x-protobuf",
        "text/plain",
        "",
    ][usize::from(entropy.below(4))];
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(content_type));
    let mut parts = body.splitn(3, |byte| *byte == b'\n');
    for name in ["retry-after", "grpc-message", "grpc-status-details-bin"] {
        if let Ok(value) = HeaderValue::from_bytes(parts.next().unwrap_or_default()) {
            headers.insert(name, value);
        }
    }
    headers.insert(
        "grpc-status",
        HeaderValue::from(u16::from(entropy.below(20))),
    );
    short(&exporters::http_refused(status, &headers, body));
    if let Some(Err(error)) = exporters::grpc_status(&headers) {
        short(&error);
    }
    partial_success(&headers, body);
    let decoded = exporters::percent_decoded(body);
    assert_eq!(decoded, percent_decoded(body));
    if let Some(bytes) = exporters::binary_header(body) {
        use base64::Engine;
        let text = base64::engine::general_purpose::STANDARD_NO_PAD.encode(bytes);
        assert_eq!(
            text.as_bytes(),
            body.strip_suffix(b"==")
                .or(body.strip_suffix(b"="))
                .unwrap_or(body)
        );
    }
}

/// Error reasons are logged, so they must be neither empty nor long.
fn short(error: &SendError) {
    assert!(error.reason.len() < 4096, "{} bytes", error.reason.len());
}

fn partial_success(headers: &HeaderMap, body: &[u8]) {
    let expected = ExportLogsServiceResponse::decode(body).map(|response| {
        let partial = response.partial_success.unwrap_or_default();
        let rejected = usize::try_from(partial.rejected_log_records).unwrap_or(0);
        (rejected, partial.error_message)
    });
    let frame = [&[0, 0, 0, 0, 0], body].concat();
    let outcome = exporters::grpc_accepted(&frame);
    let read = (outcome.rejected_items, outcome.message);
    assert_eq!(read, expected.clone().unwrap_or_default());
    let Ok(outcome) = exporters::http_accepted(headers, body) else {
        return;
    };
    let read = (outcome.rejected_items, outcome.message);
    match headers["content-type"].to_str().unwrap() {
        _ if body.is_empty() => assert_eq!(read, Default::default()),
        "application/x-protobuf" => assert_eq!(Ok(read), expected),
        "application/json" => {
            // The skipped part may be deeper or less valid than a `Value` allows.
            let Ok(json) = serde_json::from_slice::<serde_json::Value>(body) else {
                return;
            };
            let partial = &json["partialSuccess"];
            // A list is read as the fields in their order.
            let in_order = json.is_array() || partial.is_array();
            let message = partial["errorMessage"].as_str().unwrap_or_default();
            assert!(read.1 == message || in_order);
            if read.0 > 0 && !in_order {
                let text = partial.to_string();
                assert!(text.contains("rejected"), "{text}");
            }
        }
        _ => assert_eq!(read, Default::default()),
    }
}

/// Percent-decoding by a second, simple implementation.
fn percent_decoded(value: &[u8]) -> String {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < value.len() {
        let digits = value.get(at + 1..at + 3).and_then(|digits| {
            let hex = digits.iter().all(u8::is_ascii_hexdigit);
            std::str::from_utf8(digits).ok().filter(|_| hex)
        });
        match digits {
            Some(digits) if value[at] == b'%' => {
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
                at += 3;
            }
            _ => {
                bytes.push(value[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Clients of this program understand its servers' refusals: whether and when to retry, and the
/// reason.
pub fn refusals(input: &[u8]) {
    let (decisions, text) = input.split_at(input.len().min(10));
    let mut entropy = Entropy(decisions);
    let retryable = entropy.below(2) == 1;
    let code = Code::from_i32(entropy.below(17).into());
    let delay = (entropy.below(2) == 1).then(|| {
        let millis = (0..5).fold(0, |number, _| number << 8 | u64::from(entropy.byte()));
        Duration::from_millis(millis)
    });
    let reason = String::from_utf8_lossy(text).into_owned();
    let nack = Nack {
        retryable,
        code,
        reason: reason.clone().into(),
        retry_after: delay,
    };
    let expected = match (retryable, delay, code) {
        (false, ..) => None,
        // Without a retry delay, RESOURCE_EXHAUSTED would be permanent.
        (true, None, Code::ResourceExhausted) => Some(Duration::from_secs(1)),
        (true, delay, _) => delay.filter(|delay| !delay.is_zero()),
    };
    let (status, headers) = receiver::refused_over_grpc(nack.clone());
    assert_eq!(status, StatusCode::OK);
    let error = exporters::grpc_status(&headers).unwrap().unwrap_err();
    assert_eq!(error.retryable, retryable, "{error:?}");
    assert_eq!(error.throttle, expected);
    let beginning: String = reason.chars().take(100).collect();
    assert!(error.reason.contains(&beginning), "{error:?}");
    for json in [false, true] {
        let (status, headers, body) = receiver::refused_over_http(nack.clone(), json);
        let error = exporters::http_refused(status, &headers, &body);
        assert_eq!(error.retryable, retryable, "{error:?}");
        // In whole seconds, rounded up.
        let seconds = |delay: Duration| delay.as_secs() + u64::from(delay.subsec_nanos() > 0);
        let told = delay.filter(|_| retryable).or(expected);
        assert_eq!(error.throttle.map(seconds), told.map(seconds));
        assert!(error.reason.contains(&beginning), "{error:?}");
    }
}
