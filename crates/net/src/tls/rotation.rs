//! Certificates that change while the process runs.
//!
//! A source of TLS configurations reads its files once, and then looks at them every few seconds. What has changed is
//! validated as a whole (certificate, key, authorities) before it takes the place of what was used; what cannot be
//! used changes nothing but a counter and the log. New connections take the new configuration; see [`Trust`] for what
//! a server does with the connections it has, and [`crate::client::Pool`] for clients.
//!
//! Looking is polling the files' metadata, not inotify: Kubernetes swaps a symbolic link somewhere above the file,
//! which inotify reports only to those who watch every directory on the way, and network file systems report nothing.
//! Looking costs microseconds and reads no file; files are read at start, when they have changed, and once per
//! `reload_interval` for file systems whose metadata lie.

mod files;
mod in_use;
mod source;
mod trust;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{ClientConfig, ServerConfig};
use rustls_pki_types::CertificateDer;

use super::names::Pattern;
use super::{ClientTls, ServerTls, TlsError};
use crate::Owner;
use crate::tls::{TlsSource, accept};

pub use in_use::{InUse, Kind, in_use};
use source::{Built, Named, Section, Source};
pub use trust::Trust;

/// The TLS configuration of a server, current at every handshake.
#[derive(Clone)]
pub struct RotatingServer {
    source: Arc<Source<ServerTls>>,
    /// `allowed_client_names`.
    allowed: Arc<[Pattern]>,
}

impl RotatingServer {
    /// Reads the files, and watches them for as long as the source lives (when called inside a runtime). `alpn` lists
    /// the protocols to accept, most wanted first.
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

    fn trust(&self) -> Option<Trust> {
        Some(self.source.trust())
    }

    fn identity(&self, certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
        accept::identity_among(certificate, &self.allowed)
    }
}

/// The TLS configuration of a client, current at every handshake.
#[derive(Clone)]
pub struct RotatingClient(Arc<Source<ClientTls>>);

impl RotatingClient {
    /// Reads the files, and watches them for as long as the source lives (when called inside a runtime). `alpn` lists
    /// the protocols to offer, most wanted first.
    ///
    /// The system's certificate authorities are read again when one of the files named has changed; by themselves
    /// they are not watched.
    ///
    /// # Errors
    /// See [`ClientTls::build`].
    pub fn new(tls: &ClientTls, alpn: &[&[u8]], owner: Owner) -> Result<Self, TlsError> {
        Source::start(tls.clone(), alpn, owner).map(RotatingClient)
    }

    /// The component whose TLS this is.
    pub fn owner(&self) -> &Owner {
        self.0.owner()
    }

    /// The configuration for the next connection. It is another `Arc` exactly when something has changed.
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
            Some(Kind::ClientAuthority),
        );
        vec![
            Named::new(
                "cert_file",
                &self.cert_file,
                &self.cert_pem,
                Some(Kind::Certificate),
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

    fn useless(&self, now: SystemTime) -> Vec<TlsError> {
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
                Some(Kind::Authority),
            ),
            Named::new(
                "cert_file",
                &self.cert_file,
                &self.cert_pem,
                Some(Kind::Certificate),
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

    fn useless(&self, now: SystemTime) -> Vec<TlsError> {
        self.warnings(now)
    }
}

#[cfg(test)]
mod tests;
