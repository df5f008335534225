//! The stage. A record is acknowledged when it has been counted. From then on, this processor is responsible for the
//! record.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use metrics::Counter;
use tokio::time::Instant;

use super::conditions::{Conditions, Divided};
use super::count::{Clock, Counted, FOUND_BYTES, Found, Identity, Output};
use super::fields::Path;
use super::{Config, zone};
use crate::component::{BufferingStage, BuildContext};
use crate::pipeline::batch::{Batch, Metadata, Nack, metadata_bytes};
use crate::pipeline::buffer::{
    Buffer, BufferEntrance, BufferLifecycle, BufferingConsumer, BufferingProcessor, Collected,
    Deliveries,
};
use crate::pipeline::output_memory::OutputMemory;
use crate::pipeline::partition::{Keys, Partition};
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::turns::on_a_turn_if_large;
use crate::pipeline::{Next, buffer, partition};
use tributary_memory::{Budget, Permit};
use tributary_otlp::{Limit, Signal};

const FULL: &str =
    "the log_dedup processor is full, because the next stage does not accept records; retry later";

/// Memory overhead of a partition besides its headers and records, in bytes.
const PARTITION_BYTES: usize = 256;

/// Maximum size of the requests into which the records of an interval are split, in bytes: small enough for any
/// receiver.
const REQUEST_BYTES: usize = 2 << 20;

pub(super) fn connect(
    config: Config,
    cx: &BuildContext,
) -> Box<dyn FnOnce(Next) -> BufferingStage> {
    let budget = cx.budget.clone();
    let metrics = Metrics::new(&cx.id.to_string());
    Box::new(move |next| {
        let paths = |names: &[String]| {
            let paths = names.iter().filter_map(|name| Path::parse(name).ok());
            paths.collect::<Vec<_>>()
        };
        let cardinality = usize::try_from(config.metadata_cardinality_limit).unwrap_or(usize::MAX);
        let counter = Arc::new(LogCounter {
            identity: Identity::new(paths(&config.exclude_fields), paths(&config.include_fields)),
            output: Arc::new(Output {
                count_attribute: config.log_count_attribute,
                zone: zone(&config.timezone).unwrap_or(TimeZone::UTC),
            }),
            interval: config.interval.0,
            max_bytes: config.max_bytes.as_usize(),
            keys: Keys::new(&config.metadata_keys),
            keeps_metadata: !config.metadata_keys.is_empty(),
            cardinality: match cardinality {
                0 => usize::MAX,
                limit => limit,
            },
            conditions: Conditions::new(&config.conditions),
            budget,
            metrics,
            buffer: Buffer::new(next),
        });
        let life = BufferLifecycle::new(counter.clone());
        (Arc::new(BufferEntrance(counter)), Box::new(life))
    })
}

struct LogCounter {
    identity: Identity,
    conditions: Conditions,
    output: Arc<Output>,
    interval: Duration,
    max_bytes: usize,
    keys: Keys,
    keeps_metadata: bool,
    cardinality: usize,
    budget: Arc<Budget>,
    metrics: Metrics,
    buffer: Buffer<Option<Interval>, Ready>,
}

/// An interval or a batch that is ready for the next stage.
enum Ready {
    Interval(Box<Interval>),
    /// Records that are not counted.
    Passing(Batch, Senders),
}

impl buffer::Buffered for Ready {
    fn bytes(&self) -> usize {
        match self {
            Ready::Interval(interval) => interval.bytes,
            Ready::Passing(batch, _) => batch.bytes(),
        }
    }

    fn can_wait(&self) -> bool {
        match self {
            Ready::Interval(interval) => interval.senders.can_wait(),
            Ready::Passing(_, senders) => senders.can_wait(),
        }
    }
}

/// Records counted within one interval.
struct Interval {
    due: Instant,
    clock: Clock,
    partitions: HashMap<Partition, (Counted, Option<Arc<Metadata>>)>,
    /// Number of buffered records before counting.
    items: usize,
    senders: Senders,
    bytes: usize,
    permit: Permit,
    /// Empty batches whose permits are kept, because the budget had no room for `permit` to grow.
    others: Vec<Batch>,
}

impl LogCounter {
    /// Counts the records of a request and queues its passing records. Returns `None` if there is no room now.
    fn take_in(
        &self,
        batch: &Batch,
        found: &Found<'_>,
        passing: &mut Option<Batch>,
        senders: &mut Senders,
    ) -> Result<Option<()>, Nack> {
        let mut state = self.buffer.state();
        let state = &mut *state;
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        if state.ready.is_full(self.max_bytes) {
            return Ok(None);
        }
        if batch.items() > 0 {
            self.count(state, batch, found, senders)?;
        }
        // Last, because a refused request is refused as a whole.
        if let Some(passing) = passing.take() {
            let senders = senders.split(passing.items());
            state.acknowledged += senders.held();
            state.ready.push(Ready::Passing(passing, senders));
            self.buffer.wake();
        }
        Ok(Some(()))
    }

    fn count(
        &self,
        state: &mut buffer::State<Option<Interval>, Ready>,
        batch: &Batch,
        found: &Found<'_>,
        senders: &mut Senders,
    ) -> Result<(), Nack> {
        let new = state.gathered.is_none();
        let interval = state.gathered.get_or_insert_with(|| Interval {
            due: Instant::now() + self.interval,
            clock: Clock::start(),
            partitions: HashMap::new(),
            items: 0,
            senders: Senders::default(),
            bytes: 0,
            permit: self.budget.empty_permit(),
            others: Vec::new(),
        });
        let known = interval.partitions.len();
        let mut more = 0;
        let (counted, _) = match interval.partitions.entry(self.keys.partition(batch)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) if known >= self.cardinality => return Err(partition::too_many()),
            Entry::Vacant(entry) => {
                let metadata = batch.metadata.clone().filter(|_| self.keeps_metadata);
                more = metadata.as_deref().map_or(0, metadata_bytes) + PARTITION_BYTES;
                entry.insert((Counted::default(), metadata))
            }
        };
        let before = counted.bytes();
        counted.add(found, interval.clock.now());
        more += counted.bytes() - before;
        interval.bytes += more;
        interval.items += batch.items();
        let senders = senders.split(batch.items());
        state.acknowledged += senders.held();
        interval.senders.append(senders);
        let exceeded = interval.permit.grow(more).is_err();
        if exceeded {
            interval
                .others
                .push(batch.clone().with_wire(0, bytes::Bytes::new()));
        }
        if exceeded || interval.bytes > self.max_bytes {
            self.metrics.early.increment(1);
            state
                .gathered
                .take()
                .into_iter()
                .for_each(|interval| state.ready.push(Ready::Interval(Box::new(interval))));
            self.buffer.wake();
        } else if new {
            self.buffer.wake();
        }
        Ok(())
    }
}

impl BufferingProcessor for LogCounter {
    type Gathered = Option<Interval>;
    type Ready = Ready;

    const MAX_DELIVERIES: Deliveries = Deliveries {
        count: 4,
        bytes: usize::MAX,
    };

    fn buffer(&self) -> &Buffer<Option<Interval>, Ready> {
        &self.buffer
    }

    async fn collect(&self) -> Collected {
        let mut state = self.buffer.state();
        let state = &mut *state;
        let urgent = state.is_urgent();
        let now = Instant::now();
        if let Some(interval) = state
            .gathered
            .take_if(|interval| urgent || interval.due <= now)
        {
            self.metrics.in_time.increment(1);
            state.ready.push(Ready::Interval(Box::new(interval)));
        }
        Collected {
            due: state.gathered.as_ref().map(|interval| interval.due),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, ready: Ready) {
        let interval = match ready {
            Ready::Interval(interval) => *interval,
            Ready::Passing(batch, mut senders) => {
                let outcome = self.buffer.hand_on(batch, &mut senders).await;
                return senders.report(&outcome);
            }
        };
        let Interval {
            clock,
            partitions,
            items,
            mut senders,
            bytes,
            mut permit,
            others,
            ..
        } = interval;
        let output = self.output.clone();
        let now = clock.now();
        let write = move || {
            let requests = partitions.into_values().flat_map(|(counted, metadata)| {
                let request = counted.request(&output, now);
                drop(counted);
                let limit = Limit {
                    items: usize::MAX,
                    bytes: REQUEST_BYTES,
                };
                let pieces = crate::pipeline::split(Signal::Logs, &request, limit).into_iter();
                pieces.map(move |(items, piece)| {
                    let mut batch = Batch::new(Signal::Logs, items, piece);
                    batch.metadata = metadata.clone();
                    batch.mark_joined();
                    batch
                })
            });
            requests.collect::<Vec<Batch>>()
        };
        let Some(mut batches) = on_a_turn_if_large(bytes, write).await else {
            return;
        };
        let left = batches.iter().map(Batch::items).sum::<usize>();
        let held = senders.held();
        senders.became(left);
        let merging = self.buffer.merging(items, left, &senders);
        self.buffer.became(held, senders.held());
        // Released only now, because the budget accounts for the current memory, not the future one.
        drop(others);
        let mut needed = batches.iter().map(Batch::bytes).sum::<usize>();
        permit.shrink_to(needed);
        for batch in &mut batches {
            needed -= batch.bytes();
            permit.shrink_to(needed);
            if let Ok(own) = self.budget.acquire(batch.bytes()) {
                batch.hold(own);
            }
        }
        let mut outcome = Ok(());
        for batch in batches {
            let handed_on = self.buffer.hand_on(batch, &mut senders);
            outcome = outcome.and(handed_on.await);
        }
        merging.over(&outcome);
        senders.report(&outcome);
    }
}

impl BufferingConsumer for LogCounter {
    async fn enter(self: &Arc<Self>, mut batch: Batch) -> Result<(), Nack> {
        let (mut senders, answer) = Senders::of(&mut batch, false);
        let mut passing = None;
        if !self.conditions.is_empty() {
            let memory = OutputMemory::new(&self.budget);
            let Divided {
                counted,
                passing: rest,
            } = self.conditions.divide(batch.wire(), &memory)?;
            let permit = memory.keep(counted.0.len() + rest.0.len());
            if rest.1 > 0 {
                passing = Some(batch.clone().with_output(rest.1, rest.0, permit));
            }
            batch = batch.with_wire(counted.1, counted.0);
        }
        let requests = batch.wire().clone();
        let needed = batch.items().saturating_mul(FOUND_BYTES);
        let working = self.budget.acquire(needed).map_err(|_| {
            Nack::unavailable("the memory budget is used up; cannot buffer log records now")
        })?;
        let mut found = Found::default();
        for request in requests.parts() {
            self.identity.find(request, &mut found);
        }
        let take_in = || self.take_in(&batch, &found, &mut passing, &mut senders);
        self.buffer.retry_while_full(FULL, take_in).await?;
        // The counted and the passing records have their own senders now.
        senders.report(&Ok(()));
        // While the request waits, only its counts are in memory.
        drop(found);
        drop((requests, working, batch));
        answer.outcome().await
    }
}

struct Metrics {
    /// Number of intervals that ended on time, and early.
    in_time: Counter,
    early: Counter,
}

impl Metrics {
    fn new(processor: &str) -> Self {
        let flushes = |trigger: &'static str| {
            metrics::counter!(
                "tributary_processor_log_dedup_flushes",
                "processor" => processor.to_owned(),
                "trigger" => trigger
            )
        };
        Metrics {
            in_time: flushes("interval"),
            early: flushes("memory"),
        }
    }
}
