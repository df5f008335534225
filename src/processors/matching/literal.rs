//! A value of any type in a configuration.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A value in a configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Literal {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number of up to 64 bits.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// A text.
    Text(String),
    /// Several values.
    List(Vec<Literal>),
    /// Values by key.
    Map(BTreeMap<String, Literal>),
}

impl Literal {
    /// Converts the value to OTLP.
    pub fn to_value(&self) -> Value {
        let any = |literal: &Literal| AnyValue {
            value: Some(literal.to_value()),
        };
        match self {
            Literal::Bool(value) => Value::BoolValue(*value),
            Literal::Int(value) => Value::IntValue(*value),
            Literal::Double(value) => Value::DoubleValue(*value),
            Literal::Text(value) => Value::StringValue(value.clone()),
            Literal::List(values) => Value::ArrayValue(ArrayValue {
                values: values.iter().map(any).collect(),
            }),
            Literal::Map(entries) => {
                let entries = entries.iter().map(|(key, value)| KeyValue {
                    key: key.clone(),
                    value: Some(any(value)),
                    ..KeyValue::default()
                });
                Value::KvlistValue(KeyValueList {
                    values: entries.collect(),
                })
            }
        }
    }
}
