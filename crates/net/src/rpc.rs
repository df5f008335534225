//! Encoding of refusals in OTLP: `google.rpc.Status` with `RetryInfo`.

use std::time::Duration;

use prost::Message;
use prost_types::Any;

use tonic::Code;

/// `google.rpc.Status` (googleapis, google/rpc/status.proto).
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    /// A gRPC status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Description for people.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Details for programs.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.rpc.RetryInfo` (googleapis, google/rpc/error_details.proto).
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<prost_types::Duration>,
}

/// Type URL of `RetryInfo` among the details.
pub const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

impl Status {
    /// Creates a status, with a retry delay if given.
    pub fn new(code: Code, message: impl Into<String>, retry_after: Option<Duration>) -> Self {
        let details = retry_after.map(|delay| {
            let retry_delay = prost_types::Duration::try_from(delay).ok();
            let value = RetryInfo { retry_delay }.encode_to_vec();
            Any {
                type_url: RETRY_INFO.to_owned(),
                value,
            }
        });
        Status {
            code: code as i32,
            message: message.into(),
            details: details.into_iter().collect(),
        }
    }

    /// Returns the delay of the RetryInfo among the details. A RetryInfo without a delay yields zero, because it still
    /// invites a retry.
    pub fn retry_delay(&self) -> Option<Duration> {
        let info = self.details.iter().find(|any| any.type_url == RETRY_INFO)?;
        let info = RetryInfo::decode(info.value.as_slice()).ok()?;
        let delay = info
            .retry_delay
            .and_then(|delay| Duration::try_from(delay).ok());
        Some(delay.unwrap_or_default())
    }
}

/// Whether a client retries after this code without further details (OTLP specification, "Failures").
/// RESOURCE_EXHAUSTED needs a RetryInfo and is not included.
pub fn is_retryable(code: Code) -> bool {
    matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delay_is_exact_and_absent_differs_from_zero() {
        for delay in [
            None,
            Some(Duration::ZERO),
            Some(Duration::from_millis(1500)),
        ] {
            let bytes = Status::new(Code::Unavailable, "busy", delay).encode_to_vec();
            let status = Status::decode(bytes.as_slice()).unwrap();
            assert_eq!((status.code, status.message.as_str()), (14, "busy"));
            assert_eq!(status.retry_delay(), delay);
        }
    }
}
