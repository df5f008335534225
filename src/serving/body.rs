//! Reading request bodies: memory is asked for before it is used, slow clients are given up, nothing is copied that
//! need not be.

use std::fmt::Display;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout, timeout_at};

use crate::pipeline::batch::{Code, Nack};
use tributary_memory::{Budget, NoRoom, Permit, Unfinished};
use tributary_net::server::{Limit, Limits, Peer};

/// Bytes that were received, and the right to hold them.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) permit: Permit,
}

/// What clients are told while the memory budget has no room.
pub(crate) const OUT_OF_MEMORY: &str =
    "the memory budget of this collector is used up; try again later";

/// The refusal when the memory budget has no room: for now, or for good when it never will.
pub(crate) fn out_of_memory(no_room: NoRoom) -> Nack {
    if no_room.may_fit_later() {
        return Nack::exhausted(OUT_OF_MEMORY, RETRY_AFTER);
    }
    let reason = format!("{no_room}; send smaller batches or raise the limit of `memory_limiter`");
    Nack::permanent(Code::ResourceExhausted, reason)
}

/// The refusal of what is above the limit that this key of the configuration sets.
pub(crate) fn too_large(limit: usize, key: &str) -> Nack {
    Nack::permanent(
        Code::ResourceExhausted,
        format!("the request is larger than {limit} bytes; send smaller batches or raise `{key}`"),
    )
}

/// How fast a body must come.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    /// The longest the whole body may take.
    pub(crate) longest: Option<Duration>,
    /// From when on the mean rate counts.
    grace: Option<Duration>,
    /// Bytes a second.
    rate: Option<NonZeroU64>,
}

impl Pace {
    pub(crate) fn new(limits: &Limits, longest: Option<Duration>) -> Self {
        Pace {
            longest,
            grace: limits.body_grace.unless_zero(),
            rate: NonZeroU64::new(limits.min_body_rate.0),
        }
    }

    /// How long after the beginning there must be more than `received` bytes.
    fn limit(&self, received: usize) -> Option<Duration> {
        let earned = |rate: NonZeroU64| Duration::from_secs(received as u64 / rate);
        let slowest = self
            .grace
            .zip(self.rate)
            .map(|(grace, rate)| grace.saturating_add(earned(rate)));
        self.longest.into_iter().chain(slowest).min()
    }
}

/// The limits of one receiver for a body.
pub(crate) struct Bounds<'a> {
    /// The most bytes.
    pub(crate) size: usize,
    /// The key of the configuration that says so.
    pub(crate) key: &'static str,
    pub(crate) budget: &'a Arc<Budget>,
}

impl Bounds<'_> {
    fn too_large(&self) -> Nack {
        too_large(self.size, self.key)
    }
}

/// Reads a body piece by piece.
///
/// A body that comes in one piece, or is there when it is looked at, is taken as it is. For all others the right to
/// hold them grows with what has arrived: a declared length reserves nothing, it only refuses early.
pub(crate) struct Reader<'a, B = Incoming> {
    body: B,
    peer: &'a Peer,
    started: Instant,
    pace: Pace,
    received: usize,
}

impl<'a, B: Body<Data = Bytes, Error: Display> + Unpin> Reader<'a, B> {
    /// A reader; the clock starts now.
    pub(crate) fn new(body: B, peer: &'a Peer, pace: Pace) -> Self {
        Reader {
            body,
            peer,
            started: Instant::now(),
            pace,
            received: 0,
        }
    }

    /// The one message of a gRPC request, and whether it is compressed.
    ///
    /// # Errors
    /// Refusals for: too large, no memory, too slow, not exactly one message.
    pub(crate) async fn message(&mut self, bounds: &Bounds<'_>) -> Result<(bool, Held), Nack> {
        let mut piece = self.piece().await?.unwrap_or_default();
        while piece.len() < PREFIX {
            // A message prefix cut in two is rare enough to copy.
            let Some(more) = self.piece().await? else {
                return Err(protocol_error(if piece.is_empty() {
                    "the request has no message"
                } else {
                    "the request ends within the message prefix"
                }));
            };
            piece = [piece, more].concat().into();
        }
        let compressed = match piece.get_u8() {
            0 => false,
            1 => true,
            _ => return Err(protocol_error("the compressed flag is neither 0 nor 1")),
        };
        let len = piece.get_u32() as usize;
        if len > bounds.size {
            return Err(bounds.too_large());
        }
        if piece.len() > len {
            return Err(protocol_error("the request has more than one message"));
        }
        let held = if piece.len() == len {
            self.keep(piece, bounds)?
        } else {
            bounds.budget.has_room(len).map_err(out_of_memory)?;
            let mut message = Growing::new(len, bounds.budget, self.peer);
            message.add(&piece)?;
            drop(piece);
            while message.bytes.len() < len {
                let Some(piece) = self.piece().await? else {
                    return Err(protocol_error("the request ends within the message"));
                };
                if piece.len() > len - message.bytes.len() {
                    return Err(protocol_error("the request has more than one message"));
                }
                message.add(&piece)?;
            }
            message.finish()
        };
        if !self.body.is_end_stream() && self.piece().await?.is_some() {
            return Err(protocol_error("the request has more than one message"));
        }
        Ok((compressed, held))
    }

    /// A whole body.
    ///
    /// # Errors
    /// Refusals for: too large, no memory, too slow.
    pub(crate) async fn whole(&mut self, bounds: &Bounds<'_>) -> Result<Held, Nack> {
        let mut most = bounds.size;
        if let Some(declared) = self.body.size_hint().exact() {
            most = usize::try_from(declared)
                .ok()
                .filter(|declared| *declared <= bounds.size)
                .ok_or_else(|| bounds.too_large())?;
            // Before the first read: a client that asked whether to continue is not asked to.
            bounds.budget.has_room(most).map_err(out_of_memory)?;
        }
        let first = self.piece().await?.unwrap_or_default();
        if first.len() > most {
            return Err(bounds.too_large());
        }
        if self.body.is_end_stream() {
            return self.keep(first, bounds);
        }
        let mut body = Growing::new(most, bounds.budget, self.peer);
        let mut next = Some(first);
        while let Some(piece) = next {
            if piece.len() > most - body.bytes.len() {
                return Err(bounds.too_large());
            }
            body.add(&piece)?;
            next = self.piece().await?;
        }
        Ok(body.finish())
    }

    /// Reads to the end without keeping anything, when that is near: so an HTTP/1 connection can be used again.
    /// Otherwise what comes is read after the answer, see [`Peer::answered_early`].
    pub(crate) async fn discard(&mut self) {
        let rest = self.body.size_hint().exact();
        let near = rest.is_some_and(|rest| rest <= DISCARD);
        let peer = self.peer;
        let read = async { while let Ok(Some(_)) = self.piece().await {} };
        if !near || timeout(DISCARD_TIME, read).await.is_err() {
            peer.answered_early();
        }
    }

    /// The next data that is not empty; none at the end. Nothing is asked of the memory budget: who calls this for the
    /// pieces holds one of them at most.
    ///
    /// # Errors
    /// Refusals for: too slow, broken off.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, Nack> {
        loop {
            let limit = self.pace.limit(self.received);
            let frame = match limit.and_then(|limit| self.started.checked_add(limit)) {
                Some(deadline) => timeout_at(deadline, self.body.frame()).await.map_err(|_| {
                    if limit != self.pace.longest {
                        self.peer.limited(Limit::MinBodyRate);
                    }
                    too_slow()
                })?,
                None => self.body.frame().await,
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| {
                // Mostly the connection or the stream is gone, and nobody will read this. Who sent chunks that are none
                // will.
                Nack::invalid(format!("the body broke off: {error}"))
            })?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.received += data.len();
                self.peer.largest_piece.fetch_max(data.len(), Relaxed);
                return Ok(Some(data));
            }
        }
    }

    /// Keeps the only piece of a body: the slice of the read buffer itself, or a copy where the slice would keep a
    /// buffer alive that is more than twice its size and not in the budget.
    fn keep(&self, piece: Bytes, bounds: &Bounds<'_>) -> Result<Held, Nack> {
        let permit = bounds.budget.acquire(piece.len()).map_err(out_of_memory)?;
        let small = piece.len() < ALWAYS_COPY;
        let bytes = if small || piece.len() < self.peer.largest_piece.load(Relaxed) / 2 {
            Bytes::copy_from_slice(&piece)
        } else {
            piece
        };
        Ok(Held { bytes, permit })
    }
}

/// A body of several pieces.
struct Growing<'p> {
    bytes: Vec<u8>,
    /// As many as can come.
    most: usize,
    permit: Unfinished<'p>,
}

impl<'p> Growing<'p> {
    fn new(most: usize, budget: &Arc<Budget>, peer: &'p Peer) -> Self {
        Growing {
            bytes: Vec::new(),
            most,
            permit: budget.begin(&peer.unfinished),
        }
    }

    /// Adds a piece, of not more than can come.
    fn add(&mut self, piece: &[u8]) -> Result<(), Nack> {
        let needed = self.bytes.len() + piece.len();
        let held = self.bytes.capacity();
        if needed > held {
            let ahead = needed.saturating_mul(AHEAD).max(SMALLEST);
            let capacity = ahead.min(self.most).max(needed);
            // Old and new place are both held while the bytes move. That is not charged: it is a quarter of a body at
            // most, once per worker thread, and with it the largest body that fits the budget would not.
            self.permit.grow(capacity - held).map_err(out_of_memory)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn finish(mut self) -> Held {
        // It may be kept for long.
        if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to_fit();
        }
        let mut permit = self.permit.finish();
        permit.shrink_to(self.bytes.capacity());
        Held {
            bytes: self.bytes.into(),
            permit,
        }
    }
}

/// A breach of gRPC's rules for a unary call (gRPC over HTTP/2; grpc-go answers INTERNAL too).
fn protocol_error(reason: &'static str) -> Nack {
    Nack::permanent(Code::Internal, reason)
}

fn too_slow() -> Nack {
    Nack {
        retryable: true,
        code: Code::DeadlineExceeded,
        reason: "the request body arrived too slowly".into(),
        retry_after: None,
    }
}

/// Compressed flag and length (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX: usize = 5;
/// When to come back after a refusal for memory. The queues behind it drain in such times or not at all.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Room for this many times what has arrived: a client must send a quarter of what it makes this side hold, and a byte
/// is moved a third of a time on average.
const AHEAD: usize = 4;
/// The first room.
const SMALLEST: usize = 4 << 10;
/// What is read of a refused body before the answer.
const DISCARD: u64 = 1 << 20;
/// The longest that may take.
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// The read buffer is at least this large, whatever is in it.
const ALWAYS_COPY: usize = 4 << 10;
