//! Last values of cumulative profiles and counters, for the differences between them.
//!
//! The first value of a series yields nothing, since the start of its counters is not known. A
//! value that fell belongs to another process, so all of it is new. If the limit is reached, the
//! least recently used series are evicted and start again; evictions are counted, because the
//! values between are in no metric.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use metrics::Counter;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::measured::{Counted, Function, Values};
use tributary_memory::{Budget, Permit};

/// Last value of each series.
pub(super) struct Series {
    last: HashMap<Key, (u64, Last), RandomState>,
    /// Series by their last use.
    by_use: BTreeMap<u64, Key>,
    /// Number of uses.
    clock: u64,
    /// Random seed of the hashes, so that no sender can construct two series with equal hashes.
    seed: u64,
    bytes: usize,
    limit: usize,
    permit: Permit,
    forgotten: Counter,
}

/// Hash of the identity of a series: resources are large, and there may be a million series.
type Key = u128;

enum Last {
    Profile { time: u64, values: Values },
    Counter { start: u64, time: u64, value: f64 },
}

/// Memory of an entry in both maps, which are half empty at worst, besides its functions.
const ENTRY_BYTES: usize = 256;

impl Series {
    /// Creates an empty state that uses at most `limit` bytes of the budget. `forgotten` counts
    /// evicted series.
    pub(super) fn new(limit: usize, budget: &Arc<Budget>, forgotten: &Counter) -> Self {
        Series {
            last: HashMap::default(),
            by_use: BTreeMap::new(),
            clock: 0,
            seed: fastrand::u64(..),
            bytes: 0,
            limit,
            permit: budget.empty_permit(),
            forgotten: forgotten.clone(),
        }
    }

    /// Returns the difference to the previous profile of the series; `None` for the first profile
    /// and for an older one.
    pub(super) fn profile(
        &mut self,
        series: &[u8],
        time: u64,
        counted: &Counted,
    ) -> Option<Counted> {
        let key = self.key(series);
        let (next, difference) = match self.take(key) {
            Some(Last::Profile {
                time: last,
                values: before,
            }) if time != 0 && time < last => {
                let kept = Last::Profile {
                    time: last,
                    values: before,
                };
                (kept, None)
            }
            Some(Last::Profile { values: before, .. }) => {
                let values = after(counted, &before);
                let difference = difference(&before, &values);
                (Last::Profile { time, values }, Some(difference))
            }
            _ => {
                let values = after(counted, &Values::default());
                (Last::Profile { time, values }, None)
            }
        };
        self.put(key, next);
        difference
    }

    /// Returns the increase of a counter since its previous point; 0 for an older point.
    pub(super) fn counter(&mut self, series: &[u8], (start, time): (u64, u64), value: f64) -> f64 {
        let key = self.key(series);
        let mut next = Last::Counter { start, time, value };
        let more = match self.take(key) {
            Some(known @ Last::Counter { time: last, .. }) if time != 0 && time < last => {
                next = known;
                0.0
            }
            Some(Last::Counter {
                start: since,
                value: before,
                ..
            }) => match value >= before && start == since {
                true => value - before,
                false => value,
            },
            _ => 0.0,
        };
        self.put(key, next);
        more
    }

    fn key(&self, series: &[u8]) -> Key {
        xxh3_128_with_seed(series, self.seed)
    }

    fn take(&mut self, key: Key) -> Option<Last> {
        let (used, last) = self.last.remove(&key)?;
        self.by_use.remove(&used);
        self.bytes = self.bytes.saturating_sub(cost(&last));
        Some(last)
    }

    fn put(&mut self, key: Key, last: Last) {
        self.clock += 1;
        self.bytes += cost(&last);
        self.last.insert(key, (self.clock, last));
        self.by_use.insert(self.clock, key);
        while self.bytes > self.limit || !self.reserve() {
            let Some((_, oldest)) = self.by_use.first_key_value() else {
                return;
            };
            self.take(*oldest);
            self.forgotten.increment(1);
        }
    }

    /// Adjusts the permit to the memory in use; returns false if the budget has no room.
    fn reserve(&mut self) -> bool {
        self.permit.shrink_to(self.bytes);
        let more = self.bytes.saturating_sub(self.permit.bytes());
        more == 0 || self.permit.grow(more).is_ok()
    }
}

fn cost(last: &Last) -> usize {
    let values = match last {
        Last::Profile { values, .. } => values.bytes(),
        Last::Counter { .. } => 0,
    };
    ENTRY_BYTES + values
}

/// Sums the values by function. Names are shared with `before` where possible.
fn after(counted: &Counted, before: &Values) -> Values {
    let mut values = Values {
        total: counted.total,
        ..Values::default()
    };
    for (name, more) in counted.functions() {
        let known = before.functions.get_key_value(name);
        let name = known.map_or_else(|| name.into(), |(name, _)| Arc::clone(name));
        let function = values.functions.entry(name).or_default();
        function.own += more.own;
        function.total += more.total;
    }
    values
}

/// Returns the increase from `before` to `after`, or all of `after` if a value fell: the process is
/// then another one.
fn difference(before: &Values, after: &Values) -> Counted {
    let fell = |name: &Arc<str>, was: &Function| {
        let now = after.functions.get(name).copied().unwrap_or_default();
        now.own < was.own || now.total < was.total
    };
    let mut functions = before.functions.iter();
    if after.total < before.total || functions.any(|(name, was)| fell(name, was)) {
        return difference(&Values::default(), after);
    }
    let mut difference = Counted::new(after.total - before.total);
    for (name, now) in &after.functions {
        let was = before.functions.get(name).copied().unwrap_or_default();
        let more = Function {
            own: now.own - was.own,
            total: now.total - was.total,
        };
        if more != Function::default() {
            difference.push(name, more);
        }
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(total: i128, functions: &[(&str, i128)]) -> Counted {
        let mut counted = Counted::new(total);
        for (name, own) in functions {
            let function = Function {
                own: *own,
                total: *own,
            };
            counted.push(name, function);
        }
        counted
    }

    fn values(counted: &Counted) -> Values {
        after(counted, &Values::default())
    }

    fn series(limit: usize) -> Series {
        Series::new(limit, &Budget::new(1 << 20), &Counter::noop())
    }

    #[test]
    fn growth_since_last_profile_counts_once() {
        let mut series = series(1 << 20);
        let mut next = |time, total, functions: &[_]| {
            let more = series.profile(b"a", time, &counted(total, functions));
            more.as_ref().map(values)
        };
        let expected = |total, functions: &[_]| Some(values(&counted(total, functions)));
        assert_eq!(next(1, 10, &[("f", 10)]), None);
        let second = [("f", 12), ("g", 3)];
        assert_eq!(next(2, 15, &second), expected(5, &[("f", 2), ("g", 3)]));
        assert_eq!(next(2, 15, &second), expected(0, &[]));
        // A late, older profile.
        assert_eq!(next(1, 10, &[("f", 10)]), None);
        // Another process, with two binaries of one name.
        let restarted = [("f", 1), ("[b]", 9), ("[b]", 10)];
        assert_eq!(
            next(3, 20, &restarted),
            expected(20, &[("f", 1), ("[b]", 19)])
        );
    }

    #[test]
    fn reset_counter_counts_in_full() {
        let mut series = series(1 << 20);
        let mut next = |start, time, value| series.counter(b"a", (start, time), value);
        assert!(next(1, 1, 7.0).abs() < 1e-9);
        assert!((next(1, 2, 9.0) - 2.0).abs() < 1e-9);
        assert!((next(1, 3, 4.0) - 4.0).abs() < 1e-9);
        assert!((next(2, 4, 5.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn late_point_is_no_restart() {
        let mut series = series(1 << 20);
        let mut next = |start, time, value| series.counter(b"a", (start, time), value);
        next(1, 10, 100.0);
        assert!(next(1, 5, 50.0).abs() < 1e-9);
        assert!(next(0, 5, 50.0).abs() < 1e-9);
        assert!((next(1, 20, 103.0) - 3.0).abs() < 1e-9);
        assert!(next(1, 20, 103.0).abs() < 1e-9);
    }

    #[test]
    fn least_recently_used_series_are_evicted_first() {
        let mut series = series(2 * ENTRY_BYTES);
        let mut next = |key: &str, value| series.counter(key.as_bytes(), (0, 0), value);
        for (key, value) in [("a", 1.0), ("b", 1.0), ("a", 2.0), ("c", 1.0)] {
            next(key, value);
        }
        assert!((next("a", 3.0) - 1.0).abs() < 1e-9);
        assert!(next("b", 3.0).abs() < 1e-9);
        assert_eq!(series.bytes, 2 * ENTRY_BYTES);
        assert_eq!(series.by_use.len(), series.last.len());
    }
}
