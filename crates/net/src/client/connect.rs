//! Establishes connections: name resolution, TCP, TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

pub use super::connect_error::ConnectError;
use super::proxy::{Proxy, Raw};
pub use super::stream::Stream;
use super::stream::{Inner, LastFailure};
use crate::tls;
use crate::tls::rotation::RotatingClient;

/// Timeout of one address before the next one is tried.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Connector for one host and port.
#[derive(Clone)]
pub struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<(RotatingClient, ServerName<'static>)>,
    proxy: Option<Arc<Proxy>>,
    last_failure: LastFailure,
}

impl Connector {
    /// Creates a connector to `host` (a name or an IP address, IPv6 without brackets). With `tls`, it uses TLS and
    /// expects the given server name.
    pub fn new(host: &str, port: u16, tls: Option<(RotatingClient, ServerName<'static>)>) -> Self {
        Connector {
            host: host.into(),
            port,
            tls,
            proxy: None,
            last_failure: LastFailure::default(),
        }
    }

    /// Routes all connections through a proxy: through a tunnel if the server speaks TLS, otherwise with
    /// requests in absolute form.
    #[must_use]
    pub fn with_proxy(self, proxy: Option<Arc<Proxy>>) -> Self {
        Connector { proxy, ..self }
    }

    /// Whether the connector uses TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the current TLS configuration. If the `Arc` differs from that of a connection, the connection is
    /// outdated.
    pub fn tls_config(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref().map(|(source, _)| source.config())
    }

    /// Returns the server's explanation of the last failed connection, if any, and advice. It complements request
    /// errors without an explanation.
    pub fn last_failure(&self) -> Option<String> {
        let last_failure = self.last_failure.text.lock();
        last_failure.clone()
    }

    /// Resolves the addresses of the host, or of the proxy; at least one.
    ///
    /// # Errors
    /// Fails if the name does not resolve.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        let (host, port) = match &self.proxy {
            Some(proxy) => (proxy.host(), proxy.port()),
            None => (&*self.host, self.port),
        };
        let found = lookup_host((host, port)).await;
        let addresses: Vec<SocketAddr> = found
            .map_err(|error| ConnectError(format!("cannot resolve {host}: {error}")))?
            .collect();
        match addresses.is_empty() {
            true => Err(ConnectError(format!("{host} has no addresses"))),
            false => Ok(addresses),
        }
    }

    /// Connects to the first of `addresses` that accepts.
    ///
    /// # Errors
    /// No address accepts. The message has the reasons of all.
    pub async fn connect(&self, addresses: &[SocketAddr]) -> Result<Stream, ConnectError> {
        let mut reasons = Vec::new();
        for address in addresses {
            match timeout(ADDRESS_TIMEOUT, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => {
                    // Frames are written as a whole, so waiting to fill packets only delays them.
                    let _ = tcp.set_nodelay(true);
                    let raw = match &self.proxy {
                        Some(proxy) => self.reach(proxy, tcp, address).await?,
                        None => Raw::Left(tcp),
                    };
                    return self.secure(raw, address).await;
                }
                Ok(Err(error)) => reasons.push(format!("{address}: {error}")),
                Err(_) => {
                    reasons.push(format!("{address}: no response within {ADDRESS_TIMEOUT:?}"))
                }
            }
        }
        self.last_failure.set(None);
        Err(ConnectError(format!(
            "cannot connect to {}: {}",
            self.proxy
                .as_ref()
                .map_or(&*self.host, |proxy| proxy.host()),
            reasons.join("; ")
        )))
    }

    /// Turns a connection to the proxy into a tunnel to the server, or into a connection for requests in absolute form.
    async fn reach(
        &self,
        proxy: &Proxy,
        tcp: TcpStream,
        address: &SocketAddr,
    ) -> Result<Raw, ConnectError> {
        self.last_failure.set(None);
        let mut raw = proxy.secure(tcp, address).await?;
        if self.is_tls() {
            proxy.tunnel(&mut raw, &self.host, self.port).await?;
        }
        Ok(raw)
    }

    async fn secure(&self, tcp: Raw, address: &SocketAddr) -> Result<Stream, ConnectError> {
        let stream = |inner| Stream {
            inner,
            address: *address,
            last_failure: self.last_failure.clone(),
            owner: self.tls.as_ref().map(|(source, _)| source.owner().clone()),
            has_received: false,
            is_absolute_form: self.proxy.is_some() && self.tls.is_none(),
        };
        let Some((source, name)) = &self.tls else {
            return Ok(stream(Inner::Plain(tcp)));
        };
        let failed = |reason: String| {
            self.last_failure.set(None);
            ConnectError(format!(
                "TLS handshake with {} ({address}) failed: {reason}",
                self.host
            ))
        };
        let handshake = tls::connect::connect(source.config(), name.clone(), tcp);
        match timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(Ok(secured)) => Ok(stream(Inner::Tls(Box::new(secured)))),
            Ok(Err(why)) => {
                let error = failed(why.reason);
                if why.is_permanent {
                    self.last_failure.log_failure(source.owner(), &error.0);
                }
                Err(error)
            }
            Err(_) => Err(failed(format!(
                "no response within {HANDSHAKE_TIMEOUT:?}; if the server speaks plaintext, set tls::insecure to true"
            ))),
        }
    }
}

/// Splits `host:port`, `1.2.3.4:port` or `[v6]:port` into host and port.
///
/// # Errors
/// A message that names the missing part.
pub fn split_host_port(authority: &str) -> Result<(&str, u16), String> {
    let (host, port) = authority
        .rsplit_once(':')
        .filter(|(host, _)| !host.contains(':') || host.starts_with('['))
        .ok_or_else(|| format!("\"{authority}\" has no port; write host:port"))?;
    let port = port
        .parse()
        .map_err(|_| format!("\"{port}\" in \"{authority}\" is not a port number"))?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    match host.is_empty() {
        true => Err(format!("\"{authority}\" has no host; write host:port")),
        false => Ok((host, port)),
    }
}

#[cfg(test)]
mod tests;
