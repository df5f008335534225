//! Reads request bodies: memory is reserved before use, slow clients time out, and data is not
//! copied unnecessarily.

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
use tributary_memory::{Budget, NoRoom, Permit, UnfinishedPermit};
use tributary_net::server::{ClientLimit, Limits, Peer};

/// Received bytes and their memory permit.
#[derive(Debug)]
pub(crate) struct ReceivedBytes {
    pub(crate) bytes: Bytes,
    pub(crate) permit: Permit,
}

/// Message to clients while the memory budget has no room.
pub(crate) const OUT_OF_MEMORY: &str =
    "the memory budget of this collector is used up; try again later";

/// Returns the refusal if the memory budget has no room: temporary, or permanent if the request can
/// never fit.
pub(crate) fn out_of_memory(no_room: NoRoom) -> Nack {
    if no_room.may_fit_later() {
        return Nack::exhausted(OUT_OF_MEMORY, RETRY_AFTER);
    }
    let reason = format!("{no_room}; send smaller batches, or raise the limit of `memory_limiter`");
    Nack::permanent(Code::ResourceExhausted, reason)
}

/// Returns the refusal of data that exceeds the limit of this configuration key.
pub(crate) fn too_large(limit: usize, key: &str) -> Nack {
    Nack::permanent(
        Code::ResourceExhausted,
        format!("the request is larger than {limit} bytes; send smaller batches, or raise `{key}`"),
    )
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BodyRate {
    /// Maximum time for the whole body.
    pub(crate) max_time: Option<Duration>,
    /// Time after which the mean rate is checked.
    grace: Option<Duration>,
    /// Minimum rate in bytes per second.
    rate: Option<NonZeroU64>,
}

impl BodyRate {
    pub(crate) fn new(limits: &Limits, max_time: Option<Duration>) -> Self {
        BodyRate {
            max_time,
            grace: limits.body_grace.unless_zero(),
            rate: NonZeroU64::new(limits.min_body_rate.0),
        }
    }

    /// Returns the time after the start by which more than `received` bytes must have arrived.
    fn limit(&self, received: usize) -> Option<Duration> {
        let earned = |rate: NonZeroU64| Duration::from_secs(received as u64 / rate);
        let slowest = self
            .grace
            .zip(self.rate)
            .map(|(grace, rate)| grace.saturating_add(earned(rate)));
        self.max_time.into_iter().chain(slowest).min()
    }
}

/// Limits of one receiver for a body.
pub(crate) struct Bounds<'a> {
    /// Maximum size in bytes.
    pub(crate) size: usize,
    /// Key of the configuration that sets the limit.
    pub(crate) key: &'static str,
    pub(crate) budget: &'a Arc<Budget>,
}

impl Bounds<'_> {
    fn too_large(&self) -> Nack {
        too_large(self.size, self.key)
    }
}

/// Reads a body chunk by chunk.
///
/// A body in a single chunk is used without a copy. For every other body, the permit grows with the
/// received data. A declared length reserves nothing and only allows an early refusal.
pub(crate) struct Reader<'a, B = Incoming> {
    body: B,
    peer: &'a Peer,
    started: Instant,
    rate_limit: BodyRate,
    received: usize,
}

impl<'a, B: Body<Data = Bytes, Error: Display> + Unpin> Reader<'a, B> {
    /// Creates a reader. The time limits start now.
    pub(crate) fn new(body: B, peer: &'a Peer, rate_limit: BodyRate) -> Self {
        Reader {
            body,
            peer,
            started: Instant::now(),
            rate_limit,
            received: 0,
        }
    }

    /// Returns the single message of a gRPC request, and whether it is compressed.
    ///
    /// # Errors
    /// Returns a refusal if the message is too large or too slow, if no memory is left, or if there
    /// is not exactly one message.
    pub(crate) async fn message(
        &mut self,
        bounds: &Bounds<'_>,
    ) -> Result<(bool, ReceivedBytes), Nack> {
        let mut chunk = self.chunk().await?.unwrap_or_default();
        while chunk.len() < PREFIX {
            // A message prefix split over two chunks is rare enough to copy.
            let Some(more) = self.chunk().await? else {
                return Err(protocol_error(if chunk.is_empty() {
                    "the request has no message"
                } else {
                    "the request ends within the message prefix"
                }));
            };
            chunk = [chunk, more].concat().into();
        }
        let compressed = match chunk.get_u8() {
            0 => false,
            1 => true,
            _ => return Err(protocol_error("the compressed flag is neither 0 nor 1")),
        };
        let len = chunk.get_u32() as usize;
        if len > bounds.size {
            return Err(bounds.too_large());
        }
        if chunk.len() > len {
            return Err(protocol_error("the request has more than one message"));
        }
        let held = if chunk.len() == len {
            self.keep(chunk, bounds)?
        } else {
            bounds.budget.has_room(len).map_err(out_of_memory)?;
            let mut message = Growing::new(len, bounds.budget, self.peer);
            message.add(&chunk)?;
            drop(chunk);
            while message.bytes.len() < len {
                let Some(chunk) = self.chunk().await? else {
                    return Err(protocol_error("the request ends within the message"));
                };
                if chunk.len() > len - message.bytes.len() {
                    return Err(protocol_error("the request has more than one message"));
                }
                message.add(&chunk)?;
            }
            message.finish()
        };
        if !self.body.is_end_stream() && self.chunk().await?.is_some() {
            return Err(protocol_error("the request has more than one message"));
        }
        Ok((compressed, held))
    }

    /// Returns a whole body.
    ///
    /// # Errors
    /// Returns a refusal if the body is too large or too slow, or if no memory is left.
    pub(crate) async fn whole(&mut self, bounds: &Bounds<'_>) -> Result<ReceivedBytes, Nack> {
        let mut max = bounds.size;
        if let Some(declared) = self.body.size_hint().exact() {
            max = usize::try_from(declared)
                .ok()
                .filter(|declared| *declared <= bounds.size)
                .ok_or_else(|| bounds.too_large())?;
            // This check precedes the first read, which would send `100 Continue` to the client.
            bounds.budget.has_room(max).map_err(out_of_memory)?;
        }
        let first = self.chunk().await?.unwrap_or_default();
        if first.len() > max {
            return Err(bounds.too_large());
        }
        if self.body.is_end_stream() {
            return self.keep(first, bounds);
        }
        let mut body = Growing::new(max, bounds.budget, self.peer);
        let mut next = Some(first);
        while let Some(chunk) = next {
            if chunk.len() > max - body.bytes.len() {
                return Err(bounds.too_large());
            }
            body.add(&chunk)?;
            next = self.chunk().await?;
        }
        Ok(body.finish())
    }

    /// Reads and drops the rest of the body if it is short, so that an HTTP/1 connection can be
    /// reused. Otherwise the rest is read after the response, see [`Peer::answered_early`].
    pub(crate) async fn discard(&mut self) {
        let rest = self.body.size_hint().exact();
        let near = rest.is_some_and(|rest| rest <= DISCARD);
        let peer = self.peer;
        let read = async { while let Ok(Some(_)) = self.chunk().await {} };
        if !near || timeout(DISCARD_TIME, read).await.is_err() {
            peer.answered_early();
        }
    }

    /// Returns the next nonempty chunk, or `None` at the end. The chunk is not charged to the memory
    /// budget, because the caller buffers at most one chunk.
    ///
    /// Returns a refusal if the body is too slow or incomplete.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Nack> {
        loop {
            let limit = self.rate_limit.limit(self.received);
            let frame = match limit.and_then(|limit| self.started.checked_add(limit)) {
                Some(deadline) => timeout_at(deadline, self.body.frame()).await.map_err(|_| {
                    if limit != self.rate_limit.max_time {
                        self.peer.report_limit(ClientLimit::MinBodyRate);
                    }
                    too_slow()
                })?,
                None => self.body.frame().await,
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| {
                // Only a client that sent invalid chunks gets this response: in all other cases the
                // connection or the stream is closed.
                Nack::invalid(format!(
                    "the connection closed before the end of the body: {error}"
                ))
            })?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                self.received += data.len();
                self.peer.largest_chunk.fetch_max(data.len(), Relaxed);
                return Ok(Some(data));
            }
        }
    }

    /// Keeps the only chunk of a body, which is a slice of the read buffer. If the buffer is more
    /// than twice as large as the chunk, the chunk is copied, because the budget does not count the
    /// buffer.
    fn keep(&self, chunk: Bytes, bounds: &Bounds<'_>) -> Result<ReceivedBytes, Nack> {
        let permit = bounds.budget.acquire(chunk.len()).map_err(out_of_memory)?;
        let small = chunk.len() < MIN_READ_BUFFER;
        let bytes = if small || chunk.len() < self.peer.largest_chunk.load(Relaxed) / 2 {
            Bytes::copy_from_slice(&chunk)
        } else {
            chunk
        };
        Ok(ReceivedBytes { bytes, permit })
    }
}

/// A body of several chunks.
struct Growing<'p> {
    bytes: Vec<u8>,
    /// Maximum size in bytes of the body.
    max: usize,
    permit: UnfinishedPermit<'p>,
}

impl<'p> Growing<'p> {
    fn new(max: usize, budget: &Arc<Budget>, peer: &'p Peer) -> Self {
        Growing {
            bytes: Vec::new(),
            max,
            permit: budget.begin(&peer.unfinished),
        }
    }

    /// Adds a chunk. The total must not exceed `max`.
    fn add(&mut self, chunk: &[u8]) -> Result<(), Nack> {
        let needed = self.bytes.len() + chunk.len();
        let capacity_now = self.bytes.capacity();
        if needed > capacity_now {
            let ahead = needed.saturating_mul(GROWTH).max(FIRST_CAPACITY);
            let capacity = ahead.min(self.max).max(needed);
            // The old and the new buffer exist together while the bytes move. The old buffer is not
            // charged: charging it would exclude the largest body that fits the budget. It is at
            // most a quarter of a body, once per worker thread.
            self.permit
                .grow(capacity - capacity_now)
                .map_err(out_of_memory)?;
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    fn finish(mut self) -> ReceivedBytes {
        // Shrink the buffer, which may be kept for a long time.
        if self.bytes.len() < self.bytes.capacity() / 2 {
            self.bytes.shrink_to_fit();
        }
        let mut permit = self.permit.finish();
        permit.shrink_to(self.bytes.capacity());
        ReceivedBytes {
            bytes: self.bytes.into(),
            permit,
        }
    }
}

/// Returns the refusal of a request that breaks gRPC's rules for a unary call (gRPC over HTTP/2;
/// grpc-go responds INTERNAL too).
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
/// Retry delay after a refusal for lack of memory.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Growth factor of the buffer. With this factor a client must send at least a quarter of the memory
/// that its body takes, and a byte is moved a third of a time on average.
const GROWTH: usize = 4;
/// First capacity of the buffer in bytes.
const FIRST_CAPACITY: usize = 4 << 10;
/// Maximum number of bytes of a refused body read before the response.
const DISCARD: u64 = 1 << 20;
/// Maximum time for reading the rest of a refused body.
const DISCARD_TIME: Duration = Duration::from_secs(1);
/// Minimum size of the read buffer in bytes. Smaller chunks are always copied.
const MIN_READ_BUFFER: usize = 4 << 10;
