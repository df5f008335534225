//! Configuration of resolvers, which list the members.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::{Duration, Endpoint};
use tributary_config::{Problems, Unread, Validate};
use tributary_net::discovery::is_targets_file;

/// Source of the member list.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resolver {
    /// A fixed list of members.
    #[serde(rename = "static", skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Static>,
    /// Members from the addresses of a host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Dns>,
    /// Members from a file that another program writes. (The Collector has no such resolver.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<File>,
    /// Not supported: use `dns` with the name of a headless service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub k8s: Option<Unread>,
    /// Not supported: use `dns` with the name of the service in the namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_cloud_map: Option<Unread>,
}

/// A fixed list of members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Static {
    /// Addresses of the members, as `host:port`, at least one. The default port is 4317. All senders must spell a
    /// member's address in the same way, because the keys of a member depend on the address. Required.
    pub hostnames: Vec<String>,
}

/// A host name whose addresses are the members, such as the name of a headless service of
/// Kubernetes. The system's resolver looks up the name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Dns {
    /// Host name to resolve. With TLS, the certificates of the members must be valid for this name
    /// unless `server_name_override` is set. Required.
    pub hostname: String,
    /// Port of all members. Default: 4317.
    pub port: String,
    /// Interval between two lookups of the name. Default: 5s.
    pub interval: Duration,
    /// Time limit of one lookup. Default: 1s.
    pub timeout: Duration,
}

/// A file that lists the members in the format of Prometheus' `file_sd_configs`: a list, as JSON or
/// YAML, of `{targets: ["host:port"]}`. Labels are ignored. Changes take effect within seconds. If
/// the file cannot be read or has no targets, the members stay the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct File {
    /// Path of the file; must end with `.json`, `.yml` or `.yaml`. Required.
    pub path: PathBuf,
    /// Interval between two reads of the file if no change is noticed. Default: 5m.
    pub refresh_interval: Duration,
}

/// Default port of OTLP over gRPC.
pub(in super::super) const DEFAULT_PORT: u16 = 4317;

impl Default for Dns {
    fn default() -> Self {
        Dns {
            hostname: String::new(),
            port: DEFAULT_PORT.to_string(),
            interval: Duration::secs(5),
            timeout: Duration::secs(1),
        }
    }
}

impl Default for File {
    fn default() -> Self {
        File {
            path: PathBuf::new(),
            refresh_interval: Duration::secs(300),
        }
    }
}

impl Dns {
    /// Returns the port, or `None` if the port is invalid.
    pub(in super::super) fn port(&self) -> Option<u16> {
        self.port.parse().ok().filter(|port| *port != 0)
    }
}

/// Adds the default port to a member's address if the address has no port.
pub(in super::super) fn with_port(hostname: &str) -> String {
    let given = Endpoint(hostname.to_owned());
    // An invalid address stays unchanged, so that `check_address` reports it.
    match given.check().is_ok() || hostname.contains("://") {
        true => given.0,
        false => Endpoint::new(hostname, DEFAULT_PORT).0,
    }
}

/// Checks a member's address; the error is a sentence for the user.
pub(in super::super) fn check_address(address: &str) -> Result<(), String> {
    let endpoint = Endpoint(address.to_owned());
    endpoint.check()?;
    if endpoint.host().is_empty() || endpoint.port() == Some(0) {
        return Err(format!(
            "`{address}` is not a server address: write `host:port`"
        ));
    }
    Ok(())
}

impl Validate for Static {
    fn validate(&self, problems: &mut Problems) {
        if self.hostnames.is_empty() {
            problems.error(
                &["hostnames"],
                "must not be empty: list the addresses of the members",
            );
        }
        let mut seen: Vec<String> = Vec::new();
        for (at, hostname) in self.hostnames.iter().enumerate() {
            let at = at.to_string();
            let address = with_port(hostname);
            if let Err(message) = check_address(&address) {
                problems.error(&["hostnames", &at], message);
            } else if seen.contains(&address) {
                let message = format!("the member `{address}` is listed twice");
                problems.error(&["hostnames", &at], message);
            }
            seen.push(address);
        }
    }
}

impl Validate for Dns {
    fn validate(&self, problems: &mut Problems) {
        let endpoint = Endpoint(format!("{}:1", self.hostname));
        if self.hostname.is_empty() {
            problems.error(&["hostname"], "must be set");
        } else if self.hostname.contains(':') || endpoint.check().is_err() {
            let message = format!(
                "`{}` is not a host name: write the name alone, and the port in `port`",
                self.hostname
            );
            problems.error(&["hostname"], message);
        }
        if self.port().is_none() {
            problems.error(&["port"], "must be a number from 1 to 65535");
        }
        for (key, duration) in [("interval", self.interval), ("timeout", self.timeout)] {
            if duration.is_zero() {
                problems.error(&[key], "must be above 0");
            }
        }
    }
}

impl Validate for File {
    fn validate(&self, problems: &mut Problems) {
        if !is_targets_file(&self.path) {
            problems.error(
                &["path"],
                "must be a file that ends with .json, .yml or .yaml",
            );
        }
        if self.refresh_interval.is_zero() {
            problems.error(&["refresh_interval"], "must be above 0");
        }
    }
}

impl Validate for Resolver {
    fn validate(&self, problems: &mut Problems) {
        if self.k8s.is_some() {
            let message = "the resolver `k8s` is not built in: use `dns`, with the name of a headless service, as in \
                           `members.telemetry.svc.cluster.local`";
            problems.error(&["k8s"], message);
        }
        if self.aws_cloud_map.is_some() {
            let message = "the resolver `aws_cloud_map` is not built in: use `dns`, with the name of the \
                           service, as in `service.namespace`";
            problems.error(&["aws_cloud_map"], message);
        }
        let known = [
            self.fixed.is_some(),
            self.dns.is_some(),
            self.file.is_some(),
        ];
        let refused = self.k8s.is_some() || self.aws_cloud_map.is_some();
        match known.iter().filter(|given| **given).count() {
            0 if !refused => {
                let message = "must have one of `static`, `dns`, `file`, which lists the members";
                problems.error(&[], message);
            }
            0 | 1 => {}
            _ => problems.error(
                &[],
                "has more than one of `static`, `dns`, `file`: keep one",
            ),
        }
        if let Some(fixed) = &self.fixed {
            problems.within("static", fixed);
        }
        if let Some(dns) = &self.dns {
            problems.within("dns", dns);
        }
        if let Some(file) = &self.file {
            problems.within("file", file);
        }
    }
}
