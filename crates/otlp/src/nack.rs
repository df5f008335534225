//! Refusals, the only error that crosses stages and hops.

use std::borrow::Cow;
use std::time::Duration;

use tonic::Code;

/// The reason why a batch was refused. The sender still has the data.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Nack {
    /// Whether a retry may succeed.
    pub retryable: bool,
    /// The closest gRPC status, for the client.
    pub code: Code,
    /// Message for the operator: the cause, and the remedy if there is one.
    pub reason: Cow<'static, str>,
    /// Retry delay, if known.
    pub retry_after: Option<Duration>,
}

impl Nack {
    /// Refuses for now, independently of the data (`UNAVAILABLE`).
    pub fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Nack {
            retryable: true,
            code: Code::Unavailable,
            reason: reason.into(),
            retry_after: None,
        }
    }

    /// Refuses for now, because a limit is reached. Uses `RESOURCE_EXHAUSTED` with a retry delay, because the
    /// specification requires the delay for retryable refusals with this code.
    pub fn exhausted(reason: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Nack {
            retryable: true,
            code: Code::ResourceExhausted,
            reason: reason.into(),
            retry_after: Some(retry_after),
        }
    }

    /// Refuses permanently, because the data is invalid (`INVALID_ARGUMENT`).
    pub fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Nack::permanent(Code::InvalidArgument, reason)
    }

    /// Refuses permanently, with the given status.
    pub fn permanent(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Nack {
            retryable: false,
            code,
            reason: reason.into(),
            retry_after: None,
        }
    }
}
