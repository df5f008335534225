//! Deadlines of a connection, and the memory of large partly received frames.

use std::task::Context;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::super::client_limit::ClientLimit;
use super::super::frames::UnfinishedItem;
use super::Guard;

/// Frames up to this size in bytes, which covers nearly all clients, are not counted across connections.
const SMALL_FRAME: u32 = 16 << 10;
/// Interval of checks whether there is room for a waiting client.
const ROOM_RETRY: Duration = Duration::from_millis(20);
/// Time for a client to read a response while room for requests is scarce.
const SHORT_SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// `send_timeout` during shutdown. Several TCP retransmissions fit into it.
const LAST_SEND_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl<S: AsyncRead + AsyncWrite + Unpin> Guard<S> {
    /// Checks all deadlines. Cuts the connection or sets the timer.
    pub(super) fn watch(&mut self, cx: &mut Context<'_>) {
        loop {
            let Some((deadline, limit, reason)) = self.next_deadline() else {
                return;
            };
            // Resetting a timer costs more than an unnecessary wake-up.
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

    /// Whether there is memory for the rest of the client's current frame. h2 buffers an incomplete frame before the
    /// request takes budget. Without memory the client waits, as for a flow control window.
    pub(super) fn has_room(&mut self) -> bool {
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

    /// Schedules another check for memory.
    pub(super) fn wait_for_room(&mut self, cx: &mut Context<'_>) {
        self.watch(cx);
        if self.closing.is_none() {
            self.timer.as_mut().reset(Instant::now() + ROOM_RETRY);
            if self.timer.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Passes waiting bytes to hyper while slots are free. Returns true if any bytes were passed.
    pub(super) fn resume_waiting(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let most = self.waiting.len().min(buf.remaining());
        let first = self.waiting.slice(..most);
        let followed = self.received(&first);
        buf.put_slice(first.get(..followed).unwrap_or_default());
        self.waiting = self.waiting.slice(followed..);
        followed > 0
    }
}
