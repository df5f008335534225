//! Establishes connections: name resolution, TCP, TLS.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tracing::error;

use super::proxy::{Proxy, Raw};
use crate::Owner;
use crate::tls;
use crate::tls::rotation::RotatingClient;

/// Timeout of one address before the next one is tried.
const PER_ADDRESS: Duration = Duration::from_secs(5);
/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Length in bytes of the searched beginning of a server's first bytes: long enough for SETTINGS and the text of a
/// GOAWAY.
const SETTINGS_AND_GOAWAY: usize = 128;

/// Connector for one host and port.
#[derive(Clone)]
pub struct Connector {
    host: Arc<str>,
    port: u16,
    tls: Option<(RotatingClient, ServerName<'static>)>,
    proxy: Option<Arc<Proxy>>,
    verdict: Verdict,
}

/// The server's explanation of the last failed connection, and advice. Under TLS 1.3, a server checks the client
/// certificate after the handshake has ended for the client. Its alert ends the connection, and HTTP errors of requests
/// do not contain it.
#[derive(Debug, Clone, Default)]
struct Verdict {
    text: Arc<Mutex<Option<String>>>,
    /// Whether a failure that needs a configuration change was logged since the last success.
    is_logged: Arc<AtomicBool>,
}

impl Verdict {
    fn set(&self, verdict: Option<String>) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = verdict;
    }

    /// Logs that TLS fails until a configuration or certificate is changed. Requests are retried, so without the log
    /// line the failure would look like an outage.
    fn complain(&self, owner: &Owner, reason: &str) {
        if !self.is_logged.swap(true, Relaxed) {
            error!(
                otelcol.component.id = %owner.id,
                otelcol.component.kind = owner.kind,
                reason,
                "TLS handshakes fail; retrying. Change the configuration or the certificate, here or at the server"
            );
        }
    }

    /// Records that the server communicates, which ends the failure.
    fn works(&self) {
        if self.is_logged.load(Relaxed) {
            self.is_logged.store(false, Relaxed);
        }
    }
}

/// Reason why there is no connection. A retry may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(pub String);

/// A TCP connection, with or without TLS.
pub struct Stream {
    inner: Inner,
    address: SocketAddr,
    verdict: Verdict,
    /// The component that owns the connection, with TLS.
    owner: Option<Owner>,
    /// Whether the server has sent anything.
    heard: bool,
    /// Whether requests must name the server in their target, for a proxy.
    is_absolute_form: bool,
}

enum Inner {
    Plain(Raw),
    Tls(Box<TlsStream<Raw>>),
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
            verdict: Verdict::default(),
        }
    }

    /// Routes all connections through a proxy: through a tunnel if the server speaks TLS, otherwise with
    /// requests in absolute form.
    #[must_use]
    pub fn through(self, proxy: Option<Arc<Proxy>>) -> Self {
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

    /// Returns the server's explanation of the last failed connection, if it gave one, and advice. Useful when a
    /// request failed and its error does not tell why.
    pub fn verdict(&self) -> Option<String> {
        let verdict = self.verdict.text.lock();
        verdict.unwrap_or_else(PoisonError::into_inner).clone()
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
            match timeout(PER_ADDRESS, TcpStream::connect(address)).await {
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
                Err(_) => reasons.push(format!("{address}: no response within {PER_ADDRESS:?}")),
            }
        }
        self.verdict.set(None);
        Err(ConnectError(format!(
            "cannot connect to {}: {}",
            self.proxy
                .as_ref()
                .map_or(&*self.host, |proxy| proxy.host()),
            reasons.join("; ")
        )))
    }

    /// Turns a connection to the proxy into a tunnel to the server, or into one for requests in absolute
    /// form.
    async fn reach(
        &self,
        proxy: &Proxy,
        tcp: TcpStream,
        address: &SocketAddr,
    ) -> Result<Raw, ConnectError> {
        self.verdict.set(None);
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
            verdict: self.verdict.clone(),
            owner: self.tls.as_ref().map(|(source, _)| source.owner().clone()),
            heard: false,
            is_absolute_form: self.proxy.is_some() && self.tls.is_none(),
        };
        let Some((source, name)) = &self.tls else {
            return Ok(stream(Inner::Plain(tcp)));
        };
        let failed = |reason: String| {
            self.verdict.set(None);
            ConnectError(format!(
                "TLS handshake with {} ({address}) failed: {reason}",
                self.host
            ))
        };
        let handshake = tls::connect::connect(source.config(), name.clone(), tcp);
        match timeout(HANDSHAKE, handshake).await {
            Ok(Ok(secured)) => Ok(stream(Inner::Tls(Box::new(secured)))),
            Ok(Err(why)) => {
                let error = failed(why.reason);
                if why.for_good {
                    self.verdict.complain(source.owner(), &error.0);
                }
                Err(error)
            }
            Err(_) => Err(failed(format!(
                "no response within {HANDSHAKE:?}; if the server speaks plaintext, set tls::insecure to true"
            ))),
        }
    }
}

impl Stream {
    /// Whether the server chose HTTP/2 in the TLS handshake.
    pub fn negotiated_http2(&self) -> bool {
        match &self.inner {
            Inner::Plain(_) => false,
            Inner::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// Whether requests must name the server in their target, for a proxy.
    pub(super) fn is_absolute_form(&self) -> bool {
        self.is_absolute_form
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }

    /// Adds advice to the error, and keeps it for callers that do not see the error.
    fn explained(&self, error: io::Error) -> io::Error {
        let error = match self.inner {
            Inner::Plain(_) => {
                self.ended();
                return error;
            }
            Inner::Tls(_) => {
                let for_good = tls::connect::is_for_good(&error);
                let error = tls::connect::explained(error);
                if let Some(owner) = self.owner.as_ref().filter(|_| for_good) {
                    self.verdict.complain(owner, &error.to_string());
                }
                error
            }
        };
        if error.kind() == io::ErrorKind::InvalidData {
            self.say(format!("TLS with {}: {error}", self.address));
        }
        error
    }

    fn say(&self, verdict: String) {
        self.verdict.set(Some(verdict));
    }

    /// Handles the end of the connection. Many servers that expect TLS silently close a plaintext connection.
    fn ended(&self) {
        if !self.heard && matches!(self.inner, Inner::Plain(_)) {
            self.say(format!(
                "{} closed the connection before it sent anything; if the server speaks TLS, set tls::insecure to \
                 false, or use an endpoint that begins with https://",
                self.address
            ));
        }
    }

    /// Handles the first bytes from the server.
    fn first_heard(&mut self, said: &[u8]) {
        self.heard = true;
        if matches!(self.inner, Inner::Tls(_)) {
            self.verdict.works();
        }
        let hint = match (&self.inner, said) {
            // A TLS alert (RFC 8446, 5.1), or the message of our own servers.
            (Inner::Plain(_), [0x15, 0x03, ..]) => true,
            (Inner::Plain(_), said) => {
                let beginning = said.get(..SETTINGS_AND_GOAWAY).unwrap_or(said);
                memchr::memmem::find(beginning, b"this port speaks TLS").is_some()
            }
            (Inner::Tls(_), _) => false,
        };
        self.verdict.set(hint.then(|| {
            format!(
                "{} speaks TLS: set tls::insecure to false, or use an endpoint that begins with https://",
                self.address
            )
        }));
    }

    /// Handles a failed write. A server that ends the connection may have sent its reason before.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Poll::Ready(Err(error)) = outcome else {
            return outcome;
        };
        let mut buffer = [0; 1 << 10];
        let mut buffer = ReadBuf::new(&mut buffer);
        let said = match self.poll_inner(cx, &mut buffer) {
            Poll::Ready(Err(said)) if said.kind() == io::ErrorKind::InvalidData => said,
            Poll::Ready(Ok(())) if !self.heard && !buffer.filled().is_empty() => {
                self.first_heard(buffer.filled());
                error
            }
            _ => error,
        };
        Poll::Ready(Err(self.explained(said)))
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let before = buf.filled().len();
        match stream.poll_inner(cx, buf) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(stream.explained(error))),
            Poll::Ready(Ok(())) => {
                let said = buf.filled().get(before..).unwrap_or_default();
                if !said.is_empty() {
                    if !stream.heard {
                        stream.first_heard(said);
                    }
                } else if buf.remaining() > 0 {
                    stream.ended();
                }
                Poll::Ready(Ok(()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        let outcome = match &mut stream.inner {
            Inner::Plain(inner) => Pin::new(inner).poll_write(cx, buf),
            Inner::Tls(inner) => Pin::new(inner.as_mut()).poll_write(cx, buf),
        };
        stream.written(cx, outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        let outcome = match &mut stream.inner {
            Inner::Plain(inner) => Pin::new(inner).poll_write_vectored(cx, bufs),
            Inner::Tls(inner) => Pin::new(inner.as_mut()).poll_write_vectored(cx, bufs),
        };
        stream.written(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.inner {
            Inner::Plain(stream) => stream.is_write_vectored(),
            Inner::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        let outcome = match &mut stream.inner {
            Inner::Plain(inner) => Pin::new(inner).poll_flush(cx),
            Inner::Tls(inner) => Pin::new(inner.as_mut()).poll_flush(cx),
        };
        stream.written(cx, outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
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
