//! The points of a request, as the table keeps them.

use super::exemplar::Exemplar;
use super::kind::Kind;
use super::naming::Suffix;
use super::slot::{Point, Rejection};
use super::value::Value;
use tributary_otlp::reader::{Fields, Value as Field};
use tributary_otlp::view;
use tributary_otlp::view::{
    AnyValue, Attribute, Data, Message, Metric, Number, NumberPoint, View, attribute,
};

/// Values of `AggregationTemporality` in metrics.proto.
const DELTA: i32 = 1;
const CUMULATIVE: i32 = 2;
/// Bit of `DataPointFlags` that ends the series.
const NO_RECORDED_VALUE: u64 = 1;

#[derive(Clone, Copy)]
pub(super) struct PointProperties {
    pub(super) kind: Kind,
    pub(super) suffix: Suffix,
    delta: bool,
    monotonic: bool,
}

/// Returns the properties of a metric; `None` without an aggregation temporality.
pub(super) fn point_properties(metric: &Metric<'_>, data: &Data<'_>) -> Option<PointProperties> {
    let with = |kind, temporality, monotonic| {
        let delta = match temporality {
            DELTA => true,
            CUMULATIVE => false,
            _ => return None,
        };
        let suffix = match (kind, data) {
            (Kind::Counter, _) => Suffix::Total,
            // A non-monotonic sum is exposed as a gauge, and its unit `1` is not a ratio.
            (Kind::Gauge, Data::Gauge { .. }) => Suffix::Ratio,
            _ => Suffix::None,
        };
        Some(PointProperties {
            kind,
            suffix,
            delta,
            monotonic,
        })
    };
    match data {
        Data::Gauge { .. } => {
            let original = attribute(metric.metadata(), "prometheus.type");
            let unknown = matches!(original, Some(AnyValue::String("unknown")));
            let kind = if unknown { Kind::Unknown } else { Kind::Gauge };
            with(kind, CUMULATIVE, false)
        }
        Data::Sum {
            temporality,
            monotonic: true,
            ..
        } => with(Kind::Counter, *temporality, true),
        Data::Sum { temporality, .. } => with(Kind::Gauge, *temporality, false),
        Data::Histogram { temporality, .. } | Data::ExponentialHistogram { temporality, .. } => {
            with(Kind::Histogram, *temporality, true)
        }
        Data::Summary { .. } => with(Kind::Summary, CUMULATIVE, true),
    }
}

/// Converts a point of a gauge or a sum.
pub(super) fn number_point(
    point: &NumberPoint<'_>,
    properties: PointProperties,
) -> Result<Point, Rejection> {
    let (mut start, mut time, mut flags, mut value, mut exemplars) = (0, 0, 0, None, Vec::new());
    for field in Fields::new(point.message().encoded()).map_while(Result::ok) {
        // Field numbers of `NumberDataPoint` in metrics.proto.
        match (field.number, field.value) {
            (2, Field::Fixed64(nanoseconds)) => start = nanoseconds,
            (3, Field::Fixed64(nanoseconds)) => time = nanoseconds,
            (4, Field::Fixed64(bits)) => value = Some(Number::Double(f64::from_bits(bits))),
            (6, Field::Fixed64(bits)) => value = Some(Number::Int(bits.cast_signed())),
            (8, Field::Varint(bits)) => flags = bits,
            (5, Field::Bytes(exemplar)) if properties.kind == Kind::Counter => {
                let exemplar = view::Exemplar::view(Message::new(exemplar));
                exemplars.extend(Exemplar::read(&exemplar));
            }
            _ => {}
        }
    }
    let value = match value {
        _ if flags & NO_RECORDED_VALUE != 0 => None,
        Some(value) => {
            let negative = match value {
                Number::Double(value) => value < 0.0,
                Number::Int(value) => value < 0,
            };
            if negative && properties.delta && properties.monotonic {
                return Err(Rejection::Invalid);
            }
            Some(Value::of_number(value))
        }
        // A point without a number is invalid.
        None => return Err(Rejection::Invalid),
    };
    Ok(Point {
        start,
        time,
        value,
        exemplars,
        delta: properties.delta,
    })
}

/// Converts a point of a histogram or summary. `value` is called only if the point has a value.
pub(super) fn distribution_point<'a>(
    (start, time): (u64, u64),
    flags: u32,
    properties: PointProperties,
    exemplars: impl Iterator<Item = view::Exemplar<'a>>,
    value: impl FnOnce() -> Option<Value>,
) -> Result<Point, Rejection> {
    let value = match u64::from(flags) & NO_RECORDED_VALUE {
        0 => Some(value().ok_or(Rejection::Invalid)?),
        _ => None,
    };
    Ok(Point {
        start,
        time,
        value,
        exemplars: exemplars
            .filter_map(|exemplar| Exemplar::read(&exemplar))
            .collect(),
        delta: properties.delta,
    })
}

/// Attributes of a point, by their field number.
pub(super) struct Attributes<'a> {
    fields: Fields<'a>,
    number: u32,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(point: Message<'a>, number: u32) -> Self {
        Attributes {
            fields: Fields::new(point.encoded()),
            number,
        }
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        loop {
            let field = self.fields.next()?.ok()?;
            if let (true, Field::Bytes(attribute)) = (field.number == self.number, field.value) {
                return Some(Attribute::view(Message::new(attribute)));
            }
        }
    }
}

pub(super) fn points_of(metric: Metric<'_>) -> usize {
    match metric.data() {
        None => 0,
        Some(Data::Gauge { points } | Data::Sum { points, .. }) => points.count(),
        Some(Data::Histogram { points, .. }) => points.count(),
        Some(Data::ExponentialHistogram { points, .. }) => points.count(),
        Some(Data::Summary { points }) => points.count(),
    }
}
