//! The value of a series, and what becomes of it when a point comes.

use super::exemplar::Exemplar;
use super::exponential::Exponential;
use tributary_otlp::view::{HistogramPoint, Number, SummaryPoint};

/// The last value of a series, or the sum of the deltas.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Double(f64),
    Int(i64),
    Histogram(Box<Histogram>),
    Exponential(Box<Exponential>),
    Summary(Box<Summary>),
}

/// A histogram with given bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Histogram {
    /// None when some point did not say.
    pub(super) sum: Option<f64>,
    /// The upper bounds of all buckets but the last.
    pub(super) bounds: Box<[f64]>,
    /// How many values in each bucket; one more than bounds.
    pub(super) counts: Box<[u64]>,
}

/// Quantiles that somebody else computed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) count: u64,
    pub(super) sum: f64,
    /// Quantiles and the values at them, in the order of the quantiles.
    pub(super) quantiles: Box<[(f64, f64)]>,
}

/// What a delta makes of a value.
#[derive(Debug)]
pub(super) enum Sum {
    /// It was added, and takes no more memory than before.
    Added,
    /// The value is to become another one, which goes on from it or begins anew.
    Becomes { value: Value, continued: bool },
}

/// A point that is invalid in itself, or cannot be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invalid;

impl Value {
    /// The value of a gauge or a sum.
    pub(super) fn of_number(number: Number) -> Self {
        match number {
            Number::Double(value) => Value::Double(value),
            Number::Int(value) => Value::Int(value),
        }
    }

    /// Adds a delta. Buckets that are not the same begin anew.
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

    /// Whether a delta can be added: it has the same buckets.
    pub(super) fn adds_up_with(&self, delta: &Value) -> bool {
        match (self, delta) {
            (Value::Histogram(sum), Value::Histogram(delta)) => sum.bounds == delta.bounds,
            (Value::Int(_) | Value::Double(_), Value::Int(_) | Value::Double(_)) => true,
            _ => std::mem::discriminant(self) == std::mem::discriminant(delta),
        }
    }

    /// How many series it is to Prometheus.
    pub(super) fn series(&self) -> usize {
        match self {
            Value::Double(_) | Value::Int(_) | Value::Exponential(_) => 1,
            Value::Histogram(histogram) => histogram.counts.len() + 2,
            Value::Summary(summary) => summary.quantiles.len() + 2,
        }
    }

    /// The bytes of memory that it takes beside itself.
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

    /// The bucket of an exemplar; all have the same where there are no buckets to have one each.
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
    /// A point. The count is that of the buckets, where there are buckets: OTLP demands that it is the same, and a page
    /// where it is not would be wrong.
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
        // Some give the last bucket its bound.
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

    /// How many values; none when there are more than can be counted.
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
    /// A point. What is no quantile is left out; of equal ones the last counts.
    pub(super) fn read(point: &SummaryPoint<'_>) -> Self {
        let quantiles = point.quantile_values();
        let quantiles = quantiles.map(|quantile| (quantile.quantile(), quantile.value()));
        let mut quantiles: Vec<(f64, f64)> = quantiles
            .filter(|(quantile, _)| (0.0..=1.0).contains(quantile))
            // There is a negative zero, too.
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
