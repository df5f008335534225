//! Settings of the HTTP client: credentials, TLS, headers.

use std::path::{Path, PathBuf};

use ::http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::{Problems, Secret, Validate};
use tributary_net::tls::{ClientTls, TlsVersion};

/// Headers that `http_headers` must not have, in lower case: `reservedHeaders` in
/// <https://github.com/prometheus/common/blob/main/config/headers.go>.
const RESERVED: [&str; 18] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "user-agent",
    "www-authenticate",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
    "x-prometheus-remote-read-version",
    "x-prometheus-remote-write-version",
    "x-prometheus-scrape-timeout-seconds",
];

/// User name and password.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BasicAuth {
    /// User name. Default: empty.
    pub username: String,
    /// File with the user name, read again for each scrape. Default: none.
    #[serde(skip_serializing_if = "is_empty")]
    pub username_file: PathBuf,
    /// Password. Default: empty.
    pub password: Secret,
    /// File with the password, read again for each scrape. Default: none.
    #[serde(skip_serializing_if = "is_empty")]
    pub password_file: PathBuf,
}

/// Credentials in the header `Authorization`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Authorization {
    /// Scheme of the credentials. Default: `Bearer`.
    #[serde(rename = "type")]
    pub scheme: String,
    /// Credentials. Default: empty.
    pub credentials: Secret,
    /// File with the credentials, read again for each scrape. Default: none.
    #[serde(skip_serializing_if = "is_empty")]
    pub credentials_file: PathBuf,
}

/// Values of a header.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExtraHeader {
    /// Values. Default: none.
    pub values: Vec<String>,
    /// Values that are not shown. Default: none.
    pub secrets: Vec<Secret>,
}

/// TLS of connections to targets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrometheusTls {
    /// Trusted certificate authorities as PEM text. Cannot be combined with `ca_file`. Default: none.
    pub ca: String,
    /// File with the trusted certificate authorities (PEM). Default: the system's authorities.
    pub ca_file: PathBuf,
    /// Client certificate chain as PEM text. Cannot be combined with `cert_file`. Default: none.
    pub cert: String,
    /// File with the client certificate chain (PEM), for mutual TLS. Default: none.
    pub cert_file: PathBuf,
    /// Private key as PEM text. Cannot be combined with `key_file`. Default: none.
    pub key: Secret,
    /// File with the private key (PEM, unencrypted). Default: none.
    pub key_file: PathBuf,
    /// Name that the certificate of a target must contain, instead of the host of its address. Default: none.
    pub server_name: String,
    /// Whether to accept any certificate. An attacker on the network can then read and change the data. Default: false.
    pub insecure_skip_verify: bool,
    /// Minimum TLS version: `TLS12` or `TLS13`. Default: `TLS12`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<PrometheusTlsVersion>,
    /// Maximum TLS version: `TLS12` or `TLS13`. Default: `TLS13`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_version: Option<PrometheusTlsVersion>,
}

/// A TLS version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PrometheusTlsVersion {
    /// TLS 1.2.
    #[serde(rename = "TLS12")]
    V1_2,
    /// TLS 1.3.
    #[serde(rename = "TLS13")]
    V1_3,
}

impl From<PrometheusTlsVersion> for TlsVersion {
    fn from(version: PrometheusTlsVersion) -> Self {
        match version {
            PrometheusTlsVersion::V1_2 => TlsVersion::V1_2,
            PrometheusTlsVersion::V1_3 => TlsVersion::V1_3,
        }
    }
}

impl Default for Authorization {
    fn default() -> Self {
        Authorization {
            scheme: "Bearer".to_owned(),
            credentials: Secret::default(),
            credentials_file: PathBuf::new(),
        }
    }
}

impl ExtraHeader {
    /// Checks the header of this name.
    ///
    /// # Errors
    /// The reason why requests cannot have the header.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        if HeaderName::try_from(name).is_err() {
            return Err(format!("`{name}` is not the name of a header"));
        }
        if RESERVED.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(format!(
                "`{name}` is reserved: use `basic_auth` or `authorization` for credentials, or remove it"
            ));
        }
        let secrets = self.secrets.iter().map(Secret::reveal);
        let mut values = self.values.iter().map(String::as_str).chain(secrets);
        match values.any(|value| HeaderValue::from_str(value).is_err()) {
            true => Err("has a value that a header cannot have".to_owned()),
            false => Ok(()),
        }
    }
}

impl PrometheusTls {
    /// Returns the same settings as the Collector's clients have.
    pub(in super::super) fn client(&self) -> ClientTls {
        ClientTls {
            ca_pem: self.ca.clone(),
            ca_file: self.ca_file.clone(),
            cert_pem: self.cert.clone(),
            cert_file: self.cert_file.clone(),
            key_pem: self.key.clone(),
            key_file: self.key_file.clone(),
            server_name_override: self.server_name.clone(),
            insecure_skip_verify: self.insecure_skip_verify,
            min_version: self.min_version.map(TlsVersion::from),
            max_version: self.max_version.map(TlsVersion::from),
            ..ClientTls::default()
        }
    }

    /// Reports mistakes, under the names of Prometheus' keys.
    pub(super) fn check(&self, problems: &mut Problems) {
        let mut inner = Problems::default();
        self.client().validate_for_tls("tls_config", &mut inner);
        for problem in inner.found() {
            let key = problem.path.get(1).map_or("", String::as_str);
            let key = match key {
                "ca_pem" => "ca",
                "cert_pem" => "cert",
                "key_pem" => "key",
                "server_name_override" => "server_name",
                key => key,
            };
            match problem.warning {
                true => problems.warning(&["tls_config", key], problem.message.as_str()),
                false => problems.error(&["tls_config", key], problem.message.as_str()),
            }
        }
    }
}

impl Validate for BasicAuth {
    fn validate(&self, problems: &mut Problems) {
        if !self.username.is_empty() && !is_empty(&self.username_file) {
            problems.error(&["username_file"], "cannot be combined with `username`");
        }
        if !self.password.reveal().is_empty() && !is_empty(&self.password_file) {
            problems.error(&["password_file"], "cannot be combined with `password`");
        }
    }
}

impl Validate for Authorization {
    fn validate(&self, problems: &mut Problems) {
        if !self.credentials.reveal().is_empty() && !is_empty(&self.credentials_file) {
            problems.error(
                &["credentials_file"],
                "cannot be combined with `credentials`",
            );
        }
        if self.scheme.trim().eq_ignore_ascii_case("basic") {
            problems.error(&["type"], "must not be `Basic`: use `basic_auth`");
        }
        if HeaderName::try_from(self.scheme.trim()).is_err() {
            problems.error(&["type"], "is not the name of a scheme, such as `Bearer`");
        }
        if HeaderValue::from_str(self.credentials.reveal()).is_err() {
            problems.error(&["credentials"], "has characters that a header cannot have");
        }
    }
}

/// Whether a path is not set.
pub(in super::super) fn is_empty(path: &Path) -> bool {
    path.as_os_str().is_empty()
}
