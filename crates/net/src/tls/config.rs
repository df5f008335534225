//! The `tls` sections.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

use rustls_pki_types::ServerName;
use schemars::JsonSchema;
use serde::de::{self, EnumAccess, VariantAccess as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub use super::error::TlsError;
pub(super) use super::error::problem;
use super::material::is_set;
use tributary_config::units::Duration;
use tributary_config::{Problems, Secret, Validate};

/// TLS of a client. An exporter without this section uses TLS and trusts the system's certificate authorities.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientTls {
    /// Whether to use plaintext, unless a certificate authority is given or the endpoint begins with `https://`.
    /// Default: false.
    pub insecure: bool,
    /// Whether to accept any server certificate. An attacker on the network can then read and change the data. Default:
    /// false.
    pub insecure_skip_verify: bool,
    /// Name that the server's certificate must contain, instead of the endpoint's host. It is also sent as SNI.
    pub server_name_override: String,
    /// File with the trusted certificate authorities (PEM). Default: the system's authorities.
    pub ca_file: PathBuf,
    /// Trusted certificate authorities as PEM text. Cannot be combined with `ca_file`.
    pub ca_pem: String,
    /// File with certificate revocation lists (PEM) for the server's certificate. Every authority between the
    /// certificate and the trusted authority needs a valid list in the file. If a list is missing or expired, the
    /// server is not trusted. (The Collector has no such key.)
    pub crl_file: PathBuf,
    /// File with the client certificate chain (PEM), for mutual TLS: the client's certificate first, then the
    /// intermediate authorities.
    pub cert_file: PathBuf,
    /// Client certificate chain as PEM text. Cannot be combined with `cert_file`.
    pub cert_pem: String,
    /// File with the private key of the client certificate (PEM, unencrypted).
    pub key_file: PathBuf,
    /// Private key as PEM text. Cannot be combined with `key_file`.
    pub key_pem: Secret,
    /// Whether to trust the system's certificate authorities in addition to the given ones. Default: false.
    pub include_system_ca_certs_pool: bool,
    /// Minimum TLS version: `1.2` or `1.3`. Use `1.3` between collectors. Default: `1.2`.
    pub min_version: Option<TlsVersion>,
    /// Maximum TLS version: `1.2` or `1.3`. Default: `1.3`.
    pub max_version: Option<TlsVersion>,
    /// Cipher suites to offer, by Go's names, most preferred first. The suites of TLS 1.2 and TLS 1.3 are selected
    /// separately: if no suite of a version is listed, that version keeps its default suites. Default: all supported
    /// suites, none of which is known to be weak.
    pub cipher_suites: Vec<String>,
    /// Must be false: no insecure cipher suites are built in.
    pub include_insecure_cipher_suites: bool,
    /// Curves for the key exchange, most preferred first: `X25519`, `P256`, `P384`. Default: all, in this order.
    pub curve_preferences: Vec<String>,
    /// Interval at which the files are checked for changes. New connections use the new files. 0 means never. Default:
    /// 1m. (The Collector's default is never.)
    pub reload_interval: Duration,
}

/// TLS of a server. Without this section, the server uses plaintext.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerTls {
    /// File with the certificate chain (PEM): the server's certificate first, then the intermediate authorities.
    pub cert_file: PathBuf,
    /// Certificate chain as PEM text. Cannot be combined with `cert_file`.
    pub cert_pem: String,
    /// File with the private key of the certificate (PEM, unencrypted).
    pub key_file: PathBuf,
    /// Private key as PEM text. Cannot be combined with `key_file`.
    pub key_pem: Secret,
    /// File with the certificate authorities of clients (PEM). If set, every client must present a certificate signed
    /// by one of them (mutual TLS).
    pub client_ca_file: PathBuf,
    /// Names of the clients that may connect. A client may connect if a DNS name or URI (SPIFFE id) of its certificate
    /// matches one entry. An entry is exact, or has one `*` for one label of a DNS name (`*.sidecars.example`) or one
    /// segment of a URI's path (`spiffe://zone.example/ns/*/sa/agent`). Only the paths of URIs are case-sensitive.
    /// Needs `client_ca_file`. Default: all clients with a certificate. (The Collector has no such key.)
    pub allowed_client_names: Vec<String>,
    /// File with certificate revocation lists (PEM) for client certificates. Every authority between a client
    /// certificate and `client_ca_file` needs a valid list in the file. If the list of an authority is missing or
    /// expired, its clients are refused. Needs `client_ca_file`. (The Collector has no such key.)
    pub client_crl_file: PathBuf,
    /// Resource attribute that is set to the client's identity on all its data. The identity is the first URI of its
    /// certificate (a SPIFFE id), else the first DNS name, else the common name. With `allowed_client_names`, only
    /// allowed names count. A value from the client is replaced. Needs `client_ca_file`. Default: none. (The Collector
    /// has no such key.)
    pub client_identity_attribute: String,
    /// Has no effect, as in the Collector, and causes a warning. A server verifies clients with `client_ca_file`.
    pub ca_file: PathBuf,
    /// Has no effect, as in the Collector.
    pub ca_pem: String,
    /// Has no effect, as in the Collector.
    pub include_system_ca_certs_pool: bool,
    /// Minimum TLS version: `1.2` or `1.3`. Use `1.3` between collectors. Default: `1.2`.
    pub min_version: Option<TlsVersion>,
    /// Maximum TLS version: `1.2` or `1.3`. Default: `1.3`.
    pub max_version: Option<TlsVersion>,
    /// Accepted cipher suites, by Go's names. The suites of TLS 1.2 and TLS 1.3 are selected separately: if no suite of
    /// a version is listed, that version keeps its default suites. Default: all supported suites, none of which is
    /// known to be weak.
    pub cipher_suites: Vec<String>,
    /// Must be false: no insecure cipher suites are built in.
    pub include_insecure_cipher_suites: bool,
    /// Curves for the key exchange: `X25519`, `P256`, `P384`. Default: all.
    pub curve_preferences: Vec<String>,
    /// Interval at which the files are checked for changes. New connections use the new files. 0 means never. Default:
    /// 1m. (The Collector's default is never.)
    pub reload_interval: Duration,
    /// Whether `client_ca_file` is checked for changes too. Default: true. (The Collector's default is false.)
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

/// Far below the lifetime of a short-lived certificate (SPIFFE: an hour). A check costs little compared to a handshake.
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

/// Parses the old versions too, to explain that they are not supported.
struct AnyVersion;

impl<'de> Visitor<'de> for AnyVersion {
    type Value = TlsVersion;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a TLS version: `1.2` or `1.3`")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<TlsVersion, A::Error> {
        let (name, variant): (String, _) = data.variant()?;
        variant.unit_variant()?;
        match name.as_str() {
            "1.2" => Ok(TlsVersion::V1_2),
            "1.3" => Ok(TlsVersion::V1_3),
            "1.0" | "1.1" => Err(de::Error::custom(format!(
                "TLS {name} is insecure (RFC 8996) and not supported; write `1.2` or `1.3`"
            ))),
            other => Err(de::Error::unknown_variant(other, &["1.2", "1.3"])),
        }
    }
}

impl ClientTls {
    /// Whether plaintext is configured.
    pub fn is_plaintext(&self) -> bool {
        self.insecure && !self.has_ca()
    }

    /// Returns the server name to request and verify, for a server at `host`.
    ///
    /// # Errors
    /// The name is neither a DNS name nor an IP address.
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

    /// Reports mistakes that prevent TLS, under `key`. The system's certificate authorities are not checked, because
    /// the configuration may be validated on another machine.
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
