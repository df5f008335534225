//! Which level is asked first, over a reload too.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use crate::component::BuildContext;
use crate::pipeline::id::PipelineId;
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// The place of a signal among its levels: of a connector, and of the one that a reload puts in its place. To begin at
/// the first level again would make each batch under way wait for one that is known to be away.
#[derive(Debug)]
pub(super) struct Position {
    /// Of the level that is asked first; counts from 0.
    current: AtomicUsize,
    /// When a batch asks the levels above the current one.
    next_probe: Mutex<Instant>,
    budget: Arc<Budget>,
}

/// Whose place it is: among other levels it is another one.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    connector: ComponentId,
    signal: Signal,
    levels: Vec<Vec<PipelineId>>,
}

/// Of all connectors of the process, those that a reload is about to stop included.
static POSITIONS: Mutex<Vec<(Owner, Weak<Position>)>> = Mutex::new(Vec::new());

impl Position {
    /// That of a connector's signal: its predecessor's if a reload is about to replace that one, or the first.
    pub(super) fn of(cx: &BuildContext, signal: Signal, levels: &[Vec<PipelineId>]) -> Arc<Self> {
        let owner = Owner {
            connector: cx.id.clone(),
            signal,
            levels: levels.to_vec(),
        };
        let mut positions = POSITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        positions.retain(|(_, position)| position.strong_count() > 0);
        let same = positions.iter().filter(|(other, _)| *other == owner);
        let mut known = same.filter_map(|(_, position)| position.upgrade());
        // Another budget is another process, so to say: there are several in tests.
        if let Some(position) = known.find(|position| Arc::ptr_eq(&position.budget, &cx.budget)) {
            return position;
        }
        let position = Arc::new(Position {
            current: AtomicUsize::new(0),
            next_probe: Mutex::new(Instant::now()),
            budget: cx.budget.clone(),
        });
        positions.push((owner, Arc::downgrade(&position)));
        position
    }

    /// The level that is asked first.
    pub(super) fn current(&self) -> usize {
        self.current.load(SeqCst)
    }

    /// Changes the level, unless another batch has done so since.
    pub(super) fn change(&self, from: usize, to: usize) -> bool {
        let changed = self.current.compare_exchange(from, to, SeqCst, SeqCst);
        changed.is_ok()
    }

    /// Whether this batch is the one that asks higher levels. The next one is an interval later.
    pub(super) fn is_time_to_probe(&self, interval: Duration) -> bool {
        let mut next = self
            .next_probe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let due = *next <= Instant::now();
        if due {
            *next = Instant::now() + interval;
        }
        due
    }

    /// No batch asks higher levels before an interval from now.
    pub(super) fn probe_after(&self, interval: Duration) {
        let mut next = self
            .next_probe
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *next = Instant::now() + interval;
    }
}
