//! Failures of a connection.

use std::io;

use super::client_limit::ClientLimit;

#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The two sides are incompatible: a configuration has to be changed.
    #[error("{text}")]
    Mismatch { kind: &'static str, text: String },
    /// The client exceeded a limit. This was counted and logged.
    #[error("over the limit `{}`", .0.key())]
    Limited(ClientLimit),
    #[error(transparent)]
    Network(#[from] io::Error),
    #[error(transparent)]
    Http(Box<dyn std::error::Error + Send + Sync>),
}

impl Failure {
    pub(super) fn mismatch(kind: &'static str, text: impl Into<String>) -> Self {
        Failure::Mismatch {
            kind,
            text: text.into(),
        }
    }
}
