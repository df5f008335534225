//! Metrics and their data points.

use super::common::Attribute;
use super::message::{Each, Message, scalar, view};
use crate::count::is_metric_data;
use crate::reader::Value;

view! {
    /// A metric.
    Metric {
        /// Name of the metric.
        name: text = 1;
        /// Description of the metric.
        description: text = 2;
        /// Unit in UCUM notation.
        unit: text = 3;
        /// Further attributes that describe the metric.
        metadata: each<Attribute> = 12;
    }
}

/// The data of a metric.
#[derive(Debug, Clone)]
pub enum Data<'a> {
    /// Values at points in time.
    Gauge {
        /// The data points.
        points: Each<'a, NumberPoint<'a>>,
    },
    /// Sums over time.
    Sum {
        /// The data points.
        points: Each<'a, NumberPoint<'a>>,
        /// `AggregationTemporality`.
        temporality: i32,
        /// Whether the sum is monotonic.
        monotonic: bool,
    },
    /// Distributions over given buckets.
    Histogram {
        /// The data points.
        points: Each<'a, HistogramPoint<'a>>,
        /// `AggregationTemporality`.
        temporality: i32,
    },
    /// Distributions over exponential buckets.
    ExponentialHistogram {
        /// The data points.
        points: Each<'a, ExponentialHistogramPoint<'a>>,
        /// `AggregationTemporality`.
        temporality: i32,
    },
    /// Quantiles computed by the source.
    Summary {
        /// The data points.
        points: Each<'a, SummaryPoint<'a>>,
    },
}

impl<'a> Metric<'a> {
    /// Returns the data points with their common properties. Reads the last member of the `oneof`.
    pub fn data(&self) -> Option<Data<'a>> {
        let fields = self.message().values();
        let (number, value) = fields
            .filter(|(number, _)| is_metric_data(*number))
            .last()?;
        let data = Message::new(value.bytes()?);
        let temporality = data.int32(2);
        Some(match number {
            5 => Data::Gauge {
                points: data.each(1),
            },
            7 => Data::Sum {
                points: data.each(1),
                temporality,
                monotonic: data.boolean(3),
            },
            9 => Data::Histogram {
                points: data.each(1),
                temporality,
            },
            10 => Data::ExponentialHistogram {
                points: data.each(1),
                temporality,
            },
            _ => Data::Summary {
                points: data.each(1),
            },
        })
    }
}

/// The value of a data point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A floating-point number.
    Double(f64),
    /// An integer.
    Int(i64),
}

/// Reads the last member of a `oneof` of a `double` and an `sfixed64`.
fn number(message: Message<'_>, double: u32, int: u32) -> Option<Number> {
    let fields = message.values();
    fields
        .filter_map(|(number, value): (u32, Value<'_>)| match number {
            _ if number == double => Some(Number::Double(f64::from_bits(scalar(value)))),
            _ if number == int => Some(Number::Int(scalar(value).cast_signed())),
            _ => None,
        })
        .last()
}

view! {
    /// A data point of a gauge or a sum.
    NumberPoint {
        /// Start of the covered interval, in nanoseconds since 1970.
        start_time_unix_nano: uint64 = 2;
        /// Time of the measurement, in nanoseconds since 1970.
        time_unix_nano: uint64 = 3;
        /// Sample measurements.
        exemplars: each<Exemplar> = 5;
        /// Attributes that identify the time series of the data point.
        attributes: each<Attribute> = 7;
        /// `DataPointFlags`.
        flags: uint32 = 8;
    }
}

impl NumberPoint<'_> {
    /// Returns the value; `None` if nothing was recorded.
    pub fn value(&self) -> Option<Number> {
        number(self.message(), 4, 6)
    }
}

view! {
    /// A data point of a histogram.
    HistogramPoint {
        /// Start of the covered interval, in nanoseconds since 1970.
        start_time_unix_nano: uint64 = 2;
        /// Time of the measurement, in nanoseconds since 1970.
        time_unix_nano: uint64 = 3;
        /// Number of values.
        count: uint64 = 4;
        /// Sum of the values.
        sum: some_double = 5;
        /// Number of values in each bucket.
        bucket_counts: fixed64s = 6;
        /// Upper bounds of all buckets except the last.
        explicit_bounds: doubles = 7;
        /// Sample measurements.
        exemplars: each<Exemplar> = 8;
        /// Attributes that identify the time series of the data point.
        attributes: each<Attribute> = 9;
        /// `DataPointFlags`.
        flags: uint32 = 10;
        /// The smallest value.
        min: some_double = 11;
        /// The largest value.
        max: some_double = 12;
    }
}

view! {
    /// A data point of an exponential histogram.
    ExponentialHistogramPoint {
        /// Attributes that identify the time series of the data point.
        attributes: each<Attribute> = 1;
        /// Start of the covered interval, in nanoseconds since 1970.
        start_time_unix_nano: uint64 = 2;
        /// Time of the measurement, in nanoseconds since 1970.
        time_unix_nano: uint64 = 3;
        /// Number of values.
        count: uint64 = 4;
        /// Sum of the values.
        sum: some_double = 5;
        /// Resolution: the bucket bounds are powers of 2^(2^-scale).
        scale: sint32 = 6;
        /// Number of values that count as zero.
        zero_count: uint64 = 7;
        /// The buckets of positive values; may be missing.
        positive: one<Buckets> = 8;
        /// The buckets of negative values; may be missing.
        negative: one<Buckets> = 9;
        /// `DataPointFlags`.
        flags: uint32 = 10;
        /// Sample measurements.
        exemplars: each<Exemplar> = 11;
        /// The smallest value.
        min: some_double = 12;
        /// The largest value.
        max: some_double = 13;
        /// Largest absolute value that counts as zero.
        zero_threshold: double = 14;
    }
}

view! {
    /// Adjacent buckets of an exponential histogram.
    Buckets {
        /// Index of the first bucket.
        offset: sint32 = 1;
        /// Number of values in each bucket.
        bucket_counts: uint64s = 2;
    }
}

view! {
    /// A data point of a summary.
    SummaryPoint {
        /// Start of the covered interval, in nanoseconds since 1970.
        start_time_unix_nano: uint64 = 2;
        /// Time of the measurement, in nanoseconds since 1970.
        time_unix_nano: uint64 = 3;
        /// Number of values.
        count: uint64 = 4;
        /// Sum of the values.
        sum: double = 5;
        /// The quantiles.
        quantile_values: each<Quantile> = 6;
        /// Attributes that identify the time series of the data point.
        attributes: each<Attribute> = 7;
        /// `DataPointFlags`.
        flags: uint32 = 8;
    }
}

view! {
    /// A quantile of a summary.
    Quantile {
        /// The quantile, from 0 to 1.
        quantile: double = 1;
        /// Value at the quantile.
        value: double = 2;
    }
}

view! {
    /// A sample measurement.
    Exemplar {
        /// Time of the measurement, in nanoseconds since 1970.
        time_unix_nano: uint64 = 2;
        /// 8 bytes, or none.
        span_id: bytes = 4;
        /// 16 bytes, or none.
        trace_id: bytes = 5;
        /// Attributes in addition to those of the data point.
        filtered_attributes: each<Attribute> = 7;
    }
}

impl Exemplar<'_> {
    /// The value.
    pub fn value(&self) -> Option<Number> {
        number(self.message(), 3, 6)
    }
}
