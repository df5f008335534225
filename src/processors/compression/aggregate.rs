//! Windows of profiles: gathered, summed up, handed on.
//!
//! Profiles that come from a queue on disk are acknowledged to that when their summary has gone on. All others are when
//! they were added to a window, so from then on this processor answers for them, by the rules of the `batch` processor:
//! what left a window is offered until the next stage takes it, and while enough waits for that, nothing more is taken
//! in.

mod flush;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use metrics::Counter;
use tokio::time::Instant;

use crate::component::{BuildContext, Stage};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::holding;
use crate::pipeline::holding::{CLOSED, Entered, Entrance, Holding, Life};
use crate::pipeline::senders::Senders;
use crate::pipeline::turns::on_a_turn_if_large;
use crate::processors::decoding;
use tributary_memory::{Budget, Permit};
use tributary_profiles::aggregate::{Options, Read, Summary, series};
use tributary_profiles::{Aggregator, understood};

/// How many series are remembered, in a single request, too. Beyond that, some pass that might have waited.
const MAX_SERIES: usize = 100_000;

const FULL: &str = "the compression processor is full: the next stage does not take its profiles";

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
        let gatherer = Arc::new(Gatherer {
            settings,
            metrics,
            budget,
            hashes: RandomState::default(),
            window: Arc::default(),
            holding: Holding::new(next),
        });
        let life = Life::new(gatherer.clone());
        (Arc::new(Entrance(gatherer)), Box::new(life))
    }))
}

struct Gatherer {
    settings: Settings,
    metrics: Metrics,
    budget: Arc<Budget>,
    hashes: RandomState,
    /// Held while a request is read and added, which may take milliseconds; who waits for it blocks no thread. Taken before
    /// the lock of `holding` where both are needed.
    window: Arc<tokio::sync::Mutex<Window>>,
    holding: Holding<(), Ready>,
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
    senders: Senders,
    permit: Option<Permit>,
    /// Batches without content, whose permits stand in where the budget had no room for `permit` to grow.
    others: Vec<Batch>,
}

/// What a request turned out to be.
enum Reading {
    /// Profiles of series that were quiet: a summary by themselves.
    Passes(Summary),
    /// Profiles to be added to the window.
    Joins(Read),
    /// Nobody knows; it goes on as it is.
    NotUnderstood,
}

/// What waits to be handed on.
enum Ready {
    Window(Box<Pending>),
    /// As it came, or a summary already.
    Batch(Batch, Senders),
}

impl holding::Bytes for Ready {
    fn bytes(&self) -> usize {
        match self {
            Ready::Window(pending) => pending.aggregator.bytes(),
            Ready::Batch(batch, _) => batch.bytes(),
        }
    }

    fn is_patient(&self) -> bool {
        match self {
            Ready::Window(pending) => pending.senders.are_patient(),
            Ready::Batch(_, senders) => senders.are_patient(),
        }
    }
}

impl Gatherer {
    /// Whether there is room for more.
    fn room(&self) -> Result<Option<()>, Nack> {
        let state = self.holding.state();
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let full = state.ready.is_full(self.settings.max_bytes);
        Ok((!full).then_some(()))
    }

    fn ready(&self, ready: Ready) {
        self.holding.state().ready.push(ready);
        self.holding.wake();
    }

    /// Ends the window.
    fn close_window(&self, window: &mut Window) {
        window.due = None;
        // A request may have been read for it that nobody waited for.
        if let Some(pending) = window.pending.take().filter(|pending| pending.items > 0) {
            self.ready(Ready::Window(Box::new(pending)));
        }
        let now = Instant::now();
        let interval = self.settings.interval;
        window
            .seen
            .retain(|_, seen| now.duration_since(*seen) < interval);
    }

    /// Does what takes long with a request, away from the threads that serve sockets where it is much. Nothing is taken in
    /// yet: nobody may be waiting any more.
    fn read(&self, window: &mut Window, request: &[u8]) -> Reading {
        if !understood(request) {
            return Reading::NotUnderstood;
        }
        let options = &self.settings.options;
        if self.note(window, &series(request, &options.group_by, &self.hashes)) {
            let mut alone = Aggregator::new(options.clone());
            return match alone.add_encoded(request) {
                Ok(()) => Reading::Passes(alone.finish()),
                Err(_) => Reading::NotUnderstood,
            };
        }
        // What is read and never added, because nobody waited for it or it broke a rule, must not pile up either.
        if window.pending.as_mut().is_some_and(|pending| {
            let bytes = pending.aggregator.bytes();
            bytes > self.settings.max_bytes || !pending.account_for(bytes, &self.budget)
        }) {
            self.metrics.early.increment(1);
            self.close_window(window);
        }
        let pending = window.pending.get_or_insert_with(|| Pending {
            aggregator: Aggregator::new(options.clone()),
            items: 0,
            senders: Senders::default(),
            permit: None,
            others: Vec::new(),
        });
        match pending.aggregator.read(request) {
            Ok(read) => Reading::Joins(read),
            Err(_) => Reading::NotUnderstood,
        }
    }

    /// Adds a request to the window it was read for, or lets it pass. Without an await: who gives up waiting has not been
    /// taken in.
    fn take_in(
        &self,
        window: &mut Window,
        mut batch: Batch,
        mut senders: Senders,
        reading: Reading,
    ) {
        let items = batch.items();
        let (read, pending) = match (reading, window.pending.as_mut()) {
            (Reading::Joins(read), Some(pending)) => (read, pending),
            (Reading::Passes(summary), _) => {
                self.metrics.passed.increment(1);
                self.metrics.saturated.increment(summary.saturated);
                batch.metadata = None;
                self.holding.merged(items, summary.samples);
                senders.became(summary.samples);
                self.holding.state().held += senders.held();
                let summed_up = batch.remade(summary.samples, summary.request);
                return self.ready(Ready::Batch(summed_up, senders));
            }
            _ => {
                self.holding.state().held += senders.held();
                return self.ready(Ready::Batch(batch, senders));
            }
        };
        pending.aggregator.add_read(read);
        pending.items += items;
        self.holding.state().held += senders.held();
        pending.senders.append(senders);
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
            self.holding.wake();
        }
    }

    /// Remembers that these series were seen now. Says whether they were all quiet before.
    fn note(&self, window: &mut Window, series: &[u64]) -> bool {
        let now = Instant::now();
        let interval = self.settings.interval;
        let mut quiet = true;
        for series in series {
            if window.seen.len() >= MAX_SERIES {
                window.seen.clear();
            }
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

impl Entered for Gatherer {
    async fn enter(self: &Arc<Self>, mut batch: Batch) -> Result<(), Nack> {
        batch.wire();
        let room = || self.room();
        self.holding.with_patience(FULL, room).await?;
        let decoding = decoding::room(batch.wire().parts(), &self.budget);
        let decoding = decoding.map_err(decoding::refusal)?;
        let request = batch.wire().to_bytes();
        let mut window = self.window.clone().lock_owned().await;
        // Again: the last window may have left in the meantime.
        if self.room()?.is_none() {
            return Err(Nack::unavailable(FULL));
        }
        let reader = self.clone();
        let read = move || {
            let reading = reader.read(&mut window, &request);
            (window, reading)
        };
        let read = on_a_turn_if_large(batch.bytes(), read).await;
        let (mut window, reading) = read.ok_or_else(|| Nack::unavailable(CLOSED))?;
        // From here on the window accounts for it.
        drop(decoding);
        let (senders, answer) = Senders::of(&mut batch, false);
        self.take_in(&mut window, batch, senders, reading);
        drop(window);
        answer.outcome().await
    }
}

struct Metrics {
    /// Requests whose series were quiet.
    passed: Counter,
    /// Windows that ended at their time, and before.
    in_time: Counter,
    early: Counter,
    /// Sums that did not fit.
    saturated: Counter,
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
            saturated: metrics::counter!(
                "tributary_processor_compression_saturated_sums",
                "processor" => processor.to_owned()
            ),
        }
    }
}

#[cfg(test)]
mod tests;
