//! Which deltas a series is made of, as far back as matters: what comes again is told from what comes late.

use smallvec::{SmallVec, smallvec};

/// So many ends are known in any case: a delivery that is repeated comes soon.
const LEAST: usize = 8;
/// And so many at most.
const MOST: usize = 1024;
/// Between these bounds, those of so many nanoseconds. Deltas overtake each other where several requests are under
/// way at once, and where several clients have series with the same labels.
const BACK: u64 = 5_000_000_000;

/// The ends of the last deltas of a series, in nanoseconds since 1970.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    /// Ascending. In place while they are few: a vector of its own would take half as much again.
    known: SmallVec<[u64; LEAST]>,
    /// The newest one that was forgotten: what is not newer may have been there before.
    forgotten: u64,
}

impl Ends {
    /// After a delta that ended then.
    pub(super) fn new(end: u64) -> Self {
        Ends {
            known: smallvec![end],
            forgotten: 0,
        }
    }

    /// Whether a delta that ends then is a new one. False when it was there before, or may have been.
    pub(super) fn admit(&mut self, end: u64) -> bool {
        let Err(at) = self.known.binary_search(&end) else {
            return false;
        };
        if end <= self.forgotten {
            return false;
        }
        let newest = self.known.last().copied().unwrap_or(0).max(end);
        let is_old = |first: &u64| first.saturating_add(BACK) < newest;
        let forget = self.known.len() >= MOST
            || self.known.len() >= LEAST && self.known.first().is_some_and(is_old);
        match (forget, at.checked_sub(1)) {
            // It is the oldest one itself.
            (true, None) => self.forgotten = end,
            (true, Some(before)) => {
                self.forgotten = self.known.remove(0);
                self.known.insert(before, end);
            }
            (false, _) => self.known.insert(at, end),
        }
        true
    }

    /// By how many bytes it may grow with the next one.
    pub(super) fn growth(&self) -> usize {
        if self.known.len() < self.known.capacity() {
            return 0;
        }
        let next = (self.known.len() + 1).next_power_of_two() * size_of::<u64>();
        (size_of::<Ends>() + next).saturating_sub(self.bytes())
    }

    /// The bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let apart = match self.known.spilled() {
            true => self.known.capacity() * size_of::<u64>(),
            false => 0,
        };
        size_of::<Ends>() + apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_comes_late_counts_once_and_what_is_too_old_does_not() {
        let mut ends = Ends::new(50 * SECOND);
        for (end, expected) in [
            (50, false),
            (60, true),
            (40, true),
            (40, false),
            (55, true),
            (60, false),
        ] {
            assert_eq!(ends.admit(end * SECOND), expected, "{end}");
        }
        assert!((61..70).all(|end| ends.admit(end * SECOND)));
        assert!((60..70).all(|end| !ends.admit(end * SECOND)));
        // It may have been there.
        assert!(!ends.admit(45 * SECOND));
        assert_eq!(ends.known.len(), LEAST);
    }

    #[test]
    fn of_fast_series_more_is_known_and_memory_is_bounded() {
        let mut ends = Ends::new(1);
        assert!((1..500).all(|number| ends.admit(2 * number)));
        assert!((1..500).all(|number| ends.admit(2 * number + 1)));
        assert_eq!(ends.known.len(), 999);
        let (before, most) = (ends.bytes(), ends.growth());
        assert!((1000..1025).all(|end| ends.admit(end)));
        assert!(ends.growth() > 0 && ends.bytes() <= before + most.max(8 * MOST));
        assert!((1025..5000).all(|end| ends.admit(end)));
        assert!(ends.bytes() <= size_of::<Ends>() + MOST * size_of::<u64>());
        // After a while, few are enough.
        assert!((100..1200).all(|seconds| ends.admit(seconds * SECOND)));
        assert!(!ends.admit(1190 * SECOND) && !ends.admit(50 * SECOND));
    }
}
