//! Discovery by DNS: the addresses of names.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::net::lookup_host;
use tokio::time::sleep;
use tracing::warn;

use super::found::Found;
use tributary_config::ComponentId;
use tributary_net::discovery::single_family;

/// Record type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecordType {
    /// IPv4.
    A,
    /// IPv6.
    #[serde(rename = "AAAA")]
    Aaaa,
}

/// Host names to resolve.
pub(in crate::receivers) struct HostNames {
    /// Host names.
    pub(in crate::receivers) names: Vec<String>,
    /// Kind of the addresses; `None` means IPv4, or IPv6 for a name without IPv4.
    pub(in crate::receivers) kind: Option<RecordType>,
    /// Port of all servers.
    pub(in crate::receivers) port: u16,
    /// Time between two resolutions.
    pub(in crate::receivers) refresh: Duration,
}

/// Resolver of the configured names.
pub(in crate::receivers) struct Dns {
    config: HostNames,
    id: ComponentId,
    started: bool,
    /// Last known addresses of each name.
    known: BTreeMap<String, BTreeSet<Found>>,
}

impl Dns {
    /// Creates a resolver for the receiver `id`.
    pub(in crate::receivers) fn new(config: HostNames, id: &ComponentId) -> Self {
        Dns {
            config,
            id: id.clone(),
            started: false,
            known: BTreeMap::new(),
        }
    }

    /// Waits for the next resolution and returns the servers. The first resolution is immediate. The servers of names
    /// that do not resolve do not change.
    pub(in crate::receivers) async fn next(&mut self) -> BTreeSet<Found> {
        if self.started {
            sleep(self.config.refresh).await;
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
        let config = HostNames {
            names: vec!["localhost".to_owned(), "does-not-exist.invalid".to_owned()],
            kind: Some(RecordType::A),
            port: 6060,
            refresh: Duration::from_secs(30),
        };
        let mut dns = Dns::new(config, &"pprof".parse().unwrap());
        let found = dns.next().await;
        let expected = Found {
            address: "127.0.0.1:6060".to_owned(),
            name: Some("localhost".to_owned()),
            labels: BTreeMap::new(),
        };
        assert_eq!(found, BTreeSet::from([expected]));
    }
}
