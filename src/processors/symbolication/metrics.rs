//! Metrics of the outcomes of locations.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Weak};

use metrics::{Counter, Gauge, counter, gauge};
use parking_lot::Mutex;

use tributary_config::ComponentId;
use tributary_symbols::NameSource;

/// Number of locations without lines, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// Symbolized locations, by the source of the symbols in the order of [`NameSource::ALL`].
    pub(super) named: [usize; NameSource::ALL.len()],
    /// Locations whose addresses are not in the symbols of their binary.
    pub(super) unknown: usize,
    /// Locations whose symbols are being fetched.
    pub(super) pending: usize,
    /// Locations of binaries without symbols.
    pub(super) without_symbols: usize,
    /// Locations whose names would exceed the size limit of the batch.
    pub(super) without_room: usize,
    /// Locations without a build id.
    pub(super) without_build_id: usize,
}

/// Counters of locations.
pub(super) struct Metrics {
    named: [Counter; NameSource::ALL.len()],
    unknown: Counter,
    pending: Counter,
    without_symbols: Counter,
    without_room: Counter,
    without_build_id: Counter,
    unreadable: Counter,
    rate: Gauge,
    totals: Arc<Totals>,
}

/// Totals since the start, for the rate. The instances of a processor, one for each pipeline, share
/// them as they share the metric.
#[derive(Default)]
struct Totals {
    all: AtomicU64,
    named: AtomicU64,
}

impl Totals {
    fn of(id: &ComponentId) -> Arc<Self> {
        static TOTALS: LazyLock<Mutex<HashMap<ComponentId, Weak<Totals>>>> =
            LazyLock::new(Mutex::default);
        let mut totals = TOTALS.lock();
        totals.retain(|_, totals| totals.strong_count() > 0);
        let known = totals.get(id).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let new = Arc::default();
            totals.insert(id.clone(), Arc::downgrade(&new));
            new
        })
    }
}

impl Metrics {
    pub(super) fn new(id: &ComponentId) -> Self {
        let totals = Totals::of(id);
        let id = id.to_string();
        let locations = |outcome: &'static str| {
            counter!(
                "tributary_processor_symbolication_locations",
                "processor" => id.clone(),
                "outcome" => outcome
            )
        };
        Metrics {
            named: NameSource::ALL.map(|source| {
                counter!(
                    "tributary_processor_symbolication_locations",
                    "processor" => id.clone(),
                    "outcome" => "named",
                    "source" => source.name()
                )
            }),
            unknown: locations("unknown"),
            pending: locations("pending"),
            without_symbols: locations("no_symbols"),
            without_room: locations("no_room"),
            without_build_id: locations("no_build_id"),
            unreadable: counter!("tributary_processor_symbolication_unreadable_requests", "processor" => id.clone()),
            rate: gauge!("otelcol_processor_symbolication_rate", "processor" => id.clone()),
            totals,
        }
    }

    pub(super) fn count(&self, outcomes: &Outcomes) {
        let Outcomes {
            named,
            unknown,
            pending,
            without_symbols,
            without_room,
            without_build_id,
        } = *outcomes;
        let mut total = 0;
        let others = [
            (&self.unknown, unknown),
            (&self.pending, pending),
            (&self.without_symbols, without_symbols),
            (&self.without_room, without_room),
            (&self.without_build_id, without_build_id),
        ];
        for (counter, count) in self.named.iter().zip(named).chain(others) {
            counter.increment(count as u64);
            total += count as u64;
        }
        if total > 0 {
            let total = self.totals.all.fetch_add(total, Relaxed) + total;
            let named = named.iter().sum::<usize>() as u64;
            let named = self.totals.named.fetch_add(named, Relaxed) + named;
            self.rate.set(named as f64 / total as f64);
        }
    }

    /// Counts a request with an invalid dictionary, which is forwarded unchanged.
    pub(super) fn unreadable(&self) {
        self.unreadable.increment(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbolized_ratio_covers_all_pipelines() {
        let id: ComponentId = "symbolication/of_two_pipelines".parse().unwrap();
        let (one, other) = (Metrics::new(&id), Metrics::new(&id));
        let mut outcomes = Outcomes {
            unknown: 1,
            ..Outcomes::default()
        };
        one.count(&outcomes);
        outcomes.named[0] = 2;
        other.count(&outcomes);
        let totals = |metrics: &Metrics| {
            let totals = &metrics.totals;
            (totals.named.load(Relaxed), totals.all.load(Relaxed))
        };
        assert_eq!([totals(&one), totals(&other)], [(2, 4); 2]);
        drop((one, other));
        assert_eq!(totals(&Metrics::new(&id)), (0, 0));
    }
}
