//! Rotation of certificates while the process runs.
//!
//! A source of TLS configurations reads its files once and then checks them every few seconds. Changed files are
//! validated together (certificate, key, authorities) before they replace the current ones. If the new files cannot be
//! used, only a counter and the log change. New connections use the new configuration. For existing connections, see
//! [`TrustWatch`] (servers) and [`crate::client::Pool`] (clients).
//!
//! The check polls the files' metadata instead of using inotify. Kubernetes swaps a symbolic link in a parent
//! directory, which inotify reports only to watchers of every directory on the path. Network file systems report no
//! changes. A check costs microseconds and reads no file. Files are read at start, after a change, and once per
//! `reload_interval`, for file systems with unreliable metadata.

mod files;
mod in_use;
mod source;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;

use super::names::Pattern;
pub use super::trust::TrustWatch;
use super::{ClientTls, ServerTls, TlsError};
use crate::Owner;
use crate::tls::{TlsSource, accept};
pub use in_use::{CertificateInUse, CertificateRole, in_use};
use source::{Built, Named, Section, Source};

/// TLS configuration of a server, current at every handshake.
#[derive(Clone)]
pub struct RotatingServer {
    source: Arc<Source<ServerTls>>,
    /// Patterns of `allowed_client_names`.
    allowed: Arc<[Pattern]>,
}

impl RotatingServer {
    /// Reads the files, and watches them while the source lives (if called inside a runtime). `alpn` lists the accepted
    /// protocols, most preferred first.
    ///
    /// # Errors
    /// See [`ServerTls::build`].
    pub fn new(tls: &ServerTls, alpn: &[&[u8]], owner: Owner) -> Result<Self, TlsError> {
        Ok(RotatingServer {
            source: Source::start(tls.clone(), alpn, owner)?,
            allowed: tls.patterns()?.into(),
        })
    }
}

impl TlsSource for RotatingServer {
    fn config(&self) -> Arc<ServerConfig> {
        self.source.config()
    }

    fn trust(&self) -> Option<TrustWatch> {
        Some(self.source.trust())
    }

    fn identity(&self, certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
        accept::identity_among(certificate, &self.allowed)
    }
}

/// TLS configuration of a client, current at every handshake.
#[derive(Clone)]
pub struct RotatingClient(Arc<Source<ClientTls>>);

impl RotatingClient {
    /// Reads the files, and watches them while the source lives (if called inside a runtime). `alpn` lists the offered
    /// protocols, most preferred first.
    ///
    /// The system's certificate authorities are not watched. They are read again when a configured file changes.
    ///
    /// # Errors
    /// See [`ClientTls::build`].
    pub fn new(tls: &ClientTls, alpn: &[&[u8]], owner: Owner) -> Result<Self, TlsError> {
        Source::start(tls.clone(), alpn, owner).map(RotatingClient)
    }

    /// Returns the component that owns this configuration.
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }

    /// Returns the configuration for the next connection. The `Arc` changes exactly when the configuration does.
    pub fn config(&self) -> Arc<ClientConfig> {
        self.0.config()
    }
}

impl Section for ServerTls {
    type Config = ServerConfig;

    fn named(&self) -> Vec<Named<'_>> {
        let client_ca = Named::new(
            "client_ca_file",
            &self.client_ca_file,
            "",
            Some(CertificateRole::ClientAuthority),
        );
        vec![
            Named::new(
                "cert_file",
                &self.cert_file,
                &self.cert_pem,
                Some(CertificateRole::Certificate),
            ),
            Named::new("key_file", &self.key_file, "", None),
            Named {
                watched: self.client_ca_file_reload,
                ..client_ca.of_trust()
            },
            Named::new("client_crl_file", &self.client_crl_file, "", None).of_trust(),
        ]
    }

    fn reload_interval(&self) -> Duration {
        *self.reload_interval
    }

    fn build(
        &self,
        alpn: &[&[u8]],
        previous: Option<&Built<ServerConfig>>,
    ) -> Result<Built<ServerConfig>, TlsError> {
        let kept = previous.filter(|_| !self.client_ca_file_reload);
        let client_ca = match kept {
            Some(previous) => previous.client_ca.clone(),
            None => self.client_ca()?,
        };
        let (config, verifier) = self.build_trusting(client_ca.as_deref(), alpn)?;
        Ok(Built {
            config: Arc::new(config),
            verifier,
            client_ca,
            certificates: source::certificates(self, previous)?,
        })
    }

    fn invalid_now(&self, now: SystemTime) -> Vec<TlsError> {
        self.warnings(now)
    }
}

impl Section for ClientTls {
    type Config = ClientConfig;

    fn named(&self) -> Vec<Named<'_>> {
        vec![
            Named::new(
                "ca_file",
                &self.ca_file,
                &self.ca_pem,
                Some(CertificateRole::Authority),
            ),
            Named::new(
                "cert_file",
                &self.cert_file,
                &self.cert_pem,
                Some(CertificateRole::Certificate),
            ),
            Named::new("key_file", &self.key_file, "", None),
            Named::new("crl_file", &self.crl_file, "", None),
        ]
    }

    fn reload_interval(&self) -> Duration {
        *self.reload_interval
    }

    fn build(
        &self,
        alpn: &[&[u8]],
        previous: Option<&Built<ClientConfig>>,
    ) -> Result<Built<ClientConfig>, TlsError> {
        Ok(Built {
            config: Arc::new(ClientTls::build(self, alpn)?),
            verifier: None,
            client_ca: None,
            certificates: source::certificates(self, previous)?,
        })
    }

    fn invalid_now(&self, now: SystemTime) -> Vec<TlsError> {
        self.warnings(now)
    }
}

#[cfg(test)]
mod tests;
