//! The Connect protocol for unary calls: a POST with a message, and a response with a message or an error as JSON.
//! <https://connectrpc.com/docs/protocol>

use http::header::{CONTENT_TYPE, HeaderMap};
use serde::Serialize;

/// Content type of messages and errors as JSON.
pub(crate) const JSON: &str = "application/json";
/// Content type of messages in protobuf encoding.
pub(crate) const PROTO: &str = "application/proto";

/// Encoding of a request and its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Proto,
}

impl Encoding {
    /// Returns the encoding of a request, by its content type.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
        match value.split(';').next().unwrap_or_default().trim() {
            JSON => Some(Encoding::Json),
            PROTO => Some(Encoding::Proto),
            _ => None,
        }
    }
}

/// Returns the body of an error with one of Connect's codes.
pub(crate) fn error_body(code: &'static str, message: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'e> {
        code: &'static str,
        message: &'e str,
    }
    // A map with texts is always JSON.
    serde_json::to_vec(&Body { code, message }).unwrap_or_default()
}
