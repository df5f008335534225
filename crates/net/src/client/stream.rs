//! The stream of one connection, with an explanation of its end by the server.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;
use tracing::error;

use super::proxy::Raw;
use crate::{Owner, tls};

/// Length in bytes of the searched beginning of a server's first bytes: long enough for SETTINGS and the text of a
/// GOAWAY.
const SETTINGS_AND_GOAWAY: usize = 128;

/// The server's explanation of the last failed connection, and advice. Under TLS 1.3, a server checks the client
/// certificate after the handshake has ended for the client. Its alert ends the connection, and HTTP errors of requests
/// do not contain it.
#[derive(Debug, Clone, Default)]
pub(super) struct LastFailure {
    pub(super) text: Arc<Mutex<Option<String>>>,
    /// Whether a failure that needs a configuration change was logged since the last success.
    is_logged: Arc<AtomicBool>,
}

impl LastFailure {
    pub(super) fn set(&self, last_failure: Option<String>) {
        *self.text.lock() = last_failure;
    }

    /// Logs that TLS fails until a configuration or certificate is changed. Requests are retried, so without the log
    /// line the failure would look like an outage.
    pub(super) fn log_failure(&self, owner: &Owner, reason: &str) {
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
    fn clear(&self) {
        if self.is_logged.load(Relaxed) {
            self.is_logged.store(false, Relaxed);
        }
    }
}

/// A TCP connection, with or without TLS.
pub struct Stream {
    pub(super) inner: Inner,
    pub(super) address: SocketAddr,
    pub(super) last_failure: LastFailure,
    /// The component that owns the connection, with TLS.
    pub(super) owner: Option<Owner>,
    /// Whether the server has sent anything.
    pub(super) has_received: bool,
    /// Whether the target of a request must contain the server, for a proxy.
    pub(super) is_absolute_form: bool,
}

pub(super) enum Inner {
    Plain(Raw),
    Tls(Box<TlsStream<Raw>>),
}

impl Stream {
    /// Whether the server chose HTTP/2 in the TLS handshake.
    pub fn negotiated_http2(&self) -> bool {
        match &self.inner {
            Inner::Plain(_) => false,
            Inner::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
        }
    }

    /// Whether the target of a request must contain the server, for a proxy.
    pub(super) fn is_absolute_form(&self) -> bool {
        self.is_absolute_form
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
        }
    }

    /// Adds advice to the error, and stores the advice for callers that do not see the error.
    fn explained(&self, error: io::Error) -> io::Error {
        let error = match self.inner {
            Inner::Plain(_) => {
                self.ended();
                return error;
            }
            Inner::Tls(_) => {
                let is_permanent = tls::connect::is_permanent(&error);
                let error = tls::connect::explained(error);
                if let Some(owner) = self.owner.as_ref().filter(|_| is_permanent) {
                    self.last_failure.log_failure(owner, &error.to_string());
                }
                error
            }
        };
        if error.kind() == io::ErrorKind::InvalidData {
            self.set_failure(format!("TLS with {}: {error}", self.address));
        }
        error
    }

    fn set_failure(&self, last_failure: String) {
        self.last_failure.set(Some(last_failure));
    }

    /// Handles the end of the connection. Many servers that expect TLS silently close a plaintext connection.
    fn ended(&self) {
        if !self.has_received && matches!(self.inner, Inner::Plain(_)) {
            self.set_failure(format!(
                "{} closed the connection before it sent anything; if the server speaks TLS, set tls::insecure to \
                 false, or use an endpoint that begins with https://",
                self.address
            ));
        }
    }

    fn read_alert(&mut self, said: &[u8]) {
        self.has_received = true;
        if matches!(self.inner, Inner::Tls(_)) {
            self.last_failure.clear();
        }
        let hint = match (&self.inner, said) {
            // A TLS alert (RFC 8446, 5.1), or the message of this project's servers.
            (Inner::Plain(_), [0x15, 0x03, ..]) => true,
            (Inner::Plain(_), said) => {
                let beginning = said.get(..SETTINGS_AND_GOAWAY).unwrap_or(said);
                memchr::memmem::find(beginning, b"this port speaks TLS").is_some()
            }
            (Inner::Tls(_), _) => false,
        };
        self.last_failure.set(hint.then(|| {
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
            Poll::Ready(Ok(())) if !self.has_received && !buffer.filled().is_empty() => {
                self.read_alert(buffer.filled());
                error
            }
            _ => error,
        };
        Poll::Ready(Err(self.explained(said)))
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
                    if !stream.has_received {
                        stream.read_alert(said);
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
