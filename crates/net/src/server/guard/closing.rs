//! Ends a connection: sends the last message, and reads the remaining bytes of the client.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::super::client_limit::ClientLimit;
use super::Guard;

pub(super) struct ClosingState {
    message: Bytes,
    why: io::ErrorKind,
    reason: &'static str,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Speak,
    Shutdown,
    /// Reads this many more bytes: closing with unread bytes would reset the connection and destroy the message.
    Drain(usize),
}

/// Encodes a GOAWAY frame with ENHANCE_YOUR_CALM (RFC 9113, 6.8 and 7). `last` is the last stream that may have been
/// processed.
pub(in super::super) fn go_away(last: u32, why: &str) -> Bytes {
    let length = u32::try_from(8 + why.len()).unwrap_or(8);
    let mut frame = Vec::with_capacity(17 + why.len());
    frame.extend(length.to_be_bytes().into_iter().skip(1));
    frame.extend([7, 0, 0, 0, 0, 0]);
    frame.extend(last.to_be_bytes());
    frame.extend(ENHANCE_YOUR_CALM.to_be_bytes());
    frame.extend(why.as_bytes());
    frame.into()
}

const ENHANCE_YOUR_CALM: u32 = 0xb;
const HEAD_TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

const MAX_CLOSING_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes read while closing.
const MAX_DRAINED_BYTES: usize = 256 << 10;

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    pub(super) fn close(&mut self, message: Bytes, why: io::ErrorKind, reason: &'static str) {
        if self.closing.is_none() {
            self.timer.as_mut().reset(Instant::now() + MAX_CLOSING_TIME);
            self.closing = Some(ClosingState {
                message,
                why,
                reason,
                stage: Stage::Speak,
            });
        }
    }

    /// Cuts a connection that exceeded a limit.
    pub(super) fn cut(&mut self, limit: ClientLimit, reason: &'static str) {
        self.gate.report_limit(limit, &self.peer);
        let message = if !self.frames.is_foreign() {
            go_away(self.frames.last_stream(), reason)
        } else if limit == ClientLimit::HeaderTimeout && self.blocked.is_none() {
            Bytes::from_static(HEAD_TOO_SLOW)
        } else {
            Bytes::new()
        };
        let why = match limit {
            ClientLimit::MaxControlFrames => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::TimedOut,
        };
        self.close(message, why, reason);
    }

    /// Ends the connection with the error that is passed to hyper. First completes the partly written frame.
    pub(super) fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let Some(closing) = &mut self.closing else {
            return Poll::Pending;
        };
        let error = io::Error::new(closing.why, closing.reason);
        if self.timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(error);
        }
        loop {
            match closing.stage {
                Stage::Speak if closing.message.is_empty() => {
                    if ready!(Pin::new(&mut self.stream).poll_flush(cx)).is_err() {
                        return Poll::Ready(error);
                    }
                    closing.stage = Stage::Shutdown;
                }
                Stage::Speak if !self.frames.may_insert() => return Poll::Pending,
                Stage::Speak => {
                    let stream = Pin::new(&mut self.stream);
                    match ready!(stream.poll_write(cx, &closing.message)) {
                        Ok(written @ 1..) => drop(closing.message.split_to(written)),
                        _ => return Poll::Ready(error),
                    }
                }
                Stage::Shutdown => {
                    if ready!(Pin::new(&mut self.stream).poll_shutdown(cx)).is_err() {
                        return Poll::Ready(error);
                    }
                    closing.stage = Stage::Drain(MAX_DRAINED_BYTES);
                }
                Stage::Drain(left) => {
                    let mut scratch = [0; 4096];
                    let mut scratch = ReadBuf::new(&mut scratch);
                    let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut scratch));
                    let count = scratch.filled().len();
                    if read.is_err() || count == 0 || count >= left {
                        return Poll::Ready(error);
                    }
                    closing.stage = Stage::Drain(left - count);
                }
            }
        }
    }
}
