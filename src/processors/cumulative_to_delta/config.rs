//! The settings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::processors::matching::{MatchType, RegexpCache};
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate, re2};
use tributary_temporality::{CumulativeKind, FirstPoint};

/// Metrics to convert, and the memory for their series.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time after which a series without new points is forgotten; 0 means never. Default: 1h.
    pub max_staleness: Duration,
    /// Treatment of the first point of a series: `auto` emits it if the series began after the processor, `keep` emits it
    /// always, `drop` drops it. Default: `auto`.
    pub initial_value: InitialValue,
    /// Metrics to convert. Default: all.
    pub include: MatchMetrics,
    /// Metrics to leave as they are, even if they match `include`. Default: none.
    pub exclude: MatchMetrics,
    /// Maximum number of series in each pipeline; points of further series are dropped. At least 1. Default: 1000000. (The
    /// Collector has no such key.)
    pub max_streams: usize,
    /// Maximum memory for the last points of all series in each pipeline, as in `64MiB`; points of further series are
    /// dropped. At least 64KiB. Default: 256MiB. (The Collector has no such key.)
    pub max_bytes: ByteSize,
}

/// Treatment of the first point of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InitialValue {
    /// Emitted if the series began after the processor.
    #[default]
    Auto,
    /// Emitted.
    Keep,
    /// Dropped.
    Drop,
}

impl InitialValue {
    pub(super) fn first_point(self) -> FirstPoint {
        match self {
            InitialValue::Auto => FirstPoint::Auto,
            InitialValue::Keep => FirstPoint::Keep,
            InitialValue::Drop => FirstPoint::Drop,
        }
    }
}

/// A selection of metrics by name and type.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MatchMetrics {
    /// Comparison of names: `strict` or `regexp`. Required with `metrics`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_type: Option<MatchType>,
    /// The Collector's cache of regular expression results. No effect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regexp: Option<RegexpCache>,
    /// Names, or regular expressions that match anywhere in a name. Default: all names.
    pub metrics: Vec<String>,
    /// Types: `sum`, `histogram`, `exponentialhistogram`. Default: all types.
    pub metric_types: Vec<MetricType>,
}

/// Type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["Sum", "Histogram", "ExponentialHistogram", "exponentialHistogram"]))]
pub enum MetricType {
    /// A sum.
    #[serde(alias = "Sum")]
    Sum,
    /// A histogram.
    #[serde(alias = "Histogram")]
    Histogram,
    /// An exponential histogram.
    #[serde(alias = "ExponentialHistogram", alias = "exponentialHistogram")]
    ExponentialHistogram,
}

impl MetricType {
    pub(super) fn kind(self) -> CumulativeKind {
        match self {
            MetricType::Sum => CumulativeKind::Sum,
            MetricType::Histogram => CumulativeKind::Histogram,
            MetricType::ExponentialHistogram => CumulativeKind::ExponentialHistogram,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_staleness: Duration::secs(3600),
            initial_value: InitialValue::default(),
            include: MatchMetrics::default(),
            exclude: MatchMetrics::default(),
            max_streams: 1_000_000,
            max_bytes: ByteSize::mib(256),
        }
    }
}

const LEAST_BYTES: u64 = 64 << 10;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        problems.within("include", &self.include);
        problems.within("exclude", &self.exclude);
        if self.max_streams == 0 {
            problems.error(&["max_streams"], "must be at least 1");
        }
        if self.max_bytes.0 < LEAST_BYTES {
            problems.error(&["max_bytes"], "must be at least 64KiB");
        }
    }
}

impl Validate for MatchMetrics {
    fn validate(&self, problems: &mut Problems) {
        match (self.match_type, self.metrics.as_slice()) {
            (None, [_, ..]) => {
                let message = "is required with `metrics`: `strict` or `regexp`";
                problems.error(&["match_type"], message);
            }
            (Some(_), []) => {
                let message = "is required with `match_type`: list names of metrics";
                problems.error(&["metrics"], message);
            }
            (Some(MatchType::Regexp), patterns) => {
                for (at, pattern) in patterns.iter().enumerate() {
                    if let Err(error) = re2::compile(pattern) {
                        problems.error(&["metrics", &at.to_string()], error.to_string());
                    }
                }
            }
            _ => {}
        }
    }
}
