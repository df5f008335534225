//! The section `dns_sd`: host names whose addresses are servers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::receivers::scraping::dns_sd::HostNames;
pub use crate::receivers::scraping::dns_sd::RecordType;
use tributary_config::units::{Duration, Endpoint};
use tributary_config::{Problems, Validate};

/// Host names whose addresses are servers, as those of a headless service of Kubernetes. The
/// system's resolver is used.
///
/// With `https`, the certificate must be valid for the name, unless `tls` sets another name. SRV
/// records are not supported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsSd {
    /// HostNames to resolve, at least one. Required.
    pub names: Vec<String>,
    /// Record type: `A` for IPv4, `AAAA` for IPv6. A server with both kinds of addresses is one target. Default: `A`,
    /// or `AAAA` for a name without any `A`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<RecordType>,
    /// Port of all servers. From 1 to 65535. Required.
    pub port: u16,
    /// Interval at which the names are resolved. Above 0. Default: 30s.
    pub refresh_interval: Duration,
}

impl Default for DnsSd {
    fn default() -> Self {
        DnsSd {
            names: Vec::new(),
            kind: None,
            port: 0,
            refresh_interval: Duration::secs(30),
        }
    }
}

impl Validate for DnsSd {
    fn validate(&self, problems: &mut Problems) {
        if self.names.is_empty() {
            problems.error(&["names"], "must not be empty: list at least one name");
        }
        for (at, name) in self.names.iter().enumerate() {
            let at = at.to_string();
            let endpoint = Endpoint(format!("{name}:1"));
            if name.is_empty() || name.contains(':') || endpoint.check().is_err() {
                let message = format!(
                    "`{name}` is not a host name: write the name alone, and the port in `port`"
                );
                problems.error(&["names", &at], message);
            }
        }
        if self.port == 0 {
            problems.error(&["port"], "must be set, from 1 to 65535");
        }
        if self.refresh_interval.is_zero() {
            problems.error(&["refresh_interval"], "must be above 0");
        }
    }
}

impl DnsSd {
    /// Returns the names to resolve.
    pub(super) fn names(&self) -> HostNames {
        HostNames {
            names: self.names.clone(),
            kind: self.kind,
            port: self.port,
            refresh: *self.refresh_interval,
        }
    }
}
