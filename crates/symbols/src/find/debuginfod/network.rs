//! Addresses of servers and connections to them.

use std::net::{IpAddr, SocketAddr};

use futures_util::future::BoxFuture;
use http::Uri;

use tributary_net::client::{ConnectError, Connector, Stream, host_of};
use tributary_net::is_public;
use tributary_net::tls::rotation::RotatingClient;

/// Resolves names and opens connections. Tests use a double.
pub(super) trait Network: Send + Sync {
    fn addresses<'a>(
        &'a self,
        host: &'a Connector,
    ) -> BoxFuture<'a, Result<Vec<SocketAddr>, ConnectError>>;

    fn connect<'a>(
        &'a self,
        host: &'a Connector,
        addresses: &'a [SocketAddr],
    ) -> BoxFuture<'a, Result<Stream, ConnectError>>;
}

/// The network of this machine.
pub(super) struct System;

impl Network for System {
    fn addresses<'a>(
        &'a self,
        host: &'a Connector,
    ) -> BoxFuture<'a, Result<Vec<SocketAddr>, ConnectError>> {
        Box::pin(host.resolve())
    }

    fn connect<'a>(
        &'a self,
        host: &'a Connector,
        addresses: &'a [SocketAddr],
    ) -> BoxFuture<'a, Result<Stream, ConnectError>> {
        Box::pin(host.connect(addresses))
    }
}

pub(super) fn connector(
    url: &Uri,
    tls: Option<(RotatingClient, rustls_pki_types::ServerName<'static>)>,
) -> Connector {
    let (host, port) = host_and_port(url);
    Connector::new(&host, port, tls)
}

pub(super) fn host_and_port(url: &Uri) -> (String, u16) {
    let default = match url.scheme_str() {
        Some("https") => 443,
        _ => 80,
    };
    let host = host_of(url).to_ascii_lowercase();
    (host, url.port_u16().unwrap_or(default))
}

/// Whether an address belongs to this machine or is link-local, so that other networks cannot reach it.
pub(super) fn is_local(address: &SocketAddr) -> bool {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_link_local() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local() || ip.is_unspecified(),
    }
}

pub(super) fn has_public_ip(address: &SocketAddr) -> bool {
    is_public(address.ip())
}
