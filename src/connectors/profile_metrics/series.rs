//! What counts from the start of a process, as it was last seen: what came since is the difference.
//!
//! The first of a series yields nothing, for since when it counts nobody knows. One that fell is of another process, all
//! of which came since. What there is no room for is forgotten, the longest unused first, and begins anew.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::measure::{Function, Values};
use crate::memory::{Budget, Permit};

/// The last of each series.
pub(super) struct Series {
    last: HashMap<Vec<u8>, (u64, Last), RandomState>,
    /// Counts uses.
    clock: u64,
    bytes: usize,
    limit: usize,
    permit: Permit,
}

enum Last {
    Profile { time: u64, values: Values },
    Counter { start: u64, value: f64 },
}

/// What an entry takes, besides its key and its functions.
const ENTRY_BYTES: usize = 160;

impl Series {
    /// Nothing known yet; at most so many bytes of this budget will be kept.
    pub(super) fn new(limit: usize, budget: &Arc<Budget>) -> Self {
        Series {
            last: HashMap::default(),
            clock: 0,
            bytes: 0,
            limit,
            permit: budget.nothing(),
        }
    }

    /// What came since the profile before this one of its series. `None` for the first one, and for one that is older.
    pub(super) fn profile(&mut self, key: Vec<u8>, time: u64, values: Values) -> Option<Values> {
        let known = self.take(&key);
        let (next, difference) = match known {
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
                let difference = difference(&before, &values);
                (Last::Profile { time, values }, Some(difference))
            }
            _ => (Last::Profile { time, values }, None),
        };
        self.put(key, next);
        difference
    }

    /// What a counter counted since it was last seen.
    pub(super) fn counter(&mut self, key: Vec<u8>, start: u64, value: f64) -> f64 {
        let more = match self.take(&key) {
            Some(Last::Counter {
                start: since,
                value: before,
            }) => match value >= before && start == since {
                true => value - before,
                false => value,
            },
            _ => 0.0,
        };
        self.put(key, Last::Counter { start, value });
        more
    }

    fn take(&mut self, key: &[u8]) -> Option<Last> {
        let (_, last) = self.last.remove(key)?;
        self.bytes = self.bytes.saturating_sub(cost(key, &last));
        Some(last)
    }

    fn put(&mut self, key: Vec<u8>, last: Last) {
        self.clock += 1;
        self.bytes += cost(&key, &last);
        self.last.insert(key, (self.clock, last));
        while self.bytes > self.limit || !self.reserve() {
            let oldest = self.last.iter().min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.take(&oldest);
        }
    }

    /// Makes the permit as large as what is kept; false where the budget has no room.
    fn reserve(&mut self) -> bool {
        self.permit.shrink_to(self.bytes);
        let more = self.bytes.saturating_sub(self.permit.bytes());
        more == 0 || self.permit.grow(more).is_ok()
    }
}

fn cost(key: &[u8], last: &Last) -> usize {
    let values = match last {
        Last::Profile { values, .. } => values.bytes(),
        Last::Counter { .. } => 0,
    };
    key.len() + ENTRY_BYTES + values
}

/// What is new in `after`, all of it if it is of another process: nothing that counts falls.
fn difference(before: &Values, after: &Values) -> Values {
    let fell = |name: &Arc<str>, was: &Function| {
        let now = after.functions.get(name).copied().unwrap_or_default();
        now.own < was.own || now.total < was.total
    };
    let mut functions = before.functions.iter();
    if after.total < before.total || functions.any(|(name, was)| fell(name, was)) {
        return after.clone();
    }
    let mut difference = Values {
        total: after.total - before.total,
        functions: HashMap::default(),
    };
    for (name, now) in &after.functions {
        let was = before.functions.get(name).copied().unwrap_or_default();
        let more = Function {
            own: now.own - was.own,
            total: now.total - was.total,
        };
        if more != Function::default() {
            difference.functions.insert(name.clone(), more);
        }
    }
    difference
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(total: i128, functions: &[(&str, i128)]) -> Values {
        let function = |(name, own): &(&str, i128)| {
            let function = Function {
                own: *own,
                total: *own,
            };
            (Arc::from(*name), function)
        };
        Values {
            total,
            functions: functions.iter().map(function).collect(),
        }
    }

    fn series(limit: usize) -> Series {
        Series::new(limit, &Budget::new(1 << 20))
    }

    #[test]
    fn what_came_since_the_last_profile_counts_once() {
        let mut series = series(1 << 20);
        let mut next = |time, values| series.profile(b"a".to_vec(), time, values);
        assert_eq!(next(1, values(10, &[("f", 10)])), None);
        let second = values(15, &[("f", 12), ("g", 3)]);
        let more = Some(values(5, &[("f", 2), ("g", 3)]));
        assert_eq!(next(2, second.clone()), more);
        assert_eq!(next(2, second), Some(values(0, &[])));
        // An older one comes late.
        assert_eq!(next(1, values(10, &[("f", 10)])), None);
        // Another process.
        let restarted = values(20, &[("f", 1), ("g", 19)]);
        assert_eq!(next(3, restarted.clone()), Some(restarted));
    }

    #[test]
    fn a_counter_that_fell_or_started_again_counts_in_full() {
        let mut series = series(1 << 20);
        let mut next = |start, value| series.counter(b"a".to_vec(), start, value);
        assert!(next(1, 7.0).abs() < 1e-9);
        assert!((next(1, 9.0) - 2.0).abs() < 1e-9);
        assert!((next(1, 4.0) - 4.0).abs() < 1e-9);
        assert!((next(2, 5.0) - 5.0).abs() < 1e-9);
    }

    #[test]
    fn what_there_is_no_room_for_is_forgotten_the_longest_unused_first() {
        let mut series = series(2 * (ENTRY_BYTES + 1));
        for (key, value) in [("a", 1.0), ("b", 1.0), ("a", 2.0), ("c", 1.0)] {
            series.counter(key.into(), 0, value);
        }
        assert_eq!(series.bytes, 2 * (ENTRY_BYTES + 1));
        assert!((series.counter(b"a".to_vec(), 0, 3.0) - 1.0).abs() < 1e-9);
        assert!(series.counter(b"b".to_vec(), 0, 3.0).abs() < 1e-9);
    }
}
