//! Functions that test the type of a value.

use super::{Function, TARGET};
use crate::value::{MessageKind, Messages, Value};

pub(super) const ALL: &[Function] = &[
    Function::new("IsString", &[TARGET], |arguments| {
        Ok(Value::Bool(matches!(arguments.value(0), Value::Text(_))))
    }),
    Function::new("IsInt", &[TARGET], |arguments| {
        Ok(Value::Bool(matches!(arguments.value(0), Value::Int(_))))
    }),
    Function::new("IsDouble", &[TARGET], |arguments| {
        Ok(Value::Bool(matches!(arguments.value(0), Value::Double(_))))
    }),
    Function::new("IsBool", &[TARGET], |arguments| {
        Ok(Value::Bool(matches!(arguments.value(0), Value::Bool(_))))
    }),
    Function::new("IsMap", &[TARGET], |arguments| {
        Ok(Value::Bool(arguments.value(0).is_map()))
    }),
    Function::new("IsList", &[TARGET], |arguments| {
        let value = arguments.value(0);
        let is_messages = matches!(value, Value::Messages(Messages { kind, .. }) if kind.is_list());
        Ok(Value::Bool(is_messages || value.is_list()))
    }),
    Function::new("IsEmpty", &[TARGET], |arguments| {
        Ok(Value::Bool(is_empty(arguments.value(0))))
    }),
];

/// Whether the value is the zero value of its type.
fn is_empty(value: &Value<'_>) -> bool {
    match value {
        Value::Nil => true,
        Value::Bool(value) => !value,
        Value::Int(value) | Value::Duration(value) => *value == 0,
        Value::Double(value) => value.to_bits() == 0,
        Value::Id(id) => id.iter().all(|byte| *byte == 0),
        Value::Messages(Messages {
            kind: MessageKind::Status | MessageKind::Buckets,
            ..
        })
        | Value::Time(_)
        | Value::Pattern(_) => false,
        value => value.len().is_ok_and(|length| length == 0),
    }
}
