//! Functions of values, and the values that only functions return.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Proto;
use opentelemetry_proto::tonic::common::v1::{self as proto, ArrayValue, KeyValue, KeyValueList};
use serde_json::Value as Json;

use super::{Undecided, Value, compare};
use crate::path::Key;
use crate::{Comparison, Function, ValueKind};
use tributary_otlp::view::AnyValue;

/// Applies a function to its arguments, and looks up the keys in the result.
pub(super) fn call<'v>(
    function: Function,
    arguments: &[Value<'v>],
    keys: &[Key],
) -> Result<Value<'v>, Undecided> {
    let first = || arguments.first().cloned().unwrap_or(Value::Nil);
    let value = match function {
        Function::Concat => concat(arguments)?,
        Function::ParseJson => return parse_json(first().plain_text()?, keys),
        Function::Now => Value::Time(now()),
        Function::ToLowerCase => Value::Text(first().plain_text()?.to_lowercase().into()),
        Function::ToUpperCase => Value::Text(first().plain_text()?.to_uppercase().into()),
        Function::String => first().text().map_or(Value::Nil, Value::Text),
        Function::Int => int(first())?,
        Function::Double => double(first())?,
        Function::Substring => substring(arguments)?,
    };
    match keys {
        [] => Ok(value),
        _ => Err(Undecided::NoKeys),
    }
}

/// Returns the current time in nanoseconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

fn concat<'v>(arguments: &[Value<'v>]) -> Result<Value<'v>, Undecided> {
    let [Value::List(values), delimiter] = arguments else {
        return Err(Undecided::NoList);
    };
    let delimiter = delimiter.plain_text()?;
    // The Collector's text for a missing value.
    let texts = values.iter().cloned();
    let texts: Vec<Cow<'_, str>> = texts
        .map(|value| value.text().unwrap_or("<nil>".into()))
        .collect();
    Ok(Value::Text(Cow::Owned(texts.join(delimiter))))
}

fn parse_json(text: &str, keys: &[Key]) -> Result<Value<'static>, Undecided> {
    let mut json: Json = serde_json::from_str(text).map_err(|_| Undecided::NoJson)?;
    if !(json.is_object() || json.is_array()) {
        return Err(Undecided::NoJson);
    }
    for key in keys {
        let found = match (&mut json, key) {
            (Json::Object(entries), Key::Name(name)) => {
                entries.get_mut(name).ok_or(Undecided::NoKeys)?
            }
            (Json::Array(values), Key::Position(at)) => {
                let at = usize::try_from(*at).map_err(|_| Undecided::NoPosition)?;
                values.get_mut(at).ok_or(Undecided::NoPosition)?
            }
            (_, Key::Name(_)) => return Err(Undecided::NoKeys),
            (_, Key::Position(_)) => return Err(Undecided::NoPosition),
        };
        json = found.take();
    }
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => Value::Double(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::Text(Cow::Owned(text)),
        json => Value::Json(json),
    })
}

/// Converts to a whole number as Go does: fractions are cut off, and decimal texts are parsed.
fn int(value: Value<'_>) -> Result<Value<'_>, Undecided> {
    Ok(match value {
        Value::Int(value) => Value::Int(value),
        #[allow(clippy::cast_possible_truncation)] // What is asked for.
        Value::Double(value) => Value::Int(value as i64),
        Value::Bool(value) => Value::Int(value.into()),
        Value::Text(text) => text.parse().map_or(Value::Nil, Value::Int),
        Value::Nil => Value::Nil,
        _ => return Err(Undecided::NoNumber),
    })
}

fn double(value: Value<'_>) -> Result<Value<'_>, Undecided> {
    Ok(match value {
        Value::Double(value) => Value::Double(value),
        Value::Int(value) => Value::Double(value as f64),
        Value::Bool(value) => Value::Double(u8::from(value).into()),
        Value::Text(text) => text.parse().map_or(Value::Nil, Value::Double),
        Value::Nil => Value::Nil,
        _ => return Err(Undecided::NoNumber),
    })
}

fn substring<'v>(arguments: &[Value<'v>]) -> Result<Value<'v>, Undecided> {
    let [text, Value::Int(start), Value::Int(length)] = arguments else {
        return Err(Undecided::NoText);
    };
    let position = |number: i64| usize::try_from(number).map_err(|_| Undecided::NoPart);
    let (start, length) = (position(*start)?, position(*length)?);
    let end = start.checked_add(length).filter(|_| length > 0);
    let part = end.and_then(|end| text.plain_text().ok()?.get(start..end).map(str::to_owned));
    text.plain_text()?;
    part.map(|part| Value::Text(Cow::Owned(part)))
        .ok_or(Undecided::NoPart)
}

/// Whether two values, one of them returned by a function, are lists or maps with the same content.
pub(super) fn same_structure(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Structure(text), made) | (made, Value::Structure(text)) => {
            made.clone().text().is_some_and(|made| made == *text)
        }
        _ => sorted(left.proto()) == sorted(right.proto()),
    }
}

/// Sorts the keys of all maps, since maps have no order.
fn sorted(mut value: proto::AnyValue) -> proto::AnyValue {
    match &mut value.value {
        Some(Proto::KvlistValue(list)) => {
            for entry in &mut list.values {
                entry.value = entry.value.take().map(sorted);
            }
            list.values.sort_by(|a, b| a.key.cmp(&b.key));
        }
        Some(Proto::ArrayValue(list)) => {
            for entry in &mut list.values {
                *entry = sorted(std::mem::take(entry));
            }
        }
        _ => {}
    }
    value
}

impl<'a> Value<'a> {
    /// Whether only functions return such a value.
    pub(super) fn is_function_result(&self) -> bool {
        matches!(self, Value::List(_) | Value::Json(_))
    }

    /// Whether the value supports equality only.
    pub(super) fn has_no_order(&self) -> bool {
        matches!(self, Value::Id(_) | Value::Other(_) | Value::Structure(_))
            || self.is_function_result()
    }

    pub(super) fn is(&self, sort: ValueKind) -> bool {
        let begins = |sign| matches!(self, Value::Structure(text) if text.starts_with(sign));
        match sort {
            ValueKind::Text => matches!(self, Value::Text(_)),
            ValueKind::Int => matches!(self, Value::Int(_)),
            ValueKind::Double => matches!(self, Value::Double(_)),
            ValueKind::Bool => matches!(self, Value::Bool(_)),
            ValueKind::Map => {
                begins('{')
                    || matches!(
                        self,
                        Value::Other(AnyValue::Map(_)) | Value::Json(Json::Object(_))
                    )
            }
            ValueKind::List => {
                begins('[')
                    || matches!(
                        self,
                        Value::Other(AnyValue::Array(_))
                            | Value::Json(Json::Array(_))
                            | Value::List(_)
                    )
            }
        }
    }

    /// Whether the value is a list that contains `item`.
    pub(super) fn contains(&self, item: &Value<'_>) -> Result<bool, Undecided> {
        let equal = |value: &Value<'_>| compare(value, Comparison::Equal, item);
        Ok(match self {
            Value::Other(AnyValue::Array(values)) => {
                values.clone().any(|value| equal(&Value::of(value)))
            }
            Value::List(values) => values.iter().any(equal),
            Value::Json(Json::Array(values)) => values.iter().any(|value| {
                equal(&match value {
                    Json::Null => Value::Nil,
                    Json::Bool(value) => Value::Bool(*value),
                    Json::Number(number) => Value::Double(number.as_f64().unwrap_or_default()),
                    Json::String(text) => Value::Text(Cow::Borrowed(text)),
                    json => Value::Json(json.clone()),
                })
            }),
            _ => return Err(Undecided::NoList),
        })
    }

    /// Converts the value to OTLP.
    pub(crate) fn proto(&self) -> proto::AnyValue {
        let value = match self {
            Value::Nil | Value::Time(_) | Value::Duration(_) => None,
            Value::Bool(value) => Some(Proto::BoolValue(*value)),
            Value::Int(value) => Some(Proto::IntValue(*value)),
            Value::Double(value) => Some(Proto::DoubleValue(*value)),
            Value::Text(text) => Some(Proto::StringValue(text.clone().into_owned())),
            Value::Structure(text) => Some(Proto::StringValue((*text).to_owned())),
            Value::Bytes(bytes) | Value::Id(bytes) => Some(Proto::BytesValue(bytes.to_vec())),
            Value::Other(value) => return of_view(value),
            Value::Json(json) => return of_json(json),
            Value::List(values) => Some(Proto::ArrayValue(ArrayValue {
                values: values.iter().map(Value::proto).collect(),
            })),
        };
        proto::AnyValue { value }
    }
}

fn of_view(value: &AnyValue<'_>) -> proto::AnyValue {
    let value = match value {
        AnyValue::Empty | AnyValue::StringIndex(_) => None,
        AnyValue::String(text) => Some(Proto::StringValue((*text).to_owned())),
        AnyValue::Bool(value) => Some(Proto::BoolValue(*value)),
        AnyValue::Int(value) => Some(Proto::IntValue(*value)),
        AnyValue::Double(value) => Some(Proto::DoubleValue(*value)),
        AnyValue::Bytes(bytes) => Some(Proto::BytesValue(bytes.to_vec())),
        AnyValue::Array(values) => Some(Proto::ArrayValue(ArrayValue {
            values: values.clone().map(|value| of_view(&value)).collect(),
        })),
        AnyValue::Map(entries) => {
            let values = entries.clone().map(|entry| KeyValue {
                key: entry.key().to_owned(),
                value: entry.value().map(|value| of_view(&value)),
                key_strindex: 0,
            });
            Some(Proto::KvlistValue(KeyValueList {
                values: values.collect(),
            }))
        }
    };
    proto::AnyValue { value }
}

/// Converts JSON to OTLP. Numbers become doubles, as in the Collector.
fn of_json(json: &Json) -> proto::AnyValue {
    let value = match json {
        Json::Null => None,
        Json::Bool(value) => Some(Proto::BoolValue(*value)),
        Json::Number(number) => Some(Proto::DoubleValue(number.as_f64().unwrap_or_default())),
        Json::String(text) => Some(Proto::StringValue(text.clone())),
        Json::Array(values) => Some(Proto::ArrayValue(ArrayValue {
            values: values.iter().map(of_json).collect(),
        })),
        Json::Object(entries) => {
            let values = entries.iter().map(|(key, value)| KeyValue {
                key: key.clone(),
                value: Some(of_json(value)),
                key_strindex: 0,
            });
            Some(Proto::KvlistValue(KeyValueList {
                values: values.collect(),
            }))
        }
    };
    proto::AnyValue { value }
}
