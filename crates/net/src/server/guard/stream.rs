//! The guard as a stream under hyper.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ConnectionGuard;

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ConnectionGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if !me.early.is_empty() {
            let early = me.early.split_to(me.early.len().min(buf.remaining()));
            buf.put_slice(&early);
            return Poll::Ready(Ok(()));
        }
        if me.closing.is_none() && !me.waiting.is_empty() {
            let filled = buf.filled().len();
            let went_on = me.resume_waiting(buf);
            if me.closing.is_some() {
                buf.set_filled(filled);
            } else if went_on {
                return Poll::Ready(Ok(()));
            } else {
                me.wait_for_room(cx);
                if me.closing.is_none() {
                    return Poll::Pending;
                }
            }
        }
        if me.closing.is_none() && !me.has_room() {
            me.wait_for_room(cx);
            if me.closing.is_none() {
                return Poll::Pending;
            }
        }
        if me.closing.is_none() {
            let before = buf.filled().len();
            match Pin::new(&mut me.stream).poll_read(cx, buf) {
                Poll::Pending => me.watch(cx),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {
                    let read = buf.filled().get(before..).unwrap_or_default();
                    let followed = me.received(read);
                    if let Some(waiting @ [_, ..]) = read.get(followed..) {
                        me.waiting = Bytes::copy_from_slice(waiting);
                    }
                    let at_end = read.is_empty();
                    buf.set_filled(before + followed);
                    if me.closing.is_none() && (followed > 0 || at_end) {
                        return Poll::Ready(Ok(()));
                    }
                    if me.closing.is_none() {
                        me.wait_for_room(cx);
                    }
                    buf.set_filled(before);
                }
            }
            if me.closing.is_none() {
                return Poll::Pending;
            }
        }
        me.poll_closing(cx).map(Err)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ConnectionGuard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let mut buf = buf;
        if me.closing.is_some() {
            if me.frames.may_insert() {
                return me.poll_closing(cx).map(Err);
            }
            buf = buf.get(..me.frames.unsent()).unwrap_or(buf);
        }
        let written = Pin::new(&mut me.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = &written {
            me.sent(buf.get(..*count).unwrap_or_default());
        }
        me.after_write(cx, &written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.closing.is_some() {
            let first = bufs.iter().find(|buf| !buf.is_empty());
            return self.poll_write(cx, first.map_or(&[][..], |buf| buf));
        }
        let me = self.get_mut();
        let written = Pin::new(&mut me.stream).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(count)) = &written {
            let mut left = *count;
            for buf in bufs {
                let now = left.min(buf.len());
                me.sent(buf.get(..now).unwrap_or_default());
                left -= now;
            }
        }
        me.after_write(cx, &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        // An HTTP/1 client that is still sending a head over the limit would see a reset instead of the response. For
        // clients that are sending bodies, see `linger`.
        let in_head = me.head.is_some_and(|(number, _)| number == me.peer.begun());
        if me.frames.is_foreign() && in_head {
            me.close(Bytes::new(), io::ErrorKind::ConnectionAborted, "");
            return me.poll_closing(cx).map(|_| Ok(()));
        }
        Pin::new(&mut me.stream).poll_shutdown(cx)
    }
}
