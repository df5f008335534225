//! Merges requests into larger batches.
//!
//! The encoded requests are appended to each other without copying. In front of an exporter with a
//! persistent queue, a request is acknowledged once the queue has persisted it, and waits only a
//! short time for other requests. Otherwise a request is acknowledged when it is buffered, and the
//! processor becomes responsible for it. The processor then retries each batch until the next stage
//! accepts it, and applies back-pressure once enough batches are ready. A permanently refused batch
//! is split and its requests are sent one by one, so that an invalid request does not affect other
//! requests.
//!
//! Each request of profiles has its own dictionary, so such requests cannot simply be appended.
//! When a batch of profiles is complete, its requests are merged into one request with one
//! dictionary, and no sample changes. If the memory budget has no room to decode the requests, each
//! is sent separately, as received.

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

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "batch",
    aliases: &[],
    "Gathers requests into larger batches.",
    ALL_SIGNALS
);

/// Size and age at which a batch is sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Longest time that the first item of a batch waits. `0s` sends everything at once, subject to
    /// the maximum sizes.
    pub timeout: Duration,
    /// Number of items (spans, data points, log records, samples) at which a batch is sent. 0: no
    /// item threshold; without `send_batch_bytes` too, everything is sent at once.
    pub send_batch_size: u32,
    /// Maximum number of items in a batch. Larger requests are split, profiles between their
    /// samples if necessary. 0: no limit.
    pub send_batch_max_size: u32,
    /// Encoded size at which a batch is sent, as in `2MiB`. The size of profiles is measured before
    /// their dictionaries are merged. 0: no size threshold.
    pub send_batch_bytes: ByteSize,
    /// Maximum encoded size of a batch, as in `4MiB`; larger requests are split. 0: no limit.
    pub send_batch_max_bytes: ByteSize,
    /// Request headers that separate batches: all requests of a batch have equal values. The
    /// receiver must have `include_metadata: true`.
    pub metadata_keys: Vec<String>,
    /// Maximum number of distinct combinations of values of `metadata_keys` during the life of the
    /// process; requests with further ones are refused. 0: no limit.
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
        // A batch of the maximum size has nothing to wait for. Besides, requests left over from a
        // batch are always younger than the batch, so their timeout may start again.
        Sizes {
            enough: Limit {
                items: enough(u64::from(self.send_batch_size)).min(most.items),
                bytes: enough(self.send_batch_bytes.0).min(most.bytes),
            },
            most,
        }
    }
}

/// Returns a size limit; 0 means no limit.
fn limit(size: u64) -> usize {
    match usize::try_from(size) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(size) => size,
    }
}

/// Limit on batches in flight. The same amount may be ready in addition.
const MAX_UNDER_WAY: Most = Most {
    count: MAX_READY,
    bytes: 8 << 20,
};

/// Longest time that a request waits for other requests if senders wait until their requests are
/// persisted. Many clients send one request after the other, so this time limits their throughput.
/// A batch is sent early once it has as many requests as can be expected, see
/// [`Group::is_complete`].
const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_millis(20);

/// If senders wait, number of batches sent without waiting for more requests: the disk writes one
/// while the processor prepares the next.
const TURNS: usize = 2;
/// Minimum size of a partial flush, in bytes, while another write is in flight. Each write costs
/// about as much CPU time as 100 KiB of data. This value and the next were measured on one machine,
/// with 2 MiB of cache per core.
const TURN_BYTES: usize = 768 << 10;
/// Size, in bytes, at which a batch is sent at once: a larger one leaves the CPU cache before it is
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
    /// Whether a request is acknowledged only by the next stage, after the next stage has persisted
    /// it.
    senders_wait: bool,
    holding: Holding<HashMap<Partition, Group>, Piece>,
}

/// Requests with equal values of `metadata_keys`.
#[derive(Default)]
struct Group {
    waiting: Waiting,
    /// Deadline of the first waiting request.
    due: Option<Instant>,
    /// Number of batches in flight, and number of senders, of whole or split requests, that wait
    /// for their outcome.
    under_way: usize,
    senders_under_way: usize,
    /// If senders wait, the number of requests that wait or are in flight plus the number of
    /// senders about to send their next request, as of the last acknowledgment. 0: not known.
    expected: usize,
    /// Recent maximum of `expected`, which does not count senders that were acknowledged earlier
    /// and have not sent again. 0: not known.
    population: usize,
}

impl Group {
    /// Whether, if senders wait, the batch has no reason to wait for more requests.
    fn is_complete(&self) -> bool {
        let (requests, bytes) = (self.waiting.requests(), self.waiting.bytes());
        let all_are_back = self.expected > 0 && requests >= self.expected;
        let half_are_here = requests >= self.population.div_ceil(TURNS);
        let is_turn = bytes >= LARGE_TURN_BYTES || half_are_here && bytes >= TURN_BYTES;
        self.under_way == 0 && all_are_back || self.under_way < TURNS && is_turn
    }

    /// Takes the next batch, which is then in flight.
    fn take(&mut self, sizes: &Sizes) -> Option<Piece> {
        let piece = self.waiting.take(sizes)?;
        self.under_way += 1;
        self.senders_under_way += piece.senders.waiting();
        Some(piece)
    }

    /// Records that the outcome of a batch is known. `waited` senders waited for it; `answered` of
    /// them have nothing else in flight.
    fn handed_on(&mut self, waited: usize, answered: usize) {
        self.under_way -= 1;
        self.senders_under_way -= waited;
        self.expected = answered + self.senders_under_way + self.waiting.requests();
        let forgotten = self.population.div_ceil(8);
        self.population = self.expected.max(self.population - forgotten);
    }
}

impl Batcher {
    /// Moves one client's batches out of `offered`, unless there is no room at the moment.
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

    /// Makes all waiting requests ready, even if they are below the thresholds.
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
                // The expected requests did not arrive in time.
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

/// Splits a batch into its requests.
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
        // Every piece has been assigned its senders by now.
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
