//! The data path: the traits of the stages, their combinations, and the graph of pipelines.

pub mod account;
pub mod batch;
pub(crate) mod buffer;
pub(crate) mod calls;
mod chain;
pub(crate) mod episode;
mod fan_out;
pub mod flow;
pub(crate) mod gathering;
pub mod health;
pub mod id;
pub(crate) mod merge;
pub(crate) mod offer;
pub mod output_memory;
pub(crate) mod partition;
mod refused;
pub(crate) mod senders;
pub(crate) mod split;
pub mod switch;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod turns;

use std::iter::Sum;
use std::ops::AddAssign;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use account::Account;
use batch::{Batch, Nack};

pub use chain::{Chain, Counted, Exit, PipelineEntry};
pub use fan_out::FanOut;
pub use split::{Fault, split};
pub use switch::Switch;

/// The next stage or stages, as a destination of batches.
pub trait Consumer: Send + Sync + 'static {
    /// Takes responsibility for the batch (`Ok`) or refuses it (`Err`). If the future is dropped, the sender keeps the
    /// responsibility and the data.
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>>;

    /// Returns the consumers to which this stage passes batches. Without them, an upstream stage does not know that a
    /// downstream queue persists its batches, and acknowledges too early.
    fn behind(&self) -> Vec<Arc<dyn Consumer>>;

    /// Whether a stage from here on persists the batches that it takes.
    fn stores(&self) -> bool {
        self.behind().iter().any(|next| next.stores())
    }

    /// Requests that this stage and all later stages flush their batches without waiting for more. Returns at once.
    fn request_flush(&self, reason: FlushReason) {
        self.behind()
            .iter()
            .for_each(|next| next.request_flush(reason));
    }
}

/// Reason for an early flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushReason {
    /// The upstream queue, which keeps the data until the flush, is full.
    Full,
    /// The upstream stage is ending, so few more batches will arrive. From now on, batches are flushed at once.
    Ending,
}

/// The next stage of a processor that buffers batches.
#[derive(Clone)]
pub struct Next {
    /// The next stage.
    pub consumer: Arc<dyn Consumer>,
    /// The pipeline's account, for counting batches that are dropped after they were acknowledged.
    pub account: Account,
}

/// A pure edit of one batch: it does not wait, and keeps no state between calls except counters.
pub trait Processor: Send + Sync + 'static {
    /// Returns the edited batch, or `None` to drop the batch on purpose (which is counted).
    ///
    /// # Errors
    /// A [`Nack`] refuses the batch and is returned to the sender.
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack>;
}

/// A component with a lifecycle: a listener, a scraper, a sending queue.
pub trait Component: Send + 'static {
    /// Starts the work. Fallible steps (binding a port, reading a file) happened when the component was built.
    fn start(&mut self) {}

    /// Whether the component holds no data that a shutdown could lose.
    fn idle(&self) -> bool {
        true
    }

    /// Flushes buffered data, and from now on passes data on at once. Called when the component has been replaced, so
    /// that little more data will arrive.
    fn flush(&self) {}

    /// Stops accepting work, finishes the buffered work until `deadline`, and returns the number of dropped items.
    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered>;
}

/// Acknowledged items that a component could not deliver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Number of spans, data points, log records or samples.
    pub items: usize,
}

impl AddAssign for Undelivered {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
    }
}

impl Sum for Undelivered {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Undelivered::default(), |mut total, one| {
            total += one;
            total
        })
    }
}

/// The lifecycle of a component without one: nothing to start, buffer or stop.
#[derive(Debug, Clone, Copy, Default)]
pub struct Idle;

impl Component for Idle {
    fn shutdown(self: Box<Self>, _deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async { Undelivered::default() })
    }
}
