//! What a processor knows of one pipeline, over a reload too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::Notify;

use super::Config;
use super::keys::{DUPLICATE, Keys, NONE};
use super::seen::{Seen, Taken, UnderWay};
use crate::component::BuildContext;
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// What was delivered and what is under way: of a processor in a pipeline, and of the one that a reload puts in its place.
pub(super) struct Memory {
    pub(super) keys: Keys,
    pub(super) metrics: Metrics,
    /// A plain mutex: it is held for some look-ups per item and never across an await.
    state: Mutex<State>,
    /// Told when the outcome of a delivery is known.
    pub(super) settled: Notify,
    budget: Arc<Budget>,
}

/// Whose memory it is, and what it depends on: with another window or other attributes to ignore it is another one.
#[derive(PartialEq, Eq)]
struct Owner {
    processor: ComponentId,
    pipeline: String,
    settings: String,
}

/// Of all processors of the process, those that a reload is about to stop included.
static MEMORIES: Mutex<Vec<(Owner, Weak<Memory>)>> = Mutex::new(Vec::new());

impl Memory {
    /// That of a processor: what its predecessor knows if a reload is about to replace that one, or nothing. What the
    /// predecessor has under way is under way here, too.
    pub(super) fn of(config: &Config, cx: &BuildContext, signal: Signal) -> Arc<Self> {
        if cx.pipeline.is_empty() {
            return Arc::new(Memory::new(config, cx, signal));
        }
        let Config {
            window,
            max_bytes,
            ignore_resource_attributes,
            logs: _,
        } = config;
        let owner = Owner {
            processor: cx.id.clone(),
            pipeline: cx.pipeline.clone(),
            settings: format!("{window:?} {max_bytes:?} {ignore_resource_attributes:?}"),
        };
        let mut memories = MEMORIES.lock().unwrap_or_else(PoisonError::into_inner);
        memories.retain(|(_, memory)| memory.strong_count() > 0);
        let same = memories.iter().filter(|(other, _)| *other == owner);
        let mut known = same.filter_map(|(_, memory)| memory.upgrade());
        // Another budget is another process, so to say: there are several in tests.
        if let Some(memory) = known.find(|memory| Arc::ptr_eq(&memory.budget, &cx.budget)) {
            return memory;
        }
        let memory = Arc::new(Memory::new(config, cx, signal));
        memories.push((owner, Arc::downgrade(&memory)));
        memory
    }

    fn new(config: &Config, cx: &BuildContext, signal: Signal) -> Self {
        // Nothing always fits.
        let permit = cx.budget.nothing();
        let max_bytes = config.max_bytes.as_usize();
        Memory {
            keys: Keys::new(config.ignore_resource_attributes.clone()),
            metrics: Metrics::new(cx, signal),
            state: Mutex::new(State {
                seen: Seen::new(config.window.0, max_bytes, permit),
                under_way: UnderWay::default(),
                deliveries: 0,
                told: (0, 0),
            }),
            settled: Notify::new(),
            budget: cx.budget.clone(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (remembered, _) = self.state().told;
        self.metrics.remembered.decrement(remembered as f64);
    }
}

/// What was delivered, and what is under way.
pub(super) struct State {
    pub(super) seen: Seen,
    pub(super) under_way: UnderWay,
    /// How many deliveries there were.
    deliveries: u64,
    /// What the metrics have been told.
    told: (usize, u64),
}

impl State {
    /// The number of a new delivery and how many keys it has, if none of them is under way in another one: those that are
    /// known have been replaced by [`DUPLICATE`], the others are under way now.
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
            match self.under_way.take(*key, delivery) {
                Ok(()) => count += 1,
                Err(Taken::Own) => *key = DUPLICATE,
                Err(Taken::Other) => {
                    other = Some(at);
                    break;
                }
            }
        }
        let Some(at) = other else {
            return Some((delivery, count));
        };
        // Who waits holds nothing: else two could wait for each other.
        let taken = keys.get(..at).unwrap_or_default();
        self.under_way.give_back(taken, delivery);
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
