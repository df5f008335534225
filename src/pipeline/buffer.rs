//! Common part of processors and connectors that buffer data: `batch`, the summaries of `compression`, `log_dedup`, and
//! the connectors `profile_metrics` and `profile_regressions`.
//!
//! A sender that has persisted its data can wait for the outcome (see `senders`). Such a sender gets its outcome when the
//! next stage has accepted the data. All other senders are acknowledged at once, and from then on the processor is
//! responsible for the data. Flushed data is offered to the next stage until the stage accepts it. While the ready queue
//! is full, clients are refused and keep their data. At a shutdown or reload all data is flushed. Data that is left at
//! the deadline is reported as undelivered.

mod delivery;
mod lifecycle;
mod ready;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Consumer, FlushReason, Next};
use futures_util::future::BoxFuture;
pub(crate) use lifecycle::BufferLifecycle;
pub(crate) use ready::{Buffered, Deliveries, MAX_READY, Queue};

/// Time that a client waits for room before it is refused.
const MAX_WAIT_FOR_ROOM: Duration = Duration::from_millis(100);

pub(crate) trait BufferingProcessor: Send + Sync + Sized + 'static {
    /// The part of the buffered data that is under the lock.
    type Gathered: Send;
    /// Flushed data that waits for the next stage.
    type Ready: Buffered + Send;

    /// Limit of concurrent deliveries. With a limit above one, a slow delivery does not block other deliveries.
    const MAX_DELIVERIES: Deliveries;

    /// Returns the common part.
    fn buffer(&self) -> &Buffer<Self::Gathered, Self::Ready>;

    /// Moves due data to the ready queue, or all data once the processor is ending.
    fn collect(&self) -> impl Future<Output = Collected> + Send;

    /// Passes flushed data to the next stage and records the outcome.
    fn hand_on(&self, ready: Self::Ready) -> impl Future<Output = ()> + Send;
}

/// A processor that buffers data and receives batches from the previous stage.
pub(crate) trait BufferingConsumer: BufferingProcessor {
    /// Whether senders that cannot wait are acknowledged while their data is only in memory, even if a later stage
    /// persists the data.
    const ACKNOWLEDGES_EARLY: bool = true;

    /// Accepts or refuses a batch. See [`Consumer::consume`].
    fn enter(self: &Arc<Self>, batch: Batch) -> impl Future<Output = Result<(), Nack>> + Send;
}

/// The consumer through which batches enter a buffering processor.
pub(crate) struct BufferEntrance<H>(pub(crate) Arc<H>);

impl<H: BufferingConsumer> Consumer for BufferEntrance<H> {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(self.0.enter(batch))
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.0.buffer().next.consumer.clone()]
    }

    fn stores(&self) -> bool {
        !H::ACKNOWLEDGES_EARLY && self.behind().iter().any(|next| next.stores())
    }

    fn request_flush(&self, reason: FlushReason) {
        self.0.buffer().request_flush(reason);
    }
}

/// The outcome of [`BufferingProcessor::collect`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collected {
    /// Time at which more data will be due, if any.
    pub(crate) due: Option<Instant>,
    /// Whether the processor was already closed, so that no more data is added.
    pub(crate) closed: bool,
}

/// Common part of the processors that buffer data.
pub(crate) struct Buffer<G, R> {
    pub(crate) next: Next,
    /// A synchronous mutex, because it is locked for a few pushes and never across an await.
    state: Mutex<State<G, R>>,
    wake: Notify,
    /// Notified when flushed data leaves the ready queue.
    room_freed: Notify,
    /// Cancelled when the processor shuts down, which ends waits between attempts.
    closing: CancellationToken,
}

/// State under the lock.
pub(crate) struct State<G, R> {
    pub(crate) gathered: G,
    pub(crate) ready: Queue<R>,
    /// Acknowledged items that are buffered, flushed or in delivery. The processor is responsible for them.
    pub(crate) acknowledged: usize,
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

impl<G: Default, R: Buffered> Buffer<G, R> {
    pub(crate) fn new(next: Next) -> Self {
        Buffer::over(next, G::default())
    }
}

impl<G, R: Buffered> Buffer<G, R> {
    /// Creates the common part with this state for buffered data.
    pub(crate) fn over(next: Next, gathered: G) -> Self {
        Buffer {
            next,
            state: Mutex::new(State {
                gathered,
                ready: Queue::default(),
                acknowledged: 0,
                closed: false,
                ending: false,
                urged: false,
            }),
            wake: Notify::new(),
            room_freed: Notify::new(),
            closing: CancellationToken::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State<G, R>> {
        self.state.lock()
    }

    /// Wakes the flusher, because data is ready or will be due.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Flushes early. See [`Consumer::request_flush`](crate::pipeline::Consumer::request_flush).
    pub(crate) fn request_flush(&self, reason: FlushReason) {
        let mut state = self.state();
        match reason {
            FlushReason::Full => state.urged = true,
            FlushReason::Ending => state.ending = true,
        }
        drop(state);
        self.wake();
        self.next.consumer.request_flush(reason);
    }

    /// Repeats `attempt` until it has a result, and waits for a delivery between two attempts. After
    /// [`MAX_WAIT_FOR_ROOM`] the client is refused with the reason `full`. If the next stage is slightly
    /// slower, clients are slowed down instead of refused.
    pub(crate) async fn retry_while_full<T>(
        &self,
        full: &'static str,
        mut attempt: impl FnMut() -> Result<Option<T>, Nack>,
    ) -> Result<T, Nack> {
        let mut until = None;
        loop {
            let room_freed = self.room_freed.notified();
            if let Some(done) = attempt()? {
                return Ok(done);
            }
            let until = *until.get_or_insert_with(|| Instant::now() + MAX_WAIT_FOR_ROOM);
            if timeout_at(until, room_freed).await.is_err() {
                return Err(Nack::unavailable(full));
            }
        }
    }

    /// Ends the responsibility of the processor for these items.
    pub(crate) fn release(&self, items: usize) {
        let mut state = self.state();
        state.acknowledged = state.acknowledged.saturating_sub(items);
    }

    /// Replaces the number of items for which the processor is responsible.
    pub(crate) fn became(&self, before: usize, after: usize) {
        let mut state = self.state();
        state.acknowledged = state
            .acknowledged
            .saturating_sub(before)
            .saturating_add(after);
    }
}
