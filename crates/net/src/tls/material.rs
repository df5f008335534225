//! Reading and validation of certificates, keys and revocation lists, with helpful errors.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer};

use super::certificate::{self, CertificateFields, date};
use super::error::{TlsError, problem};
use crate::files::{MAX_PEM_FILE, read_regular};
use tributary_config::Secret;

/// Configured source of a certificate chain and its key.
pub(super) struct Pair<'a> {
    pub(super) cert_file: &'a Path,
    pub(super) cert_pem: &'a str,
    pub(super) key_file: &'a Path,
    pub(super) key_pem: &'a Secret,
}

impl Pair<'_> {
    /// Loads the chain and its key, if configured, and checks that the key fits.
    ///
    /// # Errors
    /// A part cannot be read or is missing, or the two do not fit.
    pub(super) fn load(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Option<Arc<CertifiedKey>>, TlsError> {
        let cert = text("cert_file", self.cert_file, self.cert_pem)?;
        let key = text("key_file", self.key_file, self.key_pem.reveal())?;
        let (cert, key) = match (cert, key) {
            (None, None) => return Ok(None),
            (Some(_), None) => {
                let reason = "a certificate needs its private key: set key_file or key_pem";
                return Err(problem("cert_file", reason));
            }
            (None, Some(_)) => {
                let reason = "a private key needs its certificate: set cert_file or cert_pem";
                return Err(problem("key_file", reason));
            }
            (Some(cert), Some(key)) => (cert, key),
        };
        let chain = certificates("cert_file", self.cert_file, &cert)?;
        let key = private_key(self.key_file, &key)?;
        let signer = provider.key_provider.load_private_key(key).map_err(|error| {
            let reason = format!(
                "the private key in {} cannot be used ({error}); supported are ECDSA P-256 and P-384, Ed25519, \
                 and RSA of 2048 to 4096 bits",
                source(self.key_file)
            );
            problem("key_file", reason)
        })?;
        let owns = |certificate: &CertificateDer<'static>| {
            let certified = CertifiedKey::new(vec![certificate.clone()], signer.clone());
            certified.keys_match()
        };
        let Some(own) = chain.first() else {
            return Ok(None);
        };
        match owns(own) {
            Ok(()) => {}
            // Some keys do not reveal their public key, so no check is possible.
            Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(rustls::Error::InconsistentKeys(_)) => {
                return Err(problem("cert_file", self.mismatch(&chain, owns)));
            }
            Err(error) => {
                let reason = format!(
                    "{} has an invalid certificate: {error}",
                    source(self.cert_file)
                );
                return Err(problem("cert_file", reason));
            }
        }
        Ok(Some(Arc::new(CertifiedKey::new(chain, signer))))
    }

    /// Returns the fields of the own certificate, if it can be parsed.
    pub(super) fn fields(&self) -> Option<CertificateFields> {
        let pem = text("cert_file", self.cert_file, self.cert_pem).ok()??;
        let chain = certificates("cert_file", self.cert_file, &pem).ok()?;
        certificate::describe(chain.first()?).ok()
    }

    /// Returns a warning if the own certificate is not valid now.
    pub(super) fn warning(&self, now: SystemTime) -> Option<TlsError> {
        let fields = self.fields()?;
        let what = format!(
            "the certificate {} in {}",
            fields.title(),
            source(self.cert_file)
        );
        let reason = if fields.not_after < now {
            format!(
                "{what} expired on {}, so peers reject it: renew it",
                date(fields.not_after)
            )
        } else if fields.not_before > now {
            let from = date(fields.not_before);
            format!("{what} is not valid before {from}; peers reject it until then")
        } else {
            return None;
        };
        Some(problem("cert_file", reason))
    }

    fn mismatch(
        &self,
        chain: &[CertificateDer<'static>],
        owns: impl Fn(&CertificateDer<'static>) -> Result<(), rustls::Error>,
    ) -> String {
        let (cert_file, key_file) = (source(self.cert_file), source(self.key_file));
        let title = |certificate| {
            certificate::describe(certificate)
                .map_or_else(|error| error.to_string(), |fields| fields.title())
        };
        let first = chain.first().map(title).unwrap_or_default();
        match chain
            .iter()
            .position(|certificate| owns(certificate).is_ok())
        {
            Some(at) => format!(
                "{cert_file} is in the wrong order: the file begins with {first}, but the key in {key_file} belongs \
                 to certificate number {}, {}; put that certificate first, followed by its chain of issuers",
                at + 1,
                chain.get(at).map(title).unwrap_or_default()
            ),
            None => format!(
                "the key in {key_file} does not belong to the certificate {first} in {cert_file}"
            ),
        }
    }
}

pub(super) fn is_set(file: &Path) -> bool {
    !file.as_os_str().is_empty()
}

pub(super) fn text(key: &'static str, file: &Path, pem: &str) -> Result<Option<Vec<u8>>, TlsError> {
    match (is_set(file), pem.is_empty()) {
        (false, true) => Ok(None),
        (false, false) => Ok(Some(pem.as_bytes().to_vec())),
        (true, false) => {
            let other = key.replace("_file", "_pem");
            let reason = format!("{key} and {other} cannot be combined: remove one of the two");
            Err(problem(key, reason))
        }
        (true, true) => read_regular(file, MAX_PEM_FILE)
            .map(Some)
            .map_err(|error| problem(key, error.to_string())),
    }
}

/// Returns all certificates of a text, at least one.
pub(super) fn certificates(
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Vec<CertificateDer<'static>> = sections(key, file, pem)?;
    match found.is_empty() {
        false => Ok(found),
        true if is_encrypted(pem) || has_key(pem) => {
            let reason = format!(
                "{} has a private key and no certificate: set key_file to it",
                source(file)
            );
            Err(problem(key, reason))
        }
        true => {
            let reason = format!(
                "{} has no certificate in PEM{}",
                source(file),
                der_hint(pem)
            );
            Err(problem(key, reason))
        }
    }
}

/// Adds the authorities in a text to `roots`.
pub(super) fn add_roots(
    roots: &mut RootCertStore,
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<(), TlsError> {
    for certificate in certificates(key, file, pem)? {
        roots.add(certificate).map_err(|error| {
            problem(
                key,
                format!("{} has an invalid certificate: {error}", source(file)),
            )
        })?;
    }
    Ok(())
}

/// Returns the revocation lists in a file: at least one if a file is configured.
pub(super) fn revocation_lists(
    key: &'static str,
    file: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let Some(pem) = text(key, file, "")? else {
        return Ok(Vec::new());
    };
    lists(key, file, &pem)
}

/// Returns all revocation lists of a text, at least one.
pub(super) fn lists(
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let found: Vec<CertificateRevocationListDer<'static>> = sections(key, file, pem)?;
    if found.is_empty() {
        let reason = format!(
            "{} has no revocation list (X509 CRL) in PEM{}",
            source(file),
            der_hint(pem)
        );
        return Err(problem(key, reason));
    }
    Ok(found)
}

/// Returns the end of the validity of all lists: their earliest next update.
pub(super) fn lists_end(
    lists: &[CertificateRevocationListDer<'static>],
) -> Option<(SystemTime, String)> {
    let ends = lists.iter().filter_map(|list| {
        let (_, list) = CertificateRevocationList::from_der(list).ok()?;
        let end = certificate::moment(list.next_update()?);
        Some((end, certificate::printable(&list.issuer().to_string())))
    });
    ends.min()
}

/// Returns the name of a text's source for messages.
pub(super) fn source(file: &Path) -> String {
    match is_set(file) {
        true => file.display().to_string(),
        false => "the given PEM text".to_owned(),
    }
}

pub(super) fn private_key(file: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let name = source(file);
    if is_encrypted(pem) {
        let reason = format!(
            "the private key in {name} is encrypted, which is not supported; decrypt it with `openssl pkey -in \
             {name} -out plain.key`, and make that file readable only for this program's user"
        );
        return Err(problem("key_file", reason));
    }
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        let holds_certificate = CertificateDer::from_pem_slice(pem).is_ok();
        let reason = match error {
            rustls_pki_types::pem::Error::NoItemsFound if holds_certificate => {
                format!("{name} has a certificate and no private key: set cert_file to it")
            }
            rustls_pki_types::pem::Error::NoItemsFound => {
                format!("{name} has no private key in PEM{}", der_hint(pem))
            }
            // The library's error message would contain a line of the key.
            _ => format!("{name} is damaged: the PEM data is incomplete"),
        };
        problem("key_file", reason)
    })
}

fn sections<T: PemObject>(key: &'static str, file: &Path, pem: &[u8]) -> Result<Vec<T>, TlsError> {
    let found: Result<Vec<T>, _> = T::pem_slice_iter(pem).collect();
    // The library's error message could contain a line of a key in the same file.
    found.map_err(|_| {
        let reason = format!("{} is damaged: the PEM data is incomplete", source(file));
        problem(key, reason)
    })
}

fn is_encrypted(pem: &[u8]) -> bool {
    let contains = |needle: &[u8]| memchr::memmem::find(pem, needle).is_some();
    // PKCS#8 (RFC 5958, 3), and the older format of OpenSSL (RFC 1421, 4.6.1.1).
    contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED")
}

fn has_key(pem: &[u8]) -> bool {
    PrivateKeyDer::from_pem_slice(pem).is_ok()
}

fn der_hint(bytes: &[u8]) -> &'static str {
    match bytes {
        // A long SEQUENCE (X.690, 8.9) begins every certificate, key and list in DER.
        [0x30, 0x80..=0x84, ..] => {
            " (this looks like DER: convert it with `openssl x509|pkey|crl -inform DER`)"
        }
        _ => "",
    }
}
