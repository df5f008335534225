//! Reading request bodies: memory is asked for before it is used, slow clients are given up, nothing is copied that
//! need not be.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

use crate::batch::{Code, Nack};
use crate::memory::{Budget, NoRoom, Permit};
use crate::net::server::Peer;

/// Bytes that were received, and the right to hold them.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Bytes,
    pub(super) permit: Permit,
}

/// The refusal when the memory budget has no room: for now, or for good when it never will.
pub(super) fn out_of_memory(no_room: NoRoom) -> Nack {
    if no_room.may_fit_later() {
        let reason = "the memory budget of this collector is used up; try again later";
        return Nack::exhausted(reason, RETRY_AFTER);
    }
    let reason = format!("{no_room}; send smaller batches or raise the limit of `memory_limiter`");
    Nack::permanent(Code::ResourceExhausted, reason)
}

/// The refusal of what is above the limit that this key of the configuration sets.
pub(super) fn too_large(limit: usize, key: &str) -> Nack {
    Nack::permanent(
        Code::ResourceExhausted,
        format!("the request is larger than {limit} bytes; send smaller batches or raise `{key}`"),
    )
}

/// Reads a body piece by piece.
pub(super) struct Reader<'a> {
    body: Incoming,
    peer: &'a Peer,
    started: Instant,
    /// The longest the whole body may take.
    limit: Option<Duration>,
    received: usize,
}

impl<'a> Reader<'a> {
    /// A reader; the clock starts now.
    pub(super) fn new(body: Incoming, peer: &'a Peer, limit: Option<Duration>) -> Self {
        Reader {
            body,
            peer,
            started: Instant::now(),
            limit,
            received: 0,
        }
    }

    /// The one message of a gRPC request, and whether it is compressed. The permit is taken when the length is known,
    /// before the message is read.
    ///
    /// # Errors
    /// Refusals for: too large, no memory, too slow, not exactly one message.
    pub(super) async fn message(
        &mut self,
        limit: usize,
        limit_key: &str,
        budget: &Arc<Budget>,
    ) -> Result<(bool, Held), Nack> {
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
        if len > limit {
            return Err(too_large(limit, limit_key));
        }
        let permit = budget.acquire(len).map_err(out_of_memory)?;
        if piece.len() > len {
            return Err(protocol_error("the request has more than one message"));
        }
        let bytes = if piece.len() == len {
            self.keep(piece)
        } else {
            let mut message = Vec::with_capacity(len);
            message.extend_from_slice(&piece);
            drop(piece);
            while message.len() < len {
                let Some(piece) = self.piece().await? else {
                    return Err(protocol_error("the request ends within the message"));
                };
                if piece.len() > len - message.len() {
                    return Err(protocol_error("the request has more than one message"));
                }
                message.extend_from_slice(&piece);
            }
            message.into()
        };
        if !self.body.is_end_stream() && self.piece().await?.is_some() {
            return Err(protocol_error("the request has more than one message"));
        }
        Ok((compressed, Held { bytes, permit }))
    }

    /// A whole body of at most `limit` bytes. A declared length gets its permit at once; without one the permit grows
    /// with what arrives.
    ///
    /// # Errors
    /// Refusals for: too large, no memory, too slow.
    pub(super) async fn whole(
        &mut self,
        limit: usize,
        limit_key: &str,
        budget: &Arc<Budget>,
    ) -> Result<Held, Nack> {
        let declared = match self.body.size_hint().exact() {
            Some(declared) => Some(
                usize::try_from(declared)
                    .ok()
                    .filter(|declared| *declared <= limit)
                    .ok_or_else(|| too_large(limit, limit_key))?,
            ),
            None => None,
        };
        let mut permit = budget
            .acquire(declared.unwrap_or(0))
            .map_err(out_of_memory)?;
        let first = self.piece().await?.unwrap_or_default();
        if first.len() > limit {
            return Err(too_large(limit, limit_key));
        }
        if declared == Some(first.len()) || self.body.is_end_stream() {
            permit
                .grow(first.len().saturating_sub(permit.bytes()))
                .map_err(out_of_memory)?;
            let bytes = self.keep(first);
            return Ok(Held { bytes, permit });
        }
        let mut body = Vec::with_capacity(declared.unwrap_or(0));
        let mut next = Some(first);
        while let Some(piece) = next {
            let needed = body.len() + piece.len();
            if needed > limit {
                return Err(too_large(limit, limit_key));
            }
            if needed > body.capacity() {
                let capacity = needed.max((2 * body.capacity()).min(limit));
                permit
                    .grow(capacity.saturating_sub(permit.bytes()))
                    .map_err(out_of_memory)?;
                body.reserve_exact(capacity - body.len());
            }
            body.extend_from_slice(&piece);
            next = self.piece().await?;
        }
        permit.shrink_to(body.capacity());
        Ok(Held {
            bytes: body.into(),
            permit,
        })
    }

    /// Reads on without keeping anything, up to `limit` bytes. An HTTP/1 client that is still sending would see its
    /// connection reset, and not the answer.
    pub(super) async fn discard(&mut self, limit: usize) {
        let limit = self.received.saturating_add(limit);
        while self.received < limit && matches!(self.piece().await, Ok(Some(_))) {}
    }

    /// The next data that is not empty; none at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>, Nack> {
        loop {
            let frame = timeout_at(self.deadline(), self.body.frame())
                .await
                .map_err(|_| too_slow())?;
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| {
                // Nobody will read this; the connection or the stream is gone.
                Nack::permanent(Code::Cancelled, format!("the body broke off: {error}"))
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

    /// Until when the next piece must be there, so that the mean rate does not fall too low.
    fn deadline(&self) -> Instant {
        let earned = Duration::from_secs((self.received / SLOWEST_BYTES_PER_SECOND) as u64);
        let pace = PATIENCE + earned;
        self.started + self.limit.map_or(pace, |limit| limit.min(pace))
    }

    /// What to keep of a piece of a read buffer: the slice itself, or a copy where the slice would keep a buffer alive
    /// that is more than twice its size and not in the budget.
    fn keep(&self, piece: Bytes) -> Bytes {
        if piece.len() < self.peer.largest_piece.load(Relaxed) / 2 || piece.len() < ALWAYS_COPY {
            return Bytes::copy_from_slice(&piece);
        }
        piece
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
/// A body may stand still for this long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Besides, this much must arrive.
const SLOWEST_BYTES_PER_SECOND: usize = 16 << 10;
/// The read buffer is at least this large, whatever is in it.
const ALWAYS_COPY: usize = 4 << 10;
