//! What every server and client shares: listening sockets, the accept loop, connections, TLS.

pub mod client;
pub mod listeners;
pub mod rpc;
pub mod server;
pub mod tls;

use std::net::{IpAddr, Ipv6Addr};

use crate::config::ComponentId;

/// Whose server or client it is, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The component's id.
    pub id: ComponentId,
    /// What it is: `receiver`, `exporter`, `extension`, `service`.
    pub kind: &'static str,
    /// Which of its servers: `grpc`, `http`. None for clients, of which a component has one.
    pub transport: Option<&'static str>,
}

impl Owner {
    /// The component `id` of `kind`.
    pub fn new(id: &ComponentId, kind: &'static str) -> Self {
        let id = id.clone();
        Owner {
            id,
            kind,
            transport: None,
        }
    }

    /// The same component's server for `transport`.
    pub fn over(&self, transport: &'static str) -> Self {
        Owner {
            transport: Some(transport),
            ..self.clone()
        }
    }

    /// How metrics name it: `receiver="otlp"`, `transport="grpc"`.
    pub fn labels(&self) -> Vec<(&'static str, String)> {
        let transport = self.transport.map(|name| ("transport", name.to_owned()));
        let mut labels = vec![(self.kind, self.id.to_string())];
        labels.extend(transport);
        labels
    }
}

/// What counts as one client, as far as addresses tell: an IPv4 address, or a /64 network of IPv6, which is what one
/// customer gets at least (RFC 6177).
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_count_as_one() {
        let address = |text: &str| network(text.parse().unwrap());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }
}
