//! Windows of profiles: buffered, summed and forwarded.
//!
//! Profiles from a persistent queue are acknowledged to the queue once their summary is delivered.
//! Other profiles are acknowledged when they are added to a window, and the processor becomes
//! responsible for them, as in the `batch` processor: it retries a closed window until the next
//! stage accepts it, and refuses further profiles while enough windows wait.

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
use crate::pipeline::holding::{Entered, Entrance, Holding, Life};
use crate::pipeline::output_memory::refusal;
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::turns::on_a_turn_if_large;
use crate::processors::decoding;
use tributary_memory::{Budget, Permit};
use tributary_profiles::aggregate::{ReadProfiles, Summary, SummaryOptions, series};
use tributary_profiles::{Aggregator, is_readable};

/// Maximum number of remembered series, also within a single request. Profiles of further series
/// may be forwarded without waiting.
const MAX_SERIES: usize = 100_000;

const FULL: &str = "the compression processor is full, because the next stage does not accept profiles; retry later";

pub(super) struct Settings {
    pub(super) options: SummaryOptions,
    pub(super) interval: Duration,
    pub(super) max_bytes: usize,
}

pub(super) fn stage(cx: &BuildContext, settings: Settings) -> Stage {
    let budget = cx.budget.clone();
    let metrics = Metrics::new(&cx.id.to_string());
    Stage::Buffering(Box::new(move |next| {
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
    /// Locked while a request is decoded and added, which may take milliseconds; waiting tasks do
    /// not block a thread. If both locks are needed, this one is taken before the lock of
    /// `holding`.
    window: Arc<tokio::sync::Mutex<Window>>,
    holding: Holding<(), Ready>,
}

#[derive(Default)]
struct Window {
    pending: Option<Pending>,
    due: Option<Instant>,
    /// Time at which each series was last seen.
    seen: HashMap<u64, Instant, RandomState>,
}

/// Profiles that become one summary.
struct Pending {
    aggregator: Aggregator,
    /// Number of items as received.
    items: usize,
    senders: Senders,
    permit: Option<Permit>,
    /// Batches without content. Their permits are charged where the budget had no room for `permit`
    /// to grow.
    others: Vec<Batch>,
}

/// Result of decoding a request.
enum Reading {
    /// Profiles of series that were quiet: a summary on their own.
    Passes(Summary),
    /// Profiles to add to the window.
    Joins(ReadProfiles),
    /// Content that cannot be summarized; the request is forwarded unchanged.
    NotUnderstood,
}

/// Data that is ready to be forwarded.
enum Ready {
    Window(Box<Pending>),
    /// A batch as received, or a finished summary.
    Batch(Batch, Senders),
}

impl holding::Bytes for Ready {
    fn bytes(&self) -> usize {
        match self {
            Ready::Window(pending) => pending.aggregator.bytes(),
            Ready::Batch(batch, _) => batch.bytes(),
        }
    }

    fn can_wait(&self) -> bool {
        match self {
            Ready::Window(pending) => pending.senders.can_wait(),
            Ready::Batch(_, senders) => senders.can_wait(),
        }
    }
}

impl Gatherer {
    /// Whether there is room for another request.
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

    fn close_window(&self, window: &mut Window) {
        window.due = None;
        // The senders of all requests in the window may have stopped waiting before the requests
        // were added.
        if let Some(pending) = window.pending.take().filter(|pending| pending.items > 0) {
            self.ready(Ready::Window(Box::new(pending)));
        }
        let now = Instant::now();
        let interval = self.settings.interval;
        window
            .seen
            .retain(|_, seen| now.duration_since(*seen) < interval);
    }

    /// Decodes a request. Large requests are decoded off the threads that serve sockets. The request
    /// is not added yet, because its sender may have stopped waiting.
    fn read(&self, window: &mut Window, request: &[u8]) -> Reading {
        if !is_readable(request) {
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
        // Decoded requests that are never added (invalid, or the sender stopped waiting) must not
        // accumulate.
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

    /// Adds a decoded request to its window, or forwards the request. The function does not await, so
    /// that a request is never added after its sender stopped waiting.
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

    /// Records that these series were seen now. Returns true if all of them were quiet before.
    fn note(&self, window: &mut Window, series: &[u64]) -> bool {
        let now = Instant::now();
        let interval = self.settings.interval;
        let mut quiet = true;
        for series in series {
            if window.seen.len() >= MAX_SERIES {
                window.seen.clear();
            }
            let before = window.seen.insert(*series, now);
            // The same series twice in a request counts like two requests.
            quiet &= before.is_none_or(|seen| seen != now && now.duration_since(seen) >= interval);
        }
        quiet
    }
}

impl Pending {
    /// Adjusts the permit to the buffered size, if the budget has room.
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
        let room = || self.room();
        self.holding.retry_while_full(FULL, room).await?;
        let decoding = decoding::room(batch.wire().parts(), &self.budget);
        let decoding = decoding.map_err(refusal)?;
        let request = batch.wire().to_bytes();
        let mut window = self.window.clone().lock_owned().await;
        // Check again, since the state may have changed in the meantime.
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
        // From here on, the window's permit covers the data.
        drop(decoding);
        let (senders, answer) = Senders::of(&mut batch, false);
        self.take_in(&mut window, batch, senders, reading);
        drop(window);
        answer.outcome().await
    }
}

struct Metrics {
    /// Number of requests whose series were quiet.
    passed: Counter,
    /// Number of windows closed on time, and early.
    in_time: Counter,
    early: Counter,
    /// Number of sums that exceeded the range of values.
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
