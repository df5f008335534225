//! Refusals: the one error that crosses stages and hops.

use std::borrow::Cow;
use std::time::Duration;

use tonic::Code;

/// Why a batch was not accepted: the only error that crosses stages. The sender still has the data.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Nack {
    /// Whether trying again may help.
    pub retryable: bool,
    /// The nearest gRPC status, for the client.
    pub code: Code,
    /// Message for people: the cause, and the remedy if there is one.
    pub reason: Cow<'static, str>,
    /// When to try again, if somebody knows.
    pub retry_after: Option<Duration>,
}

impl Nack {
    /// Not now: nothing is wrong with the data (`UNAVAILABLE`).
    pub fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Nack {
            retryable: true,
            code: Code::Unavailable,
            reason: reason.into(),
            retry_after: None,
        }
    }

    /// Not now: a limit is reached (`RESOURCE_EXHAUSTED` with a time to retry after, as the specification demands of
    /// a refusal that is not final).
    pub fn exhausted(reason: impl Into<Cow<'static, str>>, retry_after: Duration) -> Self {
        Nack {
            retryable: true,
            code: Code::ResourceExhausted,
            reason: reason.into(),
            retry_after: Some(retry_after),
        }
    }

    /// Never: the data is at fault (`INVALID_ARGUMENT`).
    pub fn invalid(reason: impl Into<Cow<'static, str>>) -> Self {
        Nack::permanent(Code::InvalidArgument, reason)
    }

    /// Never, with the given status.
    pub fn permanent(code: Code, reason: impl Into<Cow<'static, str>>) -> Self {
        Nack {
            retryable: false,
            code,
            reason: reason.into(),
            retry_after: None,
        }
    }
}
