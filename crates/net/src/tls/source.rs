//! TLS configurations of servers that may change while the server runs.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::accept;
use super::trust::TrustWatch;

/// Source of the TLS configuration of new connections. Every handshake reads the source, so certificates can change
/// while the server runs.
pub trait TlsSource: Send + Sync + 'static {
    /// Returns the configuration for the next connection. Its ALPN list must fit the protocols of the server.
    fn config(&self) -> Arc<rustls::ServerConfig>;

    /// Returns the trust to watch for the next connection, or `None` if the trust cannot change. Call `trust` before
    /// `config`, so that a change between the two calls is detected.
    fn trust(&self) -> Option<TrustWatch> {
        None
    }

    /// Returns the identity in a verified client certificate.
    fn identity(&self, certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
        accept::identity_of(certificate)
    }
}

/// A fixed configuration for the life of the server.
impl TlsSource for Arc<rustls::ServerConfig> {
    fn config(&self) -> Arc<rustls::ServerConfig> {
        self.clone()
    }
}
