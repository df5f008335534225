//! Conversion of values to OTLP.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Proto;
use opentelemetry_proto::tonic::common::v1::{self as proto, ArrayValue, KeyValue, KeyValueList};

use super::{Undecided, Value};
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::put_varint;
use tributary_otlp::view::AnyValue;

/// Maximum number of messages in each other below an `AnyValue`. Readers accept 100 in all, and an attribute of a data
/// point is already inside seven.
pub(crate) const DEEPEST: usize = 90;
/// Messages per level of a list: the list and the element.
pub(crate) const LIST_LEVEL: usize = 2;
/// Messages per level of a map: the map, the entry and its value.
pub(crate) const MAP_LEVEL: usize = 3;

const TOO_DEEP: Undecided = Undecided::Because("a value nests too deep to be written");

/// Appends a value in the encoding of `AnyValue`.
///
/// # Errors
///
/// Fails for a time, a duration, an id and messages, which are no values of attributes, and for more than [`DEEPEST`]
/// messages in each other.
pub(crate) fn put_value(value: &Value<'_>, output: &mut Vec<u8>) -> Result<(), Undecided> {
    put_within(value, DEEPEST, output)
}

/// Like [`put_value`], for a value that may have `left` messages in each other.
pub(crate) fn put_within(
    value: &Value<'_>,
    left: usize,
    output: &mut Vec<u8>,
) -> Result<(), Undecided> {
    let below = |level: usize| left.checked_sub(level).ok_or(TOO_DEEP);
    match value {
        Value::Nil => {}
        Value::Bool(value) => {
            output.extend_from_slice(&[0x10, u8::from(*value)]);
        }
        Value::Int(value) => {
            output.push(0x18);
            put_varint(value.cast_unsigned(), output);
        }
        Value::Double(value) => {
            output.push(0x21);
            output.extend_from_slice(&value.to_le_bytes());
        }
        Value::Text(text) => put_delimited(1, text.as_bytes(), output),
        Value::Bytes(bytes) => put_delimited(7, bytes, output),
        Value::Encoded(value) => {
            check_depth(value, left)?;
            put_view(value, output);
        }
        Value::List(values) => {
            let mut list = Vec::new();
            let left = below(LIST_LEVEL)?;
            for value in values {
                put_nested(1, &mut list, |element| put_within(value, left, element))?;
            }
            put_delimited(5, &list, output);
        }
        Value::Map(entries) => {
            let mut list = Vec::new();
            let left = below(MAP_LEVEL)?;
            for (key, value) in entries {
                put_nested(1, &mut list, |entry| {
                    put_delimited(1, key.as_bytes(), entry);
                    put_nested(2, entry, |output| put_within(value, left, output))
                })?;
            }
            put_delimited(6, &list, output);
        }
        Value::Time(_)
        | Value::Duration(_)
        | Value::Id(_)
        | Value::Messages(_)
        | Value::Pattern(_) => return Err(Undecided::WrongType),
    }
    Ok(())
}

/// Fails if a value has more than `left` messages in each other.
pub(crate) fn check_depth(value: &AnyValue<'_>, left: usize) -> Result<(), Undecided> {
    let below = |level: usize| left.checked_sub(level).ok_or(TOO_DEEP);
    match value {
        AnyValue::Array(values) => {
            let left = below(LIST_LEVEL)?;
            values
                .clone()
                .try_for_each(|value| check_depth(&value, left))
        }
        AnyValue::Map(entries) => {
            let left = below(MAP_LEVEL)?;
            let mut values = entries.clone().filter_map(|entry| entry.value());
            values.try_for_each(|value| check_depth(&value, left))
        }
        _ => Ok(()),
    }
}

/// Appends a message that `write` encodes.
fn put_nested(
    number: u32,
    output: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), Undecided>,
) -> Result<(), Undecided> {
    let mut message = Vec::new();
    write(&mut message)?;
    put_delimited(number, &message, output);
    Ok(())
}

fn put_view(value: &AnyValue<'_>, output: &mut Vec<u8>) {
    match value {
        AnyValue::Array(values) => {
            let mut list = Vec::new();
            for value in values.clone() {
                let mut element = Vec::new();
                put_view(&value, &mut element);
                put_delimited(1, &element, &mut list);
            }
            put_delimited(5, &list, output);
        }
        AnyValue::Map(entries) => {
            let mut list = Vec::new();
            for entry in entries.clone() {
                put_delimited(1, entry.message().encoded(), &mut list);
            }
            put_delimited(6, &list, output);
        }
        // A nested view has no other variant than those that `Value::of` knows.
        value => {
            let _ = put_value(&Value::of(value.clone()), output);
        }
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

impl Value<'_> {
    /// Converts the value to OTLP. A value without counterpart becomes empty.
    pub(crate) fn proto(&self) -> proto::AnyValue {
        let value = match self {
            Value::Nil
            | Value::Time(_)
            | Value::Duration(_)
            | Value::Messages(_)
            | Value::Pattern(_) => None,
            Value::Bool(value) => Some(Proto::BoolValue(*value)),
            Value::Int(value) => Some(Proto::IntValue(*value)),
            Value::Double(value) => Some(Proto::DoubleValue(*value)),
            Value::Text(text) => Some(Proto::StringValue(text.clone().into_owned())),
            Value::Bytes(bytes) | Value::Id(bytes) => Some(Proto::BytesValue(bytes.to_vec())),
            Value::Encoded(value) => return of_view(value),
            Value::List(values) => Some(Proto::ArrayValue(ArrayValue {
                values: values.iter().map(Value::proto).collect(),
            })),
            Value::Map(entries) => {
                let values = entries.iter().map(|(key, value)| KeyValue {
                    key: key.clone().into_owned(),
                    value: Some(value.proto()),
                    key_strindex: 0,
                });
                Some(Proto::KvlistValue(KeyValueList {
                    values: values.collect(),
                }))
            }
        };
        proto::AnyValue { value }
    }
}
