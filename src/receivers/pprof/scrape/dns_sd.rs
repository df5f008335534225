//! Discovery by DNS: the addresses of names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::lookup_host;
use tokio::time::sleep;
use tracing::warn;

use super::found::Found;
use tributary_config::units::{Duration, Endpoint};
use tributary_config::{ComponentId, Problems, Validate};
use tributary_net::discovery::single_family;

/// Host names whose addresses are servers, as those of a headless service of Kubernetes. The
/// system's resolver is used.
///
/// With `https`, the certificate must be valid for the name, unless `tls` sets another name. SRV
/// records are not supported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsSd {
    /// Names to resolve, at least one. Required.
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

/// Record type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecordType {
    /// IPv4.
    A,
    /// IPv6.
    #[serde(rename = "AAAA")]
    Aaaa,
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

/// Resolver of the configured names.
pub(super) struct Dns {
    config: DnsSd,
    id: ComponentId,
    started: bool,
    /// Last known addresses of each name.
    known: BTreeMap<String, BTreeSet<Found>>,
}

impl Dns {
    pub(super) fn new(config: &DnsSd, id: &ComponentId) -> Self {
        Dns {
            config: config.clone(),
            id: id.clone(),
            started: false,
            known: BTreeMap::new(),
        }
    }

    pub(super) async fn next(&mut self) -> BTreeSet<Found> {
        if self.started {
            sleep(*self.config.refresh_interval).await;
        }
        self.started = true;
        for name in &self.config.names {
            match lookup_host((name.as_str(), self.config.port)).await {
                Ok(addresses) => {
                    let found = wanted(addresses.collect(), self.config.kind);
                    let found = found.into_iter().map(|address| Found {
                        address: address.to_string(),
                        name: Some(name.clone()),
                        labels: BTreeMap::new(),
                    });
                    self.known.insert(name.clone(), found.collect());
                }
                Err(error) => warn!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "receiver",
                    name = %name,
                    %error,
                    "Cannot resolve a name of targets; still using its previous targets"
                ),
            }
        }
        self.known.values().flatten().cloned().collect()
    }
}

/// Returns the addresses of a name that become targets.
fn wanted(mut addresses: Vec<SocketAddr>, kind: Option<RecordType>) -> Vec<SocketAddr> {
    let Some(kind) = kind else {
        return single_family(addresses);
    };
    addresses.retain(|address| match kind {
        RecordType::A => address.is_ipv4(),
        RecordType::Aaaa => address.is_ipv6(),
    });
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_both_kinds_of_addresses_is_one_target() {
        let parse = |addresses: &[&str]| -> Vec<SocketAddr> {
            addresses.iter().map(|a| a.parse().unwrap()).collect()
        };
        let (v4, v6) = ("10.0.0.1:6060", "[fd00::1]:6060");
        assert_eq!(wanted(parse(&[v6, v4]), None), parse(&[v4]));
        assert_eq!(wanted(parse(&[v6]), None), parse(&[v6]));
        let aaaa = Some(RecordType::Aaaa);
        assert_eq!(wanted(parse(&[v4, v6]), aaaa), parse(&[v6]));
        assert!(wanted(parse(&[v6]), Some(RecordType::A)).is_empty());
    }

    #[tokio::test]
    async fn resolved_addresses_are_targets() {
        let config = DnsSd {
            names: vec!["localhost".to_owned(), "does-not-exist.invalid".to_owned()],
            kind: Some(RecordType::A),
            port: 6060,
            ..DnsSd::default()
        };
        let mut dns = Dns::new(&config, &"pprof".parse().unwrap());
        let found = dns.next().await;
        let expected = Found {
            address: "127.0.0.1:6060".to_owned(),
            name: Some("localhost".to_owned()),
            labels: BTreeMap::new(),
        };
        assert_eq!(found, BTreeSet::from([expected]));
    }
}
