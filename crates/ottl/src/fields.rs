//! Values of the fields of a request.

use super::path::Field;
use super::target::{EvaluationTarget, ProfileFields};
use super::value::{MessageKind, Messages, Value, int, text};
use tributary_otlp::reader::Fields;
use tributary_otlp::view::{
    AnyValue, Buckets, Data, ExponentialHistogramPoint, HistogramPoint, LogRecord, Message, Metric,
    Number, NumberPoint, Span, SummaryPoint, View as _,
};

/// Names of the kinds of spans, in the order of their numbers.
pub(super) const KINDS: [&str; 6] = [
    "Unspecified",
    "Internal",
    "Server",
    "Client",
    "Producer",
    "Consumer",
];

/// Returns the messages in a field.
fn messages(message: Message<'_>, number: u32, kind: MessageKind) -> Value<'_> {
    let fields = Fields::new(message.encoded()).map_while(Result::ok);
    let found = fields.filter(|field| field.number == number);
    Value::Messages(Messages {
        kind,
        encoded: found.filter_map(|field| field.value.bytes()).collect(),
    })
}

pub(super) fn of_span<'a>(span: Span<'a>, field: Field) -> Value<'a> {
    match field {
        Field::Name => text(span.name()),
        Field::TraceId(as_text) => Value::id(whole::<16>(span.trace_id()), as_text),
        Field::SpanId(as_text) => Value::id(whole::<8>(span.span_id()), as_text),
        Field::ParentSpanId(as_text) => Value::id(whole::<8>(span.parent_span_id()), as_text),
        Field::TraceState => text(span.trace_state()),
        Field::Kind => Value::Int(span.kind().into()),
        Field::KindText => {
            let name = usize::try_from(span.kind())
                .ok()
                .and_then(|at| KINDS.get(at));
            text(name.copied().unwrap_or_default())
        }
        Field::KindEnumText => {
            let name = usize::try_from(span.kind())
                .ok()
                .and_then(|at| KINDS.get(at));
            Value::owned_text(name.map_or_else(String::new, |name| {
                format!("SPAN_KIND_{}", name.to_ascii_uppercase())
            }))
        }
        Field::Events => messages(span.message(), 11, MessageKind::Event),
        Field::Links => messages(span.message(), 13, MessageKind::Link),
        Field::Status => messages(span.message(), 15, MessageKind::Status),
        Field::StartTime => int(span.start_time_unix_nano()),
        Field::EndTime => int(span.end_time_unix_nano()),
        Field::DroppedAttributes => int(span.dropped_attributes_count().into()),
        Field::DroppedEvents => int(span.dropped_events_count().into()),
        Field::DroppedLinks => int(span.dropped_links_count().into()),
        Field::StatusCode => Value::Int(span.status().map_or(0, |status| status.code()).into()),
        Field::StatusMessage => text(span.status().map_or("", |status| status.text())),
        Field::Flags => int(span.flags().into()),
        _ => Value::Nil,
    }
}

/// Returns an id. A missing id consists of zeros.
fn whole<const N: usize>(id: &[u8]) -> &[u8] {
    if id.is_empty() { &[0; N] } else { id }
}

pub(super) fn of_record<'a>(record: LogRecord<'a>, field: Field) -> Value<'a> {
    match field {
        Field::TraceId(as_text) => Value::id(whole::<16>(record.trace_id()), as_text),
        Field::SpanId(as_text) => Value::id(whole::<8>(record.span_id()), as_text),
        Field::Time => int(record.time_unix_nano()),
        Field::ObservedTime => int(record.observed_time_unix_nano()),
        Field::SeverityNumber => Value::Int(record.severity_number().into()),
        Field::SeverityText => text(record.severity_text()),
        Field::BodyText => {
            let body = record.body().unwrap_or(AnyValue::Empty);
            Value::Text(body.to_text())
        }
        Field::DroppedAttributes => int(record.dropped_attributes_count().into()),
        Field::Flags => int(record.flags().into()),
        Field::EventName => text(record.event_name()),
        _ => Value::Nil,
    }
}

pub(super) fn of_metric<'a>(metric: Metric<'a>, field: Field) -> Value<'a> {
    match field {
        Field::Name => text(metric.name()),
        Field::Description => text(metric.description()),
        Field::Unit => text(metric.unit()),
        Field::Type => Value::Int(match metric.data() {
            None => 0,
            Some(Data::Gauge { .. }) => 1,
            Some(Data::Sum { .. }) => 2,
            Some(Data::Histogram { .. }) => 3,
            Some(Data::ExponentialHistogram { .. }) => 4,
            Some(Data::Summary { .. }) => 5,
        }),
        Field::Temporality => match metric.data() {
            Some(
                Data::Sum { temporality, .. }
                | Data::Histogram { temporality, .. }
                | Data::ExponentialHistogram { temporality, .. },
            ) => Value::Int(temporality.into()),
            _ => Value::Nil,
        },
        Field::IsMonotonic => match metric.data() {
            Some(Data::Sum { monotonic, .. }) => Value::Bool(monotonic),
            _ => Value::Nil,
        },
        Field::Metadata => Value::Encoded(AnyValue::Map(metric.metadata())),
        Field::DataPoints => data_points(metric),
        _ => Value::Nil,
    }
}

fn data_points(metric: Metric<'_>) -> Value<'_> {
    let fields = Fields::new(metric.message().encoded()).map_while(Result::ok);
    let data = fields.filter(|field| matches!(field.number, 5 | 7 | 9 | 10 | 11));
    match data.last() {
        None => Value::Nil,
        Some(data) => messages(
            Message::new(data.value.bytes().unwrap_or_default()),
            1,
            MessageKind::Points(points_form(data.number)),
        ),
    }
}

/// Returns one number for all fields of a metric whose data points have the same type.
pub(super) fn points_form(number: u32) -> u32 {
    if number == 7 { 5 } else { number }
}

pub(super) fn of_point<'a>(here: &EvaluationTarget<'a>, field: Field) -> Value<'a> {
    macro_rules! of {
        ($point:expr, $count:expr, $sum:expr) => {{
            let point = $point;
            match field {
                Field::StartTime => int(point.start_time_unix_nano()),
                Field::Time => int(point.time_unix_nano()),
                Field::Flags => int(point.flags().into()),
                Field::Count => $count(&point),
                Field::Sum => $sum(&point),
                _ => Value::Nil,
            }
        }};
    }
    match here.form {
        9 if field == Field::BucketCounts => {
            let counts = HistogramPoint::view(here.inner).bucket_counts();
            Value::List(counts.map(int).collect())
        }
        9 if field == Field::ExplicitBounds => {
            let bounds = HistogramPoint::view(here.inner).explicit_bounds();
            Value::List(bounds.map(Value::Double).collect())
        }
        9 if field == Field::Exemplars => messages(here.inner, 8, MessageKind::Exemplar),
        10 if field == Field::Exemplars => messages(here.inner, 11, MessageKind::Exemplar),
        5 | 7 if field == Field::Exemplars => messages(here.inner, 5, MessageKind::Exemplar),
        11 if field == Field::Quantiles => messages(here.inner, 6, MessageKind::Quantile),
        10 if let Some(value) = of_buckets(here.inner, field) => value,
        9 => of!(
            HistogramPoint::view(here.inner),
            |point: &HistogramPoint<'_>| int(point.count()),
            |point: &HistogramPoint<'_>| Value::Double(point.sum().unwrap_or_default())
        ),
        10 => of!(
            ExponentialHistogramPoint::view(here.inner),
            |point: &ExponentialHistogramPoint<'_>| int(point.count()),
            |point: &ExponentialHistogramPoint<'_>| Value::Double(point.sum().unwrap_or_default())
        ),
        11 => of!(
            SummaryPoint::view(here.inner),
            |point: &SummaryPoint<'_>| int(point.count()),
            |point: &SummaryPoint<'_>| Value::Double(point.sum())
        ),
        _ => {
            let point = NumberPoint::view(here.inner);
            match (field, point.value()) {
                (Field::ValueInt, Some(Number::Int(value))) => Value::Int(value),
                (Field::ValueInt, _) => Value::Int(0),
                (Field::ValueDouble, Some(Number::Double(value))) => Value::Double(value),
                (Field::ValueDouble, _) => Value::Double(0.0),
                _ => of!(
                    point,
                    |_: &NumberPoint<'_>| Value::Nil,
                    |_: &NumberPoint<'_>| Value::Nil
                ),
            }
        }
    }
}

/// Returns a field that only data points of exponential histograms have.
fn of_buckets(point: Message<'_>, field: Field) -> Option<Value<'_>> {
    let view = ExponentialHistogramPoint::view(point);
    let buckets = |positive: bool| match positive {
        true => view.positive(),
        false => view.negative(),
    };
    Some(match field {
        Field::Scale => Value::Int(view.scale().into()),
        Field::ZeroCount => int(view.zero_count()),
        Field::Buckets(positive) => {
            messages(point, if positive { 8 } else { 9 }, MessageKind::Buckets)
        }
        Field::BucketsOffset(positive) => {
            Value::Int(buckets(positive).map_or(0, |found: Buckets<'_>| found.offset().into()))
        }
        Field::BucketsCounts(positive) => {
            let counts = buckets(positive).map(|found| found.bucket_counts().map(int).collect());
            Value::List(counts.unwrap_or_default())
        }
        _ => return None,
    })
}

pub(super) fn of_profile(profile: &ProfileFields, field: Field) -> Value<'_> {
    match field {
        Field::ProfileId(as_text) => Value::id(whole::<16>(&profile.profile_id), as_text),
        Field::Time => int(profile.time),
        Field::Duration => int(profile.duration),
        Field::Period => Value::Int(profile.period),
        Field::PayloadFormat => text(&profile.payload_format),
        Field::DroppedAttributes => int(profile.dropped_attributes.into()),
        _ => Value::Nil,
    }
}
