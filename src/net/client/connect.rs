//! From a name to a connected stream: resolve, connect, TLS.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::net::tls::rotation::RotatingClient;

/// How long one address may take before the next one is tried.
const PER_ADDRESS: Duration = Duration::from_secs(5);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connects to one host and port.
#[derive(Clone)]
pub struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<(RotatingClient, ServerName<'static>)>,
}

/// Why there is no connection. Trying again may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// A TCP connection, with or without TLS.
pub enum Stream {
    /// Plaintext.
    Plain(TcpStream),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    /// A connector to `host` (a name or an IP address, IPv6 without brackets); with `tls` it speaks TLS and expects the
    /// given name.
    pub fn new(host: &str, port: u16, tls: Option<(RotatingClient, ServerName<'static>)>) -> Self {
        Connector {
            host: host.into(),
            port,
            tls,
        }
    }

    /// Whether it speaks TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// What the next connection would speak TLS with. Another `Arc` means that connections made before are outdated.
    pub fn tls_config(&self) -> Option<Arc<ClientConfig>> {
        self.tls.as_ref().map(|(source, _)| source.config())
    }

    /// The addresses of the host, at least one.
    ///
    /// # Errors
    /// When the name does not resolve.
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, ConnectError> {
        let found = lookup_host((&*self.host, self.port)).await;
        let addresses: Vec<SocketAddr> = found
            .map_err(|error| ConnectError(format!("cannot resolve {}: {error}", self.host)))?
            .collect();
        match addresses.is_empty() {
            true => Err(ConnectError(format!("{} has no addresses", self.host))),
            false => Ok(addresses),
        }
    }

    /// A connection to the first of `addresses` that answers.
    ///
    /// # Errors
    /// When none does; the reasons of all are in the message.
    pub async fn connect(&self, addresses: &[SocketAddr]) -> Result<Stream, ConnectError> {
        let mut reasons = Vec::new();
        for address in addresses {
            match timeout(PER_ADDRESS, TcpStream::connect(address)).await {
                Ok(Ok(tcp)) => {
                    // Frames are written whole; waiting to fill packets only delays them.
                    let _ = tcp.set_nodelay(true);
                    return self.secure(tcp, address).await;
                }
                Ok(Err(error)) => reasons.push(format!("{address}: {error}")),
                Err(_) => reasons.push(format!("{address}: no answer within {PER_ADDRESS:?}")),
            }
        }
        Err(ConnectError(format!(
            "cannot connect to {}: {}",
            self.host,
            reasons.join("; ")
        )))
    }

    async fn secure(&self, tcp: TcpStream, address: &SocketAddr) -> Result<Stream, ConnectError> {
        let Some((source, name)) = &self.tls else {
            return Ok(Stream::Plain(tcp));
        };
        let failed = |reason: String| {
            ConnectError(format!(
                "TLS handshake with {} ({address}) failed: {reason}",
                self.host
            ))
        };
        let handshake = TlsConnector::from(source.config()).connect(name.clone(), tcp);
        match timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(failed(explain(&error))),
            Err(_) => Err(failed(format!("no answer within {HANDSHAKE:?}"))),
        }
    }
}

/// The reason of a failed handshake, and what to do about the two that are mistakes of configuration.
fn explain(error: &io::Error) -> String {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let hint = match tls {
        Some(rustls::Error::AlertReceived(rustls::AlertDescription::ProtocolVersion)) => {
            " (if the server knows no TLS 1.3, set tls::min_version to \"1.2\")"
        }
        Some(rustls::Error::InvalidMessage(_)) => {
            " (if the server speaks plaintext, set tls::insecure to true)"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

impl Stream {
    /// Whether the server chose HTTP/2 in the TLS handshake.
    pub fn negotiated_http2(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }
}

/// The host and port of `host:port`, `1.2.3.4:port` or `[v6]:port`.
///
/// # Errors
/// A message that says what is missing.
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_split_into_host_and_port() {
        assert_eq!(split_host_port("a.b:4317"), Ok(("a.b", 4317)));
        assert_eq!(split_host_port("1.2.3.4:1"), Ok(("1.2.3.4", 1)));
        assert_eq!(split_host_port("[::1]:4317"), Ok(("::1", 4317)));
        for bad in ["", "host", "host:", ":4317", "::1", "host:99999", "host:x"] {
            assert!(split_host_port(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_refused_connection_names_the_address() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let connector = Connector::new("127.0.0.1", address.port(), None);
        let addresses = connector.resolve().await.unwrap();
        let error = connector.connect(&addresses).await.err().unwrap();
        assert!(error.0.contains(&address.to_string()), "{error}");
    }
}
