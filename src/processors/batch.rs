//! Merges requests into larger batches.
//!
//! The encoded requests are appended to each other without copying. In front of an exporter with a
//! persistent queue, a request is acknowledged once the queue has persisted it. It waits for other
//! requests only while another batch is being persisted. Otherwise a request is acknowledged when it
//! is buffered, and the processor becomes responsible for it. The processor then retries each batch
//! until the next stage accepts it, and applies back-pressure once enough batches are ready. A
//! permanently refused batch is sent again in halves, so that an invalid request does not affect
//! other requests.
//!
//! Each request of profiles has its own dictionary, so such requests cannot simply be appended.
//! When a batch of profiles is complete, its requests are merged into one request with one
//! dictionary, and no sample changes. If the memory budget has no room to decode the requests, each
//! is sent separately, as received.

mod config;
mod metrics;

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::sync::Arc;

use ::metrics::Counter;
use tokio::time::Instant;

pub use self::config::Config;
use self::config::limit;
use self::metrics::Metrics;
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Origin, ProcessorConfig, Stage,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::gathering::{Gathered, Gathering, Measured, Sizes};
use crate::pipeline::holding::{
    Collected, Deliveries, Entered, Entrance, Holder, Holding, Life, MAX_READY, Queue,
};
use crate::pipeline::merge::merge;
use crate::pipeline::partition::{Keys, Partition};
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::split::{Parts, within};
use crate::pipeline::{holding, partition};
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ProcessorConfig> = entry!(
    dyn ProcessorConfig,
    Config,
    "batch",
    aliases: &[],
    "Merges requests into larger batches.",
    ALL_SIGNALS,
    collector: Origin::Core,
    metrics: &[shared::PROCESSOR, METRICS]
);

const METRICS: &[Metric] = &[
    metric::histogram(
        "otelcol_processor_batch_batch_send_size",
        "Number of items per batch that was sent",
    ),
    metric::histogram(
        "otelcol_processor_batch_batch_send_size_bytes",
        "Encoded size of the batches that were sent, in bytes; only at metrics level `detailed`",
    ),
    metric::counter(
        "otelcol_processor_batch_batch_size_trigger_send",
        "Number of batches sent because of their size",
    ),
    metric::counter(
        "otelcol_processor_batch_timeout_trigger_send",
        "Number of batches sent because of `timeout`",
    ),
    metric::gauge(
        "otelcol_processor_batch_metadata_cardinality",
        "Number of distinct combinations of values of `metadata_keys`",
    ),
];

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let config = self.clone();
        let metrics = Metrics::new(&cx.id);
        let budget = cx.budget.clone();
        Ok(Stage::Buffering(Box::new(move |next| {
            let sizes = config.sizes();
            let buffered = Buffered {
                gathering: Gathering::new(sizes, config.timeout.0),
                in_flight: HashMap::new(),
            };
            let batcher = Arc::new(Batcher {
                sizes,
                senders_wait: next.consumer.stores(),
                keys: Keys::new(&config.metadata_keys),
                cardinality: limit(u64::from(config.metadata_cardinality_limit)),
                metrics,
                budget,
                holding: Holding::over(next, buffered),
            });
            let life = Life::new(batcher.clone());
            (Arc::new(Entrance(batcher)), Box::new(life))
        })))
    }
}

/// Limit on batches in flight. The same amount may be ready in addition.
const MAX_DELIVERIES: Deliveries = Deliveries {
    count: MAX_READY,
    bytes: 8 << 20,
};

const FULL: &str =
    "the batch processor is full, because the next stage does not accept batches; retry later";

struct Batcher {
    sizes: Sizes,
    keys: Keys,
    cardinality: usize,
    metrics: Metrics,
    budget: Arc<Budget>,
    /// Whether a request is acknowledged only by the next stage, after the next stage has persisted it.
    senders_wait: bool,
    holding: Holding<Buffered, Piece>,
}

struct Buffered {
    gathering: Gathering<Piece>,
    /// Number of batches in flight, for each partition that was ever seen.
    in_flight: HashMap<Partition, usize>,
}

/// Requests with their senders.
struct Piece {
    batch: Batch,
    senders: Senders,
}

impl Measured for Piece {
    fn items(&self) -> usize {
        self.batch.items()
    }

    fn bytes(&self) -> usize {
        self.batch.bytes()
    }
}

impl holding::Bytes for Piece {
    fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    fn can_wait(&self) -> bool {
        self.senders.can_wait()
    }
}

impl Batcher {
    /// Moves one client's batches out of `offered`, unless there is no room at the moment.
    fn take_in(
        &self,
        offered: &mut Parts<Batch>,
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
        if state.ready.is_full(MAX_DELIVERIES.bytes / 2) {
            return Ok(None);
        }
        let partition = self.keys.partition(first);
        let Buffered {
            gathering,
            in_flight,
        } = &mut state.gathered;
        let known = in_flight.len();
        let in_flight = match in_flight.entry(partition.clone()) {
            Place::Occupied(entry) => entry.into_mut(),
            Place::Vacant(entry) => {
                if known >= self.cardinality {
                    return Err(partition::too_many());
                }
                self.metrics.cardinality.set((known + 1) as f64);
                entry.insert(0)
            }
        };
        let mut complete = Vec::new();
        let mut has_deadline = false;
        for batch in offered.drain(..) {
            let senders = senders.split(batch.items());
            state.held += senders.held();
            let piece = Piece { batch, senders };
            has_deadline |= gathering.push(&partition, piece, |batch| complete.push(batch));
        }
        // Group commit: while the next stage is idle, there is no reason to wait for more requests. Requests that
        // arrive while a batch is in flight form the next one, so batches grow with the load.
        if self.senders_wait && *in_flight == 0 && complete.is_empty() {
            complete.extend(gathering.take(&partition));
        }
        if has_deadline || !complete.is_empty() {
            self.holding.wake();
        }
        for pieces in complete {
            make_ready(
                pieces,
                &mut state.ready,
                in_flight,
                &self.metrics.size_trigger,
            );
        }
        Ok(Some(()))
    }
}

/// Moves a complete batch to the ready queue. From then on it is in flight.
fn make_ready(
    pieces: Gathered<Piece>,
    ready: &mut Queue<Piece>,
    in_flight: &mut usize,
    trigger: &Counter,
) {
    let append = |mut batch: Piece, piece: Piece| {
        batch.batch.append(piece.batch);
        batch.senders.append(piece.senders);
        batch
    };
    if let Some(batch) = pieces.into_iter().reduce(append) {
        *in_flight += 1;
        trigger.increment(1);
        ready.push(batch);
    }
}

impl Holder for Batcher {
    type Gathered = Buffered;
    type Ready = Piece;

    const MAX_DELIVERIES: Deliveries = MAX_DELIVERIES;

    fn holding(&self) -> &Holding<Self::Gathered, Piece> {
        &self.holding
    }

    async fn collect(&self) -> Collected {
        let mut state = self.holding.state();
        let urgent = state.is_urgent();
        let state = &mut *state;
        let now = Instant::now();
        let Buffered {
            gathering,
            in_flight,
        } = &mut state.gathered;
        let due = match urgent {
            true => gathering.take_all(),
            false => std::iter::from_fn(|| gathering.take_due(now)).collect(),
        };
        for (partition, pieces) in due {
            let count = in_flight.entry(partition).or_default();
            make_ready(
                pieces,
                &mut state.ready,
                count,
                &self.metrics.timeout_trigger,
            );
        }
        let idle = in_flight.iter_mut().filter(|(_, count)| **count == 0);
        for (partition, count) in idle.filter(|_| self.senders_wait) {
            if let Some(pieces) = gathering.take(partition) {
                make_ready(pieces, &mut state.ready, count, &self.metrics.size_trigger);
            }
        }
        Collected {
            due: gathering.next_deadline(),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, piece: Piece) {
        let Piece { batch, mut senders } = piece;
        let partition = self.keys.partition(&batch);
        let mut outcome = Ok(());
        for batch in merge(batch, self.sizes.max.bytes, &self.budget).await {
            self.metrics.send_size.record(batch.items() as f64);
            self.metrics.send_size_bytes.record(batch.bytes() as f64);
            let handed_on = self.holding.hand_on(batch, &mut senders);
            outcome = outcome.and(handed_on.await);
        }
        if let Some(count) = self.holding.state().gathered.in_flight.get_mut(&partition) {
            *count -= 1;
        }
        senders.report(&outcome);
    }
}

impl Entered for Batcher {
    const ACKNOWLEDGES_EARLY: bool = false;

    async fn enter(self: &Arc<Self>, mut batch: Batch) -> Result<(), Nack> {
        let (max, budget) = (self.sizes.max, &self.budget);
        let (mut senders, answer) = Senders::of(&mut batch, self.senders_wait);
        let mut offered = within(batch, max, budget).await;
        let holding = &self.holding;
        let take_in = || self.take_in(&mut offered, &mut senders);
        holding.retry_while_full(FULL, take_in).await?;
        // Every part has its senders now.
        senders.report(&Ok(()));
        answer.outcome().await
    }
}

#[cfg(test)]
mod tests;
