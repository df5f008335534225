//! Wraps the socket (or TLS stream) under hyper and enforces limits that hyper lacks: time to complete partly sent
//! frames and requests, time to read responses, and the number of useless frames.
//!
//! Bytes are never copied. The clock is read only while a deadline is pending, not per frame.
//!
//! As of h2 0.4 and hyper 1.12, the libraries already end a connection for:
//!
//! * 200 streams that the client reset before they were processed;
//! * six CONTINUATION frames in a block, a hundred empty DATA frames, or many small unread DATA frames;
//! * a header list far above its limit (HPACK bombs).
//!
//! They also read no frame while the answers to earlier frames (PONG, SETTINGS ACK, RST_STREAM) cannot be written.
//!
//! The libraries do not limit:
//!
//! * PING, SETTINGS, PRIORITY and WINDOW_UPDATE frames, resets of processed streams, and, as configured here, streams
//!   that the server has to reset because of client errors;
//! * any time on HTTP/2;
//! * responses for which the client opens no window;
//! * the total memory of partly received frames and of requests with unsent responses;
//! * unsolicited PING ACKs, which h2 logs.

mod bucket;
mod closing;
mod deadlines;
mod stream;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

use self::bucket::Bucket;
use self::closing::ClosingState;
pub(super) use self::closing::go_away;
use super::buffered::BufferedBytes;
use super::client_limit::ClientLimit;
use super::frames::{FrameSummary, FrameTracker, PREFACE, UnfinishedItem};
use super::gate::Gate;
use super::peer::Peer;
use super::request_slots::Opening;
use super::request_slots::RequestSlots;

pub(super) struct Guard<S> {
    stream: S,
    /// Bytes read by [`Guard::greet`], until hyper takes them.
    early: Bytes,
    /// Bytes that were read, and wait for a slot for the request at their beginning.
    waiting: Bytes,
    frames: FrameTracker,
    slots: RequestSlots,
    /// Refused streams that h2 has not refused to the client yet.
    refused: usize,
    bucket: Bucket,
    gate: Arc<Gate>,
    peer: Arc<Peer>,
    born: Instant,
    header_timeout: Option<Duration>,
    /// Timer for the earliest deadline at the time of setting. The current deadline may be later.
    timer: Pin<Box<Sleep>>,
    /// The item that the client has begun, and the start time.
    begun: Option<(UnfinishedItem, Instant)>,
    /// HTTP/1: the number of the request whose head has begun, and the start time.
    head: Option<(u64, Instant)>,
    /// Time since which the socket accepts no more bytes.
    blocked: Option<Instant>,
    /// The right to a large, partly received frame.
    large: Option<BufferedBytes>,
    closing: Option<ClosingState>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DetectedProtocol {
    Http1,
    Http2,
    /// TLS on a plaintext port.
    Tls,
    /// The client closed the connection before its protocol was clear.
    Nothing,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    /// Guards a new connection. `header_timeout` applies to HTTP/1 heads, in addition to the limit.
    pub(super) fn new(stream: S, peer: Arc<Peer>, header_timeout: Option<Duration>) -> Self {
        let (gate, born) = (peer.gate().clone(), Instant::now());
        let limit = gate.limits.header_timeout.unless_zero();
        Guard {
            stream,
            early: Bytes::new(),
            waiting: Bytes::new(),
            frames: FrameTracker::default(),
            slots: RequestSlots::new(&peer),
            refused: 0,
            bucket: Bucket::new(gate.limits.max_control_frames, born),
            header_timeout: limit.into_iter().chain(header_timeout).min(),
            gate,
            peer,
            born,
            timer: Box::pin(sleep_until(born)),
            begun: None,
            head: None,
            blocked: None,
            large: None,
            closing: None,
        }
    }

    /// Reads until the client's protocol is clear.
    ///
    /// # Errors
    /// Errors of the stream.
    pub(super) async fn greet(&mut self) -> io::Result<DetectedProtocol> {
        let mut bytes = [0; PREFACE.len()];
        let mut have = 0;
        // A single byte does not distinguish a TLS record from noise.
        let unclear = |bytes: &[u8]| matches!(bytes, [0x16]);
        while have < bytes.len()
            && (!self.frames.is_foreign() || unclear(bytes.get(..have).unwrap_or_default()))
        {
            let rest = bytes.get_mut(have..).unwrap_or_default();
            let read = tokio::io::AsyncReadExt::read(&mut self.stream, rest).await?;
            if read == 0 {
                return Ok(DetectedProtocol::Nothing);
            }
            self.frames.feed(rest.get(..read).unwrap_or_default());
            have += read;
        }
        let said = bytes.get(..have).unwrap_or_default();
        self.early = Bytes::copy_from_slice(said);
        Ok(match said {
            // A TLS record of type "handshake" (RFC 8446, 5.1).
            [0x16, 0x03, ..] => DetectedProtocol::Tls,
            _ if self.frames.is_foreign() => {
                self.head = Some((self.peer.begun(), Instant::now()));
                DetectedProtocol::Http1
            }
            _ => DetectedProtocol::Http2,
        })
    }

    /// Sends a closing message and closes the connection, within a second.
    pub(super) async fn close_with(mut self, message: impl Into<Bytes>) {
        self.close(message.into(), io::ErrorKind::ConnectionAborted, "");
        std::future::poll_fn(|cx| self.poll_closing(cx).map(drop)).await;
    }

    /// Handles received bytes. Returns the number of bytes that may go to hyper. The rest begins a request that waits
    /// for a slot.
    fn received(&mut self, bytes: &[u8]) -> usize {
        let (slots, peer) = (&mut self.slots, &self.peer);
        let (seen, followed) = self
            .frames
            .feed_while(bytes, |open| match slots.open(open) {
                Opening::Admitted => true,
                Opening::Refused => {
                    peer.add_refusal();
                    true
                }
                Opening::Waits => false,
            });
        self.account();
        self.count(seen);
        if seen.has_unsolicited_ack && self.closing.is_none() {
            self.cut(
                ClientLimit::MaxControlFrames,
                "a PING acknowledgement without a PING",
            );
        }
        let refused = self
            .frames
            .streams()
            .saturating_sub(self.gate.streams as usize);
        for _ in self.refused..refused {
            self.gate
                .report_limit(ClientLimit::MaxConcurrentStreams, &self.peer);
        }
        self.refused = refused;
        if self.frames.is_foreign() && self.head.is_none() && !self.peer.is_busy() {
            self.head = Some((self.peer.begun(), Instant::now()));
        }
        followed
    }

    fn sent(&mut self, bytes: &[u8]) {
        if !self.frames.is_foreign() {
            let now = u32::try_from(self.born.elapsed().as_secs()).unwrap_or(u32::MAX);
            let seen = self.frames.sent(bytes, now);
            self.account();
            self.count(seen);
            if seen.goodbye
                && let Some(limit) = enforced_by_h2(bytes)
            {
                self.gate.report_limit(limit, &self.peer);
            }
        }
    }

    /// Updates the slots after requests may have ended.
    fn account(&mut self) {
        let open = self.frames.streams();
        self.slots.release_beyond(open);
        if open == 0 {
            self.peer.forget_refusals();
        }
    }

    fn count(&mut self, seen: FrameSummary) {
        self.bucket.earn(seen.answers);
        if seen.control > 0 && !self.bucket.take(seen.control) && self.closing.is_none() {
            self.cut(ClientLimit::MaxControlFrames, "too many control frames");
        }
    }

    fn after_write(&mut self, cx: &mut Context<'_>, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Pending => {
                self.blocked.get_or_insert_with(Instant::now);
                self.watch(cx);
            }
            Poll::Ready(_) => {
                self.blocked = None;
                if self.frames.answering() {
                    self.watch(cx);
                }
                if !self.waiting.is_empty() {
                    // The end of a response may make room for the waiting request.
                    cx.waker().wake_by_ref();
                }
            }
        }
    }
}

impl<S> Drop for Guard<S> {
    fn drop(&mut self) {
        self.peer.mark_gone();
    }
}

/// Returns the limit for which h2 ended a connection, by the debug text of its GOAWAY. The errors of h2 do not contain
/// the limit.
fn enforced_by_h2(bytes: &[u8]) -> Option<ClientLimit> {
    let says = |message: &str| memchr::memmem::find(bytes, message.as_bytes()).is_some();
    if says("header_list_way_too_large") {
        Some(ClientLimit::MaxHeaderSize)
    } else if says("too_many_") {
        Some(ClientLimit::MaxControlFrames)
    } else {
        None
    }
}
