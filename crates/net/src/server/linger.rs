//! Lingering close of a connection whose client is still sending.
//!
//! Closing a socket with unread data resets the connection, and the reset overtakes the response: the client sees
//! "connection reset by peer" or a broken pipe instead of the status (RFC 9112, 9.6). So the server closes its sending
//! half, and reads until the client closes too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

use super::Peer;

/// A connection with a lingering close after a request was [answered early](Peer::answered_early).
pub(super) struct Lingering<I> {
    io: I,
    peer: Arc<Peer>,
    closing: Option<Closing>,
}

/// State after the server has closed its sending half.
struct Closing {
    read: usize,
    longest: Pin<Box<Sleep>>,
}

impl<I> Lingering<I> {
    pub(super) fn new(io: I, peer: Arc<Peer>) -> Self {
        Lingering {
            io,
            peer,
            closing: None,
        }
    }
}

impl<I: Read + Unpin> Read for Lingering<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<I: Read + Write + Unpin> Write for Lingering<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.closing.is_none() {
            ready!(Pin::new(&mut this.io).poll_shutdown(cx))?;
            if !this.peer.needs_linger() {
                return Poll::Ready(Ok(()));
            }
        }
        let closing = this.closing.get_or_insert_with(|| Closing {
            read: 0,
            longest: Box::pin(sleep(MAX_LINGER_TIME)),
        });
        let mut scratch = [0; 16 << 10];
        while closing.read < MAX_LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.io).poll_read(cx, buffer.unfilled()) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    closing.read += buffer.filled().len();
                }
                // The client has closed or disconnected.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return closing.longest.as_mut().poll(cx).map(Ok),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, buffers)
    }
}

/// Maximum number of bytes read while lingering, which take no memory. A client that sends this much after a refusal
/// does not read responses.
const MAX_LINGER_BYTES: usize = 256 << 20;
/// Maximum lingering time. A client that reads the response while it sends stops at once. Any other client must finish
/// sending in this time.
const MAX_LINGER_TIME: Duration = Duration::from_secs(5);
