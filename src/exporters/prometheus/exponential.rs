//! Exponential histograms, which Prometheus calls native histograms.
//!
//! OTLP numbers the bucket (base^i, base^(i+1)] with i, Prometheus with i + 1. This module uses
//! OTLP's numbers.

use tributary_otlp::view::{Buckets, ExponentialHistogramPoint};

/// The sum of the points of a series, or the last point.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Exponential {
    /// Sum of the values; `None` if any point lacks it.
    pub(super) sum: Option<f64>,
    /// Number of values outside of all buckets because they are NaN.
    pub(super) outside: u64,
    /// Scale of the buckets, from -4 to 8: bounds are powers of 2^(2^-`scale`).
    pub(super) scale: i32,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Side,
    pub(super) negative: Side,
}

/// The buckets of one sign.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Side {
    /// Number of the first bucket.
    pub(super) offset: i32,
    pub(super) counts: Vec<u64>,
}

impl Exponential {
    /// Reads a point. Returns `None` if Prometheus cannot represent it: scale below -4, buckets
    /// outside of the range of `double`, or counts beyond the range of a counter.
    pub(super) fn read(point: &ExponentialHistogramPoint<'_>) -> Option<Self> {
        let scale = point.scale();
        if !(LOWEST_SCALE..=20).contains(&scale) {
            return None;
        }
        let threshold = point.zero_threshold();
        let sum = point.sum();
        let mut read = Exponential {
            sum,
            outside: 0,
            scale: scale.min(HIGHEST_SCALE),
            zero_count: point.zero_count(),
            zero_threshold: if threshold > 0.0 { threshold } else { 0.0 },
            positive: Side::read(point.positive(), scale)?,
            negative: Side::read(point.negative(), scale)?,
        };
        read.shrink();
        let inside = read.inside()?;
        if sum.is_some_and(f64::is_nan) {
            read.outside = point.count().saturating_sub(inside);
        }
        read.count().map(|_| read)
    }

    /// Returns the number of values; `None` if it exceeds the range of the exposition.
    pub(super) fn count(&self) -> Option<u64> {
        let count = self.inside()?.checked_add(self.outside)?;
        (count <= i64::MAX.cast_unsigned()).then_some(count)
    }

    /// Adds two points; `None` if the sum exceeds the range of the exposition.
    pub(super) fn plus(&self, mut other: Exponential) -> Option<Exponential> {
        let mut sum = self.clone();
        let scale = sum.scale.min(other.scale);
        sum.rescale(scale);
        other.rescale(scale);
        sum.zero_threshold = sum.zero_threshold.max(other.zero_threshold);
        sum.zero_count = sum.zero_count.saturating_add(other.zero_count);
        sum.outside = sum.outside.saturating_add(other.outside);
        sum.sum = sum.sum.zip(other.sum).map(|(a, b)| a + b);
        // Two narrow ranges that are far apart may need many buckets together.
        while !(sum.positive.fits(&other.positive) && sum.negative.fits(&other.negative)) {
            sum.rescale(sum.scale - 1);
            other.rescale(sum.scale);
        }
        sum.positive.add(&other.positive);
        sum.negative.add(&other.negative);
        sum.absorb();
        sum.count().map(|_| sum)
    }

    fn inside(&self) -> Option<u64> {
        let mut counts = self.positive.counts.iter().chain(&self.negative.counts);
        counts.try_fold(self.zero_count, |sum, count| sum.checked_add(*count))
    }

    fn rescale(&mut self, scale: i32) {
        let by = self.scale - scale;
        self.positive.merge(by);
        self.negative.merge(by);
        self.scale = scale;
    }

    /// Widens the buckets until there are not too many, and drops empty buckets at both ends.
    fn shrink(&mut self) {
        self.positive.trim();
        self.negative.trim();
        let count = self.positive.counts.len().max(self.negative.counts.len());
        if count > BUCKETS && self.scale > LOWEST_SCALE {
            self.rescale(self.scale - 1);
            self.shrink();
        }
    }

    /// Counts buckets that lie completely below the zero threshold as zero.
    fn absorb(&mut self) {
        if self.zero_threshold == 0.0 {
            return;
        }
        let base = f64::exp2(f64::exp2(f64::from(-self.scale)));
        let threshold = self.zero_threshold;
        for side in [&mut self.positive, &mut self.negative] {
            let below = side.counts.iter().enumerate();
            let below = below.take_while(|(at, _)| {
                let number = f64::from(side.offset) + *at as f64 + 1.0;
                base.powf(number) <= threshold
            });
            let (number, count) = below.fold((0, 0_u64), |(_, sum), (at, count)| {
                (at + 1, sum.saturating_add(*count))
            });
            side.counts.drain(..number);
            side.offset = side
                .offset
                .saturating_add(i32::try_from(number).unwrap_or(0));
            self.zero_count = self.zero_count.saturating_add(count);
        }
    }
}

impl Side {
    /// Returns the memory of the buckets in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.counts.capacity() * size_of::<u64>()
    }

    fn read(buckets: Option<Buckets<'_>>, scale: i32) -> Option<Self> {
        let Some(buckets) = buckets else {
            return Some(Side::default());
        };
        let by = (scale - HIGHEST_SCALE).max(0);
        let (first, mut number) = (buckets.offset(), i64::from(buckets.offset()));
        // Exponents of doubles range from -1074 to 1024.
        let range = (1075.0 * f64::exp2(f64::from(scale))).ceil() as i64;
        let mut side = Side {
            offset: first >> by,
            counts: Vec::new(),
        };
        for count in buckets.bucket_counts() {
            if count > 0 && !(-range..=range).contains(&number) {
                return None;
            }
            let at = (number >> by) - i64::from(side.offset);
            let at = usize::try_from(at).ok()?;
            if count > 0 {
                if at >= side.counts.len() {
                    side.counts.resize(at + 1, 0);
                }
                let bucket = side.counts.get_mut(at)?;
                *bucket = bucket.checked_add(count)?;
            }
            number += 1;
        }
        side.trim();
        Some(side)
    }

    /// Merges each 2^`by` buckets into one.
    fn merge(&mut self, by: i32) {
        if by <= 0 || self.counts.is_empty() {
            self.offset >>= by.clamp(0, 31);
            return;
        }
        let offset = self.offset >> by;
        let mut merged: Vec<u64> = Vec::new();
        for (at, count) in self.counts.iter().enumerate() {
            let number = i64::from(self.offset) + at as i64;
            let place = usize::try_from((number >> by) - i64::from(offset)).unwrap_or(0);
            if place >= merged.len() {
                merged.resize(place + 1, 0);
            }
            if let Some(bucket) = merged.get_mut(place) {
                *bucket = bucket.saturating_add(*count);
            }
        }
        (self.offset, self.counts) = (offset, merged);
    }

    /// Drops empty buckets at both ends.
    fn trim(&mut self) {
        let used = |count: &u64| *count > 0;
        let end = self.counts.iter().rposition(used).map_or(0, |at| at + 1);
        self.counts.truncate(end);
        let begin = self.counts.iter().position(used).unwrap_or(0);
        self.counts.drain(..begin);
        self.offset = match self.counts.is_empty() {
            true => 0,
            false => self
                .offset
                .saturating_add(i32::try_from(begin).unwrap_or(0)),
        };
        self.counts.shrink_to_fit();
    }

    /// Whether the merged side would have an acceptable number of buckets.
    fn fits(&self, other: &Side) -> bool {
        let (first, end) = self.range(other);
        end - first <= BUCKETS as i64
    }

    /// Returns the number of the first bucket of both sides, and the number after the last bucket.
    fn range(&self, other: &Side) -> (i64, i64) {
        let end = |side: &Side| i64::from(side.offset) + side.counts.len() as i64;
        match (self.counts.is_empty(), other.counts.is_empty()) {
            (true, _) => (other.offset.into(), end(other)),
            (_, true) => (self.offset.into(), end(self)),
            _ => {
                let first = self.offset.min(other.offset).into();
                (first, end(self).max(end(other)))
            }
        }
    }

    fn add(&mut self, other: &Side) {
        if other.counts.is_empty() {
            return;
        }
        let (first, end) = self.range(other);
        let mut counts = vec![0_u64; usize::try_from(end - first).unwrap_or(0)];
        for side in [&*self, other] {
            let skipped = usize::try_from(i64::from(side.offset) - first).unwrap_or(0);
            for (bucket, count) in counts.iter_mut().skip(skipped).zip(&side.counts) {
                *bucket = bucket.saturating_add(*count);
            }
        }
        self.offset = i32::try_from(first).unwrap_or(0);
        self.counts = counts;
    }
}

const LOWEST_SCALE: i32 = -4;
const HIGHEST_SCALE: i32 = 8;
/// Maximum number of buckets of one sign. SDKs use at most 160 by default. At the lowest scale, the
/// range of doubles takes 136.
const BUCKETS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn side(offset: i32, counts: &[u64]) -> Side {
        Side {
            offset,
            counts: counts.to_vec(),
        }
    }

    fn histogram(scale: i32, positive: Side) -> Exponential {
        Exponential {
            sum: Some(1.0),
            scale,
            positive,
            ..Exponential::default()
        }
    }

    #[test]
    fn merged_buckets_keep_counts() {
        let mut odd = side(-3, &[1, 2, 3, 4, 5]);
        odd.merge(1);
        // -3 | -2 -1 | 0 1
        assert_eq!(odd, side(-2, &[1, 5, 9]));
        odd.merge(2);
        assert_eq!(odd, side(-1, &[6, 9]));
    }

    #[test]
    fn points_of_different_scales_are_added_in_the_wider_buckets() {
        let sum = histogram(2, side(4, &[1, 1, 1, 1]));
        let sum = sum.plus(histogram(1, side(1, &[10, 20]))).unwrap();
        assert_eq!((sum.scale, &sum.positive), (1, &side(1, &[10, 22, 2])));
        assert_eq!((sum.sum, sum.count()), (Some(2.0), Some(34)));
    }

    #[test]
    fn distant_points_take_bounded_memory() {
        let far = 1000 << 8;
        let sum = histogram(8, side(-far, &[1]));
        let sum = sum.plus(histogram(8, side(far, &[2]))).unwrap();
        assert!(sum.positive.counts.len() <= BUCKETS);
        assert_eq!(sum.count(), Some(3));
        assert!(sum.scale >= LOWEST_SCALE);
    }

    #[test]
    fn buckets_below_raised_threshold_become_zero() {
        let sum = histogram(0, side(-2, &[1, 2, 4, 8]));
        let other = Exponential {
            zero_threshold: 1.0,
            zero_count: 16,
            sum: Some(0.0),
            ..Exponential::default()
        };
        let sum = sum.plus(other).unwrap();
        // (1/4, 1/2] and (1/2, 1] were merged into zero.
        assert_eq!((sum.zero_count, &sum.positive), (19, &side(0, &[4, 8])));
    }

    #[test]
    fn overflowing_sum_is_refused() {
        let sum = histogram(0, side(0, &[i64::MAX.cast_unsigned()]));
        assert_eq!(sum.plus(histogram(0, side(0, &[1]))), None);
    }
}
