//! The error of a connection that was not established.

/// Reason why there is no connection. A retry may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);
