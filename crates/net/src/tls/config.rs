//! The `tls` sections.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use rustls_pki_types::ServerName;
use schemars::JsonSchema;
use serde::de::{self, EnumAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::material::is_set;
use tributary_config::units::Duration;
use tributary_config::{Problems, Secret, Validate};

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
    /// File with certificate revocation lists (PEM) for the server's certificate. Every authority between it and the
    /// trusted one must have a list there that is valid now: without one, or when it has expired, the server is not
    /// trusted. (The Collector has no such key.)
    pub crl_file: PathBuf,
    /// File with the certificate chain to present to the server (PEM), for mutual TLS: our certificate first, then the
    /// intermediate authorities.
    pub cert_file: PathBuf,
    /// The same as text. Not together with `cert_file`.
    pub cert_pem: String,
    /// File with the certificate's private key (PEM, not encrypted).
    pub key_file: PathBuf,
    /// The same as text. Not together with `key_file`.
    pub key_pem: Secret,
    /// Trust the system's certificate authorities besides those given. Default: false.
    pub include_system_ca_certs_pool: bool,
    /// The lowest version to accept: `1.2` or `1.3`. Default: `1.2`, as the Collector's. Between our own tiers set `1.3`.
    pub min_version: Option<TlsVersion>,
    /// The highest version to offer: `1.2` or `1.3`. Default: `1.3`.
    pub max_version: Option<TlsVersion>,
    /// The cipher suites to offer, by Go's names, most wanted first. Those of TLS 1.2 and of TLS 1.3 are chosen
    /// separately: a version none of whose suites is named keeps its default. Default: all that are supported, none of
    /// which is known to be weak.
    pub cipher_suites: Vec<String>,
    /// Must be false: no insecure cipher suite is built in.
    pub include_insecure_cipher_suites: bool,
    /// The curves for the key exchange, most wanted first: `X25519`, `P256`, `P384`. Default: all, in this order.
    pub curve_preferences: Vec<String>,
    /// How often to look whether the files have changed; new connections use what is there then. 0 means never.
    /// Default: 1m. (The Collector never looks unless told to.)
    pub reload_interval: Duration,
}

/// TLS of a server. Without this section it speaks plaintext.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTls {
    /// File with the certificate chain (PEM): the server's certificate first, then the intermediate authorities.
    pub cert_file: PathBuf,
    /// The same as text. Not together with `cert_file`.
    pub cert_pem: String,
    /// File with the certificate's private key (PEM, not encrypted).
    pub key_file: PathBuf,
    /// The same as text. Not together with `key_file`.
    pub key_pem: Secret,
    /// File with the certificate authorities of clients (PEM). When given, every client must present a certificate
    /// that one of them signed: mutual TLS.
    pub client_ca_file: PathBuf,
    /// Which clients may connect, by the DNS names and URIs (SPIFFE ids) of their certificates; one that matches is
    /// enough. Each is exact, or has one `*`, which stands for one label of a DNS name (`*.sidecars.example`) or one
    /// segment of a URI's path (`spiffe://zone.example/ns/*/sa/agent`). Only paths of URIs are case-sensitive. Needs
    /// `client_ca_file`. Default: all clients with a certificate. (The Collector has no such key.)
    pub allowed_client_names: Vec<String>,
    /// File with certificate revocation lists (PEM) for the certificates of clients. Every authority between a client
    /// and `client_ca_file` must have a list there that is valid now: without one, or when it has expired, its clients
    /// are refused. Needs `client_ca_file`. (The Collector has no such key.)
    pub client_crl_file: PathBuf,
    /// The resource attribute to put the client's identity into, on all it sends: the first URI of its certificate (a
    /// SPIFFE id), else the first DNS name, else the common name; with `allowed_client_names`, of the names that are
    /// allowed. What the client wrote under that key itself is
    /// replaced. Needs `client_ca_file`. Default: none. (The Collector has no such key.)
    pub client_identity_attribute: String,
    /// Has no effect, as in the Collector, and gives a warning: a server verifies clients, by `client_ca_file`.
    pub ca_file: PathBuf,
    /// Has no effect, as in the Collector.
    pub ca_pem: String,
    /// Has no effect, as in the Collector.
    pub include_system_ca_certs_pool: bool,
    /// The lowest version to accept: `1.2` or `1.3`. Default: `1.2`, as the Collector's. Between our own tiers set `1.3`.
    pub min_version: Option<TlsVersion>,
    /// The highest version to accept: `1.2` or `1.3`. Default: `1.3`.
    pub max_version: Option<TlsVersion>,
    /// The cipher suites to accept, by Go's names. Those of TLS 1.2 and of TLS 1.3 are chosen separately: a version none
    /// of whose suites is named keeps its default. Default: all that are supported, none of which is known to be weak.
    pub cipher_suites: Vec<String>,
    /// Must be false: no insecure cipher suite is built in.
    pub include_insecure_cipher_suites: bool,
    /// The curves for the key exchange: `X25519`, `P256`, `P384`. Default: all.
    pub curve_preferences: Vec<String>,
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
            crl_file: PathBuf::new(),
            cert_file: PathBuf::new(),
            cert_pem: String::new(),
            key_file: PathBuf::new(),
            key_pem: Secret::default(),
            include_system_ca_certs_pool: false,
            min_version: None,
            max_version: None,
            cipher_suites: Vec::new(),
            include_insecure_cipher_suites: false,
            curve_preferences: Vec::new(),
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
            allowed_client_names: Vec::new(),
            client_crl_file: PathBuf::new(),
            client_identity_attribute: String::new(),
            ca_file: PathBuf::new(),
            ca_pem: String::new(),
            include_system_ca_certs_pool: false,
            min_version: None,
            max_version: None,
            cipher_suites: Vec::new(),
            include_insecure_cipher_suites: false,
            curve_preferences: Vec::new(),
            reload_interval: RELOAD_INTERVAL,
            client_ca_file_reload: true,
        }
    }
}

/// Long before a short-lived certificate (SPIFFE: an hour) runs out, and nothing next to a handshake.
const RELOAD_INTERVAL: Duration = Duration::secs(60);

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum TlsVersion {
    /// RFC 5246.
    #[serde(rename = "1.2")]
    V1_2,
    /// RFC 8446.
    #[serde(rename = "1.3")]
    V1_3,
}

impl<'de> Deserialize<'de> for TlsVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_enum("TlsVersion", &["1.2", "1.3"], AnyVersion)
    }
}

/// Knows the old versions too, to say why they are not supported.
struct AnyVersion;

impl<'de> Visitor<'de> for AnyVersion {
    type Value = TlsVersion;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a version of TLS: `1.2` or `1.3`")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<TlsVersion, A::Error> {
        let (name, variant): (String, _) = data.variant()?;
        variant.unit_variant()?;
        match name.as_str() {
            "1.2" => Ok(TlsVersion::V1_2),
            "1.3" => Ok(TlsVersion::V1_3),
            "1.0" | "1.1" => Err(de::Error::custom(format!(
                "TLS {name} can be broken (RFC 8996) and is not supported; write `1.2` or `1.3`"
            ))),
            other => Err(de::Error::unknown_variant(other, &["1.2", "1.3"])),
        }
    }
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

pub(super) fn problem(key: &'static str, reason: impl ToString) -> TlsError {
    TlsError {
        key,
        reason: reason.to_string(),
    }
}

impl ClientTls {
    /// Whether plaintext is asked for.
    pub fn is_plaintext(&self) -> bool {
        self.insecure && !self.has_ca()
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

    pub(super) fn has_ca(&self) -> bool {
        !self.ca_pem.is_empty() || is_set(&self.ca_file)
    }

    /// Reports what stands in the way of speaking TLS, under `key`. The system's certificate authorities are not looked
    /// at: the system that checks a configuration need not be the one that runs it.
    pub fn validate_for_tls(&self, key: &str, problems: &mut Problems) {
        for error in self.mistakes() {
            problems.error(&[key, error.key], error.reason);
        }
        for warning in self.warnings(SystemTime::now()) {
            problems.warning(&[key, warning.key], warning.reason);
        }
    }
}

impl Validate for ServerTls {
    fn validate(&self, problems: &mut Problems) {
        for error in self.mistakes() {
            problems.error(&[error.key], error.reason);
        }
        for warning in self.warnings(SystemTime::now()) {
            problems.warning(&[warning.key], warning.reason);
        }
    }
}
