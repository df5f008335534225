//! State of a processor in one pipeline, which survives a reload.

use std::sync::{Arc, Weak};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::Config;
use super::keys::{DUPLICATE, Keys, NONE};
use super::seen::{HeldBy, InFlight, Seen};
use crate::component::BuildContext;
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// Delivered keys and keys in flight, shared by a processor in a pipeline and its successor after a
/// reload.
pub(super) struct Memory {
    pub(super) keys: Keys,
    pub(super) metrics: Metrics,
    /// A blocking mutex: it is held for a few lookups per item and never across an await.
    state: Mutex<State>,
    /// Notified when the outcome of a delivery is known.
    pub(super) settled: Notify,
    budget: Arc<Budget>,
}

/// Identity of a state. A changed window or changed ignored attributes give another state.
#[derive(PartialEq, Eq)]
struct Owner {
    processor: ComponentId,
    pipeline: String,
    settings: String,
}

/// States of all processors in the process, including those that a reload is about to stop.
static MEMORIES: Mutex<Vec<(Owner, Weak<Memory>)>> = Mutex::new(Vec::new());

impl Memory {
    /// Returns the state of a processor: that of its predecessor if a reload is replacing it, or an
    /// empty one. Keys in flight in the predecessor are in flight here too.
    pub(super) fn of(config: &Config, cx: &BuildContext, signal: Signal) -> Arc<Self> {
        if cx.pipeline.is_empty() {
            return Arc::new(Memory::new(config, cx, signal));
        }
        let Config {
            window,
            max_bytes,
            ignore_resource_attributes,
        } = config;
        let owner = Owner {
            processor: cx.id.clone(),
            pipeline: cx.pipeline.clone(),
            settings: format!("{window:?} {max_bytes:?} {ignore_resource_attributes:?}"),
        };
        let mut memories = MEMORIES.lock();
        memories.retain(|(_, memory)| memory.strong_count() > 0);
        let same = memories.iter().filter(|(other, _)| *other == owner);
        let mut known = same.filter_map(|(_, memory)| memory.upgrade());
        // Another budget means another collector in the same process, as in tests.
        if let Some(memory) = known.find(|memory| Arc::ptr_eq(&memory.budget, &cx.budget)) {
            return memory;
        }
        let memory = Arc::new(Memory::new(config, cx, signal));
        memories.push((owner, Arc::downgrade(&memory)));
        memory
    }

    fn new(config: &Config, cx: &BuildContext, signal: Signal) -> Self {
        // A permit for zero bytes always succeeds.
        let permit = cx.budget.empty_permit();
        let max_bytes = config.max_bytes.as_usize();
        Memory {
            keys: Keys::new(config.ignore_resource_attributes.clone()),
            metrics: Metrics::new(cx, signal),
            state: Mutex::new(State {
                seen: Seen::new(config.window.0, max_bytes, permit),
                in_flight: InFlight::default(),
                deliveries: 0,
                told: (0, 0),
            }),
            settled: Notify::new(),
            budget: cx.budget.clone(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (remembered, _) = self.state().told;
        self.metrics.remembered.decrement(remembered as f64);
    }
}

/// Delivered keys and keys in flight.
pub(super) struct State {
    pub(super) seen: Seen,
    pub(super) in_flight: InFlight,
    deliveries: u64,
    /// Values last reported to the metrics.
    told: (usize, u64),
}

impl State {
    /// Claims the keys of a new delivery. Known keys are replaced by [`DUPLICATE`]; the others are
    /// in flight from now on. Returns the number of the delivery and its number of keys, or `None`
    /// if another delivery has one of the keys in flight.
    pub(super) fn claim(&mut self, keys: &mut [u128]) -> Option<(u64, usize)> {
        self.deliveries += 1;
        let delivery = self.deliveries;
        self.seen.fetch(keys);
        for key in keys.iter_mut() {
            if self.seen.contains(*key) {
                *key = DUPLICATE;
            }
        }
        let mut other = None;
        let mut count = 0;
        for (at, key) in keys.iter_mut().enumerate() {
            if *key == NONE || *key == DUPLICATE {
                continue;
            }
            match self.in_flight.take(*key, delivery) {
                Ok(()) => count += 1,
                Err(HeldBy::Own) => *key = DUPLICATE,
                Err(HeldBy::Other) => {
                    other = Some(at);
                    break;
                }
            }
        }
        let Some(at) = other else {
            return Some((delivery, count));
        };
        // A waiting delivery must not keep keys, or two could wait for each other.
        let taken = keys.get(..at).unwrap_or_default();
        self.in_flight.release(taken, delivery);
        None
    }
}

pub(super) struct Metrics {
    pub(super) by_request: Counter,
    pub(super) by_item: Counter,
    pub(super) unexamined: Counter,
    remembered: Gauge,
    forgotten: Counter,
}

impl Metrics {
    fn new(cx: &BuildContext, signal: Signal) -> Self {
        let labels = [
            ("processor", cx.id.to_string()),
            ("otel_signal", signal.name().to_owned()),
        ];
        let duplicates = |known_by: &str| {
            let known_by = [("known_by", known_by.to_owned())];
            let labels: Vec<_> = labels.iter().cloned().chain(known_by).collect();
            counter!("tributary_processor_dedup_duplicate_items", &labels)
        };
        Metrics {
            by_request: duplicates("request"),
            by_item: duplicates("item"),
            unexamined: counter!("tributary_processor_dedup_unexamined_items", &labels),
            remembered: gauge!("tributary_processor_dedup_remembered_items", &labels),
            forgotten: counter!("tributary_processor_dedup_forgotten_items", &labels),
        }
    }

    pub(super) fn tell(&self, state: &mut State) {
        let (remembered, forgotten) = (state.seen.len(), state.seen.forgotten());
        let (before, forgotten_before) = state.told;
        if remembered != before {
            self.remembered.increment(remembered as f64 - before as f64);
        }
        if forgotten != forgotten_before {
            self.forgotten.increment(forgotten - forgotten_before);
        }
        state.told = (remembered, forgotten);
    }
}
