//! Closing a connection whose client is still sending.
//!
//! A socket that is closed with unread data resets the connection, and a reset overtakes the answer: the client sees
//! "connection reset by peer" or a broken pipe instead of the status that says why (RFC 9112, 9.6). So this side closes
//! its half, and reads what comes until the client has closed too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use tokio::time::{Sleep, sleep};

use super::Peer;

/// A connection that closes in that way when a request was [answered early](Peer::answered_early).
pub(super) struct Lingering<I> {
    io: I,
    peer: Arc<Peer>,
    closing: Option<Closing>,
}

/// This side has closed its half.
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
            if !this.peer.lingers() {
                return Poll::Ready(Ok(()));
            }
        }
        let closing = this.closing.get_or_insert_with(|| Closing {
            read: 0,
            longest: Box::pin(sleep(LONGEST)),
        });
        let mut scratch = [0; 16 << 10];
        while closing.read < MOST {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut this.io).poll_read(cx, buffer.unfilled()) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    closing.read += buffer.filled().len();
                }
                // The client has closed too, or is gone.
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

/// What is read of a client that does not stop. It costs no memory, and a client that is refused thrice its data is
/// not a client that reads answers.
const MOST: usize = 256 << 20;
/// How long. A client that looks at the answer while it sends stops at once; one that does not must be through with it
/// in this time.
const LONGEST: Duration = Duration::from_secs(5);
