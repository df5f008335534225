//! Evaluation of conditions on parts of a request.

mod calls;

use std::borrow::Cow;

use super::fields::{of_metric, of_point, of_profile, of_record, of_span};
use super::math::calculate;
use super::path::{Context, Field, Key, Path};
use super::target::{EvaluationTarget, attributes};
use super::value::Undecided;
use super::value::Value;
use super::value::{compare, int, text};
use super::{Condition, Operand, Test};
use tributary_otlp::view::{
    AnyValue, Attributes, Data, Event, LogRecord, Message, Metric, ResourceEntry, ScopeEntry, Span,
    View as _, attribute,
};

impl Condition {
    /// Evaluates the condition. To evaluate it for many items, call [`within`](Self::within) first.
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

/// Returns the value at the end of the keys; empty if a key is missing. An index beyond the end of a list is an error,
/// as in the Collector.
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

/// Whether any data point of the metric has an attribute, with the given value, if any. A value that is not a text
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
