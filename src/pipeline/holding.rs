//! Common part of processors and connectors that buffer data: `batch`, the summaries of `compression`, `log_dedup`, and
//! the connectors `profile_metrics` and `profile_regressions`.
//!
//! Some senders have persisted their data until the outcome is known and can wait (see `senders`). Such a sender gets
//! its outcome when the data has been passed on. All other senders are acknowledged at once, and from then on the
//! processor is responsible for the data. Flushed data is offered to the next stage until it is taken. While enough of
//! it waits, clients are refused and keep their data. At the end of the processor's life (a shutdown, a reload)
//! everything is flushed, and the rest at the deadline is reported as undelivered.

mod delivery;
mod life;
mod ready;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, Next, Settle};
use futures_util::future::BoxFuture;
pub(crate) use life::Life;
pub(crate) use ready::{Bytes, MAX_READY, Most, Queue};

/// Time that a client waits for room before it is refused.
const PATIENCE: Duration = Duration::from_millis(100);

/// A processor that buffers data.
pub(crate) trait Holder: Send + Sync + Sized + 'static {
    /// Buffered data, as far as it is under the lock.
    type Gathered: Send;
    /// Flushed data that waits for the next stage.
    type Ready: Bytes + Send;

    /// Limit of concurrent deliveries. There may be several, so that a slow delivery does not block the others.
    const UNDER_WAY: Most;

    /// Returns the common part.
    fn holding(&self) -> &Holding<Self::Gathered, Self::Ready>;

    /// Moves due data to the ready queue, or all data once the processor is ending.
    fn collect(&self) -> impl Future<Output = Collected> + Send;

    /// Passes flushed data to the next stage and records the outcome.
    fn hand_on(&self, ready: Self::Ready) -> impl Future<Output = ()> + Send;
}

/// A holder that receives batches from the previous stage.
pub(crate) trait Entered: Holder {
    /// Whether senders that cannot wait are acknowledged while their data is only in memory, even if a later stage
    /// persists it.
    const ANSWERS_EARLY: bool = true;

    /// Takes a batch. See [`Consumer::consume`].
    fn enter(self: &Arc<Self>, batch: Batch) -> impl Future<Output = Result<(), Nack>> + Send;
}

/// The consumer through which batches enter a holder.
pub(crate) struct Entrance<H>(pub(crate) Arc<H>);

impl<H: Entered> Consumer for Entrance<H> {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(self.0.enter(batch))
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.0.holding().next.consumer.clone()]
    }

    fn stores(&self) -> bool {
        !H::ANSWERS_EARLY && self.behind().iter().any(|next| next.stores())
    }

    fn settle(&self, why: Settle) {
        self.0.holding().hand_on_now(why);
    }
}

/// The outcome of [`Holder::collect`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collected {
    /// Time at which more data will be due.
    pub(crate) due: Option<Instant>,
    /// Whether the processor was already closed, so that no more data is added.
    pub(crate) closed: bool,
}

/// Common part of the processors that buffer data.
pub(crate) struct Holding<G, R> {
    pub(crate) next: Next,
    /// A plain mutex: it is locked for a few pushes and never across an await.
    state: Mutex<State<G, R>>,
    wake: Notify,
    /// Notified when flushed data leaves the ready queue.
    gone: Notify,
    /// Cancelled when the processor shuts down, which ends waits between attempts.
    closing: CancellationToken,
}

/// State under the lock.
pub(crate) struct State<G, R> {
    pub(crate) gathered: G,
    pub(crate) ready: Queue<R>,
    /// Acknowledged items that are buffered, flushed or in delivery. The processor is responsible for them.
    pub(crate) held: usize,
    pub(crate) closed: bool,
    /// Whether all data is flushed at once, because the processor is closed or has been replaced.
    pub(crate) ending: bool,
    /// Whether the data that is buffered now is flushed at once.
    urged: bool,
}

impl<G, R> State<G, R> {
    /// Whether the buffered data is flushed now, even if it is not due.
    pub(crate) fn is_urgent(&mut self) -> bool {
        std::mem::take(&mut self.urged) || self.ending
    }
}

impl<G: Default, R: Bytes> Holding<G, R> {
    pub(crate) fn new(next: Next) -> Self {
        Holding::over(next, G::default())
    }
}

impl<G, R: Bytes> Holding<G, R> {
    /// Creates the common part with this state for buffered data.
    pub(crate) fn over(next: Next, gathered: G) -> Self {
        Holding {
            next,
            state: Mutex::new(State {
                gathered,
                ready: Queue::default(),
                held: 0,
                closed: false,
                ending: false,
                urged: false,
            }),
            wake: Notify::new(),
            gone: Notify::new(),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<G, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the flusher, because data is ready or will be due.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Flushes early. See [`Consumer::settle`](crate::pipeline::Consumer::settle).
    pub(crate) fn hand_on_now(&self, why: Settle) {
        let mut state = self.state();
        match why {
            Settle::Full => state.urged = true,
            Settle::Ending => state.ending = true,
        }
        drop(state);
        self.wake();
        self.next.consumer.settle(why);
    }

    /// Repeats the attempt until it has a result. It waits for a delivery between two attempts. If that takes too long,
    /// the client is refused with `full`. So a slightly slower next stage slows the clients down instead of refusing
    /// them.
    pub(crate) async fn with_patience<T>(
        &self,
        full: &'static str,
        mut attempt: impl FnMut() -> Result<Option<T>, Nack>,
    ) -> Result<T, Nack> {
        let mut until = None;
        loop {
            let gone = self.gone.notified();
            if let Some(done) = attempt()? {
                return Ok(done);
            }
            let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
            if timeout_at(until, gone).await.is_err() {
                return Err(Nack::unavailable(full));
            }
        }
    }

    /// Ends the responsibility of the processor for these items.
    pub(crate) fn settle(&self, items: usize) {
        let mut state = self.state();
        state.held = state.held.saturating_sub(items);
    }

    /// Replaces the number of items for which the processor is responsible.
    pub(crate) fn became(&self, before: usize, after: usize) {
        let mut state = self.state();
        state.held = state.held.saturating_sub(before).saturating_add(after);
    }
}
