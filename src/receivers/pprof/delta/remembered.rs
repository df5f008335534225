//! What is remembered of all series of a receiver, over a reload too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Series;
use crate::config::ComponentId;
use crate::memory::{Budget, Permit};
use crate::profiles::pprof::LinkLabels;

/// The last profile of each series: of each target and path, say.
///
/// All of them together take at most so many bytes, and at most a quarter of the memory budget, in which they count. When
/// there are more, or the budget has no room, those that were used longest ago are forgotten, and begin anew when they
/// come again.
#[derive(Debug)]
pub(in super::super) struct Deltas {
    limit: usize,
    budget: Arc<Budget>,
    kept: Mutex<Kept>,
}

/// The most bytes that the last profiles take, over all targets of a receiver. One of 10,000 stacks of 20
/// frames takes about 3 MB.
pub(super) const MEMORY: usize = 64 << 20;

/// Of all receivers of the process, those that a reload is about to stop included.
static RECEIVERS: Mutex<Vec<(ComponentId, LinkLabels, Weak<Deltas>)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Kept {
    series: HashMap<String, (u64, Series)>,
    /// What they take.
    bytes: usize,
    /// The right to hold them.
    permit: Permit,
    /// Counts uses.
    clock: u64,
}

impl Deltas {
    /// Those of a receiver: what its predecessor knows if a reload is about to replace that one, or nothing.
    ///
    /// Labels that become links tell samples apart in another way, so where they are no longer the same nothing fits.
    pub(in super::super) fn of(
        receiver: &ComponentId,
        links: &LinkLabels,
        budget: &Arc<Budget>,
    ) -> Arc<Self> {
        let mut receivers = RECEIVERS.lock().unwrap_or_else(PoisonError::into_inner);
        receivers.retain(|(_, _, deltas)| deltas.strong_count() > 0);
        let same = receivers
            .iter()
            .filter(|(other, theirs, _)| other == receiver && theirs == links);
        let mut known = same.filter_map(|(_, _, deltas)| deltas.upgrade());
        if let Some(deltas) = known.find(|deltas| Arc::ptr_eq(&deltas.budget, budget)) {
            return deltas;
        }
        let deltas = Arc::new(Deltas::new(MEMORY, budget));
        receivers.push((receiver.clone(), links.clone(), Arc::downgrade(&deltas)));
        deltas
    }

    /// Nothing known; at most so many bytes of this budget will be kept.
    pub(super) fn new(limit: usize, budget: &Arc<Budget>) -> Self {
        Deltas {
            limit,
            budget: budget.clone(),
            kept: Mutex::new(Kept {
                series: HashMap::new(),
                bytes: 0,
                permit: budget.nothing(),
                clock: 0,
            }),
        }
    }

    /// Takes a series out, to be [put back](Self::put). While it is out, it is new to anybody else.
    pub(in super::super) fn take(&self, name: &str) -> Series {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.series.remove(name) {
            Some((_, series)) => {
                kept.bytes = kept.bytes.saturating_sub(cost(name, &series));
                series
            }
            None => Series::default(),
        }
    }

    /// Puts a series back. Returns how many had to be forgotten for it, itself perhaps.
    pub(in super::super) fn put(&self, name: &str, mut series: Series) -> usize {
        series.tidy();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = &mut *kept;
        kept.clock += 1;
        kept.bytes += cost(name, &series);
        if let Some((_, old)) = kept.series.insert(name.to_owned(), (kept.clock, series)) {
            kept.bytes = kept.bytes.saturating_sub(cost(name, &old));
        }
        let mut forgotten = 0;
        let limit = self.limit.min(self.budget.limit() / 4);
        while kept.bytes > limit || !kept.reserve() {
            let oldest = kept.series.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else {
                break;
            };
            if let Some((_, series)) = kept.series.remove(&oldest) {
                kept.bytes = kept.bytes.saturating_sub(cost(&oldest, &series));
                forgotten += 1;
            }
        }
        forgotten
    }

    /// The memory that is taken now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.kept.lock().unwrap().bytes
    }
}

impl Kept {
    /// Makes the permit as large as what is kept; false where the budget has no room.
    fn reserve(&mut self) -> bool {
        self.permit.shrink_to(self.bytes);
        let more = self.bytes.saturating_sub(self.permit.bytes());
        more == 0 || self.permit.grow(more).is_ok()
    }
}

fn cost(name: &str, series: &Series) -> usize {
    const ENTRY: usize = 128;
    series.bytes() + name.len() + ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_is_built_anew_knows_what_the_one_before_it_knew() {
        let budget = Budget::new(1 << 20);
        let links = LinkLabels::default();
        let of = |id: &str| Deltas::of(&id.parse().unwrap(), &links, &budget);
        let first = of("pprof/reloaded");
        assert!(Arc::ptr_eq(&first, &of("pprof/reloaded")));
        assert!(!Arc::ptr_eq(&first, &of("pprof/other")));
        let before = Arc::downgrade(&first);
        drop(first);
        assert!(before.upgrade().is_none(), "nobody needs it any more");
        assert!(of("pprof/reloaded").take("heap").last.is_none());
    }

    #[test]
    fn samples_that_are_told_apart_in_another_way_are_not_compared() {
        let budget = Budget::new(1 << 20);
        let id: ComponentId = "pprof/links".parse().unwrap();
        let first = Deltas::of(&id, &LinkLabels::default(), &budget);
        let none = LinkLabels {
            trace: Vec::new(),
            ..LinkLabels::default()
        };
        assert!(!Arc::ptr_eq(&first, &Deltas::of(&id, &none, &budget)));
        let other = Deltas::of(&id, &LinkLabels::default(), &Budget::new(1 << 20));
        assert!(!Arc::ptr_eq(&first, &other), "another process, so to say");
    }
}
