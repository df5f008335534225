//! Responses of Pyroscope that refuse a request.

use http::{HeaderMap, StatusCode, Uri};
use serde::Deserialize;

use super::super::otlp_http;
use crate::queue::SendError;

/// An error of Connect.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ConnectError {
    code: String,
    message: String,
}

/// Text of a refusal because of the time of a profile, in Pyroscope's messages.
const TOO_OLD: &str = "outside of ingestion window";
/// Maximum length of a server's message in a log line, in bytes.
const SHOWN: usize = 512;

/// Whether the body of a refusal says that a profile is too old, or too new.
pub(super) fn is_too_old(body: &[u8]) -> bool {
    memchr::memmem::find(body, TOO_OLD.as_bytes()).is_some()
}

/// Returns the error for a response other than 2xx.
pub(super) fn refused(
    url: &Uri,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> SendError {
    let mut error = otlp_http::refused(url, status, headers, b"");
    let said: ConnectError = serde_json::from_slice(body).unwrap_or_default();
    if !said.message.is_empty() {
        let message = said.message.replace(char::is_control, " ");
        let shown = message
            .get(..message.floor_char_boundary(SHOWN))
            .unwrap_or_default();
        error.reason = format!("{}: {} ({shown})", error.reason, said.code);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Fault;

    fn error(status: u16, body: &str) -> SendError {
        let url = Uri::from_static("http://a:4040/push.v1.PusherService/Push");
        let status = StatusCode::from_u16(status).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("content-type", "application/json".parse().unwrap());
        headers.insert("retry-after", "7".parse().unwrap());
        refused(&url, status, &headers, body.as_bytes())
    }

    #[test]
    fn old_profile_is_a_permanent_fault_of_the_content() {
        let body = r#"{"code": "invalid_argument", "message": "profile with labels '{a=\"b\"}' is outside of ingestion window"}"#;
        let error = error(400, body);
        assert_eq!((error.retryable, error.fault), (false, Fault::Content));
        assert!(
            error
                .reason
                .contains("invalid_argument (profile with labels"),
            "{error}"
        );
        assert!(is_too_old(body.as_bytes()) && !is_too_old(b"{}"));
    }

    #[test]
    fn busy_server_is_asked_again_after_its_delay() {
        let error = error(
            429,
            r#"{"code": "resource_exhausted", "message": "rate limit"}"#,
        );
        assert!(error.retryable);
        assert_eq!(error.throttle, Some(std::time::Duration::from_secs(7)));
        assert!(!self::error(413, "too large").retryable);
    }
}
