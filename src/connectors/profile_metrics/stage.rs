//! The running connector. Data is acknowledged once it is counted into a window; the connector is
//! responsible for it from then on.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::measure::{Bounds, Unmeasured, measure};
use super::measured::Measured;
use super::metrics::Metrics;
use super::requests::{Served, served};
use super::series::Series;
use super::unknown::Unknown;
use super::window::{Added, Window};
use super::{Config, write};
use crate::component::{BuildContext, Outputs, Terminal};
use crate::connectors::delivering::counted;
use crate::pipeline::account::{Account, DropReason, Pending};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::holding::{Collected, Deliveries, Holder, Holding, Life};
use crate::pipeline::output_memory::refusal;
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::turns::on_a_turn_if_large;
use crate::pipeline::{Consumer, FlushReason};
use futures_util::future::BoxFuture;
use tributary_memory::{Budget, Permit};
use tributary_otlp::{Limit, Signal};
use tributary_profiles::decoded_bytes;

const FULL: &str = "the profile_metrics connector is full, because the metrics pipeline does not accept its windows; retry later";

/// Size of emitted requests: small enough for any receiver.
const REQUEST_BYTES: usize = 2 << 20;

pub(super) fn build(
    config: &Config,
    cx: &BuildContext,
    inputs: &[Signal],
    next: Arc<dyn Consumer>,
) -> Terminal {
    let account = Account::of_connector(&cx.id);
    let next = counted(&account, next);
    let gatherer = Arc::new(Gatherer {
        interval: config.interval.0,
        keys: config.resource_attributes.clone().into(),
        functions: usize::try_from(config.top_functions).unwrap_or(usize::MAX),
        names: config.request_metrics.clone().into(),
        most_resources: usize::try_from(config.max_resources).unwrap_or(usize::MAX),
        max_bytes: config.max_bytes.as_usize(),
        budget: cx.budget.clone(),
        metrics: Metrics::new(&cx.id.to_string()),
        unknown: Unknown::new(&cx.id),
        account,
        holding: Holding::new(next),
    });
    let mut entrances = Outputs::default();
    for signal in inputs {
        entrances.set(*signal, Arc::new(Entrance(gatherer.clone())));
    }
    Terminal {
        inputs: entrances,
        component: Box::new(Life::new(gatherer)),
    }
}

struct Gatherer {
    interval: Duration,
    /// Keys of the retained resource attributes.
    keys: Arc<[String]>,
    /// Maximum number of functions with their own data points.
    functions: usize,
    /// Names of the metrics that count requests.
    names: Arc<[String]>,
    most_resources: usize,
    max_bytes: usize,
    budget: Arc<Budget>,
    metrics: Metrics,
    unknown: Unknown,
    account: Account,
    holding: Holding<Gathered, Window>,
}

#[derive(Default)]
pub(super) struct Gathered {
    window: Option<Window>,
    /// End of the last window in nanoseconds since 1970, which is the start of the next one.
    ended: u64,
    /// State of cumulative series, which outlives the windows.
    series: Option<Series>,
}

impl Gathered {
    fn close(&mut self) -> Option<Window> {
        let mut window = self.window.take()?;
        // Clocks may go back.
        window.end = now().max(window.start.saturating_add(1));
        self.ended = window.end;
        Some(window)
    }
}

/// Decoded content of a batch.
enum Read {
    Profiles(Vec<Measured>),
    Requests(Vec<Served>),
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}

impl Gatherer {
    /// Decodes a batch. Returns its content and the permit for its memory.
    async fn read(&self, batch: &Batch) -> Result<(Read, Permit), Nack> {
        let signal = batch.signal();
        let requests = batch.wire().clone();
        let mut memory = match signal {
            Signal::Profiles => {
                let needed = requests.parts().iter().map(|part| decoded_bytes(part));
                let needed = needed.fold(0, usize::saturating_add);
                self.budget.acquire(needed).map_err(refusal)?
            }
            _ => self.budget.empty_permit(),
        };
        let (keys, names) = (self.keys.clone(), self.names.clone());
        let work = move || {
            let parts = requests.parts().iter();
            if signal != Signal::Profiles {
                let all = parts.flat_map(|part| served(signal, part, &names));
                return Ok((Read::Requests(all.collect()), memory));
            }
            let mut all = Vec::new();
            for part in parts {
                let measured = measure(part, &keys, Bounds::of(part.len()), &mut memory);
                all.extend(measured.map_err(|error| {
                    let message = format!("cannot measure the profiles: {error}");
                    match error {
                        Unmeasured::NoRoom => Nack::unavailable(message),
                        _ => Nack::invalid(message),
                    }
                })?);
            }
            Ok((Read::Profiles(all), memory))
        };
        let read = on_a_turn_if_large(batch.bytes(), work).await;
        read.unwrap_or_else(|| Err(Nack::unavailable(CLOSED)))
    }

    /// Adds decoded content to the window, unless there is no room at the moment.
    fn take_in(
        &self,
        batch: &Batch,
        read: &mut Option<Read>,
        senders: &mut Senders,
    ) -> Result<Option<()>, Nack> {
        let mut state = self.holding.state();
        let state = &mut *state;
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        if state.ready.is_full(self.max_bytes) {
            return Ok(None);
        }
        let Gathered {
            window,
            ended,
            series,
        } = &mut state.gathered;
        let forgotten = &self.metrics.forgotten;
        let series =
            series.get_or_insert_with(|| Series::new(self.max_bytes, &self.budget, forgotten));
        let new = window.is_none();
        let window = window.get_or_insert_with(|| Window {
            due: Instant::now() + self.interval,
            start: match *ended {
                0 => now(),
                ended => ended,
            },
            end: 0,
            resources: Default::default(),
            requests: Default::default(),
            items: 0,
            senders: Senders::default(),
            bytes: 0,
            permit: self.budget.empty_permit(),
            others: Vec::new(),
        });
        let mut added = Added::default();
        let most = self.most_resources;
        let each: Vec<Added> = match read.take() {
            Some(Read::Profiles(all)) => all
                .into_iter()
                .map(|one| {
                    self.unknown.met(&one.unknown);
                    window.add(one, series, most)
                })
                .collect(),
            Some(Read::Requests(all)) => all
                .into_iter()
                .map(|one| window.serve(one, series, most))
                .collect(),
            None => Vec::new(),
        };
        for one in each {
            added.bytes += one.bytes;
            added.first += one.first;
        }
        self.metrics.first.increment(added.first as u64);
        window.bytes += added.bytes;
        window.items += batch.items();
        let senders = std::mem::take(senders);
        state.held += senders.held();
        window.senders.append(senders);
        let exceeded = window.permit.grow(added.bytes).is_err();
        if exceeded {
            let empty = batch.clone().with_wire(0, bytes::Bytes::new());
            window.others.push(empty);
        }
        if exceeded || window.bytes > self.max_bytes {
            self.metrics.early.increment(1);
            let full = state.gathered.close().into_iter();
            full.for_each(|window| state.ready.push(window));
            self.holding.wake();
        } else if new {
            self.holding.wake();
        }
        Ok(Some(()))
    }
}

impl Holder for Gatherer {
    type Gathered = Gathered;
    type Ready = Window;

    // One batch at a time: the CPU time of a service is added up in the order of time.
    const MAX_DELIVERIES: Deliveries = Deliveries {
        count: 1,
        bytes: usize::MAX,
    };

    fn holding(&self) -> &Holding<Gathered, Window> {
        &self.holding
    }

    async fn collect(&self) -> Collected {
        let mut state = self.holding.state();
        let state = &mut *state;
        let (urgent, now) = (state.is_urgent(), Instant::now());
        let gathered = &mut state.gathered;
        let is_due = |window: &Window| urgent || window.due <= now;
        if gathered.window.as_ref().is_some_and(is_due)
            && let Some(window) = gathered.close()
        {
            self.metrics.in_time.increment(1);
            state.ready.push(window);
        }
        Collected {
            due: state.gathered.window.as_ref().map(|window| window.due),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, mut window: Window) {
        let (items, functions) = (window.items, self.functions);
        let mut senders = std::mem::take(&mut window.senders);
        let bytes = window.bytes;
        let write = move || {
            let request = bytes::Bytes::from(write::request(&window, functions));
            window.resources.clear();
            window.requests.clear();
            (request, window)
        };
        let Some((request, window)) = on_a_turn_if_large(bytes, write).await else {
            return;
        };
        let limit = Limit {
            items: usize::MAX,
            bytes: REQUEST_BYTES,
        };
        let pieces = crate::pipeline::split(Signal::Metrics, &request, limit);
        let points = pieces.iter().map(|(points, _)| points).sum::<usize>();
        let held = senders.held();
        senders.became(points);
        self.became(items, points);
        self.holding.became(held, senders.held());
        // The window is dropped only now: the budget charges the memory in use.
        drop(window);
        let mut outcome = Ok(());
        // There may be no points: traces without served requests.
        for (points, piece) in pieces.into_iter().filter(|(points, _)| *points > 0) {
            let mut batch = Batch::new(Signal::Metrics, points, piece);
            batch.mark_joined();
            if let Ok(permit) = self.budget.acquire(batch.bytes()) {
                batch.hold(permit);
            }
            let handed_on = self.holding.hand_on(batch, &mut senders);
            outcome = outcome.and(handed_on.await);
        }
        senders.report(&outcome);
    }
}

impl Gatherer {
    /// Records that acknowledged items have become data points, for which the connector is
    /// responsible.
    fn became(&self, items: usize, points: usize) {
        self.account.dropped(items, DropReason::Merged);
        self.account.received(points);
    }
}

struct Entrance(Arc<Gatherer>);

impl Consumer for Entrance {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let gatherer = &self.0;
            gatherer.account.received(batch.items());
            let entering = Pending::new(&gatherer.account, batch.items());
            let (read, memory) = gatherer.read(&batch).await?;
            let mut read = Some(read);
            let (mut senders, answer) = Senders::of(&mut batch, false);
            let take_in = || gatherer.take_in(&batch, &mut read, &mut senders);
            gatherer.holding.retry_while_full(FULL, take_in).await?;
            drop(memory);
            // While the request waits, only its measurement stays in memory.
            drop(batch);
            answer.outcome().await?;
            entering.accepted();
            Ok(())
        })
    }

    /// Each batch ends here: its measurements are delivered as batches of their own.
    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }

    fn request_flush(&self, reason: FlushReason) {
        self.0.holding.request_flush(reason);
    }
}
