//! Connections through an HTTP proxy: a tunnel (CONNECT) to TLS servers, absolute-form requests to plaintext servers.

use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

use super::connect_error::ConnectError;
use super::host_of;
use crate::percent::percent_decoded;
use crate::tls;
use crate::tls::rotation::RotatingClient;

/// Timeout of the handshake with the proxy: TLS and CONNECT.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the response head to CONNECT, in bytes, as in Go's client.
const MAX_RESPONSE_HEAD: usize = 64 << 10;

pub(super) type Raw = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// An HTTP proxy.
#[derive(Clone)]
pub struct Proxy {
    host: Arc<str>,
    port: u16,
    is_tls: bool,
    tls: Option<(RotatingClient, ServerName<'static>)>,
    authorization: Option<HeaderValue>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.name())
    }
}

impl Proxy {
    /// Parses the URL of a proxy, such as `http://user:password@host:3128`.
    ///
    /// # Errors
    /// Fails with a sentence about the URL, without its password.
    pub fn parse(url: &str) -> Result<Self, String> {
        let expected = "must be the URL of a proxy, as in http://host:3128 or https://host:3129";
        let parsed: Uri = url.parse().map_err(|_| expected.to_owned())?;
        let (is_tls, default_port) = match parsed.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            Some(scheme) => {
                return Err(format!(
                    "proxies of type \"{scheme}\" are not supported; the URL must begin with http:// or https://"
                ));
            }
            None => return Err(expected.to_owned()),
        };
        let host = host_of(&parsed);
        if host.is_empty() || !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            return Err(expected.to_owned());
        }
        let authority = parsed
            .authority()
            .map_or("", |authority| authority.as_str());
        let authorization = match authority.rsplit_once('@') {
            None => None,
            Some((user, _)) => Some(basic(user).ok_or("the user or password is not valid")?),
        };
        Ok(Proxy {
            host: host.into(),
            port: parsed.port_u16().unwrap_or(default_port),
            is_tls,
            tls: None,
            authorization,
        })
    }

    /// Whether the connection to the proxy is encrypted.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the host name or address, IPv6 without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Sets the TLS client for an `https://` proxy.
    #[must_use]
    pub fn with_tls(self, client: RotatingClient, name: ServerName<'static>) -> Self {
        Proxy {
            tls: Some((client, name)),
            ..self
        }
    }

    /// Returns the `Proxy-Authorization` header for requests in absolute form.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns host and port, for messages.
    fn name(&self) -> String {
        authority(&self.host, self.port)
    }

    fn error(&self, what: impl fmt::Display) -> ConnectError {
        ConnectError(format!("proxy {}: {what}", self.name()))
    }

    /// Encrypts a connection to an `https://` proxy.
    pub(super) async fn secure(
        &self,
        tcp: TcpStream,
        address: &SocketAddr,
    ) -> Result<Raw, ConnectError> {
        let (source, name) = match (&self.tls, self.is_tls) {
            (Some(tls), true) => tls,
            (None, true) => return Err(self.error("TLS is not configured")),
            (_, false) => return Ok(Either::Left(tcp)),
        };
        let handshake = tls::connect::connect(source.config(), name.clone(), tcp);
        match timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(Ok(secured)) => Ok(Either::Right(Box::new(secured))),
            Ok(Err(why)) => Err(self.error(format!(
                "TLS handshake with {address} failed: {}",
                why.reason
            ))),
            Err(_) => Err(self.error(format!(
                "no response to the TLS handshake within {HANDSHAKE_TIMEOUT:?}; if the proxy speaks plaintext, use a \
                 proxy_url that begins with http://"
            ))),
        }
    }

    /// Opens a tunnel to `host` over a connection to the proxy.
    pub(super) async fn tunnel<S>(
        &self,
        stream: &mut S,
        host: &str,
        port: u16,
    ) -> Result<(), ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let target = authority(host, port);
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(value) = self.authorization.as_ref().and_then(|v| v.to_str().ok()) {
            let _ = write!(request, "Proxy-Authorization: {value}\r\n");
        }
        request.push_str("\r\n");
        let exchange = async {
            stream.write_all(request.as_bytes()).await?;
            stream.flush().await?;
            read_head(stream).await
        };
        let head = match timeout(HANDSHAKE_TIMEOUT, exchange).await {
            Ok(Ok(head)) => head,
            Ok(Err(error)) => return Err(self.error(format!("CONNECT {target} failed: {error}"))),
            Err(_) => {
                return Err(self.error(format!(
                    "no response to CONNECT {target} within {HANDSHAKE_TIMEOUT:?}"
                )));
            }
        };
        let status = status_line(&head);
        let code = status.split(' ').nth(1).unwrap_or_default();
        match code {
            _ if !status.starts_with("HTTP/1.") => {
                Err(self.error(format!("CONNECT {target} got a response that is not HTTP/1")))
            }
            _ if code.len() == 3 && code.starts_with('2') => Ok(()),
            "407" => Err(self.error(format!(
                "CONNECT {target} was refused with \"{status}\": the proxy needs a user name and password; write them as \
                 proxy_url: http://user:password@host:port"
            ))),
            _ => Err(self.error(format!("CONNECT {target} was refused with \"{status}\""))),
        }
    }
}

/// Reads the head of the response to CONNECT. A TLS server does not speak first, so no byte may follow.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    loop {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(std::io::Error::other("the proxy closed the connection"));
        }
        match memchr::memmem::find(&head, b"\r\n\r\n") {
            Some(end) if end + 4 == head.len() || !status_line(&head).contains(" 200") => {
                return Ok(head);
            }
            Some(_) => {
                return Err(std::io::Error::other(
                    "the proxy sent data after its response",
                ));
            }
            None if head.len() > MAX_RESPONSE_HEAD => {
                return Err(std::io::Error::other("the proxy's response is too large"));
            }
            None => {}
        }
    }
}

fn status_line(head: &[u8]) -> String {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = line.get(..200).unwrap_or(line);
    String::from_utf8_lossy(line).into_owned()
}

fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

/// Encodes `user:password` from a URL as `Basic` credentials.
fn basic(user: &str) -> Option<HeaderValue> {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let mut text = percent_decoded(user)?;
    text.push(b':');
    text.extend(percent_decoded(password)?);
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(text))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_url_gives_host_port_and_credentials() {
        let proxy = Proxy::parse("http://us%40er:p%3Aw@[::1]:3128/").unwrap();
        assert_eq!(
            (proxy.host(), proxy.port(), proxy.is_tls()),
            ("::1", 3128, false)
        );
        let expected = format!("Basic {}", STANDARD.encode("us@er:p:w"));
        assert_eq!(proxy.authorization().unwrap(), expected.as_str());
        assert_eq!(format!("{proxy:?}"), "Proxy([::1]:3128)");
        let proxy = Proxy::parse("https://proxy").unwrap();
        assert_eq!((proxy.port(), proxy.is_tls()), (443, true));
        for bad in [
            "",
            "proxy:3128",
            "socks5://a:1",
            "http://a/path",
            "http://a?x",
            "http://%zz@a",
        ] {
            assert!(Proxy::parse(bad).is_err(), "{bad}");
        }
    }

    async fn tunneled(answer: &'static [u8]) -> (Result<(), ConnectError>, String) {
        let (mut ours, mut theirs) = tokio::io::duplex(4096);
        let proxy = Proxy::parse("http://u:p@proxy:3128").unwrap();
        let server = async {
            let mut asked = vec![0; 4096];
            let read = theirs.read(&mut asked).await.unwrap();
            theirs.write_all(answer).await.unwrap();
            drop(theirs);
            asked.truncate(read);
            String::from_utf8(asked).unwrap()
        };
        tokio::join!(proxy.tunnel(&mut ours, "server", 443), server)
    }

    #[tokio::test]
    async fn tunnel_needs_success_without_extra_data() {
        let (outcome, asked) = tunneled(b"HTTP/1.1 200 OK\r\nVia: x\r\n\r\n").await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(
            asked,
            "CONNECT server:443 HTTP/1.1\r\nHost: server:443\r\nProxy-Authorization: Basic dTpw\r\n\r\n"
        );
        for (answer, expected) in [
            (
                &b"HTTP/1.1 407 Needed\r\n\r\nbody"[..],
                "user name and password",
            ),
            (b"HTTP/1.1 403 No\r\n\r\n", "\"HTTP/1.1 403 No\""),
            (b"SSH-2.0\r\n\r\n", "not HTTP/1"),
            (b"HTTP/1.1 200 OK\r\n\r\nX", "after its response"),
            (b"HTTP/1.1 200 OK\r\n", "closed the connection"),
        ] {
            let (outcome, _) = tunneled(answer).await;
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
