//! Networking shared by all servers and clients of the collector: listening sockets, connections, TLS, authentication.
//!
//! # Invariants
//!
//! * All memory and time that a client can take is bounded, by [`server::Limits`] and by the memory budget. A client
//!   over a limit is refused in its own protocol, and the refusal is counted and logged.
//! * A reload closes no listening socket and drops no request: [`listeners::Listeners`] hands the sockets on.
//! * Certificates and keys are read again when their files change. If the new files cannot be used, the previous ones
//!   stay in use.
//! * Log lines that a client or an outage can repeat are rate-limited by [`sampled_log`].
//!
//! # Example
//!
//! A server with the same response to every request:
//!
//! ```
//! use std::io::{Read as _, Write as _};
//! use std::net::{TcpListener, TcpStream};
//! use std::sync::Arc;
//! use tributary_net::server::{ServerOptions, SimpleHandler, plain, serve};
//! use tributary_net::Owner;
//!
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let handler: SimpleHandler =
//!     Arc::new(|_| Box::pin(async { plain(http::StatusCode::OK, "ready") }));
//! let owner = Owner { id: "health_check".parse()?, kind: "extension", transport: None };
//! let server = serve(listener.into(), handler, ServerOptions::default(), owner)?;
//!
//! let answer = tokio::task::spawn_blocking(move || {
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
//!     let mut answer = String::new();
//!     client.read_to_string(&mut answer).map(|_| answer)
//! });
//! assert!(answer.await??.ends_with("ready"));
//! server.shutdown(tokio::time::Instant::now()).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! [`server`] has the accept loop and the [`server::Handler`] that OTLP, health and metrics endpoints implement.
//! [`client`] has the connection pools of the exporters. [`tls`] builds the rustls configurations of both sides.
//! [`auth`] has the traits of authenticators. `kafka` and `object_store` have the settings of the Kafka and object
//! store clients.

pub mod auth;
pub mod client;
pub mod discovery;
pub mod files;
pub mod kafka;
pub mod listeners;
pub mod object_store;
pub mod percent;
pub mod rpc;
pub mod sampled_log;
pub mod server;
pub mod tls;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tributary_config::ComponentId;

/// The component that owns a server or client, for logs and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Id of the component.
    pub id: ComponentId,
    /// Kind of the component: `receiver`, `exporter`, `extension`, `service`.
    pub kind: &'static str,
    /// Protocol of the server: `grpc`, `http`. `None` for clients, since a component has only one client.
    pub transport: Option<&'static str>,
}

impl Owner {
    /// Creates the owner for the component `id` of `kind`.
    pub fn new(id: &ComponentId, kind: &'static str) -> Self {
        let id = id.clone();
        Owner {
            id,
            kind,
            transport: None,
        }
    }

    /// Returns the owner for the same component's server of `transport`.
    pub fn with_transport(&self, transport: &'static str) -> Self {
        Owner {
            transport: Some(transport),
            ..self.clone()
        }
    }

    /// Returns the metric labels: `receiver="otlp"`, `transport="grpc"`.
    pub fn labels(&self) -> Vec<(&'static str, String)> {
        let transport = self.transport.map(|name| ("transport", name.to_owned()));
        let mut labels = vec![(self.kind, self.id.to_string())];
        labels.extend(transport);
        labels
    }

    /// Returns the [`labels`](Self::labels) and one more label.
    pub(crate) fn labels_and(
        &self,
        name: &'static str,
        value: &str,
    ) -> Vec<(&'static str, String)> {
        let mut labels = self.labels();
        labels.push((name, value.to_owned()));
        labels
    }
}

/// Returns the network that identifies a client: an IPv4 address, or a /64 network of IPv6, the smallest assignment to
/// a customer (RFC 6177).
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

/// Whether an address is public: not of this machine, a private network, or reserved. Follows the registries of
/// [IPv4](https://www.iana.org/assignments/iana-ipv4-special-registry) and
/// [IPv6](https://www.iana.org/assignments/iana-ipv6-special-registry). An IPv6 address that embeds an IPv4 address is
/// as public as the IPv4 address.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let special = match address.octets() {
                [0 | 10 | 127 | 224.., ..] => true,
                [100, second, ..] => second & 0xc0 == 64,
                [192, 0, 0, _] => true,
                [198, second, ..] => second & 0xfe == 18,
                _ => false,
            };
            !special
                && !address.is_private()
                && !address.is_link_local()
                && !address.is_documentation()
        }
        IpAddr::V6(address) => match address.segments() {
            // NAT64 and 6to4.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                let [a, b] = high.to_be_bytes();
                let [c, d] = low.to_be_bytes();
                is_public(Ipv4Addr::new(a, b, c, d).into())
            }
            [0x2001, 0xdb8, ..] | [0x2001, 0..0x200, ..] => false,
            // The block assigned for global unicast.
            [first, ..] => first & 0xe000 == 0x2000,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_private_and_reserved_addresses_are_not_public() {
        let public = |text: &str| is_public(text.parse().unwrap());
        for address in [
            "8.8.8.8",
            "100.128.0.1",
            "172.32.0.1",
            "198.20.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(public(address), "{address}");
        }
        for address in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.0.1",
            "192.0.0.8",
            "198.19.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
        ] {
            assert!(!public(address), "{address}");
        }
    }

    #[test]
    fn client_network_is_ipv4_address_or_ipv6_64() {
        let address = |text: &str| network(text.parse().unwrap());
        assert_eq!(address("2001:db8::1"), address("2001:db8::ffff:1:2"));
        assert_ne!(address("2001:db8::1"), address("2001:db8:0:1::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
    }
}
