//! Tracks the end times of recent deltas of a series, to tell duplicates from late deltas.

use smallvec::{SmallVec, smallvec};

/// Minimum number of end times that are remembered; duplicates usually arrive soon.
const MIN_END_TIMES: usize = 8;
/// Maximum number of end times that are remembered.
const MAX_END_TIMES: usize = 1024;
/// Time span in nanoseconds for which end times are remembered, between these bounds. Deltas
/// overtake each other if several requests are in flight, or if several clients have series with
/// the same labels.
const REMEMBERED_NANOS: u64 = 5_000_000_000;

/// The end times of the last deltas of a series, in nanoseconds since 1970.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    /// Ascending end times. A few are stored in place, because a separate vector would take half as
    /// much memory again.
    known: SmallVec<[u64; MIN_END_TIMES]>,
    /// The newest forgotten end time. A delta that is not newer may be a duplicate.
    forgotten: u64,
}

impl Ends {
    /// Starts with a delta that ended at `end`.
    pub(super) fn new(end: u64) -> Self {
        Ends {
            known: smallvec![end],
            forgotten: 0,
        }
    }

    /// Whether a delta that ends at `end` is new. Returns false if it is or may be a duplicate.
    pub(super) fn admit(&mut self, end: u64) -> bool {
        let Err(at) = self.known.binary_search(&end) else {
            return false;
        };
        if end <= self.forgotten {
            return false;
        }
        let newest = self.known.last().copied().unwrap_or(0).max(end);
        let is_old = |first: &u64| first.saturating_add(REMEMBERED_NANOS) < newest;
        let forget = self.known.len() >= MAX_END_TIMES
            || self.known.len() >= MIN_END_TIMES && self.known.first().is_some_and(is_old);
        match (forget, at.checked_sub(1)) {
            // The delta itself is the oldest one.
            (true, None) => self.forgotten = end,
            (true, Some(before)) => {
                self.forgotten = self.known.remove(0);
                self.known.insert(before, end);
            }
            (false, _) => self.known.insert(at, end),
        }
        true
    }

    /// Returns the bytes by which memory may grow with the next end time.
    pub(super) fn growth(&self) -> usize {
        if self.known.len() < self.known.capacity() {
            return 0;
        }
        let next = (self.known.len() + 1).next_power_of_two() * size_of::<u64>();
        (size_of::<Ends>() + next).saturating_sub(self.bytes())
    }

    /// Returns the memory in bytes.
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
    fn late_delta_counts_once_and_too_old_delta_never() {
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
        // The delta may be a duplicate.
        assert!(!ends.admit(45 * SECOND));
        assert_eq!(ends.known.len(), MIN_END_TIMES);
    }

    #[test]
    fn memory_of_remembered_deltas_is_bounded() {
        let mut ends = Ends::new(1);
        assert!((1..500).all(|number| ends.admit(2 * number)));
        assert!((1..500).all(|number| ends.admit(2 * number + 1)));
        assert_eq!(ends.known.len(), 999);
        let (before, most) = (ends.bytes(), ends.growth());
        assert!((1000..1025).all(|end| ends.admit(end)));
        assert!(ends.growth() > 0 && ends.bytes() <= before + most.max(8 * MAX_END_TIMES));
        assert!((1025..5000).all(|end| ends.admit(end)));
        assert!(ends.bytes() <= size_of::<Ends>() + MAX_END_TIMES * size_of::<u64>());
        // Later, a few end times are enough.
        assert!((100..1200).all(|seconds| ends.admit(seconds * SECOND)));
        assert!(!ends.admit(1190 * SECOND) && !ends.admit(50 * SECOND));
    }
}
