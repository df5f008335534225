//! Common part of processors and connectors that buffer data: `batch`, the summaries of `compression`, `log_dedup`, and
//! the connector `profile_metrics`.
//!
//! Some senders have persisted their data until the outcome is known and can wait (see `senders`). Such a sender gets
//! its outcome when the data has been passed on. All other senders are acknowledged at once, and from then on the
//! processor is responsible for the data. Flushed data is offered to the next stage until it is taken. While enough of
//! it waits, clients are refused and keep their data. At the end of the processor's life (a shutdown, a reload)
//! everything is flushed, and the rest at the deadline is reported as undelivered.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::offer::{Last, offer};
use super::senders::Senders;
use crate::pipeline::Next;
use crate::pipeline::account::{Account, DropReason};
use crate::pipeline::batch::{Batch, Nack, Progress};
use crate::pipeline::{Component, Consumer, Settle, Undelivered};
use futures_util::future::BoxFuture;
use tributary_otlp::Limit;

/// Number of flushed batches waiting for the next stage from which clients are refused.
pub(crate) const MAX_READY: usize = 8;

/// Time that a client waits for room before it is refused.
const PATIENCE: Duration = Duration::from_millis(100);

/// Refusal at the end of the processor's life.
pub(crate) const CLOSED: &str = "the collector is shutting down";

/// A processor that buffers data.
pub(crate) trait Holder: Send + Sync + Sized + 'static {
    /// Buffered data, as far as it is under the lock.
    type Gathered: Default + Send;
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

/// Limit or count of concurrent deliveries. A single delivery may exceed the limit in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// The outcome of [`Holder::collect`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collected {
    /// Time at which more data will be due.
    pub(crate) due: Option<Instant>,
    /// Whether the processor was already closed, so that no more data is added.
    pub(crate) closed: bool,
}

/// A type with a memory size.
pub(crate) trait Bytes {
    /// Returns the approximate memory size in bytes.
    fn bytes(&self) -> usize;

    /// Whether the next stage may keep the data for long, because its senders wait and still have it. Such a delivery
    /// must not block others.
    fn is_patient(&self) -> bool {
        false
    }
}

impl Bytes for Batch {
    fn bytes(&self) -> usize {
        Batch::bytes(self)
    }
}

/// The common part of a processor that holds data.
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

/// Flushed data that waits for the next stage. After a push, call [`Holding::wake`] to wake the flusher.
pub(crate) struct Queue<R> {
    waiting: VecDeque<R>,
    bytes: usize,
}

impl<R: Bytes> Queue<R> {
    /// Whether no more data may be accepted, because of the number or the bytes of the waiting batches.
    pub(crate) fn is_full(&self, most_bytes: usize) -> bool {
        self.waiting.len() >= MAX_READY || self.bytes >= most_bytes
    }

    pub(crate) fn push(&mut self, ready: R) {
        self.bytes += ready.bytes();
        self.waiting.push_back(ready);
    }

    /// Takes the next batch, if the limit of concurrent deliveries allows it.
    fn pop(&mut self, most: Most, under_way: Most) -> Option<R> {
        let front = self.waiting.front()?;
        let next = front.bytes();
        let fits = under_way.bytes == 0 || under_way.bytes.saturating_add(next) <= most.bytes;
        let in_turn = under_way.count < most.count || front.is_patient() && most.count > 1;
        if !in_turn || !fits {
            return None;
        }
        self.bytes = self.bytes.saturating_sub(next);
        self.waiting.pop_front()
    }
}

impl<G, R> State<G, R> {
    /// Whether the buffered data is flushed now, even if it is not due.
    pub(crate) fn is_urgent(&mut self) -> bool {
        std::mem::take(&mut self.urged) || self.ending
    }
}

impl<G: Default, R: Bytes> Holding<G, R> {
    pub(crate) fn new(next: Next) -> Self {
        Holding {
            next,
            state: Mutex::new(State {
                gathered: G::default(),
                ready: Queue {
                    waiting: VecDeque::new(),
                    bytes: 0,
                },
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

    /// Offers a batch to the next stage until it is taken. The batch is offered only once if all of its senders wait
    /// and some cannot wait for long, and not at all if they have stopped waiting. If the batch is refused permanently,
    /// it is split by `apart` and each piece is offered, so that the data at fault does not take other data with it. A
    /// batch that cannot be split is dropped, or returned to its only sender.
    ///
    /// # Errors
    /// The refusal for the senders that wait.
    pub(crate) async fn hand_on(
        &self,
        mut batch: Batch,
        senders: &mut Senders,
        apart: impl FnOnce() -> Vec<Batch>,
    ) -> Result<(), Nack> {
        let items = batch.items();
        let progress = Arc::new(Progress::default());
        let (next, closing) = (&self.next, &self.closing);
        let last = Last {
            first: senders.are_in_a_hurry(),
            at_the_end: senders.all_wait(),
        };
        if senders.have_gone() {
            return Err(Nack::unavailable(CLOSED));
        }
        batch.patience = senders.patience();
        let nack = match offer(next, closing, batch, progress.clone(), last).await {
            Err(nack) if nack.retryable => return Err(nack),
            Err(nack) => nack,
            Ok(()) => {
                self.settle(senders.passed(items));
                return Ok(());
            }
        };
        let pieces = apart();
        if pieces.len() < 2 {
            if senders.are_one_who_waits() {
                return Err(nack);
            }
            self.give_up(items, &nack);
            self.settle(senders.passed(items));
            return Ok(());
        }
        warn!(
            error = %nack,
            pieces = pieces.len(),
            "A batch was refused for good. Offering it in pieces."
        );
        for mut piece in pieces {
            let items = piece.items();
            piece.patience = senders.patience();
            match offer(next, closing, piece, Arc::new(progress.fork()), last).await {
                Err(nack) if nack.retryable => return Err(nack),
                Err(nack) => self.give_up(items, &nack),
                Ok(()) => {}
            }
            // One by one, so that a shutdown in between counts only the rest.
            self.settle(senders.passed(items));
        }
        Ok(())
    }

    fn give_up(&self, items: usize, nack: &Nack) {
        error!(error = %nack, dropped_items = items, "Sender failed. Dropping data.");
        self.next.account.dropped(items, DropReason::Permanent);
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

    /// Counts items that were merged into others.
    pub(crate) fn merged(&self, before: usize, after: usize) {
        let fewer = before.saturating_sub(after);
        if fewer > 0 {
            self.next.account.dropped(fewer, DropReason::Merged);
        }
    }

    /// Counts items of these senders that are merged into others. If all senders wait, the items are counted only once
    /// the merged items have been delivered.
    pub(crate) fn merging(&self, before: usize, after: usize, senders: &Senders) -> Merging<'_> {
        let waits = senders.all_wait();
        if !waits {
            self.merged(before, after);
        }
        Merging {
            account: &self.next.account,
            fewer: if waits {
                before.saturating_sub(after)
            } else {
                0
            },
        }
    }
}

/// Items that are being merged into others. See [`Holding::merging`].
pub(crate) struct Merging<'a> {
    account: &'a Account,
    fewer: usize,
}

impl Merging<'_> {
    /// Records the outcome of the merged items.
    pub(crate) fn over(self, outcome: &Result<(), Nack>) {
        if outcome.is_ok() && self.fewer > 0 {
            self.account.dropped(self.fewer, DropReason::Merged);
        }
    }
}

/// Number of pieces into which a merged, permanently refused batch is split.
const PIECES: usize = 16;

/// Splits a batch into pieces that can be offered separately. A batch that cannot be split is returned as one piece.
pub(crate) fn in_pieces(mut batch: Batch) -> Vec<Batch> {
    let limit = Limit {
        items: batch.items().div_ceil(PIECES),
        bytes: usize::MAX,
    };
    let whole = batch.wire().to_bytes();
    let pieces = crate::pipeline::split(batch.signal(), &whole, limit).into_iter();
    pieces
        .map(|(items, piece)| batch.remade(items, piece))
        .collect()
}

/// The task that delivers flushed data. Runs until the processor is closed and empty.
async fn flush<H: Holder>(holder: Arc<H>) {
    let holding = holder.holding();
    let mut under_way = FuturesUnordered::new();
    let (mut count_under_way, mut bytes_under_way) = (0, 0);
    loop {
        let Collected { due, closed } = holder.collect().await;
        let done = {
            let mut state = holding.state();
            loop {
                let now = Most {
                    count: count_under_way,
                    bytes: bytes_under_way,
                };
                let Some(ready) = state.ready.pop(H::UNDER_WAY, now) else {
                    break;
                };
                let one = Most {
                    count: usize::from(!ready.is_patient()),
                    bytes: ready.bytes(),
                };
                count_under_way += one.count;
                bytes_under_way += one.bytes;
                let handed_on = holder.hand_on(ready);
                under_way.push(async move {
                    handed_on.await;
                    one
                });
                holding.gone.notify_waiters();
            }
            closed && state.ready.waiting.is_empty() && under_way.is_empty()
        };
        if done {
            return;
        }
        tokio::select! {
            () = holding.wake.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(one) = under_way.next() => {
                count_under_way -= one.count;
                bytes_under_way -= one.bytes;
            }
        }
    }
}

/// Lifecycle of a processor that buffers data.
pub(crate) struct Life<H: Holder> {
    holder: Arc<H>,
    flusher: Option<JoinHandle<()>>,
}

impl<H: Holder> Life<H> {
    pub(crate) fn new(holder: Arc<H>) -> Self {
        Life {
            holder,
            flusher: None,
        }
    }
}

impl<H: Holder> Component for Life<H> {
    fn start(&mut self) {
        self.flusher
            .get_or_insert_with(|| tokio::spawn(flush(self.holder.clone())));
    }

    fn idle(&self) -> bool {
        self.holder.holding().state().held == 0
    }

    fn flush(&self) {
        let holding = self.holder.holding();
        holding.state().ending = true;
        holding.wake();
    }

    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let holder = self.holder.clone();
            let holding = holder.holding();
            {
                // Both under one lock: a collector that sees `closed` must find everything ready.
                let mut state = holding.state();
                state.closed = true;
                state.ending = true;
            }
            holding.closing.cancel();
            holding.wake();
            if let Some(flusher) = &mut self.flusher
                && timeout_at(deadline, &mut *flusher).await.is_err()
            {
                // A delivery after this point would be counted twice.
                flusher.abort();
                let _ = flusher.await;
            }
            let left = std::mem::take(&mut holding.state().held);
            if left > 0 {
                holding.next.account.dropped(left, DropReason::Shutdown);
            }
            Undelivered { items: left }
        })
    }
}

impl<H: Holder> Drop for Life<H> {
    fn drop(&mut self) {
        if let Some(flusher) = &self.flusher {
            flusher.abort();
        }
    }
}
