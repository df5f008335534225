//! Protocol detection on the first bytes of a connection, for fuzz targets.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf, join, sink};
use tokio::runtime::{Builder, Runtime};

use super::guard::{DetectedProtocol, Guard};
use super::not_tls::NotTls;
use super::peer::Peer;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let built = Builder::new_current_thread().enable_time().build();
    built.unwrap_or_else(|_| unreachable!())
});

/// Returns the protocol that a plaintext port detects for a client that sends these pieces and closes.
pub fn greeting(pieces: Vec<&[u8]>) -> &'static str {
    let stream = join(Pieces(pieces.into()), sink());
    let version = RUNTIME.block_on(async {
        let mut guard = Guard::new(stream, Arc::new(Peer::unconnected()), None);
        guard.greet().await
    });
    match version {
        Ok(DetectedProtocol::Http1) => "HTTP/1",
        Ok(DetectedProtocol::Http2) => "HTTP/2",
        Ok(DetectedProtocol::Tls) => "TLS",
        Ok(DetectedProtocol::Nothing) | Err(_) => "nothing",
    }
}

/// Returns the protocol that a TLS port detects for a client that begins with these bytes.
pub fn first_bytes(first: &[u8]) -> &'static str {
    match NotTls::of(first) {
        None => "TLS",
        Some(NotTls::Http1) => "HTTP/1",
        Some(NotTls::Http2) => "HTTP/2",
        Some(NotTls::Unknown) => "noise",
    }
}

struct Pieces<'p>(VecDeque<&'p [u8]>);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(piece) = self.0.pop_front() {
            let (now, later) = piece.split_at(piece.len().min(into.remaining()));
            into.put_slice(now);
            if !later.is_empty() {
                self.0.push_front(later);
            }
        }
        Poll::Ready(Ok(()))
    }
}
