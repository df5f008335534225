//! Kinds of metrics, and reasons for dropped points.

/// Kind of a metric that can be converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CumulativeKind {
    /// A monotonic sum.
    Sum,
    /// A histogram.
    Histogram,
    /// An exponential histogram.
    ExponentialHistogram,
}

/// Reason why a point was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The first point of a series, from which only later points can be subtracted.
    Initial,
    /// The series began anew.
    Reset,
    /// A histogram with other buckets than its predecessor.
    BucketMismatch,
    /// The point states that it has no value.
    NoValue,
    /// A new series that exceeds the limits of the tracker.
    Limit,
}

impl DropCause {
    /// All reasons.
    pub const ALL: [DropCause; 5] = [
        DropCause::Initial,
        DropCause::Reset,
        DropCause::BucketMismatch,
        DropCause::NoValue,
        DropCause::Limit,
    ];

    /// Returns the value of a metric label.
    pub const fn name(self) -> &'static str {
        match self {
            DropCause::Initial => "initial",
            DropCause::Reset => "reset",
            DropCause::BucketMismatch => "bucket_mismatch",
            DropCause::NoValue => "no_recorded_value",
            DropCause::Limit => "limit",
        }
    }
}
