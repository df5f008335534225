//! The value of a series, and its update by points.

use super::exemplar::Exemplar;
use super::exponential::Exponential;
use tributary_otlp::view::{HistogramPoint, Number, SummaryPoint};

/// The last value of a series, or the sum of its deltas.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Double(f64),
    Int(i64),
    Histogram(Box<Histogram>),
    Exponential(Box<Exponential>),
    Summary(Box<Summary>),
}

/// A histogram with explicit bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Histogram {
    /// Sum of the values; `None` if any point lacks it.
    pub(super) sum: Option<f64>,
    /// Upper bounds of all buckets except the last.
    pub(super) bounds: Box<[f64]>,
    /// Counts of the buckets; one more than bounds.
    pub(super) counts: Box<[u64]>,
}

/// Precomputed quantiles.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) quantiles: Box<[(f64, f64)]>,
}

/// Result of adding a delta.
#[derive(Debug)]
pub(super) enum Sum {
    /// The delta was added without taking more memory.
    Added,
    /// The series needs a new value, which continues the old one or restarts.
    Becomes { value: Value, continued: bool },
}

/// The point is invalid in itself, or cannot be represented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invalid;

impl Value {
    /// Returns the value of a gauge or a sum.
    pub(super) fn of_number(number: Number) -> Self {
        match number {
            Number::Double(value) => Value::Double(value),
            Number::Int(value) => Value::Int(value),
        }
    }

    pub(super) fn add(&mut self, delta: Value) -> Result<Sum, Invalid> {
        match (&mut *self, delta) {
            (Value::Int(sum), Value::Int(delta)) => {
                *self = match sum.checked_add(delta) {
                    Some(sum) => Value::Int(sum),
                    None => Value::Double(*sum as f64 + delta as f64),
                };
            }
            (Value::Int(sum), Value::Double(delta)) => *self = Value::Double(*sum as f64 + delta),
            (Value::Double(sum), Value::Int(delta)) => *sum += delta as f64,
            (Value::Double(sum), Value::Double(delta)) => *sum += delta,
            (Value::Histogram(sum), Value::Histogram(delta)) if sum.bounds == delta.bounds => {
                sum.add(&delta)?;
            }
            (Value::Exponential(sum), Value::Exponential(delta)) => {
                return Ok(Sum::Becomes {
                    value: Value::Exponential(sum.plus(*delta).ok_or(Invalid)?.into()),
                    continued: true,
                });
            }
            (_, delta) => {
                return Ok(Sum::Becomes {
                    value: delta,
                    continued: false,
                });
            }
        }
        Ok(Sum::Added)
    }

    /// Whether a delta has the same buckets and can be added.
    pub(super) fn adds_up_with(&self, delta: &Value) -> bool {
        match (self, delta) {
            (Value::Histogram(sum), Value::Histogram(delta)) => sum.bounds == delta.bounds,
            (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => true,
            _ => std::mem::discriminant(self) == std::mem::discriminant(delta),
        }
    }

    /// Returns the number of series as Prometheus counts them.
    pub(super) fn series(&self) -> usize {
        match self {
            Value::Double(_) | Value::Int(_) | Value::Exponential(_) => 1,
            Value::Histogram(histogram) => histogram.counts.len() + 2,
            Value::Summary(summary) => summary.quantiles.len() + 2,
        }
    }

    /// Returns the memory in bytes besides the value itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Value::Double(_) | Value::Int(_) => 0,
            Value::Histogram(histogram) => size_of::<Histogram>() + 16 * histogram.counts.len(),
            Value::Summary(summary) => size_of::<Summary>() + 16 * summary.quantiles.len(),
            Value::Exponential(histogram) => {
                let sides = histogram.positive.bytes() + histogram.negative.bytes();
                size_of::<Exponential>() + sides
            }
        }
    }

    /// Returns the bucket of an exemplar; the same for all if there are no buckets.
    pub(super) fn bucket(&self, exemplar: &Exemplar) -> usize {
        match self {
            Value::Histogram(histogram) => {
                let below = |bound: &f64| *bound < exemplar.value;
                histogram.bounds.partition_point(below)
            }
            _ => 0,
        }
    }
}

impl Histogram {
    /// Reads a point. The count is the sum of the buckets if there are any: OTLP requires equality,
    /// and a page with a different count would be invalid.
    pub(super) fn read(point: &HistogramPoint<'_>) -> Result<Self, Invalid> {
        let mut bounds: Vec<f64> = point.explicit_bounds().collect();
        let mut counts: Vec<u64> = point.bucket_counts().collect();
        if counts.is_empty() && bounds.is_empty() {
            counts.push(point.count());
        }
        let ascending = bounds
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a < b));
        let numbers = !bounds.iter().any(|bound| bound.is_nan());
        if counts.len() != bounds.len() + 1 || !ascending || !numbers {
            return Err(Invalid);
        }
        // Some clients send the bound of the last bucket.
        if bounds.last() == Some(&f64::INFINITY) {
            bounds.pop();
            let beyond = counts.pop().unwrap_or(0);
            if let Some(last) = counts.last_mut() {
                *last = last.checked_add(beyond).ok_or(Invalid)?;
            }
        }
        let read = Histogram {
            sum: point.sum(),
            bounds: bounds.into(),
            counts: counts.into(),
        };
        read.count().map(|_| read).ok_or(Invalid)
    }

    /// Returns the number of values; `None` if it overflows.
    pub(super) fn count(&self) -> Option<u64> {
        self.counts
            .iter()
            .try_fold(0_u64, |sum, count| sum.checked_add(*count))
    }

    fn add(&mut self, delta: &Histogram) -> Result<(), Invalid> {
        let sum = self.count().zip(delta.count());
        sum.and_then(|(a, b)| a.checked_add(b)).ok_or(Invalid)?;
        for (count, more) in self.counts.iter_mut().zip(&delta.counts) {
            *count += more;
        }
        self.sum = self.sum.zip(delta.sum).map(|(a, b)| a + b);
        Ok(())
    }
}

impl Summary {
    /// Reads a point. Invalid quantiles are left out; of equal quantiles the last one wins.
    pub(super) fn read(point: &SummaryPoint<'_>) -> Self {
        let quantiles = point.quantile_values();
        let quantiles = quantiles.map(|quantile| (quantile.quantile(), quantile.value()));
        let mut quantiles: Vec<(f64, f64)> = quantiles
            .filter(|(quantile, _)| (0.0..=1.0).contains(quantile))
            // Normalizes negative zero.
            .map(|(quantile, value)| (quantile + 0.0, value))
            .collect();
        quantiles.reverse();
        quantiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        quantiles.dedup_by(|next, kept| next.0 == kept.0);
        Summary {
            count: point.count(),
            sum: point.sum(),
            quantiles: quantiles.into(),
        }
    }
}
