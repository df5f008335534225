//! What processors and connectors have in common that hold data they have acknowledged: `batch`, the summaries of
//! `compression`, `log_dedup`, and the connector `profile_metrics`.
//!
//! A sender that has its data on a disk until the outcome is known, and can wait (see `senders`), is answered when that
//! has gone on. All others are at once, and from then on the processor answers for the data. What is ready is offered to the next stage until that
//! takes it; while enough waits for that, clients are refused, who still have theirs. At the end of its life (a shutdown,
//! a reload) everything goes at once, and what is left at the deadline is reported.

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

/// How many pieces of what is ready may wait to be handed on before clients are refused.
pub(crate) const MAX_READY: usize = 8;

/// How long a client waits until something was handed on, before it is refused.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a client is told at the end of the processor's life.
pub(crate) const CLOSED: &str = "the collector is shutting down";

/// A processor that holds data.
pub(crate) trait Holder: Send + Sync + Sized + 'static {
    /// What is gathered, as far as it is under the lock.
    type Gathered: Default + Send;
    /// What waits to be handed on.
    type Ready: Bytes + Send;

    /// How much may be handed on at once, so that what waits for the next stage does not hold up the rest.
    const UNDER_WAY: Most;

    /// What it shares with the others.
    fn holding(&self) -> &Holding<Self::Gathered, Self::Ready>;

    /// Makes ready what is due, or everything once the processor is at its end.
    fn collect(&self) -> impl Future<Output = Collected> + Send;

    /// Hands something on, and settles it.
    fn hand_on(&self, ready: Self::Ready) -> impl Future<Output = ()> + Send;
}

/// A holder that takes batches from the stage before it.
pub(crate) trait Entered: Holder {
    /// Whether senders that cannot wait are answered while what they sent is in memory only, whatever comes behind.
    const ANSWERS_EARLY: bool = true;

    /// Takes a batch in, see [`Consumer::consume`].
    fn enter(self: &Arc<Self>, batch: Batch) -> impl Future<Output = Result<(), Nack>> + Send;
}

/// What the stage before a holder hands batches to.
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

/// How much may be under way at once. Something alone may have more bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// The outcome of [`Holder::collect`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collected {
    /// When there will be something due next.
    pub(crate) due: Option<Instant>,
    /// Whether the processor was closed already, so that nothing is added any more.
    pub(crate) closed: bool,
}

/// Has a size.
pub(crate) trait Bytes {
    /// In bytes of memory, about.
    fn bytes(&self) -> usize;

    /// Whether it may be with the next stage for long, and so must not keep others from that: its senders have it.
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
    /// A plain mutex: it is held for a few pushes and never across an await.
    state: Mutex<State<G, R>>,
    wake: Notify,
    /// Told when something that was ready goes.
    gone: Notify,
    /// Cancelled when the processor shuts down: who waits for the next attempt waits no longer.
    closing: CancellationToken,
}

/// What is under the lock.
pub(crate) struct State<G, R> {
    pub(crate) gathered: G,
    pub(crate) ready: Queue<R>,
    /// Items that this processor answers for, because they were acknowledged: gathered, ready and under way.
    pub(crate) held: usize,
    pub(crate) closed: bool,
    /// Whether everything goes at once, because the processor is closed or has been replaced.
    pub(crate) ending: bool,
    /// Whether what is gathered now goes at once.
    urged: bool,
}

/// What waits to be handed on. Whoever adds to it wakes the flusher: see [`Holding::wake`].
pub(crate) struct Queue<R> {
    waiting: VecDeque<R>,
    bytes: usize,
}

impl<R: Bytes> Queue<R> {
    /// Whether no more may be taken in: enough is waiting, or so many bytes.
    pub(crate) fn is_full(&self, most_bytes: usize) -> bool {
        self.waiting.len() >= MAX_READY || self.bytes >= most_bytes
    }

    pub(crate) fn push(&mut self, ready: R) {
        self.bytes += ready.bytes();
        self.waiting.push_back(ready);
    }

    /// The next one, if it may be under way beside others.
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
    /// Whether what is gathered goes now, due or not.
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

    /// Wakes the flusher: something is ready, or will be due.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// See [`Consumer::settle`](crate::pipeline::Consumer::settle).
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

    /// Tries until there is a result. Between two attempts something was handed on; if that takes too long, the client
    /// is refused with `full`. So a next stage that is just slower than the clients sets their pace.
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

    /// Offers a batch until it is taken; only once, if all of its senders wait and cannot do so for long, and not at all if
    /// they do not wait any more. If it is refused for good, it is taken `apart` and each piece is offered, so that what is at fault takes nothing else with it; what
    /// cannot be taken apart is dropped, or returned to its one sender.
    ///
    /// # Errors
    /// What to tell the senders that wait.
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
            // One by one: a shutdown in between must count only what is left.
            self.settle(senders.passed(items));
        }
        Ok(())
    }

    fn give_up(&self, items: usize, nack: &Nack) {
        error!(error = %nack, dropped_items = items, "Sender failed. Dropping data.");
        self.next.account.dropped(items, DropReason::Permanent);
    }

    /// From here on this processor does not answer for these items any more.
    pub(crate) fn settle(&self, items: usize) {
        let mut state = self.state();
        state.held = state.held.saturating_sub(items);
    }

    /// What this processor answers for became other items.
    pub(crate) fn became(&self, before: usize, after: usize) {
        let mut state = self.state();
        state.held = state.held.saturating_sub(before).saturating_add(after);
    }

    /// Items became part of others.
    pub(crate) fn merged(&self, before: usize, after: usize) {
        let fewer = before.saturating_sub(after);
        if fewer > 0 {
            self.next.account.dropped(fewer, DropReason::Merged);
        }
    }

    /// Items of these senders become part of others. Where all of them wait, that is so only once these have gone on.
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

/// Items that become part of others, see [`Holding::merging`].
pub(crate) struct Merging<'a> {
    account: &'a Account,
    fewer: usize,
}

impl Merging<'_> {
    /// What they became part of has gone on, or not.
    pub(crate) fn over(self, outcome: &Result<(), Nack>) {
        if outcome.is_ok() && self.fewer > 0 {
            self.account.dropped(self.fewer, DropReason::Merged);
        }
    }
}

/// Into how many pieces something made here is cut that was refused for good.
const PIECES: usize = 16;

/// A batch in some pieces, which can be offered one by one; a single one if it cannot be cut.
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

/// The task that hands on what is ready. Runs until the processor is closed and empty.
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

/// The life of a processor that holds data.
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
                // Both at once: who sees that it is closed must find everything ready.
                let mut state = holding.state();
                state.closed = true;
                state.ending = true;
            }
            holding.closing.cancel();
            holding.wake();
            if let Some(flusher) = &mut self.flusher
                && timeout_at(deadline, &mut *flusher).await.is_err()
            {
                // What it hands on after this point would be counted twice.
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
