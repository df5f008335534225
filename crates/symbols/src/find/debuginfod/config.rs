//! Configuration of debuginfod servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::{ByteSize, Duration, Headers};
use tributary_config::{Problems, Validate};
use tributary_net::client::parse_url;
use tributary_net::tls::ClientTls;

/// debuginfod servers, which serve files by build id; Linux distributions run public ones. A server learns the
/// build ids of the binaries that run here, so none is asked unless configured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Debuginfod {
    /// URLs of the servers, such as `https://debuginfod.example.com`, asked in this order. Default: none.
    pub servers: Vec<String>,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// TLS settings for `https://` URLs.
    pub tls: ClientTls,
    /// Maximum time for one download; more than 0. Default: 2m.
    pub timeout: Duration,
    /// Maximum size of one file. Default: 2GiB.
    pub max_bytes: ByteSize,
}

impl Default for Debuginfod {
    fn default() -> Self {
        Debuginfod {
            servers: Vec::new(),
            headers: Headers::default(),
            tls: ClientTls::default(),
            timeout: Duration::secs(120),
            max_bytes: ByteSize::mib(2048),
        }
    }
}

impl Validate for Debuginfod {
    fn validate(&self, problems: &mut Problems) {
        for (at, server) in self.servers.iter().enumerate() {
            match parse_url(server) {
                Err(reason) => problems.error(&["servers", &at.to_string()], reason),
                Ok(url) if url.query().is_some() => problems.error(
                    &["servers", &at.to_string()],
                    "must not have a query, because file paths are appended",
                ),
                Ok(_) => {}
            }
        }
        let secure = |server: &String| server.starts_with("https://");
        if self.servers.iter().any(secure) {
            self.tls.validate_for_tls("tls", problems);
        }
        if self.timeout.is_zero() {
            problems.error(&["timeout"], "must be above 0");
        }
        if self.max_bytes.0 == 0 {
            problems.error(&["max_bytes"], "must be above 0");
        }
    }
}
