//! Previous profiles of all series of a receiver, which survive a reload.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::Series;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::sampled_log::SampledLog;
use tributary_profiles::pprof::LinkLabels;

/// Last profile of each series, that is, of each target and path.
///
/// Size is limited by the setting and by a quarter of the memory budget, toward which it counts.
/// Beyond the limit, series that have not been scraped for a long time are evicted first, since
/// their targets are gone; then the newest series are, whose profiles then stay without
/// differences. An eviction of the least recently used series would, with a few targets too many,
/// evict each series just before its next scrape, and no series would have differences.
#[derive(Debug)]
pub(in super::super) struct Deltas {
    receiver: ComponentId,
    limit: AtomicUsize,
    budget: Arc<Budget>,
    kept: Mutex<Kept>,
    log: SampledLog,
}

/// Profiles of all receivers in the process, including those that a reload is about to stop.
static RECEIVERS: Mutex<Vec<(LinkLabels, Weak<Deltas>)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Kept {
    series: HashMap<String, Entry>,
    /// Memory of all series in bytes.
    bytes: usize,
    /// Memory permit.
    permit: Permit,
    /// Number of series so far.
    arrivals: u64,
}

#[derive(Debug)]
struct Entry {
    series: Series,
    place: Place,
}

/// Age and use of a series.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Sequence number of the series; older series have smaller ones.
    arrival: u64,
    /// Time of the last profile.
    used: Instant,
    /// Longest time between two profiles so far.
    every: Duration,
}

impl Place {
    /// Whether the target must be gone, since the series has been absent for much longer than ever
    /// before: intervals grow up to eight times, and failing targets are scraped again after two
    /// minutes.
    fn is_gone(&self, now: Instant) -> bool {
        let longest = self.every.saturating_mul(8).max(LEAST_WAIT);
        now.saturating_duration_since(self.used) > longest
    }
}

/// Minimum absence: the interval of a series with a single profile is not known.
const LEAST_WAIT: Duration = Duration::from_secs(600);

/// A series that was removed for an update.
#[derive(Debug, Default)]
pub(in super::super) struct Taken {
    pub(in super::super) series: Series,
    /// `None` for a new series.
    place: Option<Place>,
}

impl Deltas {
    /// Returns the profiles of a receiver: those of its predecessor if a reload is replacing it, or
    /// none.
    ///
    /// Changed link labels change the identity of samples, so the profiles are then not reused. A
    /// changed limit applies to both receivers.
    pub(in super::super) fn of(
        receiver: &ComponentId,
        links: &LinkLabels,
        limit: usize,
        budget: &Arc<Budget>,
    ) -> Arc<Self> {
        let mut receivers = RECEIVERS.lock();
        receivers.retain(|(_, deltas)| deltas.strong_count() > 0);
        let same = receivers.iter().filter(|(theirs, _)| theirs == links);
        let mut known = same.filter_map(|(_, deltas)| deltas.upgrade());
        let fits = |deltas: &Arc<Deltas>| {
            deltas.receiver == *receiver && Arc::ptr_eq(&deltas.budget, budget)
        };
        if let Some(deltas) = known.find(fits) {
            deltas.limit.store(limit, Relaxed);
            return deltas;
        }
        let deltas = Arc::new(Deltas::new(receiver, limit, budget));
        receivers.push((links.clone(), Arc::downgrade(&deltas)));
        deltas
    }

    /// Creates an empty state that uses at most `limit` bytes of the budget.
    pub(super) fn new(receiver: &ComponentId, limit: usize, budget: &Arc<Budget>) -> Self {
        Deltas {
            receiver: receiver.clone(),
            limit: AtomicUsize::new(limit),
            budget: budget.clone(),
            kept: Mutex::new(Kept {
                series: HashMap::new(),
                bytes: 0,
                permit: budget.empty_permit(),
                arrivals: 0,
            }),
            log: SampledLog::of_one_line(),
        }
    }

    /// Removes a series, to be [put back](Self::put). Meanwhile, other callers see a new series.
    pub(in super::super) fn take(&self, name: &str) -> Taken {
        let mut kept = self.kept.lock();
        match kept.remove(name) {
            Some(Entry { series, place }) => Taken {
                series,
                place: Some(place),
            },
            None => Taken::default(),
        }
    }

    /// Puts a series back. Returns the number of evicted series, possibly including this one.
    pub(in super::super) fn put(&self, name: &str, taken: Taken) -> usize {
        let Taken { mut series, place } = taken;
        series.tidy();
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        kept.arrivals += 1;
        let place = match place {
            Some(before) => Place {
                used: now,
                every: before.every.max(now.saturating_duration_since(before.used)),
                ..before
            },
            None => Place {
                arrival: kept.arrivals,
                used: now,
                every: Duration::ZERO,
            },
        };
        kept.remove(name);
        kept.bytes += cost(name, &series);
        kept.series.insert(name.to_owned(), Entry { series, place });
        let limit = self.limit.load(Relaxed).min(self.budget.limit() / 4);
        let (mut forgotten, mut in_use) = (0, false);
        while kept.bytes > limit || !kept.reserve() {
            let Some((name, is_gone)) = kept.most_dispensable(now) else {
                break;
            };
            kept.remove(&name);
            forgotten += 1;
            in_use |= !is_gone;
        }
        if in_use {
            self.warn(limit, kept.series.len());
        }
        forgotten
    }

    fn warn(&self, limit: usize, series: usize) {
        if let Some(suppressed) = self.log.admit() {
            warn!(
                otelcol.component.id = %self.receiver,
                otelcol.component.kind = "receiver",
                limit,
                series,
                suppressed,
                "No memory for the previous profiles of all targets with `delta`; some targets have no differences. \
                 Raise `delta_max_bytes`, or the limit of `memory_limiter`, of which at most a quarter is used"
            );
        }
    }

    /// Returns the memory in use.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }
}

impl Kept {
    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.series.remove(name)?;
        self.bytes = self.bytes.saturating_sub(cost(name, &entry.series));
        Some(entry)
    }

    /// Returns the series to evict, one whose target is gone or else the newest, and whether its
    /// target is gone.
    fn most_dispensable(&self, now: Instant) -> Option<(String, bool)> {
        let rank = |(_, entry): &(&String, &Entry)| (entry.place.is_gone(now), entry.place.arrival);
        let (name, entry) = self.series.iter().max_by_key(rank)?;
        Some((name.clone(), entry.place.is_gone(now)))
    }

    /// Adjusts the permit to the memory in use; returns false if the budget has no room.
    fn reserve(&mut self) -> bool {
        self.permit.resize(self.bytes).is_ok()
    }
}

fn cost(name: &str, series: &Series) -> usize {
    const ENTRY: usize = 192;
    series.bytes() + name.len() + ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebuilt_receiver_keeps_remembered_totals() {
        let budget = Budget::new(1 << 20);
        let links = LinkLabels::default();
        let of = |id: &str| Deltas::of(&id.parse().unwrap(), &links, 1 << 16, &budget);
        let first = of("pprof/reloaded");
        assert!(Arc::ptr_eq(&first, &of("pprof/reloaded")));
        assert!(!Arc::ptr_eq(&first, &of("pprof/other")));
        let before = Arc::downgrade(&first);
        drop(first);
        assert!(before.upgrade().is_none(), "nobody needs it any more");
        assert!(of("pprof/reloaded").take("heap").series.last.is_none());
    }

    #[test]
    fn samples_with_other_labels_are_not_compared() {
        let budget = Budget::new(1 << 20);
        let id: ComponentId = "pprof/links".parse().unwrap();
        let first = Deltas::of(&id, &LinkLabels::default(), 1 << 16, &budget);
        let none = LinkLabels {
            trace: Vec::new(),
            ..LinkLabels::default()
        };
        assert!(!Arc::ptr_eq(
            &first,
            &Deltas::of(&id, &none, 1 << 16, &budget)
        ));
        let other = Deltas::of(&id, &LinkLabels::default(), 1 << 16, &Budget::new(1 << 20));
        assert!(!Arc::ptr_eq(&first, &other), "another process, so to say");
    }
}
