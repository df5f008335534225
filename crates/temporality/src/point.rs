//! The values of data points, and their differences.

use crate::buckets::Buckets;

/// Value of a data point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PointValue {
    Int(i64),
    Double(f64),
    Histogram(HistogramValue),
    Exponential(Box<ExponentialValue>),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HistogramValue {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) bounds: Vec<f64>,
    pub(crate) counts: Vec<u64>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ExponentialValue {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) scale: i32,
    pub(crate) zero_count: u64,
    pub(crate) zero_threshold: f64,
    pub(crate) positive: Buckets,
    pub(crate) negative: Buckets,
}

/// Result of a comparison with the previous point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Difference {
    Delta(PointValue),
    /// The series began anew.
    Reset,
    /// The histograms have different buckets.
    OtherBuckets,
}

impl PointValue {
    /// Returns the difference from the previous point, and the value to compare the next point with.
    pub(crate) fn since(self, before: &PointValue) -> (Difference, PointValue) {
        match (self, before) {
            (PointValue::Int(now), PointValue::Int(before)) => {
                let difference = match now < *before {
                    true => Difference::Reset,
                    false => Difference::Delta(PointValue::Int(now.wrapping_sub(*before))),
                };
                (difference, PointValue::Int(now))
            }
            (PointValue::Double(now), PointValue::Double(before)) => {
                let difference = match now < *before {
                    true => Difference::Reset,
                    false => Difference::Delta(PointValue::Double(now - before)),
                };
                (difference, PointValue::Double(now))
            }
            (PointValue::Histogram(now), PointValue::Histogram(before)) => now.since(before),
            (PointValue::Exponential(now), PointValue::Exponential(before)) => now.since(before),
            // The kind of the value is a part of the identity of a series.
            (now, _) => (Difference::Reset, now),
        }
    }

    /// Returns the memory behind the value, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            PointValue::Int(_) | PointValue::Double(_) => 0,
            PointValue::Histogram(value) => 8 * (value.bounds.capacity() + value.counts.capacity()),
            PointValue::Exponential(value) => {
                size_of::<ExponentialValue>() + value.positive.bytes() + value.negative.bytes()
            }
        }
    }
}

impl HistogramValue {
    fn since(mut self, before: &HistogramValue) -> (Difference, PointValue) {
        let is_alike = self.counts.len() == before.counts.len() && self.bounds == before.bounds;
        if !is_alike {
            return (Difference::OtherBuckets, PointValue::Histogram(self));
        }
        let falls = self
            .counts
            .iter()
            .zip(&before.counts)
            .any(|(now, before)| now < before);
        if self.count < before.count || falls {
            return (Difference::Reset, PointValue::Histogram(self));
        }
        let sum = difference_of_sums(&mut self.sum, before.sum);
        let counts = self.counts.iter().zip(&before.counts);
        let delta = HistogramValue {
            count: self.count - before.count,
            sum,
            bounds: self.bounds.clone(),
            counts: counts.map(|(now, before)| now - before).collect(),
        };
        (
            Difference::Delta(PointValue::Histogram(delta)),
            PointValue::Histogram(self),
        )
    }
}

impl ExponentialValue {
    fn since(mut self: Box<Self>, before: &ExponentialValue) -> (Difference, PointValue) {
        // When histograms are merged, counts and thresholds only grow, and scales only shrink.
        let falls = self.count < before.count
            || self.zero_threshold < before.zero_threshold
            || self.scale > before.scale;
        if falls {
            return (Difference::Reset, PointValue::Exponential(self));
        }
        let mut before = before.clone();
        if self.zero_threshold > before.zero_threshold {
            // The bucket that contains the threshold: the largest index whose lower bound is below it.
            let factor = std::f64::consts::LOG2_E * 2f64.powi(before.scale);
            #[allow(clippy::cast_possible_truncation)] // A value outside of the range saturates.
            let bucket = ((self.zero_threshold.ln() * factor).ceil() - 1.0) as i32;
            let below = before.positive.take_up_to(bucket);
            before.zero_count = before.zero_count.saturating_add(below);
            let below = before.negative.take_up_to(bucket);
            before.zero_count = before.zero_count.saturating_add(below);
        }
        if self.scale < before.scale {
            let bits = before.scale.abs_diff(self.scale);
            before.positive = before.positive.coarsened(bits);
            before.negative = before.negative.coarsened(bits);
        }
        let (Some(positive), Some(negative)) = (
            self.positive.since(&before.positive),
            self.negative.since(&before.negative),
        ) else {
            return (Difference::Reset, PointValue::Exponential(self));
        };
        let Some(zero_count) = self.zero_count.checked_sub(before.zero_count) else {
            return (Difference::Reset, PointValue::Exponential(self));
        };
        let sum = difference_of_sums(&mut self.sum, before.sum);
        let delta = ExponentialValue {
            count: self.count - before.count,
            sum,
            scale: self.scale,
            zero_count,
            zero_threshold: self.zero_threshold,
            positive,
            negative,
        };
        (
            Difference::Delta(PointValue::Exponential(Box::new(delta))),
            PointValue::Exponential(self),
        )
    }
}

/// Returns the difference of two sums, 0 if it is no number. A missing sum (NaN) is replaced by the previous sum, so that
/// the next difference is right.
fn difference_of_sums(now: &mut f64, before: f64) -> f64 {
    let delta = *now - before;
    if !delta.is_nan() {
        return delta;
    }
    if now.is_nan() {
        *now = before;
    }
    0.0
}
