//! The settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth::is_loopback;
use crate::extensions::credentials;
use tributary_config::units::Duration;
use tributary_config::{Problems, Secret, Validate};
use tributary_net::client::{host_of, parse_url};
use tributary_net::tls::ClientTls;

/// Settings for fetching access tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Identifier of the client. This or `client_id_file` is required.
    pub client_id: String,
    /// File with the identifier of the client, read before each request for a token. Replaces `client_id`. Default: none.
    pub client_id_file: PathBuf,
    /// Secret of the client. This or `client_secret_file` is required.
    pub client_secret: Secret,
    /// File with the secret of the client, read before each request for a token. Replaces `client_secret`. Default: none.
    pub client_secret_file: PathBuf,
    /// URL of the token endpoint, such as `https://login.example.com/oauth2/token`. Required.
    pub token_url: String,
    /// Permissions to request. Default: those that the server grants by default.
    pub scopes: Vec<String>,
    /// Further parameters of the request, such as `audience`, each with a list of values. Default: none.
    pub endpoint_params: BTreeMap<String, Vec<String>>,
    /// TLS of the connection to the token endpoint.
    pub tls: ClientTls,
    /// Time limit of a request for a token; 0 means 30s, so that no request takes forever. Default: 0s. (The Collector's
    /// 0 means no limit.)
    pub timeout: Duration,
    /// Time before the end of a token at which the next one is fetched; at most half of the token's lifetime. Default: 5m.
    pub expiry_buffer: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            client_id: String::new(),
            client_id_file: PathBuf::new(),
            client_secret: Secret::default(),
            client_secret_file: PathBuf::new(),
            token_url: String::new(),
            scopes: Vec::new(),
            endpoint_params: BTreeMap::new(),
            tls: ClientTls::default(),
            timeout: Duration::secs(0),
            expiry_buffer: Duration::secs(300),
        }
    }
}

impl Config {
    /// Returns the current identifier and secret.
    ///
    /// # Errors
    /// A file cannot be read. The message has no part of the content.
    pub(super) fn credentials(&self) -> Result<(String, Secret), String> {
        let id = or_file(&self.client_id, &self.client_id_file)?;
        let secret = or_file(self.client_secret.reveal(), &self.client_secret_file)?;
        Ok((id, Secret::from(secret.as_str())))
    }
}

fn or_file(text: &str, file: &Path) -> Result<String, String> {
    if file.as_os_str().is_empty() {
        return Ok(text.to_owned());
    }
    let text = credentials::read(file)?;
    match text.trim() {
        "" => Err(format!("{} is empty", file.display())),
        text => Ok(text.to_owned()),
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        for (key, value, file) in [
            ("client_id", self.client_id.as_str(), &self.client_id_file),
            (
                "client_secret",
                self.client_secret.reveal(),
                &self.client_secret_file,
            ),
        ] {
            if value.is_empty() && file.as_os_str().is_empty() {
                let message = format!("is required: set `{key}` or `{key}_file`");
                problems.error(&[key], message);
            } else if let Err(reason) = or_file(value, file) {
                problems.error(&[&format!("{key}_file")], reason);
            }
        }
        if self.token_url.is_empty() {
            let message = "is required: the URL of the token endpoint, such as https://login.example.com/oauth2/token";
            problems.error(&["token_url"], message);
        } else {
            match parse_url(&self.token_url) {
                Err(reason) => problems.error(&["token_url"], reason),
                Ok(url) if url.scheme_str() == Some("https") => {
                    self.tls.validate_for_tls("tls", problems);
                }
                Ok(url) if !is_loopback(host_of(&url)) => problems.warning(
                    &["token_url"],
                    "the client's secret is sent unencrypted: use https://",
                ),
                Ok(_) => {}
            }
        }
        for key in ["grant_type", "scope", "client_id", "client_secret"] {
            if self.endpoint_params.contains_key(key) {
                let message = "is set by the extension itself: remove it";
                problems.error(&["endpoint_params", key], message);
            }
        }
    }
}
