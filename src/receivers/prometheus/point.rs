//! Data points in the making: the values of one or several series.

use std::sync::Arc;

use super::series::{Except, Series};
use tributary_prometheus::{ExemplarSample, NativeHistogram};

/// Bits of the NaN that marks the end of a series, as in Prometheus.
const STALE: u64 = 0x7ff0_0000_0000_0002;

/// Returns the value that marks the end of a series.
pub(super) fn stale() -> f64 {
    f64::from_bits(STALE)
}

/// Whether a value marks the end of a series.
pub(super) fn is_stale(value: f64) -> bool {
    value.to_bits() == STALE
}

/// Returns a time in seconds since 1970 in nanoseconds; `None` if it is not after 1970.
pub(super) fn nanoseconds(seconds: f64) -> Option<u64> {
    let whole = (seconds.trunc() as u64).saturating_mul(1_000_000_000);
    let part = (seconds.fract() * 1e9) as u64;
    (seconds > 0.0).then(|| whole.saturating_add(part))
}

/// Type of the points of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PointKind {
    /// Numbers that go up and down.
    Gauge,
    /// Cumulative numbers.
    Sum { is_monotonic: bool },
    /// Classic histograms.
    Histogram,
    /// Native histograms.
    Exponential,
    /// Summaries.
    Summary,
    /// Numbers of a type that OTLP does not have. They become gauges.
    Other,
}

impl PointKind {
    /// Returns the label that is not an attribute of points of this type.
    pub(super) fn except(self) -> Except {
        match self {
            PointKind::Histogram => Except::Le,
            PointKind::Summary => Except::Quantile,
            _ => Except::Nothing,
        }
    }
}

/// A data point.
#[derive(Debug)]
pub(super) struct Point {
    /// The first series of the point, which has its attributes.
    pub(super) series: Arc<Series>,
    /// Time in milliseconds since 1970.
    pub(super) time: i64,
    /// Start in nanoseconds since 1970, if it is known.
    pub(super) start: Option<u64>,
    /// A single value.
    pub(super) number: Option<f64>,
    /// Number of observations.
    pub(super) count: Option<f64>,
    /// Sum of observations.
    pub(super) sum: Option<f64>,
    /// Bounds and values of buckets, or quantiles and their values.
    pub(super) rows: Vec<(f64, f64)>,
    /// A native histogram.
    pub(super) native: Option<Box<NativeHistogram>>,
    /// Exemplars.
    pub(super) exemplars: Vec<ExemplarSample>,
}

impl Point {
    /// Creates a point without values.
    pub(super) fn new(series: Arc<Series>, time: i64) -> Self {
        Point {
            series,
            time,
            start: None,
            number: None,
            count: None,
            sum: None,
            rows: Vec::new(),
            native: None,
            exemplars: Vec::new(),
        }
    }

    /// Whether the point marks the end of its series.
    pub(super) fn is_stale(&self) -> bool {
        [self.number, self.count, self.sum]
            .into_iter()
            .flatten()
            .any(is_stale)
    }

    /// Whether the point has a value.
    pub(super) fn has_value(&self) -> bool {
        self.number.is_some() || self.count.is_some() || self.native.is_some()
    }

    /// Sorts the buckets of a histogram, without the one that has no upper bound. Returns false if the buckets decrease,
    /// or if there are fewer observations than in a bucket.
    pub(super) fn settle(&mut self) -> bool {
        self.rows.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        if let Some((bound, _)) = self.rows.last()
            && *bound == f64::INFINITY
        {
            self.rows.pop();
        }
        if self.is_stale() {
            return true;
        }
        let counts = self.rows.iter().map(|(_, count)| *count).chain(self.count);
        let mut least = 0.0;
        for count in counts {
            if count.is_nan() || count < least {
                return false;
            }
            least = count;
        }
        true
    }
}
