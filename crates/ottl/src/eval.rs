//! Evaluation of conditions on parts of a request.

mod calls;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write as _;

use super::math::calculate;
use super::path::{Context, Field, Key, Path};
use super::{Comparison, Condition, Operand, Test};
use tributary_otlp::view::{
    AnyValue, Attributes, Data, Event, ExponentialHistogramPoint, HistogramPoint, LogRecord,
    Message, Metric, Number, NumberPoint, Resource, ResourceEntry, ScopeEntry, Span, SummaryPoint,
    View as _, attribute, text_of,
};

/// The part of a request that a condition is evaluated on, with the parts around it.
#[derive(Debug, Clone, Copy, Default)]
pub struct EvaluationTarget<'a> {
    /// The resource.
    pub resource: Message<'a>,
    /// The instrumentation scope.
    pub scope: Message<'a>,
    /// A span, a metric, or a log record.
    pub item: Message<'a>,
    /// The profile, in requests of profiles.
    pub profile: Option<&'a ProfileFields>,
    /// A span event or a data point.
    pub inner: Message<'a>,
    /// For a data point: the number of the metric's field that contains it.
    pub form: u32,
}

/// A profile whose references to the dictionary are resolved.
#[derive(Debug, Clone, Default)]
pub struct ProfileFields {
    /// Attributes, as an encoded resource.
    pub attributes: Vec<u8>,
    /// `dropped_attributes_count`.
    pub dropped_attributes: u32,
    /// `profile_id`.
    pub profile_id: Vec<u8>,
    /// `time_unix_nano`.
    pub time: u64,
    /// `duration_nano`.
    pub duration: u64,
    /// `period`.
    pub period: i64,
    /// `original_payload_format`.
    pub payload_format: String,
}

/// Reason why a condition is neither true nor false.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    #[error("cannot be evaluated: a value does not have the key")]
    NoKeys,
    #[error("cannot be evaluated: an index is out of range")]
    NoPosition,
    #[error("cannot be evaluated: a value is not a string")]
    NoText,
    #[error("cannot be evaluated: Len needs a string, a list or a map")]
    NoLength,
    #[error(
        "cannot be evaluated: arithmetic needs numbers, times or durations, with a result in range"
    )]
    NoNumber,
    #[error("cannot be evaluated: division by zero")]
    ByZero,
    #[error("cannot be evaluated: a value is not a list")]
    NoList,
    #[error("cannot be evaluated: ParseJSON needs a JSON object or list")]
    NoJson,
    #[error("cannot be evaluated: Substring is out of range")]
    NoPart,
}

#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// A time in nanoseconds since 1970.
    Time(i64),
    /// A duration in nanoseconds.
    Duration(i64),
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
    Id(&'a [u8]),
    /// A list or a map.
    Other(AnyValue<'a>),
    /// A list or a map of which only the text is known.
    Structure(&'a str),
    List(Vec<Value<'a>>),
    /// A list or a map that was parsed from JSON.
    Json(serde_json::Value),
}

impl Condition {
    /// Evaluates the condition. If it is evaluated for many items, use [`within`](Self::within) first.
    pub fn is_true(&self, here: &EvaluationTarget<'_>) -> Result<bool, Undecided> {
        self.test.eval(here)
    }
}

impl Test {
    pub(super) fn eval(&self, here: &EvaluationTarget<'_>) -> Result<bool, Undecided> {
        Ok(match self {
            Test::Constant(value) => *value,
            Test::Undecided(why) => return Err(*why),
            Test::Not(test) => !test.eval(here)?,
            Test::All(tests) => {
                for test in tests {
                    if !test.eval(here)? {
                        return Ok(false);
                    }
                }
                true
            }
            Test::Any(tests) => {
                for test in tests {
                    if test.eval(here)? {
                        return Ok(true);
                    }
                }
                false
            }
            Test::Compare(left, comparison, right) => {
                compare(&left.value(here)?, *comparison, &right.value(here)?)
            }
            Test::IsMatch(target, pattern) => match target.value(here)?.text() {
                Some(text) => pattern.is_match(&text),
                None => false,
            },
            Test::HasPrefix(target, prefix) => {
                let (target, prefix) = (target.value(here)?, prefix.value(here)?);
                target.plain_text()?.starts_with(prefix.plain_text()?)
            }
            Test::HasSuffix(target, suffix) => {
                let (target, suffix) = (target.value(here)?, suffix.value(here)?);
                target.plain_text()?.ends_with(suffix.plain_text()?)
            }
            Test::Is(target, sort) => target.value(here)?.is(*sort),
            Test::ContainsValue(list, item) => list.value(here)?.contains(&item.value(here)?)?,
            Test::IsRootSpan => {
                let parent = Span::view(here.item).parent_span_id();
                parent.iter().all(|byte| *byte == 0)
            }
            Test::HasAttribute { key, value } => has_attribute(here, key, value.as_deref()),
        })
    }
}

impl Operand {
    pub(super) fn value<'v>(&'v self, here: &EvaluationTarget<'v>) -> Result<Value<'v>, Undecided> {
        Ok(match self {
            Operand::Nil => Value::Nil,
            Operand::Undecided(why) => return Err(*why),
            Operand::Bool(value) => Value::Bool(*value),
            Operand::Int(value) => Value::Int(*value),
            Operand::Double(value) => Value::Double(*value),
            Operand::Text(text) => Value::Text(Cow::Borrowed(text)),
            Operand::Bytes(bytes) => Value::Bytes(bytes),
            Operand::Id(id) => Value::Id(id),
            Operand::Structure(text) => Value::Structure(text),
            Operand::Moment(time) => Value::Time(*time),
            Operand::Path(path) => return path.value(here),
            Operand::Time(path) => match path.value(here)? {
                Value::Int(time) => Value::Time(time),
                other => other,
            },
            Operand::Duration(duration) => Value::Duration(*duration),
            Operand::Len(target) => Value::Int(target.value(here)?.len()?),
            Operand::Truth(test) => Value::Bool(test.eval(here)?),
            Operand::List(values) => {
                let values = values.iter().map(|value| value.value(here));
                Value::List(values.collect::<Result<_, _>>()?)
            }
            Operand::Encoded(value) => Value::of(AnyValue::view(Message::new(value))),
            Operand::Call(function, arguments, keys) => {
                let arguments = arguments.iter().map(|argument| argument.value(here));
                let arguments: Vec<_> = arguments.collect::<Result<_, _>>()?;
                calls::call(*function, &arguments, keys)?
            }
            Operand::Math(first, rest) => {
                let mut value = first.value(here)?;
                for (operator, operand) in rest {
                    value = calculate(&value, *operator, &operand.value(here)?)?;
                }
                value
            }
        })
    }
}

/// Compares two values. Values of different kinds are not equal and have no order.
fn compare(left: &Value<'_>, comparison: Comparison, right: &Value<'_>) -> bool {
    let order = match (left, right) {
        (Value::Nil, Value::Nil) => Some(Ordering::Equal),
        (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Int(right))
        | (Value::Time(left), Value::Time(right))
        | (Value::Duration(left), Value::Duration(right)) => Some(left.cmp(right)),
        (Value::Int(left), Value::Double(right)) => {
            return numbers(*left as f64, comparison, *right);
        }
        (Value::Double(left), Value::Int(right)) => {
            return numbers(*left, comparison, *right as f64);
        }
        (Value::Double(left), Value::Double(right)) => return numbers(*left, comparison, *right),
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Id(left), Value::Id(right)) => (left == right).then_some(Ordering::Equal),
        (Value::Other(left), Value::Other(right)) => {
            (left.to_text() == right.to_text()).then_some(Ordering::Equal)
        }
        (Value::Structure(left), Value::Structure(right)) => {
            (left == right).then_some(Ordering::Equal)
        }
        (Value::Structure(text), Value::Other(other))
        | (Value::Other(other), Value::Structure(text)) => {
            (other.to_text() == *text).then_some(Ordering::Equal)
        }
        (left, right) if left.is_function_result() || right.is_function_result() => {
            calls::same_structure(left, right).then_some(Ordering::Equal)
        }
        _ => None,
    };
    // Ids, lists and maps are equal or not, but have no order.
    match (comparison, order) {
        (Comparison::Equal, order) => order == Some(Ordering::Equal),
        (Comparison::NotEqual, order) => order != Some(Ordering::Equal),
        (_, _) if left.has_no_order() => false,
        (Comparison::Less, order) => order == Some(Ordering::Less),
        (Comparison::Greater, order) => order == Some(Ordering::Greater),
        (Comparison::LessOrEqual, order) => order.is_some_and(Ordering::is_le),
        (Comparison::GreaterOrEqual, order) => order.is_some_and(Ordering::is_ge),
    }
}

#[allow(clippy::float_cmp)] // What is asked for.
fn numbers(left: f64, comparison: Comparison, right: f64) -> bool {
    match comparison {
        Comparison::Equal => left == right,
        Comparison::NotEqual => left != right,
        Comparison::Less => left < right,
        Comparison::LessOrEqual => left <= right,
        Comparison::Greater => left > right,
        Comparison::GreaterOrEqual => left >= right,
    }
}

impl<'a> Value<'a> {
    fn of(value: AnyValue<'a>) -> Self {
        match value {
            AnyValue::Empty | AnyValue::StringIndex(_) => Value::Nil,
            AnyValue::Bool(value) => Value::Bool(value),
            AnyValue::Int(value) => Value::Int(value),
            AnyValue::Double(value) => Value::Double(value),
            AnyValue::String(text) => Value::Text(Cow::Borrowed(text)),
            AnyValue::Bytes(bytes) => Value::Bytes(bytes),
            value => Value::Other(value),
        }
    }

    fn id(bytes: &'a [u8], as_text: bool) -> Self {
        match as_text {
            true => Value::Text(Cow::Owned(hexadecimal(bytes))),
            false => Value::Id(bytes),
        }
    }

    /// Returns the text. Unlike patterns, prefixes and suffixes apply only to texts.
    fn plain_text(&self) -> Result<&str, Undecided> {
        match self {
            Value::Text(text) => Ok(text),
            _ => Err(Undecided::NoText),
        }
    }

    /// Returns the length in bytes or entries.
    fn len(&self) -> Result<i64, Undecided> {
        let length = match self {
            Value::Text(text) => text.len(),
            Value::Other(AnyValue::Array(values)) => values.clone().count(),
            Value::Other(AnyValue::Map(entries)) => entries.clone().count(),
            Value::List(values) => values.len(),
            Value::Json(serde_json::Value::Array(values)) => values.len(),
            Value::Json(serde_json::Value::Object(entries)) => entries.len(),
            _ => return Err(Undecided::NoLength),
        };
        Ok(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// Returns the text for patterns, or `None` if there is none.
    fn text(self) -> Option<Cow<'a, str>> {
        Some(match self {
            // Patterns do not apply to times.
            Value::Nil | Value::Time(_) | Value::Duration(_) => return None,
            Value::Text(text) => text,
            Value::Bytes(bytes) => Cow::Owned(hexadecimal(bytes)),
            Value::Id(id) => Cow::Owned(format!("\"{}\"", hexadecimal(id))),
            Value::Bool(value) => AnyValue::Bool(value).to_text(),
            Value::Int(value) => AnyValue::Int(value).to_text(),
            Value::Double(value) => AnyValue::Double(value).to_text(),
            Value::Other(value) => value.to_text(),
            Value::Structure(text) => Cow::Borrowed(text),
            value @ (Value::List(_) | Value::Json(_)) => {
                Cow::Owned(text_of(&value.proto()).into_owned())
            }
        })
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn int(number: u64) -> Value<'static> {
    Value::Int(number.cast_signed())
}

fn text(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

impl Path {
    fn value<'a>(&self, here: &EvaluationTarget<'a>) -> Result<Value<'a>, Undecided> {
        Ok(match (self.context, self.field) {
            (context, Field::Attributes) => return self.in_attributes(attributes(context, here)),
            (Context::Log, Field::Body) => {
                let body = LogRecord::view(here.item).body().unwrap_or(AnyValue::Empty);
                return inside(body, &self.keys).map(Value::of);
            }
            (Context::Resource, _) => {
                let resource = ResourceEntry::view(here.resource).resource();
                int(resource.map_or(0, |resource| resource.dropped_attributes_count().into()))
            }
            (Context::Scope, field) => {
                let scope = ScopeEntry::view(here.scope).scope();
                match field {
                    Field::Name => text(scope.map_or("", |scope| scope.name())),
                    Field::Version => text(scope.map_or("", |scope| scope.version())),
                    _ => int(scope.map_or(0, |scope| scope.dropped_attributes_count().into())),
                }
            }
            (Context::Span, field) => of_span(Span::view(here.item), field),
            (Context::SpanEvent, field) => {
                let event = Event::view(here.inner);
                match field {
                    Field::Name => text(event.name()),
                    Field::Time => int(event.time_unix_nano()),
                    _ => int(event.dropped_attributes_count().into()),
                }
            }
            (Context::Metric, field) => of_metric(Metric::view(here.item), field),
            (Context::DataPoint, field) => of_point(here, field),
            (Context::Log, field) => of_record(LogRecord::view(here.item), field),
            (Context::Profile, field) => match here.profile {
                Some(profile) => of_profile(profile, field),
                None => Value::Nil,
            },
        })
    }

    fn in_attributes<'a>(&self, attributes: Attributes<'a>) -> Result<Value<'a>, Undecided> {
        let Some((first, rest)) = self.keys.split_first() else {
            return Ok(Value::Nil);
        };
        let Key::Name(first) = first else {
            return Err(Undecided::NoPosition);
        };
        match attribute(attributes, first) {
            Some(value) => inside(value, rest).map(Value::of),
            None => Ok(Value::Nil),
        }
    }
}

/// Returns the value at the end of the keys; empty if one is missing. An index beyond the end of a list is an error, as
/// in the Collector.
fn inside<'a>(value: AnyValue<'a>, keys: &[Key]) -> Result<AnyValue<'a>, Undecided> {
    let mut value = value;
    for key in keys {
        value = match (value, key) {
            (AnyValue::Map(entries), Key::Name(key)) => match attribute(entries, key) {
                Some(found) => found,
                None => return Ok(AnyValue::Empty),
            },
            (AnyValue::Array(mut values), Key::Position(at)) => {
                let at = usize::try_from(*at).map_err(|_| Undecided::NoPosition)?;
                values.nth(at).ok_or(Undecided::NoPosition)?
            }
            (_, Key::Name(_)) => return Err(Undecided::NoKeys),
            (_, Key::Position(_)) => return Err(Undecided::NoPosition),
        };
    }
    Ok(value)
}

/// Returns the attributes of the context's part. A metric has none.
pub fn attributes<'a>(context: Context, here: &EvaluationTarget<'a>) -> Attributes<'a> {
    let none = || Resource::view(Message::default()).attributes();
    match context {
        Context::Resource => ResourceEntry::view(here.resource)
            .resource()
            .map_or_else(none, |resource| resource.attributes()),
        Context::Scope => ScopeEntry::view(here.scope)
            .scope()
            .map_or_else(none, |scope| scope.attributes()),
        Context::Span => Span::view(here.item).attributes(),
        Context::SpanEvent => Event::view(here.inner).attributes(),
        Context::Log => LogRecord::view(here.item).attributes(),
        Context::DataPoint => of_form(here.inner, here.form),
        Context::Profile => here.profile.map_or_else(none, |profile| {
            Resource::view(Message::new(&profile.attributes)).attributes()
        }),
        Context::Metric => none(),
    }
}

/// Returns the attributes of a data point in this field of its metric.
fn of_form(point: Message<'_>, form: u32) -> Attributes<'_> {
    match form {
        9 => HistogramPoint::view(point).attributes(),
        10 => ExponentialHistogramPoint::view(point).attributes(),
        11 => SummaryPoint::view(point).attributes(),
        _ => NumberPoint::view(point).attributes(),
    }
}

fn of_span<'a>(span: Span<'a>, field: Field) -> Value<'a> {
    const KINDS: [&str; 6] = [
        "Unspecified",
        "Internal",
        "Server",
        "Client",
        "Producer",
        "Consumer",
    ];
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

fn of_record<'a>(record: LogRecord<'a>, field: Field) -> Value<'a> {
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

fn of_metric<'a>(metric: Metric<'a>, field: Field) -> Value<'a> {
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
        _ => Value::Nil,
    }
}

fn of_point<'a>(here: &EvaluationTarget<'a>, field: Field) -> Value<'a> {
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

fn of_profile(profile: &ProfileFields, field: Field) -> Value<'_> {
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

/// Whether any data point of the metric has an attribute, with a value if one is given. A value that is not a text
/// counts as the empty text. (The Collector does the same, but checks the value only in the first point that has the
/// key.)
fn has_attribute(here: &EvaluationTarget<'_>, key: &str, value: Option<&str>) -> bool {
    let matches = |attributes: Attributes<'_>| {
        let found = attributes
            .into_iter()
            .find(|attribute| attribute.key_bytes() == key.as_bytes());
        found.is_some_and(|found| {
            let text = match found.value() {
                Some(AnyValue::String(text)) => text,
                _ => "",
            };
            value.is_none_or(|value| value == text)
        })
    };
    match Metric::view(here.item).data() {
        None => false,
        Some(Data::Gauge { mut points } | Data::Sum { mut points, .. }) => {
            points.any(|point| matches(point.attributes()))
        }
        Some(Data::Histogram { mut points, .. }) => points.any(|point| matches(point.attributes())),
        Some(Data::ExponentialHistogram { mut points, .. }) => {
            points.any(|point| matches(point.attributes()))
        }
        Some(Data::Summary { mut points }) => points.any(|point| matches(point.attributes())),
    }
}
