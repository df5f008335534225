//! Rates between two snapshots.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Maximum time between two snapshots for a rate. Over a longer time the rate would not be current.
const MAX_INTERVAL: Duration = Duration::from_secs(10);

/// Items and bytes in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Rate {
    items_per_second: f64,
    bytes_per_second: f64,
}

/// Counters of the previous snapshot, and of the one that is being made.
#[derive(Default)]
pub(super) struct Rates {
    taken: Option<Instant>,
    /// Seconds since the previous snapshot; 0 if there is none or it is too old.
    interval: f64,
    before: HashMap<String, (f64, f64)>,
    now: HashMap<String, (f64, f64)>,
}

impl Rates {
    /// Begins a snapshot.
    pub(super) fn begin(&mut self) {
        let passed = self.taken.map(|taken| taken.elapsed());
        let passed = passed.filter(|passed| *passed <= MAX_INTERVAL);
        self.interval = passed.map_or(0.0, |passed| passed.as_secs_f64());
        self.taken = Some(Instant::now());
    }

    /// Ends a snapshot.
    pub(super) fn end(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }

    /// Returns the seconds since the previous snapshot; 0 if there are no rates.
    pub(super) fn interval(&self) -> f64 {
        self.interval
    }

    /// Returns the rate of two counters with this name. There is no rate for the first value of a counter and for a value
    /// that has fallen.
    pub(super) fn of(&mut self, name: &str, items: u64, bytes: u64) -> Rate {
        let (items_per_second, bytes_per_second) = self.both(name, (items as f64, bytes as f64));
        Rate {
            items_per_second,
            bytes_per_second,
        }
    }

    /// Returns the rate of a counter of seconds.
    pub(super) fn of_seconds(&mut self, name: &str, seconds: f64) -> f64 {
        self.both(name, (seconds, 0.0)).0
    }

    fn both(&mut self, name: &str, now: (f64, f64)) -> (f64, f64) {
        self.now.insert(name.to_owned(), now);
        let before = self.before.get(name).filter(|_| self.interval > 0.0);
        let Some(before) = before else {
            return (0.0, 0.0);
        };
        let rate = |now: f64, before: f64| (now - before).max(0.0) / self.interval;
        (rate(now.0, before.0), rate(now.1, before.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_needs_two_snapshots_and_a_counter_that_grows() {
        let mut rates = Rates::default();
        rates.begin();
        assert_eq!(rates.of("a", 10, 100), Rate::default());
        rates.end();
        rates.begin();
        rates.interval = 2.0;
        let rate = rates.of("a", 30, 400);
        assert!((rate.items_per_second - 10.0).abs() < 1e-9);
        assert!((rate.bytes_per_second - 150.0).abs() < 1e-9);
        rates.end();
        rates.begin();
        rates.interval = 2.0;
        assert_eq!(rates.of("a", 5, 5), Rate::default());
        assert_eq!(rates.of("b", 5, 5), Rate::default());
    }
}
