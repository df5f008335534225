//! Previous profiles of all series of a receiver, which survive a reload.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metrics::{Counter, counter};
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
/// The memory counts toward the memory budget and is limited by the setting and by a quarter of the
/// budget. Beyond the limit, series without scrapes for a long time are evicted first, then the
/// newest series, which then have no differences. With least-recently-used eviction and a few
/// targets too many, each series would be evicted just before its next scrape.
#[derive(Debug)]
pub(in super::super) struct Deltas {
    receiver: ComponentId,
    limit: AtomicUsize,
    budget: Arc<Budget>,
    kept: Mutex<RememberedSeries>,
    log: SampledLog,
    /// `tributary_receiver_pprof_forgotten_series`: profiles that were not remembered for lack of memory.
    forgotten: Counter,
}

/// Profiles of all receivers in the process, including receivers that a reload is about to stop.
static RECEIVERS: Mutex<Vec<(LinkLabels, Weak<Deltas>)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct RememberedSeries {
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
    recency: Recency,
}

/// Age and use of a series.
#[derive(Debug, Clone, Copy)]
struct Recency {
    /// Sequence number of the series; older series have smaller ones.
    arrival: u64,
    /// Time of the last profile.
    used: Instant,
    /// Longest time between two profiles so far.
    every: Duration,
}

impl Recency {
    /// Whether the target no longer exists, because the series has been absent for much longer than
    /// ever before. Intervals grow up to eight times, and failing targets are scraped again after two
    /// minutes.
    fn is_absent(&self, now: Instant) -> bool {
        let longest = self.every.saturating_mul(8).max(MIN_ABSENCE);
        now.saturating_duration_since(self.used) > longest
    }
}

/// Minimum absence, for a series with a single profile, whose interval is unknown.
const MIN_ABSENCE: Duration = Duration::from_secs(600);

/// A series that was removed for an update.
#[derive(Debug, Default)]
pub(in super::super) struct TakenSeries {
    pub(in super::super) series: Series,
    /// `None` for a new series.
    recency: Option<Recency>,
}

impl Deltas {
    /// Returns the profiles of a receiver. If a reload is replacing the receiver, the profiles of its
    /// predecessor are reused, unless the link labels changed, which identify samples. A changed
    /// limit applies to both receivers.
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
            kept: Mutex::new(RememberedSeries {
                series: HashMap::new(),
                bytes: 0,
                permit: budget.empty_permit(),
                arrivals: 0,
            }),
            log: SampledLog::of_one_line(),
            forgotten: counter!(
                "tributary_receiver_pprof_forgotten_series",
                "receiver" => receiver.to_string()
            ),
        }
    }

    /// Removes a series, to be [put back](Self::put). Until then, other callers get a new series.
    pub(in super::super) fn take(&self, name: &str) -> TakenSeries {
        let mut kept = self.kept.lock();
        match kept.remove(name) {
            Some(Entry { series, recency }) => TakenSeries {
                series,
                recency: Some(recency),
            },
            None => TakenSeries::default(),
        }
    }

    /// Puts a series back. Counts and returns the number of evicted series, possibly including this one.
    pub(in super::super) fn put(&self, name: &str, taken: TakenSeries) -> u64 {
        let TakenSeries {
            mut series,
            recency,
        } = taken;
        series.compact();
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let kept = &mut *kept;
        kept.arrivals += 1;
        let recency = match recency {
            Some(before) => Recency {
                used: now,
                every: before.every.max(now.saturating_duration_since(before.used)),
                ..before
            },
            None => Recency {
                arrival: kept.arrivals,
                used: now,
                every: Duration::ZERO,
            },
        };
        kept.remove(name);
        kept.bytes += cost(name, &series);
        kept.series
            .insert(name.to_owned(), Entry { series, recency });
        let limit = self.limit.load(Relaxed).min(self.budget.limit() / 4);
        let (mut forgotten, mut in_use) = (0, false);
        while kept.bytes > limit || !kept.reserve() {
            let Some((name, is_absent)) = kept.series_to_evict(now) else {
                break;
            };
            kept.remove(&name);
            forgotten += 1;
            in_use |= !is_absent;
        }
        if in_use {
            self.warn(limit, kept.series.len());
        }
        self.forgotten.increment(forgotten);
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

impl RememberedSeries {
    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.series.remove(name)?;
        self.bytes = self.bytes.saturating_sub(cost(name, &entry.series));
        Some(entry)
    }

    /// Returns the series to evict, and whether its target no longer exists. Without such a series,
    /// returns the newest series.
    fn series_to_evict(&self, now: Instant) -> Option<(String, bool)> {
        let rank =
            |(_, entry): &(&String, &Entry)| (entry.recency.is_absent(now), entry.recency.arrival);
        let (name, entry) = self.series.iter().max_by_key(rank)?;
        Some((name.clone(), entry.recency.is_absent(now)))
    }

    /// Adjusts the permit to the memory in use. Returns false if the budget has no room.
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
