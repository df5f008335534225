//! Wraps the socket (or TLS stream) under hyper and enforces limits that hyper lacks: time to finish what a client
//! began, time to read responses, and the number of useless frames.
//!
//! Nothing is copied. The clock is read when there is something to wait for, not per frame.
//!
//! As of h2 0.4 and hyper 1.12, the libraries already end a connection for:
//!
//! * 200 streams that the client reset before they were processed;
//! * six CONTINUATION frames in a block, a hundred empty DATA frames, or many small unread DATA frames;
//! * a header list far above its limit (HPACK bombs).
//!
//! They also read no frame while the answers to earlier ones (PONG, SETTINGS ACK, RST_STREAM) cannot be written.
//!
//! The libraries do not limit:
//!
//! * PING, SETTINGS, PRIORITY and WINDOW_UPDATE frames, resets of processed streams, and, as configured here, streams
//!   that the server has to reset because of client errors;
//! * any time on HTTP/2;
//! * responses for which the client opens no window;
//! * the total memory of partly received frames and of requests with unsent responses;
//! * unsolicited PING ACKs, which h2 logs.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::frames::{FrameSummary, FrameTracker, PREFACE, UnfinishedItem};
use super::gate::{ClientLimit, Gate, Held, Opening, RequestSlots};
use super::peer::Peer;

pub(super) struct Guard<S> {
    stream: S,
    /// Bytes read by [`Guard::greet`], until hyper takes them.
    early: Bytes,
    /// Bytes that were read and wait for a slot for the request that they begin.
    waiting: Bytes,
    frames: FrameTracker,
    places: RequestSlots,
    /// Refused streams that h2 has not refused to the client yet.
    refused: usize,
    bucket: Bucket,
    gate: Arc<Gate>,
    peer: Arc<Peer>,
    born: Instant,
    header_timeout: Option<Duration>,
    /// Timer for the earliest deadline when it was set. The current deadline may be later.
    timer: Pin<Box<Sleep>>,
    /// The item that the client has begun, and the start time.
    begun: Option<(UnfinishedItem, Instant)>,
    /// HTTP/1: the number of the request whose head has begun, and the start time.
    head: Option<(u64, Instant)>,
    /// Time since which the socket accepts no more bytes.
    blocked: Option<Instant>,
    /// The right to a large, partly received frame.
    large: Option<Held>,
    closing: Option<ClosingState>,
}

/// A connection end initiated by the server.
struct ClosingState {
    /// Unwritten rest of the closing message.
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

/// Protocol of the first bytes of a connection.
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
            places: RequestSlots::new(&peer),
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
        // One byte does not distinguish a TLS record from garbage.
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
    pub(super) async fn part(mut self, message: impl Into<Bytes>) {
        self.close(message.into(), io::ErrorKind::ConnectionAborted, "");
        std::future::poll_fn(|cx| self.poll_closing(cx).map(drop)).await;
    }

    fn close(&mut self, message: Bytes, why: io::ErrorKind, reason: &'static str) {
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
    fn cut(&mut self, limit: ClientLimit, reason: &'static str) {
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

    /// Checks all deadlines. Cuts the connection or sets the timer.
    fn watch(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some((deadline, limit, reason)) = self.next_deadline() else {
                return;
            };
            // Resetting a timer costs more than letting an outdated one fire.
            let rang = self.timer.is_elapsed();
            if rang && deadline <= Instant::now() {
                self.cut(limit, reason);
                cx.waker().wake_by_ref();
                return;
            }
            if rang || deadline < self.timer.deadline() {
                self.timer.as_mut().reset(deadline);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return;
            }
        }
    }

    fn next_deadline(&mut self) -> Option<(Instant, ClientLimit, &'static str)> {
        let limits = &self.gate.limits;
        let unfinished = self.frames.unfinished().and_then(|what| {
            let since = match self.begun {
                Some((before, since)) if before == what => since,
                _ if what == UnfinishedItem::Greeting => self.born,
                _ => Instant::now(),
            };
            self.begun = Some((what, since));
            let (limit, time) = match what {
                UnfinishedItem::Greeting => (
                    ClientLimit::HandshakeTimeout,
                    limits.handshake_timeout.unless_zero(),
                ),
                UnfinishedItem::Frame(_) => (ClientLimit::HeaderTimeout, self.header_timeout),
                UnfinishedItem::Data(_, size) => (ClientLimit::MinBodyRate, limits.time_for(size)),
            };
            Some((
                since + time?,
                limit,
                "the client did not complete a frame in time",
            ))
        });
        let head = match self.head {
            Some((number, since)) if number == self.peer.begun() => {
                self.header_timeout.map(|time| {
                    (
                        since + time,
                        ClientLimit::HeaderTimeout,
                        "the request head arrived too slowly",
                    )
                })
            }
            _ => {
                self.head = None;
                None
            }
        };
        let answer = self.frames.oldest_answer();
        let answer = answer.map(|at| self.born + Duration::from_secs(at.into()));
        let untaken = answer.into_iter().chain(self.blocked).min().and_then(|at| {
            let due = limits.send_timeout.unless_zero().map(|time| at + time);
            // Checked once a second, because memory may become scarce, or the server may shut down.
            let look = Instant::now() + ANSWER_CHECK_INTERVAL;
            let soon = if self.frames.is_foreign() {
                None
            } else if self.gate.is_short(self.peer.network.as_deref()) {
                Some(at + SHORT_SEND_TIMEOUT)
            } else if self.peer.is_shutting_down() {
                Some(at + LAST_SEND_TIMEOUT)
            } else {
                Some(look.max(at + SHORT_SEND_TIMEOUT))
            };
            let due = due.into_iter().chain(soon).min();
            Some((
                due?,
                ClientLimit::SendTimeout,
                "the client did not read a response in time",
            ))
        });
        let all = [unfinished, head, untaken].into_iter().flatten();
        all.min_by_key(|(deadline, ..)| *deadline)
    }

    /// Whether there is memory for the rest of the client's current frame. h2 buffers a frame until it is complete,
    /// before any budget is consulted. Without memory the client waits, as for a flow control window.
    fn has_room(&mut self) -> bool {
        let size = match self.frames.unfinished() {
            Some(UnfinishedItem::Data(_, size)) if size > SMALL_FRAME => size as usize,
            _ => 0,
        };
        if size != self.large.as_ref().map_or(0, |large| large.bytes) {
            self.large = None;
            if size > 0 {
                self.large = self.gate.begin_frame(&self.peer, size);
                return self.large.is_some();
            }
        }
        true
    }

    /// Checks again shortly whether there is memory.
    fn wait_for_room(&mut self, cx: &mut Context<'_>) {
        self.watch(cx);
        if self.closing.is_none() {
            self.timer.as_mut().reset(Instant::now() + ROOM_RETRY);
            if self.timer.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Handles received bytes. Returns how many may go to hyper. The rest begins a request that waits for a
    /// slot.
    fn received(&mut self, bytes: &[u8]) -> usize {
        let (places, peer) = (&mut self.places, &self.peer);
        let (seen, followed) = self
            .frames
            .feed_while(bytes, |open| match places.open(open) {
                Opening::Admitted => true,
                Opening::Refused => {
                    peer.refuse_one();
                    true
                }
                Opening::Waits => false,
            });
        self.account();
        self.count(seen);
        if seen.unasked && self.closing.is_none() {
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

    /// Passes waiting bytes to hyper as far as there are slots. Returns true if any were passed.
    fn resume_waiting(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let most = self.waiting.len().min(buf.remaining());
        let first = self.waiting.slice(..most);
        let followed = self.received(&first);
        buf.put_slice(first.get(..followed).unwrap_or_default());
        self.waiting = self.waiting.slice(followed..);
        followed > 0
    }

    /// Handles written bytes.
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
        self.places.keep(open);
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

    /// Handles the result of a write.
    fn wrote(&mut self, cx: &mut Context<'_>, written: &Poll<io::Result<usize>>) {
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
                    // A finished response may have made room for the waiting request.
                    cx.waker().wake_by_ref();
                }
            }
        }
    }

    /// Ends the connection with the error that hyper gets. First completes the frame that is being written.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
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
                    closing.stage = Stage::Drain(DRAIN);
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guard<S> {
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guard<S> {
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
        me.wrote(cx, &written);
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
        me.wrote(cx, &written);
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

impl<S> Drop for Guard<S> {
    fn drop(&mut self) {
        self.peer.mark_gone();
    }
}

/// Token bucket of control frames.
#[derive(Debug)]
struct Bucket {
    /// Tokens per second; 0 means no limit.
    rate: u32,
    left: f64,
    filled: Instant,
}

impl Bucket {
    fn new(rate: u32, now: Instant) -> Self {
        Bucket {
            rate,
            left: BURST * f64::from(rate),
            filled: now,
        }
    }

    fn earn(&mut self, answers: u32) {
        let full = BURST * f64::from(self.rate);
        self.left = (self.left + f64::from(answers) * EARNED).min(full);
    }

    /// Takes tokens. Returns false if there were too few.
    fn take(&mut self, frames: u32) -> bool {
        if self.rate == 0 {
            return true;
        }
        let (rate, now) = (f64::from(self.rate), Instant::now());
        let since = now.duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * rate).min(BURST * rate) - f64::from(frames);
        self.filled = now;
        self.left >= 0.0
    }
}

/// Encodes a GOAWAY frame with ENHANCE_YOUR_CALM (RFC 9113, 6.8 and 7). `last` is the last stream that may have been
/// processed.
pub(super) fn go_away(last: u32, why: &str) -> Bytes {
    let length = u32::try_from(8 + why.len()).unwrap_or(8);
    let mut frame = Vec::with_capacity(17 + why.len());
    frame.extend(length.to_be_bytes().into_iter().skip(1));
    frame.extend([7, 0, 0, 0, 0, 0]);
    frame.extend(last.to_be_bytes());
    frame.extend(ENHANCE_YOUR_CALM.to_be_bytes());
    frame.extend(why.as_bytes());
    frame.into()
}

/// Returns the limit for which h2 ended a connection, by the debug text of its GOAWAY. The errors of h2 do not tell.
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

const ENHANCE_YOUR_CALM: u32 = 0xb;
const HEAD_TOO_SLOW: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// Seconds' worth of control frames that may arrive in a burst.
const BURST: f64 = 10.0;
/// Control frames that a DATA frame or the end of a response permits. grpc-go and grpc-c measure the round trip with
/// PINGs while responses arrive, thousands per second on a fast network. Any client may answer a DATA frame with one
/// WINDOW_UPDATE each for the stream and the connection.
const EARNED: f64 = 2.0;
/// Frames up to this size in bytes, which covers nearly all clients, are not counted across connections.
const SMALL_FRAME: u32 = 16 << 10;
/// Interval of checks whether there is room for a waiting client.
const ROOM_RETRY: Duration = Duration::from_millis(20);
/// Time for a client to read a response while room for requests is scarce.
const SHORT_SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The same time during shutdown. Several TCP retransmissions fit into it.
const LAST_SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of checks for unread responses.
const ANSWER_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time for the closing message.
const MAX_CLOSING_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes read while closing.
const DRAIN: usize = 256 << 10;
