//! Builds rustls configurations from the `tls` sections.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::certificate::date;
use super::config::{ClientTls, ServerTls};
use super::error::{TlsError, problem};
use super::material::{Pair, add_roots, is_set, lists_end, revocation_lists, source, text};
use super::names::Pattern;
use super::parameters::Parameters;
use super::tickets;
use super::verifier::{AcceptAny, ClientVerifier, ServerVerifier, Words};

/// Views of the keys that clients and servers have alike.
macro_rules! common_parts {
    () => {
        fn pair(&self) -> Pair<'_> {
            Pair {
                cert_file: &self.cert_file,
                cert_pem: &self.cert_pem,
                key_file: &self.key_file,
                key_pem: &self.key_pem,
            }
        }

        fn parameters(&self) -> Parameters<'_> {
            Parameters {
                min: self.min_version,
                max: self.max_version,
                suites: &self.cipher_suites,
                insecure_suites: self.include_insecure_cipher_suites,
                curves: &self.curve_preferences,
            }
        }
    };
}

impl ClientTls {
    /// Builds the client's configuration, which reads all files. `alpn` lists the offered protocols, most preferred
    /// first.
    ///
    /// # Errors
    /// A file cannot be read, has the wrong content, or does not fit another file.
    pub fn build(&self, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
        let parameters = self.parameters();
        let provider = parameters.provider()?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&parameters.versions()?)
            .map_err(|error| problem("min_version", error))?;
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(self.verifier(&provider)?);
        let mut config = match self.pair().load(&provider)? {
            Some(own) => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own))),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        self.check_lists_are_used()?;
        if self.insecure_skip_verify {
            return Ok(Arc::new(AcceptAny(provider.clone())));
        }
        let roots = match (self.has_ca(), self.include_system_ca_certs_pool) {
            (true, false) => Arc::new(self.own_roots()?),
            (false, _) => system_roots()?,
            (true, true) => {
                let mut roots = self.own_roots()?;
                roots.roots.extend(system_roots()?.roots.iter().cloned());
                Arc::new(roots)
            }
        };
        let lists = revocation_lists("crl_file", &self.crl_file)?;
        let inner = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .with_crls(lists)
            .enforce_revocation_expiration()
            .build()
            .map_err(|error| problem("crl_file", format!("{}: {error}", source(&self.crl_file))))?;
        Ok(Arc::new(ServerVerifier {
            inner,
            words: Words {
                whose: "server",
                authorities: self.authorities(),
                lists: format!("tls::crl_file ({})", source(&self.crl_file)),
                allowed: String::new(),
            },
        }))
    }

    fn authorities(&self) -> String {
        let own = match is_set(&self.ca_file) {
            true => format!(
                "the authorities in tls::ca_file ({})",
                source(&self.ca_file)
            ),
            false => "the authorities in tls::ca_pem".to_owned(),
        };
        match (self.has_ca(), self.include_system_ca_certs_pool) {
            (true, false) => own,
            (true, true) => format!("{own} or this system's"),
            (false, _) => "this system's authorities (or set tls::ca_file)".to_owned(),
        }
    }

    fn own_roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = text("ca_file", &self.ca_file, &self.ca_pem)? {
            add_roots(&mut roots, "ca_file", &self.ca_file, &pem)?;
        }
        Ok(roots)
    }

    fn check_lists_are_used(&self) -> Result<(), TlsError> {
        match self.insecure_skip_verify && is_set(&self.crl_file) {
            true => {
                let reason =
                    "has no effect with insecure_skip_verify, which accepts any certificate";
                Err(problem("crl_file", reason))
            }
            false => Ok(()),
        }
    }

    /// Returns all mistakes in the section and its files that can be found without the system's certificate
    /// authorities.
    pub(super) fn mistakes(&self) -> Vec<TlsError> {
        let mut mistakes = self.parameters().mistakes();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let found = [
            self.own_roots().map(drop),
            self.check_lists_are_used(),
            revocation_lists("crl_file", &self.crl_file).map(drop),
            self.pair().load(&provider).map(drop),
            self.server_name("localhost").map(drop),
        ];
        mistakes.extend(found.into_iter().filter_map(Result::err));
        mistakes
    }

    /// Returns warnings about settings that work, but probably not as intended.
    pub(super) fn warnings(&self, now: SystemTime) -> Vec<TlsError> {
        let suites = self.parameters().idle_suites();
        let found = [
            suites.map(|reason| problem("cipher_suites", reason)),
            self.pair().warning(now),
            expired_list(
                "crl_file",
                &self.crl_file,
                "no server certificate is accepted",
                now,
            ),
        ];
        found.into_iter().flatten().collect()
    }

    common_parts!();
}

impl ServerTls {
    /// Builds the server's configuration, which reads all files. `alpn` lists the accepted protocols, most preferred
    /// first. Sessions can be resumed with this configuration only, and only while the client's certificate is valid.
    ///
    /// # Errors
    /// A file cannot be read, has the wrong content, or does not fit another file.
    pub fn build(&self, alpn: &[&[u8]]) -> Result<ServerConfig, TlsError> {
        let (config, _) = self.build_trusting(self.client_ca()?.as_deref(), alpn)?;
        Ok(config)
    }

    /// Like [`build`](Self::build), with these client authorities (PEM). Also returns the verifier of clients.
    pub(super) fn build_trusting(
        &self,
        client_ca: Option<&[u8]>,
        alpn: &[&[u8]],
    ) -> Result<(ServerConfig, Option<Arc<dyn ClientCertVerifier>>), TlsError> {
        let parameters = self.parameters();
        let provider = parameters.provider()?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&parameters.versions()?)
            .map_err(|error| problem("min_version", error))?;
        let verifier = self.verifier(client_ca, &provider)?;
        let clients_are_verified = verifier.is_some();
        let builder = match verifier.clone() {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let own = self.own(&provider)?;
        let mut config = builder.with_cert_resolver(own);
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        tickets::enable(&mut config, clients_are_verified)
            .map_err(|error| problem("cert_file", error))?;
        Ok((config, verifier))
    }

    /// Returns the client authorities in PEM, if clients need a certificate.
    pub(super) fn client_ca(&self) -> Result<Option<Vec<u8>>, TlsError> {
        text("client_ca_file", &self.client_ca_file, "")
    }

    fn own(&self, provider: &CryptoProvider) -> Result<Arc<SingleCertAndKey>, TlsError> {
        let own = self.pair().load(provider)?.ok_or_else(|| {
            let reason = "TLS configuration must include both certificate and key for server connections: set \
                          cert_file and key_file, or leave the whole section out to serve plaintext";
            problem("cert_file", reason)
        })?;
        Ok(Arc::new(SingleCertAndKey::from(own)))
    }

    pub(super) fn verifier(
        &self,
        client_ca: Option<&[u8]>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
        let Some(pem) = client_ca else {
            return match self.needs_client_ca().into_iter().next() {
                Some(error) => Err(error),
                None => Ok(None),
            };
        };
        let mut roots = RootCertStore::empty();
        add_roots(&mut roots, "client_ca_file", &self.client_ca_file, pem)?;
        let lists = revocation_lists("client_crl_file", &self.client_crl_file)?;
        let lists_end = lists_end(&lists).map(|(end, _)| end);
        let lists_named = format!("tls::client_crl_file ({})", source(&self.client_crl_file));
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .with_crls(lists)
            .enforce_revocation_expiration()
            .build()
            .map_err(|error| {
                let reason = format!("{}: {error}", source(&self.client_crl_file));
                problem("client_crl_file", reason)
            })?;
        Ok(Some(Arc::new(ClientVerifier {
            inner,
            allowed: self.patterns()?,
            words: Words {
                whose: "client",
                authorities: format!(
                    "the authorities in tls::client_ca_file ({})",
                    source(&self.client_ca_file)
                ),
                lists: lists_named,
                allowed: self.allowed_client_names.join(", "),
            },
            lists_end,
        })))
    }

    pub(super) fn patterns(&self) -> Result<Vec<Pattern>, TlsError> {
        let names = self.allowed_client_names.iter();
        names
            .map(|name| Pattern::parse(name).map_err(|why| problem("allowed_client_names", why)))
            .collect()
    }

    /// Reports keys about client certificates if no client certificates are requested.
    fn needs_client_ca(&self) -> Vec<TlsError> {
        let keys = [
            (
                "allowed_client_names",
                !self.allowed_client_names.is_empty(),
            ),
            ("client_crl_file", is_set(&self.client_crl_file)),
            (
                "client_identity_attribute",
                !self.client_identity_attribute.is_empty(),
            ),
        ];
        let lonely = keys
            .into_iter()
            .filter(|(_, is_set)| *is_set && !self.verifies_clients());
        let reason = "needs client_ca_file: without it clients are not asked for certificates";
        lonely.map(|(key, _)| problem(key, reason)).collect()
    }

    fn verifies_clients(&self) -> bool {
        is_set(&self.client_ca_file)
    }

    /// Returns all mistakes in the section and its files.
    pub(super) fn mistakes(&self) -> Vec<TlsError> {
        let mut found = self.parameters().mistakes();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        found.extend(self.own(&provider).err());
        let lonely = self.needs_client_ca();
        match lonely.is_empty() {
            true => {
                let verifier = self
                    .client_ca()
                    .and_then(|pem| self.verifier(pem.as_deref(), &provider));
                found.extend(verifier.err());
            }
            false => found.extend(lonely),
        }
        if !self.verifies_clients() {
            found.extend(self.patterns().err());
        }
        found
    }

    /// Returns warnings about settings that work, but probably not as intended.
    pub(super) fn warnings(&self, now: SystemTime) -> Vec<TlsError> {
        let suites = self.parameters().idle_suites();
        let found = [
            suites.map(|reason| problem("cipher_suites", reason)),
            self.pair().warning(now),
            expired_list(
                "client_crl_file",
                &self.client_crl_file,
                "clients of its issuer are refused",
                now,
            ),
        ];
        let mut found: Vec<_> = found.into_iter().flatten().collect();
        found.extend(self.keys_of_clients());
        found
    }

    /// Reports keys that the Collector accepts for a server but ignores: the keys of client sections.
    fn keys_of_clients(&self) -> impl Iterator<Item = TlsError> {
        let keys = [
            ("ca_file", is_set(&self.ca_file)),
            ("ca_pem", !self.ca_pem.is_empty()),
            (
                "include_system_ca_certs_pool",
                self.include_system_ca_certs_pool,
            ),
        ];
        let reason =
            "has no effect on a server; to require client certificates, set client_ca_file";
        let set = keys.into_iter().filter(|(_, is_set)| *is_set);
        set.map(move |(key, _)| problem(key, reason))
    }

    common_parts!();
}

/// Returns the system's certificate authorities. All clients share the set, which has more than a hundred entries.
///
/// # Errors
/// The system has no certificate authorities.
pub fn system_roots() -> Result<Arc<RootCertStore>, TlsError> {
    static SHARED: Mutex<Weak<RootCertStore>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    if let Some(roots) = shared.upgrade() {
        return Ok(roots);
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        let reason =
            "this system has no certificate authorities: install ca-certificates, or set ca_file";
        return Err(problem("ca_file", reason));
    }
    let roots = Arc::new(roots);
    *shared = Arc::downgrade(&roots);
    Ok(roots)
}

fn expired_list(
    key: &'static str,
    file: &std::path::Path,
    so: &str,
    now: SystemTime,
) -> Option<TlsError> {
    let (end, issuer) = lists_end(&revocation_lists(key, file).ok()?)?;
    (end < now).then(|| {
        let end = date(end);
        let reason = format!(
            "the revocation list of \"{issuer}\" in {} expired on {end}: {so}",
            file.display()
        );
        problem(key, reason)
    })
}
