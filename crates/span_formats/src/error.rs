//! Reasons why spans cannot be translated.

use std::fmt;

use tributary_otlp::room::RoomExhausted;

/// The reason why bytes could not be translated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TranslateError {
    /// The input violates its format.
    #[error(transparent)]
    Malformed(#[from] MalformedSpans),
    /// The room for the output is exhausted.
    #[error(transparent)]
    RoomExhausted(#[from] RoomExhausted),
}

/// The violation of a format. The text never repeats content of the input, because content must not get into logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MalformedSpans {
    /// Index of the invalid span in the input, if known.
    pub span: Option<usize>,
    /// Description of the violation, with its position: a byte offset, or line and column of JSON.
    pub reason: String,
}

impl fmt::Display for MalformedSpans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.span {
            Some(index) => write!(f, "span {index}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl std::error::Error for MalformedSpans {}

/// Creates the error of a violation at an offset of the input, in bytes.
pub(crate) fn malformed_at(offset: usize, reason: impl fmt::Display) -> TranslateError {
    TranslateError::Malformed(MalformedSpans {
        span: None,
        reason: format!("{reason}, at byte {offset}"),
    })
}

/// Adds the index of the span to an error without one.
pub(crate) fn in_span(error: TranslateError, index: usize) -> TranslateError {
    match error {
        TranslateError::Malformed(MalformedSpans { span: None, reason }) => {
            TranslateError::Malformed(MalformedSpans {
                span: Some(index),
                reason,
            })
        }
        other => other,
    }
}
