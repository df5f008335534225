//! Previous profiles of all series of a receiver, which survive a reload.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::Series;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::sampled_log::SampledLog;
use tributary_profiles::pprof::LinkLabels;

/// The last profile of each series: of each target and path, say.
///
/// All of them together take at most so many bytes, and at most a quarter of the memory budget, in which they count. When
/// there are more, or the budget has no room, those that have not come for long are forgotten first: their targets are
/// gone. Then the newest ones are, which so stay without differences. To forget what was used longest ago would, with a
/// few targets too many, forget each one just before it comes again, and leave differences of none.
#[derive(Debug)]
pub(in super::super) struct Deltas {
    receiver: ComponentId,
    limit: AtomicUsize,
    budget: Arc<Budget>,
    kept: Mutex<Kept>,
    log: SampledLog,
}

/// Of all receivers of the process, those that a reload is about to stop included.
static RECEIVERS: Mutex<Vec<(LinkLabels, Weak<Deltas>)>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Kept {
    series: HashMap<String, Entry>,
    /// Memory of all series in bytes.
    bytes: usize,
    /// The right to hold them.
    permit: Permit,
    /// Counts series.
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
    /// The smaller, the longer it has been here.
    arrival: u64,
    /// When it came last.
    used: Instant,
    /// The longest time from one profile to the next so far.
    every: Duration,
}

impl Place {
    /// Whether it stays away for so much longer than ever before that its target must be gone: intervals stretch to eight
    /// times their length, and failing targets are asked again after two minutes.
    fn is_gone(&self, now: Instant) -> bool {
        let longest = self.every.saturating_mul(8).max(LEAST_WAIT);
        now.saturating_duration_since(self.used) > longest
    }
}

/// A series that came once may be of a target with any interval.
const LEAST_WAIT: Duration = Duration::from_secs(600);

/// A series that was taken out.
#[derive(Debug, Default)]
pub(in super::super) struct Taken {
    pub(in super::super) series: Series,
    /// Nothing for a new one.
    place: Option<Place>,
}

impl Deltas {
    /// Those of a receiver: what its predecessor knows if a reload is about to replace that one, or nothing.
    ///
    /// Labels that become links tell samples apart in another way, so where they are no longer the same nothing fits.
    /// Another limit is that of both.
    pub(in super::super) fn of(
        receiver: &ComponentId,
        links: &LinkLabels,
        limit: usize,
        budget: &Arc<Budget>,
    ) -> Arc<Self> {
        let mut receivers = RECEIVERS.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Nothing known; at most so many bytes of this budget will be kept.
    pub(super) fn new(receiver: &ComponentId, limit: usize, budget: &Arc<Budget>) -> Self {
        Deltas {
            receiver: receiver.clone(),
            limit: AtomicUsize::new(limit),
            budget: budget.clone(),
            kept: Mutex::new(Kept {
                series: HashMap::new(),
                bytes: 0,
                permit: budget.nothing(),
                arrivals: 0,
            }),
            log: SampledLog::of_one_line(),
        }
    }

    /// Takes a series out, to be [put back](Self::put). While it is out, it is new to anybody else.
    pub(in super::super) fn take(&self, name: &str) -> Taken {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.remove(name) {
            Some(Entry { series, place }) => Taken {
                series,
                place: Some(place),
            },
            None => Taken::default(),
        }
    }

    /// Puts a series back. Returns how many had to be forgotten, itself perhaps.
    pub(in super::super) fn put(&self, name: &str, taken: Taken) -> usize {
        let Taken { mut series, place } = taken;
        series.tidy();
        let now = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
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
                "No room to remember all profiles that count from the start of a process: some targets are without \
                 differences. Raise `delta_max_bytes`, of which at most a quarter of the memory limit is used"
            );
        }
    }

    /// The memory that is taken now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.kept.lock().unwrap().bytes
    }
}

impl Kept {
    fn remove(&mut self, name: &str) -> Option<Entry> {
        let entry = self.series.remove(name)?;
        self.bytes = self.bytes.saturating_sub(cost(name, &entry.series));
        Some(entry)
    }

    /// The one that goes when there is no room: one that is gone, or else the newest; and whether it is gone.
    fn most_dispensable(&self, now: Instant) -> Option<(String, bool)> {
        let rank = |(_, entry): &(&String, &Entry)| (entry.place.is_gone(now), entry.place.arrival);
        let (name, entry) = self.series.iter().max_by_key(rank)?;
        Some((name.clone(), entry.place.is_gone(now)))
    }

    /// Makes the permit as large as what is kept; false where the budget has no room.
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
    fn a_receiver_that_is_built_anew_knows_what_the_one_before_it_knew() {
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
    fn samples_that_are_told_apart_in_another_way_are_not_compared() {
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
