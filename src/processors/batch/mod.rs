//! Gathers requests into larger batches.
//!
//! The encoded requests are appended to each other without copying. A request is acknowledged when it was taken in, so
//! from then on this processor answers for it: it offers a batch again until the next stage takes it, and takes no
//! more in once enough batches wait. A batch that is refused for good is taken apart and offered request by request,
//! so that one request's trouble never touches another's data.
//!
//! Requests of profiles each have a dictionary of their own, so they cannot just be appended: when a batch of them is
//! finished, they become one request with one dictionary, in which every sample is what it was.

mod flush;
mod profiles;
mod waiting;

use std::collections::HashMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::batch::{Batch, Nack, Signal};
use crate::component::{
    ALL_SIGNALS, BuildContext, BuildError, Entry, Next, ProcessorConfig, Stage,
};
use crate::config::units::{ByteSize, Duration};
use crate::config::{ComponentId, Problems, Validate};
use crate::entry;
use crate::pipeline::{BoxFuture, Component, Consumer, Undelivered};
use crate::telemetry::DropReason;
use crate::wire::Limit;
use waiting::{Sizes, Waiting};

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
        let mut seen: Vec<String> = Vec::new();
        for (at, key) in self.metadata_keys.iter().enumerate() {
            let key = key.to_ascii_lowercase();
            if seen.contains(&key) {
                problems.error(
                    &["metadata_keys", &at.to_string()],
                    format!("duplicate entry `{key}` (upper and lower case do not differ)"),
                );
            }
            seen.push(key);
        }
    }
}

impl ProcessorConfig for Config {
    fn build(&self, cx: &BuildContext, _: Signal) -> Result<Stage, BuildError> {
        let config = self.clone();
        let metrics = Metrics::new(&cx.id);
        Ok(Stage::Holding(Box::new(move |next| {
            let shared = Arc::new(Shared {
                sizes: config.sizes(),
                timeout: config.timeout.0,
                keys: config
                    .metadata_keys
                    .iter()
                    .map(|key| key.to_ascii_lowercase())
                    .collect(),
                cardinality: limit(u64::from(config.metadata_cardinality_limit)),
                next,
                metrics,
                state: Mutex::default(),
                wake: Notify::new(),
                gone: Notify::new(),
                closing: CancellationToken::new(),
            });
            (
                Arc::new(Batcher(shared.clone())),
                Box::new(Life {
                    shared,
                    flusher: None,
                }),
            )
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

/// How many finished batches may wait for the flusher before requests are refused. As many again are under way: see
/// [`flush::MAX_UNDER_WAY`].
const MAX_READY: usize = 8;

/// And how many bytes they may have together, unless it is a single batch; the same goes for what is under way.
const MAX_BYTES: usize = 8 << 20;

/// How long a client waits until finished batches have gone, before it is refused.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);

struct Shared {
    sizes: Sizes,
    timeout: std::time::Duration,
    keys: Vec<String>,
    cardinality: usize,
    next: Next,
    metrics: Metrics,
    /// A plain mutex: it is held for a few pushes and never across an await.
    state: Mutex<State>,
    wake: Notify,
    /// Told when a finished batch goes.
    gone: Notify,
    /// Cancelled when the processor shuts down: who waits for the next attempt waits no longer.
    closing: CancellationToken,
}

#[derive(Default)]
struct State {
    partitions: HashMap<Vec<Vec<String>>, Partition>,
    ready: VecDeque<Batch>,
    ready_bytes: usize,
    /// Items that this processor answers for: waiting, ready and under way.
    held: usize,
    closed: bool,
}

#[derive(Default)]
struct Partition {
    waiting: Waiting,
    /// When the first of the waiting requests must go.
    due: Option<Instant>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn partition_key(&self, batch: &Batch) -> Vec<Vec<String>> {
        let value = |key| batch.metadata.as_ref()?.get(key).cloned();
        self.keys
            .iter()
            .map(|key| value(key).unwrap_or_default())
            .collect()
    }

    /// Takes what one client sent out of `offered`, unless there is no room for it now.
    fn take_in(&self, offered: &mut SmallVec<[Batch; 1]>) -> Result<(), Nack> {
        let mut state = self.state();
        let state = &mut *state;
        if state.closed {
            return Err(Nack::unavailable("the collector is shutting down"));
        }
        let Some(first) = offered.first().filter(|_| !state.is_full()) else {
            return Ok(());
        };
        let key = self.partition_key(first);
        let known = state.partitions.len();
        let partition = match state.partitions.entry(key) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                if known >= self.cardinality {
                    return Err(Nack::permanent(
                        crate::batch::Code::ResourceExhausted,
                        "too many combinations of metadata values: see `metadata_cardinality_limit`",
                    ));
                }
                self.metrics.cardinality.set((known + 1) as f64);
                entry.insert(Partition::default())
            }
        };
        for batch in offered.drain(..) {
            state.held += batch.items();
            partition.waiting.push(batch);
        }
        let mut wake = false;
        while partition.waiting.is_enough(&self.sizes) {
            let Some(batch) = partition.waiting.take(&self.sizes) else {
                break;
            };
            self.metrics.size_trigger.increment(1);
            state.ready_bytes += batch.bytes();
            state.ready.push_back(batch);
            partition.due = None;
            wake = true;
        }
        if partition.due.is_none() && !partition.waiting.is_empty() {
            partition.due = Some(Instant::now() + self.timeout);
            wake = true;
        }
        if wake {
            self.wake.notify_one();
        }
        Ok(())
    }
}

const FULL: &str = "the batch processor is full: the next stage does not take its batches";

impl State {
    fn is_full(&self) -> bool {
        self.ready.len() >= MAX_READY || self.ready_bytes >= MAX_BYTES / 2
    }

    /// The next finished batch, if it may be under way beside `batches` with `bytes`.
    fn next_ready(&mut self, batches: usize, bytes: usize) -> Option<Batch> {
        let next = self.ready.front()?.bytes();
        let fits = batches == 0 || bytes + next <= MAX_BYTES;
        if batches >= flush::MAX_UNDER_WAY || !fits {
            return None;
        }
        self.ready_bytes -= next;
        self.ready.pop_front()
    }

    /// Moves what is due (or, at the end, everything) to the ready batches; returns when the next is due.
    fn collect_due(&mut self, shared: &Shared, now: Instant) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        for partition in self.partitions.values_mut() {
            let Some(due) = partition.due else { continue };
            if due > now && !self.closed {
                next = Some(next.map_or(due, |earlier| earlier.min(due)));
                continue;
            }
            partition.due = None;
            while let Some(batch) = partition.waiting.take(&shared.sizes) {
                shared.metrics.timeout_trigger.increment(1);
                self.ready_bytes += batch.bytes();
                self.ready.push_back(batch);
            }
        }
        next
    }
}

struct Batcher(Arc<Shared>);

impl Consumer for Batcher {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        batch.wire();
        Box::pin(async move {
            let mut offered = profiles::within(batch, self.0.sizes.most).await;
            let mut until = None;
            loop {
                let gone = self.0.gone.notified();
                self.0.take_in(&mut offered)?;
                if offered.is_empty() {
                    return Ok(());
                }
                // A next stage that is just slower than the clients sets their pace.
                let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
                if tokio::time::timeout_at(until, gone).await.is_err() {
                    return Err(Nack::unavailable(FULL));
                }
            }
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
