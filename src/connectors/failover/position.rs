//! The current level, which survives a reload.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::component::BuildContext;
use crate::pipeline::id::PipelineId;
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// Current level of a signal, shared by a connector and its successor after a reload. A restart at
/// the first level would make each batch in flight wait for a level that is known to fail.
#[derive(Debug)]
pub(super) struct Position {
    /// Index of the first level to try, from 0.
    current: AtomicUsize,
    /// Time at which a batch probes the levels above the current one.
    next_probe: Mutex<Instant>,
    budget: Arc<Budget>,
}

/// Identity of a position; changed levels give another one.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    connector: ComponentId,
    signal: Signal,
    levels: Vec<Vec<PipelineId>>,
}

/// Positions of all connectors in the process, including those that a reload is about to stop.
static POSITIONS: Mutex<Vec<(Owner, Weak<Position>)>> = Mutex::new(Vec::new());

impl Position {
    /// Returns the position of a connector's signal: that of its predecessor if a reload is
    /// replacing it, or the first level.
    pub(super) fn of(cx: &BuildContext, signal: Signal, levels: &[Vec<PipelineId>]) -> Arc<Self> {
        let owner = Owner {
            connector: cx.id.clone(),
            signal,
            levels: levels.to_vec(),
        };
        let mut positions = POSITIONS.lock();
        positions.retain(|(_, position)| position.strong_count() > 0);
        let same = positions.iter().filter(|(other, _)| *other == owner);
        let mut known = same.filter_map(|(_, position)| position.upgrade());
        // Another budget means another collector in the same process, as in tests.
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

    /// Returns the index of the first level to try.
    pub(super) fn current(&self) -> usize {
        self.current.load(SeqCst)
    }

    /// Changes the level, unless another batch has changed it since.
    pub(super) fn change(&self, from: usize, to: usize) -> bool {
        let changed = self.current.compare_exchange(from, to, SeqCst, SeqCst);
        changed.is_ok()
    }

    /// Whether this batch must probe higher levels. The next probe is an interval later.
    pub(super) fn is_time_to_probe(&self, interval: Duration) -> bool {
        let mut next = self.next_probe.lock();
        let due = *next <= Instant::now();
        if due {
            *next = Instant::now() + interval;
        }
        due
    }

    /// Postpones the next probe until an interval from now.
    pub(super) fn probe_after(&self, interval: Duration) {
        let mut next = self.next_probe.lock();
        *next = Instant::now() + interval;
    }
}
