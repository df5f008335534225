//! Responses of servers, as outcomes of a request.

use std::time::{Duration, SystemTime};

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::super::otlp_response::{json_outcome, outcome, status_text};
use crate::pipeline::batch::Code;
use crate::queue::{Fault, Outcome, SendError};

/// Maximum number of bytes read from a response, as in the Collector.
const RESPONSE_BYTES: usize = 64 * 1024;

/// Reads the beginning of a response's body. Also returns whether the beginning is the whole body.
pub(super) async fn read(mut body: Incoming) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return (bytes, false);
        };
        if let Some(data) = frame.data_ref() {
            let left = RESPONSE_BYTES - bytes.len();
            bytes.extend_from_slice(data.get(..left).unwrap_or(data));
            if data.len() > left {
                return (bytes, false);
            }
        }
    }
    (bytes, true)
}

pub(super) fn content_type(headers: &HeaderMap) -> &str {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    value
        .and_then(|value| value.split(';').next())
        .unwrap_or_default()
        .trim()
}

/// Reads the outcome from a 2xx response. An empty body, or a content type other than OTLP's, means full success, as
/// in the Collector.
pub(in super::super) fn accepted(
    url: &Uri,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Outcome, SendError> {
    let outcome = match content_type(headers) {
        _ if body.is_empty() => return Ok(Outcome::default()),
        PROTOBUF => outcome(body).map_err(|error| error.to_string()),
        JSON => json_outcome(body).map_err(|error| error.to_string()),
        _ => return Ok(Outcome::default()),
    };
    outcome.map_err(|error| {
        let url = url.to_string();
        let url = tributary_config::without_url_secrets(&url);
        let reason = format!("the response from {url} is not OTLP: {error}");
        SendError::permanent(Code::Unknown, Fault::Elsewhere, reason)
    })
}

/// Returns the error for a response other than 2xx. The specification defines the retryable statuses:
/// <https://opentelemetry.io/docs/specs/otlp/#failures-1>.
pub(in super::super) fn refused(
    url: &Uri,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> SendError {
    let said = match content_type(headers) {
        PROTOBUF | JSON | "text/plain" => status_text(content_type(headers) == PROTOBUF, body),
        _ => String::new(),
    };
    let number = status.as_u16();
    let url = url.to_string();
    let url = tributary_config::without_url_secrets(&url);
    let reason = format!(
        "error exporting items, request to {url} responded with HTTP Status Code {number}{said}"
    );
    let code = match number {
        400 | 422 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 | 405 | 415 | 501 => Code::Unimplemented,
        413 | 429 => Code::ResourceExhausted,
        502..=504 => Code::Unavailable,
        500 => Code::Internal,
        _ => Code::Unknown,
    };
    if matches!(number, 429 | 502..=504) {
        return SendError {
            throttle: headers.get(RETRY_AFTER).and_then(retry_after),
            ..SendError::transient(code, reason)
        };
    }
    let fault = match number {
        413 => Fault::Size,
        400 | 422 => Fault::Content,
        500 => Fault::Unclear,
        _ => Fault::Elsewhere,
    };
    SendError::permanent(code, fault, reason)
}

/// Parses seconds, or a date (RFC 9110, 10.2.3). A past date means no wait.
pub(in super::super) fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

pub(super) const PROTOBUF: &str = "application/x-protobuf";
pub(super) const JSON: &str = "application/json";
