//! The sending queue in front of every network exporter.
//!
//! ```text
//! consume -> room -> [batcher] -> num_consumers x ( encode once -> send -> [retry] )
//! ```
//!
//! A sender may buffer batches, for example in a file, and report their outcomes later ([`Sender::send_or_buffer`]). No
//! consumer waits for such a batch. The batch keeps its place in the queue and its memory. If its outcome is a failure,
//! the batch is retried.
//!
//! With `storage`, requests are first appended to a log on disk, and go from there to the batcher. See `stored`.
//!
//! The queue keeps accepted requests until they are delivered or dropped, so `queue_size` also bounds batches in flight
//! and batches that wait for a retry. Every incoming item has exactly one outcome in `ExporterMetrics`. If a task ends
//! early, its entries have no outcome and are counted when they are dropped.

mod arrival;
mod backoff;
mod batcher;
mod config;
mod context;
mod delivery;
mod entry;
mod failures;
mod feed;
mod ledger;
pub mod metrics;
mod partial;
mod payload;
mod queues;
mod room;
mod sending;
mod set_aside;
mod stored;

pub(crate) use backoff::Backoff;
pub use config::{
    BatchConfig, BatchSizer, HeldCompression, Overflow, PartitionConfig, QueueConfig, RetryConfig,
    Settings, Sizer,
};
pub(crate) use config::{blocks_pipelines, warn_about_retry_limit};
pub use partial::PartialDeliveries;
pub use queues::terminal;
pub use stored::decode as decode_record;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

pub use crate::pipeline::Fault;
use crate::pipeline::FlushReason;
use crate::pipeline::batch::{Code, Metadata, Nack, Progress};
use crate::pipeline::output_memory::OutputMemory;
use futures_util::future::BoxFuture;
use tributary_otlp::{Requests, Signal};

/// The part of an exporter that sends one batch to the next hop.
pub trait Sender: Send + Sync + 'static {
    /// Encodes the requests for [`send`](Self::send). The default returns the requests unchanged. Called once per batch,
    /// before the first attempt. An implementation reserves the output in `memory` before it allocates the output.
    ///
    /// # Errors
    /// A permanent [`SendError`] when the requests cannot be expressed in the exporter's format;
    /// [`SendError::no_memory`] when there is no memory for the output.
    fn encode(
        &self,
        _signal: Signal,
        requests: &Requests,
        _memory: &OutputMemory,
    ) -> Result<Vec<Bytes>, SendError> {
        Ok(requests.parts().to_vec())
    }

    /// Whether [`encode`](Self::encode) works on every byte, for example compresses. If so, large batches are encoded
    /// off the threads that serve sockets.
    fn encodes_every_byte(&self) -> bool {
        false
    }

    /// Returns the client's request headers, in lower case, whose values requests depend on. Batches with different
    /// values are not merged, and [`Identity::context`] has the values.
    fn context_headers(&self) -> &[String] {
        &[]
    }

    /// Makes one attempt. The future may be dropped at any time. Retries pass the same batch again.
    fn send<'a>(&'a self, batch: &'a Encoded) -> BoxFuture<'a, Result<Outcome, SendError>>;

    /// Whether [`send_or_buffer`](Self::send_or_buffer) may return [`SendOutcome::Buffered`].
    fn buffers(&self) -> bool {
        false
    }

    /// Makes one attempt. A buffering sender may return before the outcome is known. The default calls
    /// [`send`](Self::send).
    fn send_or_buffer<'a>(
        &'a self,
        batch: &'a Encoded,
    ) -> BoxFuture<'a, Result<SendOutcome, SendError>> {
        Box::pin(async move { self.send(batch).await.map(SendOutcome::Delivered) })
    }

    /// Requests that a buffering sender finishes its batches without waiting for more. Returns at once.
    fn request_flush(&self, _reason: FlushReason) {}
}

/// Result of an attempt that did not fail.
#[derive(Debug)]
pub enum SendOutcome {
    /// The next hop accepted the batch.
    Delivered(Outcome),
    /// The sender buffers the batch and reports its outcome later. If it drops its end of the channel, the attempt has
    /// failed.
    Buffered(LaterOutcome),
}

/// Pending outcome of a batch that a sender buffers.
pub type LaterOutcome = oneshot::Receiver<Result<Outcome, SendError>>;

/// A batch, encoded for the next hop.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The signal.
    pub signal: Signal,
    /// Number of spans, data points, log records or samples.
    pub items: usize,
    /// Chunks of the body, in order.
    pub chunks: Arc<[Bytes]>,
    /// Bytes that the queue or the waiting upstream sender keeps for a retry while the sender buffers the batch.
    pub retained_bytes: usize,
    /// Identity of the batch. Its address is the same in all attempts, and different from the address of any other
    /// batch.
    pub identity: Arc<Identity>,
}

/// State that all attempts to send a batch share.
#[derive(Debug, Default)]
pub struct Identity {
    /// Branches behind the sender that have already accepted the batch.
    pub progress: Arc<Progress>,
    /// Whether an upstream sender waits for the outcome and keeps the batch until then.
    pub is_awaited: bool,
    /// Values of [`Sender::context_headers`] in the client's request. Empty if the receiver does not keep headers.
    pub context: Arc<Metadata>,
}

impl Encoded {
    /// Returns the size of the body in bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum()
    }
}

/// Response of the next hop to a batch that it accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Items that the next hop rejected: a partial success. OTLP forbids retrying them.
    pub rejected_items: usize,
    /// Reason of the rejection, or a warning if nothing was rejected.
    pub message: String,
}

/// Reason why a batch was not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct SendError {
    /// Whether a retry of the same batch may succeed.
    pub retryable: bool,
    /// Minimum wait before a retry, if the server asked for one.
    pub throttle: Option<Duration>,
    /// The nearest gRPC status.
    pub code: Code,
    /// Possible fault of the data, as opposed to the connection, the server or the configuration.
    pub fault: Fault,
    /// Description of the error for the operator.
    pub reason: String,
}

impl SendError {
    /// Creates an error that a retry may resolve.
    pub fn transient(code: Code, reason: impl Into<String>) -> Self {
        SendError {
            retryable: true,
            throttle: None,
            code,
            fault: Fault::Elsewhere,
            reason: reason.into(),
        }
    }

    /// Creates the error for a batch that was not encoded for lack of `memory`. A batch smaller than the reserve for
    /// outputs is retried, because memory becomes free. A larger batch is split in halves.
    pub fn no_memory(memory: &OutputMemory) -> Self {
        let no_room = memory.no_room();
        let reason = format!("no memory to encode the batch: {no_room}");
        match no_room.needed <= memory.output_reserve() {
            true => SendError::transient(Code::ResourceExhausted, reason),
            false => SendError::permanent(Code::ResourceExhausted, Fault::Size, reason),
        }
    }

    /// Creates an error that a retry cannot resolve.
    pub fn permanent(code: Code, fault: Fault, reason: impl Into<String>) -> Self {
        SendError {
            retryable: false,
            throttle: None,
            code,
            fault,
            reason: reason.into(),
        }
    }

    /// Converts the error for an upstream sender that waits for the outcome.
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
