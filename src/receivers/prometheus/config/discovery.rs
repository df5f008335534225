//! Sources of targets.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::http::{Authorization, BasicAuth, PrometheusTls};
use super::units::PrometheusDuration;
use crate::receivers::scraping::file_sd::FileSd;
use tributary_config::units::Duration;
use tributary_config::{Problems, Validate};
use tributary_net::client::parse_url;

/// Targets in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StaticConfig {
    /// Addresses of targets, as in `host:port`. Without a port, that of the scheme is used. Default: none.
    pub targets: Vec<String>,
    /// Labels of the targets. Default: none.
    pub labels: BTreeMap<String, String>,
}

/// Files that list targets, as a list of `{targets: ["host:port"], labels: {key: value}}` in JSON or YAML.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileSdConfig {
    /// Files, or patterns of files: `/etc/targets/*.yaml`; at least one. The names must end with `.json`, `.yml` or
    /// `.yaml`. Changes are detected within seconds. All files together may have 10000 targets, and 64 MiB of labels,
    /// counted once for each target; a file that would exceed the limits is not read, and the targets that it had
    /// before stay. Required.
    pub files: Vec<String>,
    /// Interval at which the files are read even without a detected change. Above 0. Default: 5m.
    pub refresh_interval: PrometheusDuration,
}

/// Targets from DNS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsSdConfig {
    /// Names to resolve, at least one. Required.
    pub names: Vec<String>,
    /// Type of the records: `A` or `AAAA`. `SRV`, `MX` and `NS` are not supported. Required. (The Collector's default is
    /// `SRV`.)
    #[serde(rename = "type")]
    pub kind: DnsRecord,
    /// Port of all targets. From 1 to 65535. Required.
    pub port: u16,
    /// Interval at which the names are resolved. Above 0. Default: 30s.
    pub refresh_interval: PrometheusDuration,
}

/// Type of DNS records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DnsRecord {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Not supported: services.
    #[default]
    Srv,
    /// Not supported: mail servers.
    Mx,
    /// Not supported: name servers.
    Ns,
}

/// Targets from an HTTP server, as a list of `{targets: ["host:port"], labels: {key: value}}` in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpSdConfig {
    /// URL of the list. At most 4 MiB, 10000 targets, and 64 MiB of labels, counted once for each target. Required.
    pub url: String,
    /// Interval at which the list is fetched. While that fails, the previous targets stay. Above 0. Default: 1m.
    pub refresh_interval: PrometheusDuration,
    /// User name and password. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// Credentials in the header `Authorization`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// TLS for `https`.
    pub tls_config: PrometheusTls,
}

impl Default for FileSdConfig {
    fn default() -> Self {
        FileSdConfig {
            files: Vec::new(),
            refresh_interval: PrometheusDuration(std::time::Duration::from_secs(300)),
        }
    }
}

impl FileSdConfig {
    /// Returns the settings of the discovery.
    pub(in super::super) fn file_sd(&self) -> FileSd {
        FileSd {
            files: self.files.clone(),
            refresh_interval: Duration(self.refresh_interval.0),
        }
    }
}

impl Validate for FileSdConfig {
    fn validate(&self, problems: &mut Problems) {
        self.file_sd().validate(problems);
    }
}

impl Default for DnsSdConfig {
    fn default() -> Self {
        DnsSdConfig {
            names: Vec::new(),
            kind: DnsRecord::Srv,
            port: 0,
            refresh_interval: PrometheusDuration(std::time::Duration::from_secs(30)),
        }
    }
}

impl Default for HttpSdConfig {
    fn default() -> Self {
        HttpSdConfig {
            url: String::new(),
            refresh_interval: PrometheusDuration(std::time::Duration::from_secs(60)),
            basic_auth: None,
            authorization: None,
            tls_config: PrometheusTls::default(),
        }
    }
}

impl Validate for StaticConfig {
    fn validate(&self, problems: &mut Problems) {
        for (at, target) in self.targets.iter().enumerate() {
            if target.contains('/') {
                let message = format!(
                    "`{target}` is not an address: write `host:port`, and the path in `metrics_path`"
                );
                problems.error(&["targets", &at.to_string()], message);
            }
        }
    }
}

impl Validate for DnsSdConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.names.is_empty() {
            problems.error(&["names"], "must not be empty: list at least one name");
        }
        if !matches!(self.kind, DnsRecord::A | DnsRecord::Aaaa) {
            problems.error(
                &["type"],
                "only `A` and `AAAA` are supported, and the default is `SRV`: set `type: A` and a `port`",
            );
        } else if self.port == 0 {
            problems.error(&["port"], "must be set, from 1 to 65535");
        }
        if self.refresh_interval.0.is_zero() {
            problems.error(&["refresh_interval"], "must be above 0");
        }
    }
}

impl Validate for HttpSdConfig {
    fn validate(&self, problems: &mut Problems) {
        if let Err(reason) = parse_url(&self.url) {
            problems.error(&["url"], reason);
        }
        if self.refresh_interval.0.is_zero() {
            problems.error(&["refresh_interval"], "must be above 0");
        }
        if let Some(basic) = &self.basic_auth {
            problems.within("basic_auth", basic);
        }
        if let Some(authorization) = &self.authorization {
            problems.within("authorization", authorization);
            if self.basic_auth.is_some() {
                problems.error(&["authorization"], "cannot be combined with `basic_auth`");
            }
        }
        if self.url.starts_with("https://") || self.tls_config != PrometheusTls::default() {
            self.tls_config.check(problems);
        }
    }
}
