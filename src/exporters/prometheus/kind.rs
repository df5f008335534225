//! Types of metric families.

/// Metric types of Prometheus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Gauge,
    Counter,
    /// A histogram with explicit or exponential buckets.
    Histogram,
    Summary,
    /// A metric scraped from Prometheus that had no type there.
    Unknown,
}

impl Kind {
    /// Returns the type's name in the text format; OpenMetrics has another name for the last type.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
            Kind::Unknown => "untyped",
        }
    }

    /// Returns the suffixes of sample names, besides the family's name itself.
    pub(super) fn suffixes(self) -> &'static [&'static str] {
        match self {
            Kind::Histogram => &["_bucket", "_sum", "_count"],
            Kind::Summary => &["_sum", "_count"],
            _ => &[],
        }
    }

    /// Returns the label that the type reserves.
    pub(super) fn reserved(self) -> &'static str {
        match self {
            Kind::Histogram => "le",
            Kind::Summary => "quantile",
            _ => "",
        }
    }
}
