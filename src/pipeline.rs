//! Where batches go: the traits every stage implements, the ways to combine stages, and the graph of them.

pub mod account;
pub mod batch;
pub(crate) mod calls;
mod chain;
pub(crate) mod episode;
mod fan_out;
pub mod health;
pub(crate) mod holding;
pub mod id;
pub(crate) mod offer;
mod refused;
pub(crate) mod senders;
mod split;
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

pub use chain::{Chain, Counted, Entry, Exit};
pub use fan_out::FanOut;
pub use split::split;
pub use switch::Switch;

/// Where batches go next.
pub trait Consumer: Send + Sync + 'static {
    /// Takes responsibility for the batch (`Ok`) or refuses it (`Err`); a dropped future counts as neither, and the
    /// sender still has the data.
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>>;

    /// Where it hands batches on to.
    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }

    /// Whether somebody from here on has on a disk what it has taken.
    fn stores(&self) -> bool {
        self.behind().iter().any(|next| next.stores())
    }

    /// Asks who gathers batches from here on to hand them on without waiting for more. It returns at once.
    fn settle(&self, why: Settle) {
        self.behind().iter().for_each(|next| next.settle(why));
    }
}

/// Why something that is gathered should be handed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// Who keeps it until then has no room for more.
    Full,
    /// Who hands it in ends: hardly anything comes any more, so this holds for all that still does.
    Ending,
}

/// Where a processor that holds batches hands them on.
#[derive(Clone)]
pub struct Next {
    /// The next stage.
    pub consumer: Arc<dyn Consumer>,
    /// The pipeline's account: a stage that drops what it had accepted says so here.
    pub account: Account,
}

/// A pure edit of one batch: no waiting, no state that outlives the call but counters.
pub trait Processor: Send + Sync + 'static {
    /// The batch as it goes on; `None` drops it on purpose (and is counted as such).
    ///
    /// # Errors
    /// A [`Nack`] refuses the batch; the sender hears of it.
    fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack>;
}

/// Something with a life of its own: a listener, a scraper, a sending queue.
pub trait Component: Send + 'static {
    /// Begins work. What can fail (binding a port, reading a file) was done when the component was built.
    fn start(&mut self) {}

    /// Whether it holds nothing that a shutdown could lose.
    fn idle(&self) -> bool {
        true
    }

    /// Hands on what it gathers at once, from now on: it has been replaced, and hardly anything will come any more.
    fn flush(&self) {}

    /// Stops taking work, finishes what it holds until `deadline`, and returns what it had to give up.
    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered>;
}

/// What a component had taken responsibility for and could not deliver.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Undelivered {
    /// Spans, data points, log records, samples.
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

/// The life of a component that has none: nothing to start, nothing held, nothing to stop.
#[derive(Debug, Clone, Copy, Default)]
pub struct Idle;

impl Component for Idle {
    fn shutdown(self: Box<Self>, _deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async { Undelivered::default() })
    }
}
