//! The sending queue in front of every network exporter.
//!
//! ```text
//! consume -> room -> [batcher] -> num_consumers x ( encode once -> send -> [retry] )
//! ```
//!
//! A sender that gathers batches, in a file for example, takes a batch over and says later what became of it
//! ([`Sender::take`]). Then no consumer waits for it, but it keeps its place in the queue and its memory, and is sent
//! again if that turns out badly, like any other.
//!
//! With `storage` what comes in goes to a log on disk first, and from there to the batcher: see `stored`.
//!
//! What is accepted is held until it was delivered or given up, so `queue_size` bounds everything an exporter holds,
//! what is being sent or waits for its next attempt included. Every item that comes in ends in exactly one of
//! `ExporterMetrics`' outcomes: an `Entry` that is dropped without an outcome, because a task ended
//! early, counts itself.

mod aside;
mod backoff;
mod batcher;
mod config;
mod delivery;
mod entry;
mod held;
pub mod metrics;
mod pace;
mod partly;
mod room;
mod sending;
mod stored;
mod troubles;

#[cfg(feature = "kafka")]
pub(crate) use backoff::Backoff;
pub use config::{
    BatchConfig, BatchSizer, HeldCompression, Overflow, PartitionConfig, QueueConfig, RetryConfig,
    Sizer,
};
pub(crate) use config::{holds_up_pipelines, warn_of_giving_up};
pub(crate) use delivery::most_extra_sends;
pub use partly::Partly;
pub use sending::{Settings, terminal};
pub use stored::decode as decode_record;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::pipeline::Settle;
use crate::pipeline::batch::{Code, Nack, Progress};
use futures_util::future::BoxFuture;
use tributary_otlp::{Requests, Signal};

/// What an exporter adds to the queue: how to put one batch on the wire.
pub trait Sender: Send + Sync + 'static {
    /// What [`send`](Self::send) puts on the wire: the requests as they are, unless it says otherwise. Called once per
    /// batch, before the first attempt.
    ///
    /// # Errors
    /// A permanent [`SendError`] when the requests cannot be expressed in the exporter's format.
    fn encode(&self, _signal: Signal, requests: &Requests) -> Result<Vec<Bytes>, SendError> {
        Ok(requests.parts().to_vec())
    }

    /// Whether [`encode`](Self::encode) works on every byte (compresses, transcodes), so that large batches must not
    /// run on the threads that serve sockets.
    fn encodes_every_byte(&self) -> bool {
        false
    }

    /// One attempt. May be dropped at any time, and may be called again with the same batch.
    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>>;

    /// Whether [`take`](Self::take) is ever answered with [`Taken::Over`].
    fn gathers(&self) -> bool {
        false
    }

    /// One attempt of a sender that may take the batch over, and say later what became of it. What
    /// [`send`](Self::send) does otherwise.
    fn take<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Taken, SendError>> {
        Box::pin(async move { self.send(batch).await.map(Taken::Delivered) })
    }

    /// Asks a sender that gathers to settle what it took over, without waiting for more. It returns at once.
    fn settle(&self, _why: Settle) {}
}

/// How far an attempt has come.
#[derive(Debug)]
pub enum Taken {
    /// It is over.
    Delivered(Outcome),
    /// The sender has the batch; this says what became of it. It may be given up by dropping the other end.
    Over(Settled),
}

/// What became of a batch that was taken over.
pub type Settled = oneshot::Receiver<Result<Outcome, SendError>>;

/// A batch as it goes on the wire.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The signal.
    pub signal: Signal,
    /// Spans, data points, log records, samples.
    pub items: usize,
    /// The body, in order.
    pub chunks: Arc<[Bytes]>,
    /// Bytes that the queue, or the sender who waits, holds for the next attempt once the batch is taken over.
    pub held: usize,
    /// Its address is the same in all attempts with the batch, and different from that of any other.
    pub identity: Arc<Identity>,
}

/// What all attempts with a batch have in common.
#[derive(Debug, Default)]
pub struct Identity {
    /// Which branches behind the sender have the batch already.
    pub progress: Arc<Progress>,
    /// Whether somebody waits for the outcome, and has the batch until then.
    pub is_awaited: bool,
}

impl Encoded {
    /// How large the body is.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

/// What the next hop said to a batch it accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Items it rejected all the same: a partial success. Never retried, as the specification demands.
    pub rejected_items: usize,
    /// Why, or a warning when nothing was rejected.
    pub message: String,
}

/// Why a batch was not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct SendError {
    /// Whether the same batch may be accepted later.
    pub retryable: bool,
    /// How long to wait at least, if the server said so.
    pub throttle: Option<Duration>,
    /// The nearest gRPC status.
    pub code: Code,
    /// Whether some of the data may be at fault rather than the connection, the server or the configuration.
    pub fault: Fault,
    /// What happened, for people.
    pub reason: String,
}

/// What a permanent refusal says about the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it would be refused whatever it is.
    Elsewhere,
    /// Some of it is bad: parts of it may be accepted when they come alone.
    Content,
    /// Some of it may be bad, or the server may be in trouble and say so badly.
    Unclear,
    /// It is too much at once: any half of it may be accepted.
    Size,
}

impl SendError {
    /// Trying again may help.
    pub fn transient(code: Code, reason: impl Into<String>) -> Self {
        SendError {
            retryable: true,
            throttle: None,
            code,
            fault: Fault::Elsewhere,
            reason: reason.into(),
        }
    }

    /// Trying again will not help.
    pub fn permanent(code: Code, fault: Fault, reason: impl Into<String>) -> Self {
        SendError {
            retryable: false,
            throttle: None,
            code,
            fault,
            reason: reason.into(),
        }
    }

    /// The refusal for a sender that waits for the outcome.
    fn to_nack(&self) -> Nack {
        Nack {
            retryable: self.retryable,
            code: self.code,
            reason: self.reason.clone().into(),
            retry_after: self.throttle,
        }
    }
}

#[cfg(test)]
mod tests;
