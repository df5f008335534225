//! Values of conditions, and their comparison.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write as _;

use opentelemetry_proto::tonic::common::v1::any_value::Value as Proto;
use opentelemetry_proto::tonic::common::v1::{self as proto, ArrayValue, KeyValue, KeyValueList};
use serde_json::Value as Json;

use super::{Comparison, ValueKind};
use tributary_otlp::view::{AnyValue, text_of};

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
    /// The text of a list or a map.
    Structure(&'a str),
    List(Vec<Value<'a>>),
    /// A list or a map that was parsed from JSON.
    Json(serde_json::Value),
}

/// Compares two values. Values of different kinds are not equal and have no order.
pub(super) fn compare(left: &Value<'_>, comparison: Comparison, right: &Value<'_>) -> bool {
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
            same_structure(left, right).then_some(Ordering::Equal)
        }
        _ => None,
    };
    // Ids, lists and maps have equality but no order.
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
    pub(super) fn of(value: AnyValue<'a>) -> Self {
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

    pub(super) fn id(bytes: &'a [u8], as_text: bool) -> Self {
        match as_text {
            true => Value::Text(Cow::Owned(hexadecimal(bytes))),
            false => Value::Id(bytes),
        }
    }

    /// Returns the text. Unlike patterns, prefixes and suffixes apply only to texts.
    pub(super) fn plain_text(&self) -> Result<&str, Undecided> {
        match self {
            Value::Text(text) => Ok(text),
            _ => Err(Undecided::NoText),
        }
    }

    /// Returns the length in bytes or entries.
    pub(super) fn len(&self) -> Result<i64, Undecided> {
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
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        Some(match self {
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

pub(super) fn int(number: u64) -> Value<'static> {
    Value::Int(number.cast_signed())
}

pub(super) fn text(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

/// Whether two values have the same content, where both are lists or maps and a function returned at least one value.
fn same_structure(left: &Value<'_>, right: &Value<'_>) -> bool {
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
