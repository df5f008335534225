//! Errors of certificates and keys.

/// Reason why a TLS configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tls::{key}: {reason}")]
pub struct TlsError {
    /// The key in the section that is at fault.
    pub key: &'static str,
    /// Description of the mistake, with the name of the file.
    pub reason: String,
}

pub(super) fn problem(key: &'static str, reason: impl ToString) -> TlsError {
    TlsError {
        key,
        reason: reason.to_string(),
    }
}
