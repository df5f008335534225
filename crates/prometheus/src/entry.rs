//! Content of a page, in the order of the page.

use std::borrow::Cow;

/// Type of a metric family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    /// No type, or `untyped`.
    #[default]
    Unknown,
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Observations, counted by cumulative buckets or as a native histogram.
    Histogram,
    /// A histogram whose counts go up and down.
    GaugeHistogram,
    /// Observations with quantiles.
    Summary,
    /// Labels with the value 1.
    Info,
    /// Booleans, one for each state.
    StateSet,
}

impl Kind {
    /// Returns the name of the type in Prometheus' metadata.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Unknown => "unknown",
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::GaugeHistogram => "gaugehistogram",
            Kind::Summary => "summary",
            Kind::Info => "info",
            Kind::StateSet => "stateset",
        }
    }
}

/// Entry of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum PageEntry<'p> {
    /// Type of a metric family.
    Kind {
        /// Name of the family.
        family: Cow<'p, str>,
        /// Type of its metrics.
        kind: Kind,
    },
    /// Description of a metric family.
    Help {
        /// Name of the family.
        family: Cow<'p, str>,
        /// Description.
        text: Cow<'p, str>,
    },
    /// Unit of a metric family.
    Unit {
        /// Name of the family.
        family: Cow<'p, str>,
        /// Unit, as in `seconds`; may be empty.
        unit: Cow<'p, str>,
    },
    /// A number.
    Sample(PageSample),
    /// A native histogram.
    Histogram(Box<NativeHistogram>),
}

/// A number of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PageSample {
    /// Value of the series.
    pub value: f64,
    /// Time of the value in milliseconds since 1970, if the page has one.
    pub timestamp: Option<i64>,
    /// Start of the series in milliseconds since 1970. Only the protobuf format has starts beside values; in OpenMetrics
    /// they are samples with names that end with `_created`.
    pub start: Option<i64>,
}

/// A native histogram: buckets with exponentially growing bounds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NativeHistogram {
    /// Time in milliseconds since 1970, if the page has one.
    pub timestamp: Option<i64>,
    /// Start of the series in milliseconds since 1970, if the page has one.
    pub start: Option<i64>,
    /// Resolution, from -4 to 8: each bound is the previous bound times `2^(2^-schema)`.
    pub schema: i32,
    /// Number of observations. Fractions of counts are cut off.
    pub count: u64,
    /// Sum of the observations.
    pub sum: f64,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Number of observations in the zero bucket.
    pub zero_count: u64,
    /// Buckets of positive observations.
    pub positive: BucketRun,
    /// Buckets of negative observations.
    pub negative: BucketRun,
}

/// Consecutive buckets of a native histogram. Neither the first nor the last bucket is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BucketRun {
    /// Index of the first bucket. The upper bound of the bucket with index `i` is `2^(i * 2^-schema)`.
    pub offset: i32,
    /// Number of observations in each bucket.
    pub counts: Vec<u64>,
}

/// An exemplar: one observation with its own labels.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExemplarSample {
    /// Labels, in the order of the page.
    pub labels: Vec<(String, String)>,
    /// Observed value.
    pub value: f64,
    /// Time of the observation in milliseconds since 1970, if the page has one.
    pub timestamp: Option<i64>,
}
