//! The set of acknowledged records.

use std::collections::BTreeMap;

/// A set of sequence numbers: all numbers below a watermark, and ranges above it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Acknowledged {
    watermark: u64,
    /// Ranges from their first number to the number after their last. Ranges do not touch each other or the watermark.
    above: BTreeMap<u64, u64>,
}

impl Acknowledged {
    /// Creates a set of all numbers below `watermark` and of these ranges.
    pub(super) fn new(watermark: u64, ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut set = Acknowledged {
            watermark,
            above: BTreeMap::new(),
        };
        for (first, end) in ranges {
            set.insert(first, end);
        }
        set
    }

    pub(super) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// Returns the ranges above the watermark: first number, and the number after the last.
    pub(super) fn ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> {
        self.above.iter().map(|(first, end)| (*first, *end))
    }

    pub(super) fn end(&self) -> u64 {
        self.above
            .last_key_value()
            .map_or(self.watermark, |(_, end)| *end)
    }

    pub(super) fn contains(&self, sequence: u64) -> bool {
        self.next_absent(sequence) != sequence
    }

    /// Returns the first number at or above `sequence` that is not in the set.
    pub(super) fn next_absent(&self, sequence: u64) -> u64 {
        if sequence < self.watermark {
            return self.watermark;
        }
        match self.above.range(..=sequence).next_back() {
            Some((_, end)) if *end > sequence => *end,
            _ => sequence,
        }
    }

    /// Returns how many numbers of `first..end` are not in the set.
    pub(super) fn absent_in(&self, first: u64, end: u64) -> u64 {
        let first = first.max(self.watermark);
        if first >= end {
            return 0;
        }
        let mut absent = end - first;
        let before = self.above.range(..first).next_back();
        for (from, to) in before.into_iter().chain(self.above.range(first..end)) {
            absent -= end.min(*to).saturating_sub(first.max(*from));
        }
        absent
    }

    /// Adds `first..end`. Returns how many of these numbers were not in the set before.
    pub(super) fn insert(&mut self, first: u64, end: u64) -> u64 {
        let new = self.absent_in(first, end);
        if new == 0 {
            return 0;
        }
        let (mut from, mut to) = (first, end);
        while let Some((other, other_end)) = self.touching(from, to) {
            self.above.remove(&other);
            (from, to) = (from.min(other), to.max(other_end));
        }
        match from <= self.watermark {
            true => self.watermark = to.max(self.watermark),
            false => {
                self.above.insert(from, to);
            }
        }
        // The new watermark may touch a range.
        while let Some(entry) = self.above.first_entry() {
            if *entry.key() > self.watermark {
                break;
            }
            self.watermark = self.watermark.max(entry.remove());
        }
        new
    }

    fn touching(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let (other, end) = self.above.range(..=to).next_back()?;
        (*end >= from).then_some((*other, *end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn acknowledged_set_matches_model(
            watermark in 0_u64..20,
            inserts in prop::collection::vec((0_u64..60, 0_u64..8), 0..40),
        ) {
            let mut set = Acknowledged::new(watermark, []);
            let mut model: BTreeSet<u64> = (0..watermark).collect();
            for (first, count) in inserts {
                let end = first + count;
                let new = (first..end).filter(|number| model.insert(*number)).count();
                prop_assert_eq!(set.insert(first, end), new as u64);
                for number in 0..70 {
                    prop_assert_eq!(set.contains(number), model.contains(&number));
                    let absent = (number..).find(|number| !model.contains(number));
                    prop_assert_eq!(Some(set.next_absent(number)), absent);
                    let between = (10..number).filter(|number| !model.contains(number)).count();
                    prop_assert_eq!(set.absent_in(10, number), between as u64);
                }
                prop_assert_eq!(set.end(), model.last().map_or(0, |last| last + 1));
                let same = Acknowledged::new(set.watermark(), set.ranges());
                prop_assert_eq!(&same, &set);
            }
        }
    }
}
