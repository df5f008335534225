//! Gathers requests into larger batches.
//!
//! The encoded requests are appended to each other without copying. In front of an exporter with a queue on disk a
//! request is acknowledged when that has it, and waits a short time for others at most. Otherwise it is acknowledged when
//! it was taken in, and from then on this processor answers for it: it offers a batch again until the next stage takes it, and takes no
//! more in once enough batches wait. A batch that is refused for good is taken apart and offered request by request,
//! so that one request's trouble never touches another's data.
//!
//! Requests of profiles each have a dictionary of their own, so they cannot just be appended: when a batch of them is
//! finished, they become one request with one dictionary, in which every sample is what it was. Where the memory budget
//! has no room to decode them, each goes for itself, as it came.

mod profiles;
mod waiting;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::component::{ALL_SIGNALS, BuildContext, BuildError, Entry, ProcessorConfig, Stage};
use crate::entry;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::holding::{
    CLOSED, Collected, Entered, Entrance, Holder, Holding, Life, MAX_READY, Most, Queue,
};
use crate::pipeline::senders::Senders;
use crate::processors::partition;
use crate::processors::partition::{Keys, Partition};
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{ComponentId, Problems, Validate};
use tributary_memory::Budget;
use tributary_otlp::Limit;
use tributary_otlp::Signal;
use waiting::{Piece, Sizes, Waiting};

/// The registry's entry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "batch",
    aliases: &[],
    "Gathers requests into larger batches.",
    ALL_SIGNALS
);

/// When a batch is large enough or old enough to be sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long the first item of a batch may wait. `0s` sends everything at once, subject to the maximum sizes.
    pub timeout: Duration,
    /// Items (spans, data points, log records, samples) that make a batch large enough to be sent. 0: items do not matter;
    /// without `send_batch_bytes` too, everything is sent at once.
    pub send_batch_size: u32,
    /// The most items of a batch; larger requests are split, profiles between their samples if need be. 0: no limit.
    pub send_batch_max_size: u32,
    /// Encoded bytes that make a batch large enough to be sent, as in `2MiB`. Those of profiles are counted before their
    /// dictionaries become one. 0: bytes do not matter.
    pub send_batch_bytes: ByteSize,
    /// The most encoded bytes of a batch, as in `4MiB`; larger requests are split. 0: no limit.
    pub send_batch_max_bytes: ByteSize,
    /// Request headers that keep data apart: one batch only has requests with equal values. The receiver must have
    /// `include_metadata: true`.
    pub metadata_keys: Vec<String>,
    /// The most combinations of values of `metadata_keys` in the life of the process; requests with further ones are
    /// refused. 0: no limit.
    pub metadata_cardinality_limit: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            timeout: Duration::millis(200),
            send_batch_size: 8192,
            send_batch_max_size: 0,
            send_batch_bytes: ByteSize(0),
            send_batch_max_bytes: ByteSize(0),
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 1000,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.send_batch_max_size > 0 && self.send_batch_max_size < self.send_batch_size {
            problems.error(
                &["send_batch_max_size"],
                "must be greater than or equal to `send_batch_size`, or 0 for no limit",
            );
        }
        if self.send_batch_max_bytes.0 > 0 && self.send_batch_max_bytes.0 < self.send_batch_bytes.0
        {
            problems.error(
                &["send_batch_max_bytes"],
                "must be greater than or equal to `send_batch_bytes`, or 0 for no limit",
            );
        }
        Keys::validate(&self.metadata_keys, problems);
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let config = self.clone();
        let metrics = Metrics::new(&cx.id);
        let budget = cx.budget.clone();
        Ok(Stage::Holding(Box::new(move |next| {
            let batcher = Arc::new(Batcher {
                sizes: config.sizes(),
                timeout: match next.consumer.stores() {
                    true => config.timeout.0.min(LONGEST_WAIT),
                    false => config.timeout.0,
                },
                senders_wait: next.consumer.stores(),
                keys: Keys::new(&config.metadata_keys),
                cardinality: limit(u64::from(config.metadata_cardinality_limit)),
                metrics,
                budget,
                holding: Holding::new(next),
            });
            let life = Life::new(batcher.clone());
            (Arc::new(Entrance(batcher)), Box::new(life))
        })))
    }
}

impl Config {
    fn sizes(&self) -> Sizes {
        let no_size = self.send_batch_size == 0 && self.send_batch_bytes.0 == 0;
        let at_once = self.timeout.is_zero() || no_size;
        let enough = |size: u64| if at_once { 1 } else { limit(size) };
        let most = Limit {
            items: limit(u64::from(self.send_batch_max_size)),
            bytes: limit(self.send_batch_max_bytes.0),
        };
        // What is as large as it may be has nothing to wait for. Besides, what remains after a batch was taken is then
        // always younger than that batch, so its time may start anew.
        Sizes {
            enough: Limit {
                items: enough(u64::from(self.send_batch_size)).min(most.items),
                bytes: enough(self.send_batch_bytes.0).min(most.bytes),
            },
            most,
        }
    }
}

/// 0 means no limit.
fn limit(size: u64) -> usize {
    match usize::try_from(size) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(size) => size,
    }
}

/// How much may be under way at once: as much again may be ready.
const MAX_UNDER_WAY: Most = Most {
    count: MAX_READY,
    bytes: 8 << 20,
};

/// How long a sender waits at most for others whose requests are batched with its own, where it waits until they are on a
/// disk. Clients often send one request after the other: this bounds how much one of them can send, and so a batch goes
/// as soon as it has as many requests as can be expected, see [`Group::is_complete`].
const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_millis(20);

/// Where senders wait, how many batches are on their way at once without having been waited for: the disk has one while
/// the processor makes the next.
const TURNS: usize = 2;
/// From how many bytes on half of the senders' requests are the other one. Each write costs the processor about as much as
/// 100 KiB of data. This and the next were measured on one machine, with 2 MiB of cache for a core.
const TURN_BYTES: usize = 768 << 10;
/// From how many bytes on there is nothing more to wait for: what is larger has left the processor's cache before it is
/// written.
const LARGE_TURN_BYTES: usize = 1 << 20;

const FULL: &str = "the batch processor is full: the next stage does not take its batches";

struct Batcher {
    sizes: Sizes,
    timeout: std::time::Duration,
    keys: Keys,
    cardinality: usize,
    metrics: Metrics,
    budget: Arc<Budget>,
    /// Whether a request is acknowledged when the next stage has it, because that has it on a disk then.
    senders_wait: bool,
    holding: Holding<HashMap<Partition, Group>, Piece>,
}

/// What came with the same values of `metadata_keys`.
#[derive(Default)]
struct Group {
    waiting: Waiting,
    /// When the first of the waiting requests must go.
    due: Option<Instant>,
    /// How many batches the next stage has, and for how many requests, or pieces of one, somebody waits there.
    under_way: usize,
    senders_under_way: usize,
    /// Where senders wait: how many requests wait or are under way, and how many senders come back with their next one, as
    /// of when some were answered last. 0: not known.
    expected: usize,
    /// The most that were expected lately, for who was answered before that and was not back yet is not among the expected.
    /// 0: not known.
    population: usize,
}

impl Group {
    /// Whether, where senders wait, there is nothing to wait for.
    fn is_complete(&self) -> bool {
        let (requests, bytes) = (self.waiting.requests(), self.waiting.bytes());
        let all_are_back = self.expected > 0 && requests >= self.expected;
        let half_are_here = requests >= self.population.div_ceil(TURNS);
        let is_turn = bytes >= LARGE_TURN_BYTES || half_are_here && bytes >= TURN_BYTES;
        self.under_way == 0 && all_are_back || self.under_way < TURNS && is_turn
    }

    /// The next batch, on its way.
    fn take(&mut self, sizes: &Sizes) -> Option<Piece> {
        let piece = self.waiting.take(sizes)?;
        self.under_way += 1;
        self.senders_under_way += piece.senders.waiting();
        Some(piece)
    }

    /// The next stage has a batch that so many waited for; so many of them are answered by that.
    fn handed_on(&mut self, waited: usize, answered: usize) {
        self.under_way -= 1;
        self.senders_under_way -= waited;
        self.expected = answered + self.senders_under_way + self.waiting.requests();
        let forgotten = self.population.div_ceil(8);
        self.population = self.expected.max(self.population - forgotten);
    }
}

impl Batcher {
    /// Takes what one client sent out of `offered`, unless there is no room for it now.
    fn take_in(
        &self,
        offered: &mut SmallVec<[Batch; 1]>,
        senders: &mut Senders,
    ) -> Result<Option<()>, Nack> {
        let mut state = self.holding.state();
        let state = &mut *state;
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let Some(first) = offered.first() else {
            return Ok(Some(()));
        };
        if state.ready.is_full(MAX_UNDER_WAY.bytes / 2) {
            return Ok(None);
        }
        let known = state.gathered.len();
        let group = match state.gathered.entry(self.keys.partition(first)) {
            Place::Occupied(entry) => entry.into_mut(),
            Place::Vacant(entry) => {
                if known >= self.cardinality {
                    return Err(partition::too_many());
                }
                self.metrics.cardinality.set((known + 1) as f64);
                entry.insert(Group::default())
            }
        };
        for batch in offered.drain(..) {
            let senders = senders.split(batch.items());
            state.held += senders.held();
            group.waiting.push(Piece { batch, senders });
        }
        let mut wake = false;
        while group.waiting.is_enough(&self.sizes) {
            let Some(batch) = group.take(&self.sizes) else {
                break;
            };
            self.metrics.size_trigger.increment(1);
            state.ready.push(batch);
            group.due = None;
            wake = true;
        }
        if self.senders_wait && group.is_complete() {
            self.send_all(group, &mut state.ready, &self.metrics.size_trigger);
            wake = true;
        }
        if group.due.is_none() && !group.waiting.is_empty() {
            group.due = Some(Instant::now() + self.timeout);
            wake = true;
        }
        if wake {
            self.holding.wake();
        }
        Ok(Some(()))
    }

    /// All that waits is ready to go, though it may be less than enough.
    fn send_all(&self, group: &mut Group, ready: &mut Queue<Piece>, trigger: &Counter) {
        while let Some(batch) = group.take(&self.sizes) {
            trigger.increment(1);
            ready.push(batch);
        }
        group.due = None;
    }
}

impl Holder for Batcher {
    type Gathered = HashMap<Partition, Group>;
    type Ready = Piece;

    const UNDER_WAY: Most = MAX_UNDER_WAY;

    fn holding(&self) -> &Holding<Self::Gathered, Piece> {
        &self.holding
    }

    async fn collect(&self) -> Collected {
        let mut state = self.holding.state();
        let state = &mut *state;
        let now = Instant::now();
        let urgent = state.is_urgent();
        let mut next: Option<Instant> = None;
        for group in state.gathered.values_mut() {
            let Some(due) = group.due else { continue };
            let complete = self.senders_wait && group.is_complete();
            if due > now && !urgent && !complete {
                next = Some(next.map_or(due, |earlier| earlier.min(due)));
                continue;
            }
            let trigger = match complete {
                true => &self.metrics.size_trigger,
                false => &self.metrics.timeout_trigger,
            };
            if !complete {
                // Who was waited for did not come, or there was no time to.
                group.population = 0;
            }
            self.send_all(group, &mut state.ready, trigger);
        }
        Collected {
            due: next,
            closed: state.closed,
        }
    }

    async fn hand_on(&self, piece: Piece) {
        let Piece { batch, mut senders } = piece;
        let partition = self.keys.partition(&batch);
        let waited = senders.waiting();
        let mut outcome = Ok(());
        for (batch, parts) in profiles::whole(batch, self.sizes.most, &self.budget).await {
            self.metrics.send_size.record(batch.items() as f64);
            self.metrics.send_size_bytes.record(batch.bytes() as f64);
            let handed_on = self.holding.hand_on(batch, &mut senders, || apart(parts));
            outcome = outcome.and(handed_on.await);
        }
        if let Some(group) = self.holding.state().gathered.get_mut(&partition) {
            group.handed_on(waited, senders.waiting_for_this_only());
        }
        senders.tell(&outcome);
    }
}

/// The requests of a batch.
fn apart(batch: Batch) -> Vec<Batch> {
    let requests = batch.clone().into_wire();
    let each = requests.into_parts().map(|request| {
        let items = tributary_otlp::count(batch.signal(), &request);
        batch.clone().with_wire(items, request)
    });
    each.collect()
}

impl Entered for Batcher {
    const ANSWERS_EARLY: bool = false;

    async fn enter(self: &Arc<Self>, mut batch: Batch) -> Result<(), Nack> {
        batch.wire();
        let (most, budget) = (self.sizes.most, &self.budget);
        let (mut senders, answer) = Senders::of(&mut batch, self.senders_wait);
        let mut offered = profiles::within(batch, most, budget).await;
        let holding = &self.holding;
        let take_in = || self.take_in(&mut offered, &mut senders);
        holding.with_patience(FULL, take_in).await?;
        // Every piece has them by now.
        senders.tell(&Ok(()));
        answer.outcome().await
    }
}

struct Metrics {
    send_size: Histogram,
    send_size_bytes: Histogram,
    size_trigger: Counter,
    timeout_trigger: Counter,
    cardinality: Gauge,
}

impl Metrics {
    fn new(processor: &ComponentId) -> Self {
        let labels = [("processor", processor.to_string())];
        Metrics {
            send_size: metrics::histogram!("otelcol_processor_batch_batch_send_size", &labels),
            send_size_bytes: metrics::histogram!(
                "otelcol_processor_batch_batch_send_size_bytes",
                &labels
            ),
            size_trigger: metrics::counter!(
                "otelcol_processor_batch_batch_size_trigger_send",
                &labels
            ),
            timeout_trigger: metrics::counter!(
                "otelcol_processor_batch_timeout_trigger_send",
                &labels
            ),
            cardinality: metrics::gauge!("otelcol_processor_batch_metadata_cardinality", &labels),
        }
    }
}

#[cfg(test)]
mod tests;
