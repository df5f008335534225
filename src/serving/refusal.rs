//! Refusals on the wire: `google.rpc.Status` with `RetryInfo`, and the HTTP status that corresponds to a gRPC status.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::Full;
use prost::Message;
use tracing::{debug, warn};

use crate::pipeline::batch::{Code, Nack};
use tributary_config::ComponentId;
use tributary_net::rpc::{RETRY_INFO, Status, is_retryable};
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::{BUSY_RETRY_AFTER, Peer, plain};

/// Response to a refused request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
    /// Whole seconds over HTTP, exact over gRPC.
    pub(crate) retry_after: Option<Duration>,
    retryable: bool,
}

impl From<Nack> for Refusal {
    /// Converts a [`Nack`]. Clients decide only by the code whether to retry (OTLP specification, "Failures"), so a code
    /// that contradicts the [`Nack`] is replaced.
    fn from(nack: Nack) -> Self {
        let code = match (nack.retryable, nack.code) {
            (true, Code::ResourceExhausted) => Code::ResourceExhausted,
            (true, code) if is_retryable(code) => code,
            (true, _) => Code::Unavailable,
            (false, code) if is_retryable(code) || code == Code::Ok => Code::Internal,
            (false, code) => code,
        };
        let retry_after = match nack.retry_after.filter(|_| nack.retryable) {
            // Without RetryInfo, clients do not retry after RESOURCE_EXHAUSTED.
            None if nack.retryable && code == Code::ResourceExhausted => Some(DEFAULT_RETRY_AFTER),
            other => other,
        };
        Refusal {
            code,
            message: nack.reason.into_owned(),
            retry_after,
            retryable: nack.retryable,
        }
    }
}

impl Refusal {
    /// Returns the HTTP status by the Collector's mapping. A request that can never fit is 413 instead of 429,
    /// because clients retry after 429.
    pub(crate) fn http_status(&self) -> StatusCode {
        match self.code {
            Code::InvalidArgument => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::Unimplemented => StatusCode::NOT_FOUND,
            Code::ResourceExhausted if self.retryable => StatusCode::TOO_MANY_REQUESTS,
            Code::ResourceExhausted => StatusCode::PAYLOAD_TOO_LARGE,
            code if is_retryable(code) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns `Retry-After` in seconds, rounded up so that no client retries too early.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        let delay = self.retry_after?;
        Some(delay.as_secs() + u64::from(delay.subsec_nanos() > 0))
    }

    /// Adds `Retry-After` to a response with this status, if a retry makes sense.
    pub(crate) fn add_retry_after(&self, status: StatusCode, headers: &mut HeaderMap) {
        let later = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::SERVICE_UNAVAILABLE,
        ]
        .contains(&status);
        if let Some(seconds) = self.retry_after_seconds().or(later.then_some(1)) {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
    }

    /// Returns the value of `grpc-status-details-bin`, which is only sent with a retry delay.
    pub(crate) fn details_bin(&self) -> Option<String> {
        self.retry_after?;
        Some(STANDARD_NO_PAD.encode(self.to_protobuf()))
    }

    /// Returns an encoded `google.rpc.Status`.
    pub(crate) fn to_protobuf(&self) -> Vec<u8> {
        Status::new(self.code, self.message.clone(), self.retry_after).encode_to_vec()
    }

    /// Returns the status as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let mut status = serde_json::json!({"code": self.code as i32, "message": self.message});
        if let (Some(delay), Some(status)) = (self.retry_after, status.as_object_mut()) {
            let delay = format!("{}s", delay.as_secs_f64());
            let info = serde_json::json!({"@type": RETRY_INFO, "retryDelay": delay});
            status.insert("details".to_owned(), serde_json::json!([info]));
        }
        status.to_string().into_bytes()
    }
}

/// Returns a refusal as plain text, for clients that do not speak OTLP.
pub(crate) fn refused_in_plain_text(nack: Nack) -> Response<Full<Bytes>> {
    let refusal = Refusal::from(nack);
    let status = refusal.http_status();
    let mut response = plain(status, format!("{} {}", status.as_u16(), refusal.message));
    refusal.add_retry_after(status, response.headers_mut());
    response
}

/// Returns the refusal of a request that exceeds `limits::max_requests`.
pub(crate) fn too_busy() -> Nack {
    let reason = "too many requests are in flight on this server; retry later";
    Nack::exhausted(reason, BUSY_RETRY_AFTER)
}

/// Logs a refused client and the reason. Refusals that a retry cannot resolve need an operator, so they are logged as
/// warnings, at a limited rate.
pub(crate) fn log_refusal(id: &ComponentId, sampled: &SampledLog, nack: &Nack, peer: &Peer) {
    // An incomplete body is not a refusal.
    let needs_operator = !nack.retryable && nack.code != Code::Cancelled;
    match needs_operator.then(|| sampled.admit()).flatten() {
        Some(suppressed) => warn!(
            otelcol.component.id = %id,
            otelcol.component.kind = "receiver",
            client.address = %peer.address,
            client.identity = peer.identity.as_deref(),
            error = %nack,
            suppressed,
            "Refused a request"
        ),
        None => debug!(
            otelcol.component.id = %id,
            otelcol.component.kind = "receiver",
            client.address = %peer.address,
            client.identity = peer.identity.as_deref(),
            error = %nack,
            "Refused a request"
        ),
    }
}

/// Encodes a message as `grpc-message`: percent-encoded, and short enough for any client's header limit.
pub(crate) fn percent_encode(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    let mut end = message.len().min(LONGEST_MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    for &byte in message.as_bytes().iter().take(end) {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Bytes of a message before encoding; grpc-java accepts 8 KiB of headers in all.
const LONGEST_MESSAGE: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(retryable: bool, code: Code, retry_after: Option<Duration>) -> Refusal {
        Refusal::from(Nack {
            retryable,
            code,
            reason: "why".into(),
            retry_after,
        })
    }

    #[test]
    fn code_matches_retryability() {
        let second = Some(Duration::from_secs(1));
        for (retryable, code, sent, status, retry_after) in [
            (true, Code::Unavailable, Code::Unavailable, 503, None),
            (
                true,
                Code::ResourceExhausted,
                Code::ResourceExhausted,
                429,
                second,
            ),
            (true, Code::Internal, Code::Unavailable, 503, None),
            (true, Code::Ok, Code::Unavailable, 503, None),
            (
                true,
                Code::DeadlineExceeded,
                Code::DeadlineExceeded,
                503,
                None,
            ),
            (
                false,
                Code::InvalidArgument,
                Code::InvalidArgument,
                400,
                None,
            ),
            (
                false,
                Code::ResourceExhausted,
                Code::ResourceExhausted,
                413,
                None,
            ),
            (false, Code::Unavailable, Code::Internal, 500, None),
            (false, Code::Ok, Code::Internal, 500, None),
            (false, Code::Internal, Code::Internal, 500, None),
            (
                false,
                Code::Unauthenticated,
                Code::Unauthenticated,
                401,
                None,
            ),
            (
                false,
                Code::PermissionDenied,
                Code::PermissionDenied,
                403,
                None,
            ),
            (false, Code::Unimplemented, Code::Unimplemented, 404, None),
        ] {
            let refusal = refusal(retryable, code, None);
            assert_eq!(refusal.code, sent, "{retryable} {code:?}");
            assert_eq!(
                refusal.http_status().as_u16(),
                status,
                "{retryable} {code:?}"
            );
            assert_eq!(refusal.retry_after, retry_after, "{retryable} {code:?}");
        }
    }

    #[test]
    fn retry_delay_is_exact_in_grpc_and_rounded_up_in_http() {
        let delay = Duration::from_millis(1500);
        let retryable = refusal(true, Code::Unavailable, Some(delay));
        assert_eq!(retryable.retry_after_seconds(), Some(2));
        let status = Status::decode(
            STANDARD_NO_PAD
                .decode(retryable.details_bin().unwrap())
                .unwrap()
                .as_slice(),
        )
        .unwrap();
        assert_eq!((status.code, status.message.as_str()), (14, "why"));
        assert_eq!(status.retry_delay(), Some(delay));
        let json: serde_json::Value = serde_json::from_slice(&retryable.to_json()).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "code": 14,
                "message": "why",
                "details": [{
                    "@type": "type.googleapis.com/google.rpc.RetryInfo",
                    "retryDelay": "1.5s",
                }],
            })
        );

        let permanent = refusal(false, Code::InvalidArgument, Some(delay));
        assert_eq!(permanent.details_bin(), None);
    }

    #[test]
    fn message_is_percent_encoded() {
        assert_eq!(percent_encode("a b\n100% \u{e9}"), "a b%0A100%25 %C3%A9");
    }
}
