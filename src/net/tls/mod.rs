//! TLS of clients and servers: the Collector's `tls` sections, and the rustls configurations made from them.
//!
//! ring is the only crypto provider and is always passed explicitly, so that no process-wide default matters.

pub mod certificate;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::units::Duration;
use crate::config::{Problems, Secret, Validate};

/// TLS of a client. An exporter without this section speaks TLS and trusts the system's certificate authorities.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientTls {
    /// Speak plaintext (unless a certificate authority is given, or the endpoint begins with `https://`). Default:
    /// false.
    pub insecure: bool,
    /// Speak TLS but accept any certificate: anybody on the way can read and change what is sent. Default: false.
    pub insecure_skip_verify: bool,
    /// The name the server's certificate must carry, instead of the endpoint's host; also sent as SNI.
    pub server_name_override: String,
    /// File with the certificate authorities to trust (PEM), instead of the system's.
    pub ca_file: PathBuf,
    /// The same as text. Not together with `ca_file`.
    pub ca_pem: String,
    /// File with the certificate chain to present to the server (PEM), for mutual TLS.
    pub cert_file: PathBuf,
    /// The same as text. Not together with `cert_file`.
    pub cert_pem: String,
    /// File with the certificate's private key (PEM).
    pub key_file: PathBuf,
    /// The same as text. Not together with `key_file`.
    pub key_pem: Secret,
    /// Trust the system's certificate authorities besides those given. Default: false.
    pub include_system_ca_certs_pool: bool,
    /// The lowest version to accept: `1.2` or `1.3`. Default: `1.3`.
    pub min_version: Option<TlsVersion>,
    /// The highest version to offer: `1.2` or `1.3`. Default: `1.3`.
    pub max_version: Option<TlsVersion>,
    /// How often to look whether the files have changed; new connections use what is there then. 0 means never.
    /// Default: 1m. (The Collector never looks unless told to.)
    pub reload_interval: Duration,
}

/// TLS of a server. Without this section it speaks plaintext.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTls {
    /// File with the certificate chain (PEM).
    pub cert_file: PathBuf,
    /// The same as text. Not together with `cert_file`.
    pub cert_pem: String,
    /// File with the certificate's private key (PEM).
    pub key_file: PathBuf,
    /// The same as text. Not together with `key_file`.
    pub key_pem: Secret,
    /// File with the certificate authorities of clients (PEM). When given, every client must present a certificate
    /// that one of them signed: mutual TLS.
    pub client_ca_file: PathBuf,
    /// The lowest version to accept: `1.2` or `1.3`. Default: `1.3`.
    pub min_version: Option<TlsVersion>,
    /// The highest version to accept: `1.2` or `1.3`. Default: `1.3`.
    pub max_version: Option<TlsVersion>,
    /// How often to look whether the files have changed; new connections use what is there then. 0 means never.
    /// Default: 1m. (The Collector never looks unless told to.)
    pub reload_interval: Duration,
    /// Look at `client_ca_file` too. Default: true. (The Collector's is false.)
    pub client_ca_file_reload: bool,
}

impl Default for ClientTls {
    fn default() -> Self {
        ClientTls {
            insecure: false,
            insecure_skip_verify: false,
            server_name_override: String::new(),
            ca_file: PathBuf::new(),
            ca_pem: String::new(),
            cert_file: PathBuf::new(),
            cert_pem: String::new(),
            key_file: PathBuf::new(),
            key_pem: Secret::default(),
            include_system_ca_certs_pool: false,
            min_version: None,
            max_version: None,
            reload_interval: RELOAD_INTERVAL,
        }
    }
}

impl Default for ServerTls {
    fn default() -> Self {
        ServerTls {
            cert_file: PathBuf::new(),
            cert_pem: String::new(),
            key_file: PathBuf::new(),
            key_pem: Secret::default(),
            client_ca_file: PathBuf::new(),
            min_version: None,
            max_version: None,
            reload_interval: RELOAD_INTERVAL,
            client_ca_file_reload: true,
        }
    }
}

/// Long before a short-lived certificate (SPIFFE: an hour) runs out, and nothing next to a handshake.
const RELOAD_INTERVAL: Duration = Duration::secs(60);

/// A version of TLS. Older ones are broken and not supported.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}

/// Why a TLS configuration cannot be used: which key is at fault, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("tls::{key}: {reason}")]
pub struct TlsError {
    /// The key inside the section.
    pub key: &'static str,
    /// What is wrong with it, the file's name included.
    pub reason: String,
}

impl ClientTls {
    /// Whether plaintext is asked for.
    pub fn is_plaintext(&self) -> bool {
        self.insecure && !self.has_ca()
    }

    /// The client's configuration; reads all files. `alpn` lists the protocols to offer, most wanted first.
    ///
    /// # Errors
    /// When a file cannot be read, is not what it should be, or parts do not fit together.
    pub fn build(&self, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
        let mut roots = self.own_roots()?;
        if self.wants_system_roots() {
            add_system_roots(&mut roots)?;
        }
        self.build_with(roots, alpn)
    }

    fn build_with(&self, roots: RootCertStore, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
        let provider = provider();
        let versions = versions(self.min_version, self.max_version)?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| problem("min_version", error))?;
        let builder = if self.insecure_skip_verify {
            let verifier = Arc::new(AcceptAny(provider));
            builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
        } else {
            builder.with_root_certificates(roots)
        };
        let identity = identity(
            &self.cert_file,
            &self.cert_pem,
            &self.key_file,
            &self.key_pem,
        )?;
        let mut config = match identity {
            Some((chain, key)) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| problem("cert_file", error))?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }

    /// The name to ask for and to check, for a server at `host`.
    ///
    /// # Errors
    /// When it is neither a DNS name nor an IP address.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, TlsError> {
        let name = match self.server_name_override.as_str() {
            "" => host,
            name => name,
        };
        ServerName::try_from(name.to_owned())
            .map_err(|error| problem("server_name_override", format!("\"{name}\": {error}")))
    }

    fn has_ca(&self) -> bool {
        !self.ca_pem.is_empty() || is_set(&self.ca_file)
    }

    fn wants_system_roots(&self) -> bool {
        let checked = !self.insecure_skip_verify;
        checked && (!self.has_ca() || self.include_system_ca_certs_pool)
    }

    fn own_roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = text("ca_file", &self.ca_file, &self.ca_pem)? {
            add_roots(&mut roots, "ca_file", &self.ca_file, &pem)?;
        }
        Ok(roots)
    }
}

impl ServerTls {
    /// The server's configuration; reads all files. `alpn` lists the protocols to accept, most wanted first.
    ///
    /// # Errors
    /// When a file cannot be read, is not what it should be, or parts do not fit together.
    pub fn build(&self, alpn: &[&[u8]]) -> Result<ServerConfig, TlsError> {
        let provider = provider();
        let versions = versions(self.min_version, self.max_version)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .map_err(|error| problem("min_version", error))?;
        let builder = match text("client_ca_file", &self.client_ca_file, "")? {
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                add_roots(&mut roots, "client_ca_file", &self.client_ca_file, &pem)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| problem("client_ca_file", error))?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let identity = identity(
            &self.cert_file,
            &self.cert_pem,
            &self.key_file,
            &self.key_pem,
        )?;
        let (chain, key) = identity.ok_or_else(|| {
            let reason = "TLS configuration must include both certificate and key for server \
                          connections";
            problem("cert_file", reason)
        })?;
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| problem("cert_file", error))?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}

impl ClientTls {
    /// Reports what stands in the way of speaking TLS, under `key`. The system's certificate authorities are not looked
    /// at: the system that checks a configuration need not be the one that runs it.
    pub fn validate_for_tls(&self, key: &str, problems: &mut Problems) {
        let built = self
            .own_roots()
            .and_then(|roots| self.build_with(roots, &[]));
        if let Err(error) = built {
            problems.error(&[key, error.key], error.reason);
        }
        if let Err(error) = self.server_name("localhost") {
            problems.error(&[key, error.key], error.reason);
        }
    }
}

impl Validate for ServerTls {
    fn validate(&self, problems: &mut Problems) {
        if let Err(error) = self.build(&[]) {
            problems.error(&[error.key], error.reason);
        }
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn problem(key: &'static str, reason: impl ToString) -> TlsError {
    TlsError {
        key,
        reason: reason.to_string(),
    }
}

fn versions(
    min: Option<TlsVersion>,
    max: Option<TlsVersion>,
) -> Result<Vec<&'static rustls::SupportedProtocolVersion>, TlsError> {
    let max = max.unwrap_or(TlsVersion::V1_3);
    // A highest version of 1.2 alone asks for 1.2.
    let min = min.unwrap_or(max);
    if min > max {
        return Err(problem("min_version", "must not be above max_version"));
    }
    let all = [
        (TlsVersion::V1_2, &rustls::version::TLS12),
        (TlsVersion::V1_3, &rustls::version::TLS13),
    ];
    let within = all
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version));
    Ok(within.map(|(_, version)| version).collect())
}

fn is_set(file: &Path) -> bool {
    !file.as_os_str().is_empty()
}

/// The PEM text of a file, or the one given instead.
fn text(key: &'static str, file: &Path, pem: &str) -> Result<Option<Vec<u8>>, TlsError> {
    match (is_set(file), pem.is_empty()) {
        (false, true) => Ok(None),
        (false, false) => Ok(Some(pem.as_bytes().to_vec())),
        (true, false) => {
            let other = key.replace("_file", "_pem");
            Err(problem(
                key,
                format!("give either {key} or {other}, not both"),
            ))
        }
        (true, true) => std::fs::read(file)
            .map(Some)
            .map_err(|error| problem(key, format!("cannot read {}: {error}", file.display()))),
    }
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn identity(
    cert_file: &Path,
    cert_pem: &str,
    key_file: &Path,
    key_pem: &Secret,
) -> Result<Option<Identity>, TlsError> {
    let cert = text("cert_file", cert_file, cert_pem)?;
    let key = text("key_file", key_file, key_pem.reveal())?;
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
    let chain = certificates("cert_file", cert_file, &cert)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| {
        let reason = format!("{} holds no private key in PEM: {error}", source(key_file));
        problem("key_file", reason)
    })?;
    Ok(Some((chain, key)))
}

fn certificates(
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(problem(
            key,
            format!("{} holds no certificate in PEM", source(file)),
        )),
        Err(error) => Err(problem(
            key,
            format!("{} is not PEM: {error}", source(file)),
        )),
    }
}

fn add_system_roots(roots: &mut RootCertStore) -> Result<(), TlsError> {
    let system = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(system.certs);
    if added == 0 {
        let reason = "this system has no certificate authorities (is ca-certificates installed?); \
                      name those to trust with ca_file";
        return Err(problem("ca_file", reason));
    }
    Ok(())
}

fn add_roots(
    roots: &mut RootCertStore,
    key: &'static str,
    file: &Path,
    pem: &[u8],
) -> Result<(), TlsError> {
    for certificate in certificates(key, file, pem)? {
        roots.add(certificate).map_err(|error| {
            problem(
                key,
                format!("{} holds a bad certificate: {error}", source(file)),
            )
        })?;
    }
    Ok(())
}

/// How to call where a text came from.
fn source(file: &Path) -> String {
    match is_set(file) {
        true => file.display().to_string(),
        false => "the text given".to_owned(),
    }
}

/// Accepts any certificate, for `insecure_skip_verify`; the peer must still own the key of the one it shows.
#[derive(Debug)]
struct AcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;
    use crate::net::client::test_server::certificates;

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    /// A byte each way, and the version and protocol both agreed on.
    async fn handshake(
        client: &ClientTls,
        server: &ServerTls,
    ) -> Result<(rustls::ProtocolVersion, Option<Vec<u8>>), String> {
        let (near, far) = duplex(64 * 1024);
        let acceptor = TlsAcceptor::from(Arc::new(server.build(&[b"h2", b"http/1.1"]).unwrap()));
        let serving = async move {
            let mut stream = acceptor
                .accept(far)
                .await
                .map_err(|error| error.to_string())?;
            let byte = stream.read_u8().await.map_err(|error| error.to_string())?;
            stream
                .write_u8(byte)
                .await
                .map_err(|error| error.to_string())
        };
        let connector = TlsConnector::from(Arc::new(client.build(&[b"h2"]).unwrap()));
        let name = client.server_name("localhost").unwrap();
        let calling = async move {
            let mut stream = connector
                .connect(name, near)
                .await
                .map_err(|error| error.to_string())?;
            stream
                .write_u8(7)
                .await
                .map_err(|error| error.to_string())?;
            let byte = stream.read_u8().await.map_err(|error| error.to_string())?;
            assert_eq!(byte, 7);
            let connection = stream.get_ref().1;
            let protocol = connection.alpn_protocol().map(<[u8]>::to_vec);
            Ok((connection.protocol_version().unwrap(), protocol))
        };
        let (called, served): (_, Result<(), String>) = tokio::join!(calling, serving);
        called.and_then(|agreed| served.map(|()| agreed))
    }

    fn server(cert: &str, key: &str) -> ServerTls {
        ServerTls {
            cert_pem: cert.to_owned(),
            key_pem: key.into(),
            ..ServerTls::default()
        }
    }

    fn trusting(ca: &str) -> ClientTls {
        ClientTls {
            ca_pem: ca.to_owned(),
            ..ClientTls::default()
        }
    }

    #[tokio::test]
    async fn tls_1_3_is_the_default_and_1_2_must_be_asked_for() {
        let (ca, cert, key) = certificates();
        let (server, client) = (server(&cert, &key), trusting(&ca));
        let agreed = handshake(&client, &server).await.unwrap();
        assert_eq!(
            agreed,
            (rustls::ProtocolVersion::TLSv1_3, Some(b"h2".to_vec()))
        );
        let old = ClientTls {
            max_version: Some(TlsVersion::V1_2),
            ..client
        };
        assert!(handshake(&old, &server).await.is_err());
        let lenient = ServerTls {
            min_version: Some(TlsVersion::V1_2),
            ..server
        };
        let agreed = handshake(&old, &lenient).await.unwrap();
        assert_eq!(agreed.0, rustls::ProtocolVersion::TLSv1_2);
    }

    #[tokio::test]
    async fn the_servers_name_is_checked_and_can_be_overridden() {
        let (ca, cert, key) = certificates();
        let server = server(&cert, &key);
        let named = |name: &str| ClientTls {
            server_name_override: name.to_owned(),
            ..trusting(&ca)
        };
        assert!(handshake(&named("127.0.0.1"), &server).await.is_ok());
        assert!(handshake(&named("other.example"), &server).await.is_err());
        let skipping = ClientTls {
            insecure_skip_verify: true,
            ..named("other.example")
        };
        assert!(handshake(&skipping, &server).await.is_ok());
    }

    #[tokio::test]
    async fn a_client_authority_makes_the_server_demand_a_certificate_it_signed() {
        let (ca, cert, key) = certificates();
        let ca_file = file(&ca);
        let mutual = ServerTls {
            client_ca_file: ca_file.path().to_owned(),
            ..server(&cert, &key)
        };
        let anonymous = trusting(&ca);
        assert!(handshake(&anonymous, &mutual).await.is_err());
        let (cert_file, key_file) = (file(&cert), file(&key));
        let known = ClientTls {
            cert_file: cert_file.path().to_owned(),
            key_file: key_file.path().to_owned(),
            ..trusting(&ca)
        };
        assert!(handshake(&known, &mutual).await.is_ok());
        let (_, cert, key) = certificates();
        let stranger = ClientTls {
            cert_pem: cert,
            key_pem: key.as_str().into(),
            ..trusting(&ca)
        };
        assert!(handshake(&stranger, &mutual).await.is_err());
    }

    #[test]
    fn every_mistake_names_its_key_and_file() {
        let (ca, cert, key) = certificates();
        let other_key = certificates().2;
        let junk = file("junk");
        let junk_name = junk.path().display().to_string();
        let client = |change: &dyn Fn(&mut ClientTls)| {
            let mut client = trusting(&ca);
            change(&mut client);
            client.build(&[]).unwrap_err()
        };
        let missing = client(&|c| c.cert_file = "/no/such/file".into());
        assert_eq!(missing.key, "cert_file");
        assert!(missing.reason.contains("/no/such/file"), "{missing}");
        let both = client(&|c| c.ca_file = junk.path().to_owned());
        assert_eq!(both.reason, "give either ca_file or ca_pem, not both");
        let unpaired = client(&|c| c.cert_pem = cert.clone());
        assert!(unpaired.reason.contains("key_file"), "{unpaired}");
        let unpaired = client(&|c| c.key_pem = key.as_str().into());
        assert!(unpaired.reason.contains("cert_file"), "{unpaired}");
        let no_pem = client(&|c| {
            c.ca_pem.clear();
            c.ca_file = junk.path().to_owned();
        });
        assert_eq!(
            no_pem.reason,
            format!("{junk_name} holds no certificate in PEM")
        );
        let mismatch = client(&|c| {
            c.cert_pem = cert.clone();
            c.key_pem = other_key.as_str().into();
        });
        assert_eq!(mismatch.key, "cert_file");
        let versions = client(&|c| {
            c.min_version = Some(TlsVersion::V1_3);
            c.max_version = Some(TlsVersion::V1_2);
        });
        assert_eq!(versions.key, "min_version");
        let incomplete = ServerTls::default().build(&[]).unwrap_err();
        assert!(
            incomplete.reason.contains("both certificate and key"),
            "{incomplete}"
        );
    }

    #[test]
    fn private_keys_never_show() {
        let (_, cert, key) = certificates();
        let server = server(&cert, &key);
        let secret = key.lines().nth(1).unwrap();
        assert!(!format!("{server:?}").contains(secret));
        assert!(!serde_yaml::to_string(&server).unwrap().contains(secret));
    }
}
