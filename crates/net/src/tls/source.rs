//! TLS configurations of servers that may change while the server runs.

use std::sync::Arc;

use rustls_pki_types::CertificateDer;

use super::accept;
use super::rotation::Trust;

/// Where the TLS configuration of new connections comes from. Asked at every handshake, so certificates can change
/// while the server runs.
pub trait TlsSource: Send + Sync + 'static {
    /// The configuration for the next connection. Its ALPN list must fit the protocols of the server.
    fn config(&self) -> Arc<rustls::ServerConfig>;

    /// What tells whether a client stays welcome, for the next connection; none when that cannot change. To be asked
    /// before `config`, so that what changes between the two is noticed.
    fn trust(&self) -> Option<Trust> {
        None
    }

    /// Who has this verified certificate of a client.
    fn identity(&self, certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
        accept::identity_of(certificate)
    }
}

/// One configuration for the life of the server.
impl TlsSource for Arc<rustls::ServerConfig> {
    fn config(&self) -> Arc<rustls::ServerConfig> {
        self.clone()
    }
}
