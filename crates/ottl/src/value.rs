//! Values of expressions.

mod compare;
mod convert;
mod text;

use std::borrow::Cow;

pub(crate) use self::compare::compare;
pub(crate) use self::convert::{
    DEEPEST, LIST_LEVEL, MAP_LEVEL, check_depth, put_value, put_within,
};
pub(crate) use self::text::hexadecimal;
use super::calendar::Moment;
use tributary_otlp::view::AnyValue;

/// Reason why an expression has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// A key is looked up in a value without it.
    #[error("cannot be evaluated: a value does not have the key")]
    NoKeys,
    /// An index is out of range.
    #[error("cannot be evaluated: an index is out of range")]
    NoPosition,
    /// A value is not a text.
    #[error("cannot be evaluated: a value is not a string")]
    NoText,
    /// A value is not a whole number.
    #[error("cannot be evaluated: a value is not a whole number")]
    NoInt,
    /// A value is not a map.
    #[error("cannot be evaluated: a value is not a map")]
    NoMap,
    /// A value is not a time.
    #[error("cannot be evaluated: a value is not a time")]
    NoTime,
    /// A value is not a duration.
    #[error("cannot be evaluated: a value is not a duration")]
    NoDuration,
    /// A value has no length.
    #[error("cannot be evaluated: Len needs a string, a list or a map")]
    NoLength,
    /// A value is not a number, or a result is out of range.
    #[error(
        "cannot be evaluated: arithmetic needs numbers, times or durations, with a result in range"
    )]
    NoNumber,
    /// A divisor is zero.
    #[error("cannot be evaluated: division by zero")]
    ByZero,
    /// A value is not a list.
    #[error("cannot be evaluated: a value is not a list")]
    NoList,
    /// A text is not a JSON object or list.
    #[error("cannot be evaluated: ParseJSON needs a JSON object or list")]
    NoJson,
    /// A part of a text is out of range.
    #[error("cannot be evaluated: Substring is out of range")]
    NoPart,
    /// A value of this type cannot be written to the target of a statement.
    #[error("cannot be executed: the value does not have the type of the target")]
    WrongType,
    /// The memory budget is exhausted. The error mode of a statement does not apply.
    #[error("cannot be executed: the memory budget is exhausted")]
    NoMemory,
    /// Another reason.
    #[error("cannot be evaluated: {0}")]
    Because(&'static str),
}

/// Messages that the language can copy and count, but not look into, such as the events of a span.
#[derive(Debug, Clone)]
pub(crate) struct Messages<'a> {
    /// Type of the messages.
    pub(crate) kind: MessageKind,
    pub(crate) encoded: Vec<&'a [u8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    Event,
    Link,
    Status,
    Exemplar,
    Quantile,
    Buckets,
    /// Data points in this field of a metric; a gauge and a sum have points of the same type.
    Points(u32),
}

#[derive(Debug, Clone)]
pub(crate) enum Value<'a> {
    Nil,
    Bool(bool),
    Int(i64),
    Double(f64),
    Time(Moment),
    /// A duration in nanoseconds.
    Duration(i64),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    /// A trace id, a span id or a profile id.
    Id(Cow<'a, [u8]>),
    /// A list or a map of a request.
    Encoded(AnyValue<'a>),
    List(Vec<Value<'a>>),
    /// Values by key, in the order in which they were added. Keys are unique.
    Map(Vec<(Cow<'a, str>, Value<'a>)>),
    Messages(Messages<'a>),
    /// A pattern, which only functions receive.
    Pattern(&'a regex::Regex),
}

pub(crate) fn int(number: u64) -> Value<'static> {
    Value::Int(number.cast_signed())
}

pub(crate) fn text(text: &str) -> Value<'_> {
    Value::Text(Cow::Borrowed(text))
}

impl<'a> Value<'a> {
    pub(crate) fn of(value: AnyValue<'a>) -> Self {
        match value {
            AnyValue::Empty | AnyValue::StringIndex(_) => Value::Nil,
            AnyValue::Bool(value) => Value::Bool(value),
            AnyValue::Int(value) => Value::Int(value),
            AnyValue::Double(value) => Value::Double(value),
            AnyValue::String(text) => Value::Text(Cow::Borrowed(text)),
            AnyValue::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            value => Value::Encoded(value),
        }
    }

    pub(crate) fn id(bytes: &'a [u8], as_text: bool) -> Self {
        match as_text {
            true => Value::Text(Cow::Owned(hexadecimal(bytes))),
            false => Value::Id(Cow::Borrowed(bytes)),
        }
    }

    pub(crate) fn owned_text(text: String) -> Value<'static> {
        Value::Text(Cow::Owned(text))
    }

    /// Returns the text. Unlike patterns, prefixes and suffixes apply only to texts.
    pub(crate) fn plain_text(&self) -> Result<&str, Undecided> {
        match self {
            Value::Text(text) => Ok(text),
            _ => Err(Undecided::NoText),
        }
    }

    /// Returns the length in bytes or entries.
    pub(crate) fn len(&self) -> Result<i64, Undecided> {
        let length = match self {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            Value::Encoded(AnyValue::Array(values)) => values.clone().count(),
            Value::Encoded(AnyValue::Map(entries)) => entries.clone().count(),
            Value::List(values) => values.len(),
            Value::Map(entries) => entries.len(),
            Value::Messages(Messages { kind, encoded }) if kind.is_list() => encoded.len(),
            _ => return Err(Undecided::NoLength),
        };
        Ok(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// Returns the elements of a list.
    pub(crate) fn into_list(self) -> Result<Vec<Value<'a>>, Undecided> {
        match self {
            Value::List(values) => Ok(values),
            Value::Encoded(AnyValue::Array(values)) => Ok(values.map(Value::of).collect()),
            _ => Err(Undecided::NoList),
        }
    }

    /// Returns the entries of a map.
    pub(crate) fn into_map(self) -> Result<Vec<(Cow<'a, str>, Value<'a>)>, Undecided> {
        match self {
            Value::Map(entries) => Ok(entries),
            Value::Encoded(AnyValue::Map(entries)) => Ok(entries
                .map(|entry| {
                    let value = entry.value().unwrap_or(AnyValue::Empty);
                    (Cow::Borrowed(entry.key()), Value::of(value))
                })
                .collect()),
            _ => Err(Undecided::NoMap),
        }
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Value::Map(_) | Value::Encoded(AnyValue::Map(_)))
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Value::List(_) | Value::Encoded(AnyValue::Array(_)))
    }
}

impl MessageKind {
    /// Whether the value is a list of such messages, and not one message.
    pub(crate) fn is_list(self) -> bool {
        !matches!(self, MessageKind::Status | MessageKind::Buckets)
    }
}
