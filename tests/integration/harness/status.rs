//! Refusals on the wire, in both directions: `google.rpc.Status` with `RetryInfo`.

use std::time::Duration;

use prost::Message;
use prost_types::Any;

/// `google.rpc.Status` (googleapis, google/rpc/status.proto).
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.rpc.RetryInfo` (googleapis, google/rpc/error_details.proto).
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

impl Status {
    /// Creates a status, with a retry delay if given.
    pub fn new(code: i32, message: &str, retry_after: Option<Duration>) -> Self {
        let details = retry_after.map(|delay| Any {
            type_url: RETRY_INFO.to_owned(),
            value: RetryInfo {
                retry_delay: prost_types::Duration::try_from(delay).ok(),
            }
            .encode_to_vec(),
        });
        Status {
            code,
            message: message.to_owned(),
            details: details.into_iter().collect(),
        }
    }

    /// Returns the retry delay, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        let info = self.details.iter().find(|any| any.type_url == RETRY_INFO)?;
        let info = RetryInfo::decode(info.value.as_slice()).unwrap();
        Some(Duration::try_from(info.retry_delay?).unwrap())
    }
}
