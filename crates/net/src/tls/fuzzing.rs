//! Parsing of names and PEM, and verification of client certificates, for fuzz targets.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::names::{Name, Pattern};
use super::{ServerTls, TlsError, certificate, material, notes};
use futures_util::FutureExt as _;

/// Whether a pattern of an allowed name matches this name.
///
/// # Errors
/// The pattern is invalid.
pub fn allows(pattern: &str, name: &Name) -> Result<bool, String> {
    Ok(Pattern::parse(pattern)?.matches(name))
}

/// Returns all names of a certificate, exactly as written.
pub fn names(der: &CertificateDer<'_>) -> Vec<Name> {
    let mut names = Vec::new();
    certificate::any_name(der, |name| {
        names.push(name.clone());
        false
    });
    names
}

/// Returns the certificates, revocation lists and private key of a text, in DER.
pub fn material(pem: &[u8]) -> [Result<Vec<Vec<u8>>, TlsError>; 3] {
    let none = Path::new("");
    let certificates = material::certificates("ca_file", none, pem);
    let lists = material::lists("crl_file", none, pem);
    if let Ok(lists) = &lists {
        let _ = material::lists_end(lists);
    }
    let key = material::private_key(none, pem);
    let der = |der: &[u8]| der.to_vec();
    [
        certificates.map(|found| found.iter().map(|found| der(found)).collect()),
        lists.map(|found| found.iter().map(|found| der(found)).collect()),
        key.map(|key| vec![der(key.secret_der())]),
    ]
}

/// Verifier of client certificates.
pub struct Clients(Arc<dyn ClientCertVerifier>);

impl Clients {
    /// Creates a verifier with these trusted authorities (PEM) and allowed names.
    ///
    /// # Errors
    /// An authority or name is invalid.
    pub fn new(authorities: &[u8], allowed: &[&str]) -> Result<Self, TlsError> {
        let section = ServerTls {
            allowed_client_names: allowed.iter().map(|name| (*name).to_owned()).collect(),
            ..ServerTls::default()
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = section.verifier(Some(authorities), &provider)?;
        Ok(Clients(verifier.unwrap_or_else(|| unreachable!())))
    }

    /// Verifies a chain at this time, in seconds since 1970.
    ///
    /// # Errors
    /// The explanation for the operator.
    pub fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: u64,
    ) -> Result<(), String> {
        let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
        let verify = async { self.0.verify_client_cert(end_entity, intermediates, now) };
        let taken = notes::taken(verify).now_or_never();
        let (verified, notes) = taken.unwrap_or_else(|| unreachable!());
        match (verified, notes.refused) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some((_, words))) => Err(words),
            (Err(error), None) => panic!("refused without a word: {error}"),
        }
    }
}
