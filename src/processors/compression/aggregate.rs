//! Windows of profiles: gathered, summed up, handed on.
//!
//! Profiles are acknowledged when they were added to a window, so from then on this processor answers for them, by the
//! rules of the `batch` processor: what left a window is offered until the next stage takes it, and while enough waits
//! for that, nothing more is taken in.

mod flush;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use metrics::Counter;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::batch::{Batch, Nack};
use crate::component::{BuildContext, Next, Stage};
use crate::memory::{Budget, Permit};
use crate::pipeline::{BoxFuture, Component, Consumer, Undelivered};
use crate::processors::offer::away;
use crate::profiles::aggregate::{Options, series};
use crate::profiles::{Aggregator, understood};
use crate::telemetry::DropReason;

/// How many windows and requests may wait to be handed on before requests are refused.
const MAX_READY: usize = 8;

/// How long a client waits until something was handed on, before it is refused.
const PATIENCE: Duration = Duration::from_millis(100);

/// How many series are remembered. Beyond that, some pass that might have waited.
const MAX_SERIES: usize = 100_000;

const FULL: &str = "the compression processor is full: the next stage does not take its profiles";
const CLOSED: &str = "the collector is shutting down";

/// What the configuration says.
pub(super) struct Settings {
    pub(super) options: Options,
    pub(super) interval: Duration,
    pub(super) max_bytes: usize,
}

/// The processor.
pub(super) fn stage(cx: &BuildContext, settings: Settings) -> Stage {
    let budget = cx.budget.clone();
    let metrics = Metrics::new(&cx.id.to_string());
    Stage::Holding(Box::new(move |next| {
        let shared = Arc::new(Shared {
            settings,
            next,
            metrics,
            budget,
            hashes: RandomState::default(),
            window: tokio::sync::Mutex::default(),
            state: Mutex::default(),
            wake: Notify::new(),
            gone: Notify::new(),
            closing: CancellationToken::new(),
        });
        let consumer = Arc::new(Gatherer(shared.clone()));
        let life = Life {
            shared,
            flusher: None,
        };
        (consumer, Box::new(life))
    }))
}

struct Shared {
    settings: Settings,
    next: Next,
    metrics: Metrics,
    budget: Arc<Budget>,
    hashes: RandomState,
    /// Held while a request is added, which may take milliseconds; who waits for it blocks no thread. Taken before
    /// `state` where both are needed.
    window: tokio::sync::Mutex<Window>,
    /// A plain mutex: it is held for a few pushes and never across an await.
    state: Mutex<State>,
    wake: Notify,
    /// Told when something that was ready goes.
    gone: Notify,
    /// Cancelled when the processor shuts down: who waits for the next attempt waits no longer.
    closing: CancellationToken,
}

/// What is being gathered.
#[derive(Default)]
struct Window {
    pending: Option<Pending>,
    due: Option<Instant>,
    /// When each series was seen last.
    seen: HashMap<u64, Instant, RandomState>,
}

/// Profiles that will leave as one summary.
struct Pending {
    aggregator: Aggregator,
    /// As they came in.
    items: usize,
    permit: Option<Permit>,
    /// Batches without content, whose permits stand in where the budget had no room for `permit` to grow.
    others: Vec<Batch>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Ready>,
    ready_bytes: usize,
    /// Items that this processor answers for: gathered, ready and under way.
    held: usize,
    closed: bool,
}

/// What waits to be handed on.
enum Ready {
    Window(Box<Pending>),
    /// As it came, or a summary already.
    Batch(Batch),
}

impl Ready {
    fn bytes(&self) -> usize {
        match self {
            Ready::Window(pending) => pending.aggregator.bytes(),
            Ready::Batch(batch) => batch.bytes(),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for more.
    fn has_room(&self) -> Result<bool, Nack> {
        let state = self.state();
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let full = state.ready_bytes >= self.settings.max_bytes;
        Ok(state.ready.len() < MAX_READY && !full)
    }

    /// Waits for room, for a short while.
    async fn room(&self) -> Result<(), Nack> {
        let until = Instant::now() + PATIENCE;
        loop {
            let gone = self.gone.notified();
            if self.has_room()? {
                return Ok(());
            }
            // A next stage that is just slower than the clients sets their pace.
            if tokio::time::timeout_at(until, gone).await.is_err() {
                return Err(Nack::unavailable(FULL));
            }
        }
    }

    /// From here on this processor answers for what is ready.
    fn ready(&self, ready: Ready, new_items: usize) {
        let mut state = self.state();
        state.held += new_items;
        state.ready_bytes += ready.bytes();
        state.ready.push_back(ready);
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the window.
    fn close_window(&self, window: &mut Window) {
        window.due = None;
        if let Some(pending) = window.pending.take() {
            self.ready(Ready::Window(Box::new(pending)), 0);
        }
        let now = Instant::now();
        let interval = self.settings.interval;
        window
            .seen
            .retain(|_, seen| now.duration_since(*seen) < interval);
    }

    /// Items became part of others.
    fn merged(&self, before: usize, after: usize) {
        let fewer = before.saturating_sub(after);
        if fewer > 0 {
            self.next.account.dropped(fewer, DropReason::Merged);
        }
    }

    /// Adds a request to the window, or lets it pass. Without an await: who gives up waiting has not been taken in.
    fn take_in(&self, window: &mut Window, mut batch: Batch, request: Option<Bytes>) {
        let items = batch.items();
        let Some(request) = request else {
            return self.ready(Ready::Batch(batch), items);
        };
        let options = &self.settings.options;
        if self.note(window, &series(&request, &options.group_by, &self.hashes)) {
            let mut alone = Aggregator::new(options.clone());
            if alone.add_encoded(&request).is_err() {
                return self.ready(Ready::Batch(batch), items);
            }
            self.metrics.passed.increment(1);
            let (bytes, left) = alone.finish();
            batch.metadata = None;
            self.merged(items, left);
            return self.ready(Ready::Batch(batch.remade(left, bytes)), left);
        }
        let pending = window.pending.get_or_insert_with(|| Pending {
            aggregator: Aggregator::new(options.clone()),
            items: 0,
            permit: None,
            others: Vec::new(),
        });
        if pending.aggregator.add_encoded(&request).is_err() {
            return self.ready(Ready::Batch(batch), items);
        }
        pending.items += items;
        self.state().held += items;
        let bytes = pending.aggregator.bytes();
        let exceeded = !pending.account_for(bytes, &self.budget);
        if exceeded {
            pending.others.push(batch.with_wire(0, Bytes::new()));
        }
        if exceeded || bytes > self.settings.max_bytes {
            self.metrics.early.increment(1);
            self.close_window(window);
        } else if window.due.is_none() {
            window.due = Some(Instant::now() + self.settings.interval);
            self.wake.notify_one();
        }
    }

    /// Remembers that these series were seen now. Says whether they were all quiet before.
    fn note(&self, window: &mut Window, series: &[u64]) -> bool {
        let now = Instant::now();
        let interval = self.settings.interval;
        let mut quiet = true;
        if window.seen.len() > MAX_SERIES {
            window.seen.clear();
        }
        for series in series {
            let before = window.seen.insert(*series, now);
            // A series twice in one request is as good as two requests.
            quiet &= before.is_none_or(|seen| seen != now && now.duration_since(seen) >= interval);
        }
        quiet
    }
}

impl Pending {
    /// Keeps the permit as large as what is gathered, if the budget has room.
    fn account_for(&mut self, bytes: usize, budget: &Arc<Budget>) -> bool {
        let Some(permit) = &mut self.permit else {
            self.permit = budget.acquire(bytes).ok();
            return self.permit.is_some();
        };
        match bytes.checked_sub(permit.bytes()) {
            None | Some(0) => true,
            Some(more) => permit.grow(more).is_ok(),
        }
    }
}

struct Gatherer(Arc<Shared>);

impl Consumer for Gatherer {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        batch.wire();
        Box::pin(async move {
            let shared = &self.0;
            shared.room().await?;
            let bytes = batch.wire().to_bytes();
            let read = move || understood(&bytes).then_some(bytes);
            let request = away(batch.bytes(), read)
                .await
                .ok_or_else(|| Nack::unavailable(CLOSED))?;
            let mut window = shared.window.lock().await;
            // Again: the last window may have left in the meantime.
            if !shared.has_room()? {
                return Err(Nack::unavailable(FULL));
            }
            shared.take_in(&mut window, batch, request);
            Ok(())
        })
    }
}

struct Life {
    shared: Arc<Shared>,
    flusher: Option<JoinHandle<()>>,
}

impl Component for Life {
    fn start(&mut self) {
        self.flusher
            .get_or_insert_with(|| tokio::spawn(flush::run(self.shared.clone())));
    }

    fn idle(&self) -> bool {
        self.shared.state().held == 0
    }

    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.shared.state().closed = true;
            self.shared.closing.cancel();
            self.shared.wake.notify_one();
            if let Some(flusher) = &mut self.flusher
                && tokio::time::timeout_at(deadline, &mut *flusher)
                    .await
                    .is_err()
            {
                // What it hands on after this point would be counted twice.
                flusher.abort();
                let _ = flusher.await;
            }
            let left = std::mem::take(&mut self.shared.state().held);
            if left > 0 {
                self.shared.next.account.dropped(left, DropReason::Shutdown);
            }
            Undelivered { items: left }
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(flusher) = &self.flusher {
            flusher.abort();
        }
    }
}

struct Metrics {
    /// Requests whose series were quiet.
    passed: Counter,
    /// Windows that ended at their time, and before.
    in_time: Counter,
    early: Counter,
}

impl Metrics {
    fn new(processor: &str) -> Self {
        let flushes = |trigger: &'static str| {
            metrics::counter!(
                "tributary_processor_compression_flushes",
                "processor" => processor.to_owned(),
                "trigger" => trigger
            )
        };
        Metrics {
            passed: metrics::counter!(
                "tributary_processor_compression_passed_requests",
                "processor" => processor.to_owned()
            ),
            in_time: flushes("interval"),
            early: flushes("memory"),
        }
    }
}

#[cfg(test)]
mod tests;
