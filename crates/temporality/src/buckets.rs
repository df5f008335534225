//! Buckets of exponential histograms.

/// Counts of consecutive buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Buckets {
    /// Index of the first bucket.
    pub(crate) offset: i32,
    pub(crate) counts: Vec<u64>,
}

/// Largest number of buckets in a result. SDKs use 160; a range of this size has empty buckets between outliers.
const MOST_BUCKETS: i64 = 1 << 16;

impl Buckets {
    pub(crate) fn bytes(&self) -> usize {
        8 * self.counts.capacity()
    }

    /// Returns the buckets with half the resolution, `bits` times.
    pub(crate) fn coarsened(&self, bits: u32) -> Buckets {
        let shift = bits.min(31);
        let offset = self.offset >> shift;
        let mut counts: Vec<u64> = Vec::new();
        for (index, count) in self.indexed() {
            let at = (index >> shift) - i64::from(offset);
            let at = usize::try_from(at).unwrap_or(0);
            if counts.len() <= at {
                counts.resize(at + 1, 0);
            }
            if let Some(sum) = counts.get_mut(at) {
                *sum = sum.wrapping_add(count);
            }
        }
        Buckets { offset, counts }
    }

    /// Removes the buckets up to the index `last`, and returns the sum of their counts.
    pub(crate) fn take_up_to(&mut self, last: i32) -> u64 {
        let removed = i64::from(last) - i64::from(self.offset) + 1;
        let removed = usize::try_from(removed).unwrap_or(0).min(self.counts.len());
        let taken = self.counts.drain(..removed);
        let sum = taken.fold(0, u64::wrapping_add);
        let moved = i32::try_from(removed).unwrap_or(i32::MAX);
        self.offset = self.offset.saturating_add(moved);
        sum
    }

    /// Returns the difference from earlier counts; `None` if a count has fallen, or if the result has too many buckets.
    pub(crate) fn since(&self, before: &Buckets) -> Option<Buckets> {
        let count_in = |buckets: &Buckets, index: i64| {
            let at = usize::try_from(index - i64::from(buckets.offset)).ok()?;
            buckets.counts.get(at).copied()
        };
        let falls = |(index, count): (i64, u64)| count_in(self, index).unwrap_or(0) < count;
        if before.indexed().any(falls) {
            return None;
        }
        let mut delta = Buckets::default();
        for (index, count) in self.indexed() {
            let grown = count - count_in(before, index).unwrap_or(0);
            if grown == 0 {
                continue;
            }
            if delta.counts.is_empty() {
                delta.offset = i32::try_from(index).ok()?;
            }
            let at = index - i64::from(delta.offset);
            if at >= MOST_BUCKETS {
                return None;
            }
            delta.counts.resize(usize::try_from(at).ok()?, 0);
            delta.counts.push(grown);
        }
        Some(delta)
    }

    fn indexed(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let first = i64::from(self.offset);
        (first..).zip(self.counts.iter().copied())
    }
}
