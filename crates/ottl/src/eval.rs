//! Evaluation of expressions on parts of a request.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::calendar::Moment;
use super::fields::{of_metric, of_point, of_profile, of_record, of_span};
use super::functions::Arguments;
use super::math::calculate;
use super::path::{Context, Field, Key, Path};
use super::target::{EvaluationTarget, attributes};
use super::value::{Undecided, Value, compare, int, text};
use super::{Call, Condition, Operand, Test};
use tributary_otlp::view::{
    AnyValue, Attributes, Event, LogRecord, Message, Metric, Resource, ResourceEntry, ScopeEntry,
    Span, View as _, attribute,
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
            Test::Truth(operand) => match operand.value(here)? {
                Value::Bool(value) => value,
                _ => {
                    return Err(Undecided::Because(
                        "a function does not return true or false",
                    ));
                }
            },
        })
    }
}

/// A key whose expression is evaluated.
pub(super) enum Step<'v> {
    Name(Cow<'v, str>),
    Position(i64),
}

impl Key {
    pub(super) fn step<'v>(&'v self, here: &EvaluationTarget<'v>) -> Result<Step<'v>, Undecided> {
        Ok(match self {
            Key::Name(name) => Step::Name(Cow::Borrowed(name)),
            Key::Position(at) => Step::Position(*at),
            Key::Computed(operand) => match operand.value(here)? {
                Value::Text(name) => Step::Name(name),
                Value::Int(at) => Step::Position(at),
                _ => return Err(Undecided::Because("a key is neither a string nor a number")),
            },
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
            Operand::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Operand::Id(id) => Value::Id(Cow::Borrowed(id)),
            Operand::Time(time) => Value::Time(*time),
            Operand::Duration(duration) => Value::Duration(*duration),
            Operand::Path(path) => return path.value(here),
            Operand::List(values) => {
                let values = values.iter().map(|value| value.value(here));
                Value::List(values.collect::<Result<_, _>>()?)
            }
            Operand::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| Ok((Cow::Borrowed(&**key), value.value(here)?)));
                Value::Map(entries.collect::<Result<_, Undecided>>()?)
            }
            Operand::Encoded(value) => Value::of(AnyValue::view(Message::new(value))),
            Operand::Pattern(pattern) => Value::Pattern(pattern),
            // Editors read the function from the operand.
            Operand::Function(_) => Value::Nil,
            Operand::Call(call) => return call.value(here),
            Operand::Math(first, rest) => {
                let mut value = first.value(here)?;
                for (operator, operand) in rest {
                    value = calculate(&value, *operator, &operand.value(here)?)?;
                }
                value
            }
            Operand::Coalesce(values) => {
                for value in values {
                    match value.value(here)? {
                        Value::Nil => {}
                        value => return Ok(value),
                    }
                }
                Value::Nil
            }
        })
    }
}

impl Call {
    fn value<'v>(&'v self, here: &EvaluationTarget<'v>) -> Result<Value<'v>, Undecided> {
        let mut values: SmallVec<[Option<Value<'v>>; 3]> = SmallVec::new();
        for argument in &self.arguments {
            values.push(match argument {
                Some(argument) => Some(argument.value(here)?),
                None => None,
            });
        }
        let mut value = (self.function.call)(&mut Arguments::new(&mut values, here))?;
        for key in &self.keys {
            value = element(value, &key.step(here)?)?;
        }
        Ok(value)
    }
}

/// Returns the value of a key in the result of a function. Unlike in a path, a missing key is an error.
fn element<'v>(value: Value<'v>, step: &Step<'_>) -> Result<Value<'v>, Undecided> {
    match step {
        Step::Name(name) => {
            let entries = value.into_map().map_err(|_| Undecided::NoKeys)?;
            let found = entries.into_iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value).ok_or(Undecided::NoKeys)
        }
        Step::Position(at) => {
            let at = usize::try_from(*at).map_err(|_| Undecided::NoPosition)?;
            let values = value.into_list().map_err(|_| Undecided::NoPosition)?;
            values.into_iter().nth(at).ok_or(Undecided::NoPosition)
        }
    }
}

impl Path {
    pub(super) fn value<'a>(&self, here: &EvaluationTarget<'a>) -> Result<Value<'a>, Undecided> {
        let value = self.number_or_other(here)?;
        Ok(match value {
            Value::Int(time) if self.as_time => Value::Time(Moment::utc(time)),
            value => value,
        })
    }

    /// Returns the entries of a map that is a field of its own.
    pub(super) fn entries<'a>(&self, here: &EvaluationTarget<'a>) -> Option<Attributes<'a>> {
        Some(match self.field {
            Field::Attributes => attributes(self.context, here),
            Field::Cache => Resource::view(here.cache).attributes(),
            Field::Metadata => Metric::view(here.item).metadata(),
            _ => return None,
        })
    }

    fn number_or_other<'a>(&self, here: &EvaluationTarget<'a>) -> Result<Value<'a>, Undecided> {
        if let Some(entries) = self.entries(here) {
            return self.in_attributes(entries, here);
        }
        Ok(match (self.context, self.field) {
            (Context::Log, Field::Body) => {
                let body = LogRecord::view(here.item).body().unwrap_or(AnyValue::Empty);
                if !self.keys.is_empty() && !matches!(body, AnyValue::Map(_) | AnyValue::Array(_)) {
                    return Err(Undecided::NoKeys);
                }
                return inside(body, &self.keys, here).map(Value::of);
            }
            (Context::Resource, Field::SchemaUrl) => {
                text(ResourceEntry::view(here.resource).schema_url())
            }
            (Context::Resource, _) => {
                let resource = ResourceEntry::view(here.resource).resource();
                int(resource.map_or(0, |resource| resource.dropped_attributes_count().into()))
            }
            (Context::Scope, Field::SchemaUrl) => text(ScopeEntry::view(here.scope).schema_url()),
            (Context::Scope, field) => {
                let scope = ScopeEntry::view(here.scope).scope();
                match field {
                    Field::Name => text(scope.map_or("", |scope| scope.name())),
                    Field::Version => text(scope.map_or("", |scope| scope.version())),
                    _ => int(scope.map_or(0, |scope| scope.dropped_attributes_count().into())),
                }
            }
            (Context::Span, Field::TraceState) => {
                let state = Span::view(here.item).trace_state();
                match self.keys.first() {
                    None => text(state),
                    Some(key) => match key.step(here)? {
                        Step::Name(name) => text(member(state, &name).unwrap_or_default()),
                        Step::Position(_) => return Err(Undecided::NoPosition),
                    },
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

    fn in_attributes<'a>(
        &self,
        entries: Attributes<'a>,
        here: &EvaluationTarget<'a>,
    ) -> Result<Value<'a>, Undecided> {
        let Some((first, rest)) = self.keys.split_first() else {
            return Ok(Value::Encoded(AnyValue::Map(entries)));
        };
        let first = match first {
            Key::Name(name) => Cow::Borrowed(name.as_str()),
            key => match key.step(here)? {
                Step::Name(name) => Cow::Owned(name.into_owned()),
                Step::Position(_) => return Err(Undecided::NoPosition),
            },
        };
        match attribute(entries, &first) {
            Some(value) => inside(value, rest, here).map(Value::of),
            None => Ok(Value::Nil),
        }
    }
}

/// Returns a member of a W3C trace state.
pub(super) fn member<'s>(state: &'s str, name: &str) -> Option<&'s str> {
    let members = state
        .split(',')
        .filter_map(|member| member.trim().split_once('='));
    let mut members = members.filter(|(key, _)| *key == name);
    members.next().map(|(_, value)| value)
}

/// Returns the value at the end of the keys; empty if a key is missing. An index beyond the end of a list is an error,
/// as in the Collector.
fn inside<'a>(
    value: AnyValue<'a>,
    keys: &[Key],
    here: &EvaluationTarget<'a>,
) -> Result<AnyValue<'a>, Undecided> {
    let mut value = value;
    for key in keys {
        value = match (value, key.step(here)?) {
            (AnyValue::Map(entries), Step::Name(key)) => match attribute(entries, &key) {
                Some(found) => found,
                None => return Ok(AnyValue::Empty),
            },
            (AnyValue::Array(mut values), Step::Position(at)) => {
                let at = usize::try_from(at).map_err(|_| Undecided::NoPosition)?;
                values.nth(at).ok_or(Undecided::NoPosition)?
            }
            (_, Step::Name(_)) => return Err(Undecided::NoKeys),
            (_, Step::Position(_)) => return Err(Undecided::NoPosition),
        };
    }
    Ok(value)
}
