//! What became of the locations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use metrics::{Counter, Gauge, counter, gauge};

use crate::config::ComponentId;
use crate::symbols::Source;

/// What became of the locations without lines, by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Outcomes {
    /// They have names now, by the source of the names in the order of [`Source::ALL`].
    pub(super) named: [usize; Source::ALL.len()],
    /// Their binary's symbols have nothing at their addresses.
    pub(super) unknown: usize,
    /// Their binary's symbols are being fetched.
    pub(super) pending: usize,
    /// There are no symbols of their binary.
    pub(super) without_symbols: usize,
    /// Nothing says of which binary they are.
    pub(super) without_build_id: usize,
}

/// Counts locations.
pub(super) struct Metrics {
    named: [Counter; Source::ALL.len()],
    unknown: Counter,
    pending: Counter,
    without_symbols: Counter,
    without_build_id: Counter,
    unreadable: Counter,
    rate: Gauge,
    /// For the rate, since the start.
    total: AtomicU64,
    total_named: AtomicU64,
}

impl Metrics {
    pub(super) fn new(id: &ComponentId) -> Self {
        let id = id.to_string();
        let locations = |outcome: &'static str| {
            counter!(
                "tributary_processor_symbolication_locations",
                "processor" => id.clone(),
                "outcome" => outcome
            )
        };
        Metrics {
            named: Source::ALL.map(|source| {
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
            without_build_id: locations("no_build_id"),
            unreadable: counter!("tributary_processor_symbolication_unreadable_requests", "processor" => id.clone()),
            rate: gauge!("otelcol_processor_symbolication_rate", "processor" => id.clone()),
            total: AtomicU64::new(0),
            total_named: AtomicU64::new(0),
        }
    }

    pub(super) fn count(&self, outcomes: &Outcomes) {
        let Outcomes {
            named,
            unknown,
            pending,
            without_symbols,
            without_build_id,
        } = *outcomes;
        let mut total = 0;
        let others = [
            (&self.unknown, unknown),
            (&self.pending, pending),
            (&self.without_symbols, without_symbols),
            (&self.without_build_id, without_build_id),
        ];
        for (counter, count) in self.named.iter().zip(named).chain(others) {
            counter.increment(count as u64);
            total += count as u64;
        }
        if total > 0 {
            let total = self.total.fetch_add(total, Relaxed) + total;
            let named = named.iter().sum::<usize>() as u64;
            let named = self.total_named.fetch_add(named, Relaxed) + named;
            self.rate.set(named as f64 / total as f64);
        }
    }

    /// A request whose dictionary cannot be read, which goes on as it is.
    pub(super) fn unreadable(&self) {
        self.unreadable.increment(1);
    }
}
