//! Formats values as text like the Collector (`pcommon.Value.AsString`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::common::v1 as proto;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;

use super::{AnyValue, Message, View as _};

impl<'a> AnyValue<'a> {
    /// Formats the value: numbers in decimal digits, bytes in base64, lists and maps as JSON with sorted
    /// keys. An empty value is the empty text.
    pub fn to_text(&self) -> Cow<'a, str> {
        match self {
            AnyValue::String(text) => Cow::Borrowed(text),
            AnyValue::Empty | AnyValue::StringIndex(_) => Cow::Borrowed(""),
            AnyValue::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            AnyValue::Int(value) => Cow::Owned(value.to_string()),
            AnyValue::Double(value) => Cow::Owned(number(*value)),
            AnyValue::Bytes(bytes) => Cow::Owned(STANDARD.encode(bytes)),
            AnyValue::Array(_) | AnyValue::Map(_) => {
                let mut output = String::new();
                // JSON has no infinities, and the Collector writes the empty text for them.
                match json(self, &mut output) {
                    Some(()) => Cow::Owned(output),
                    None => Cow::Borrowed(""),
                }
            }
        }
    }
}

/// Formats a decoded value in the same way.
pub fn text_of(value: &proto::AnyValue) -> Cow<'_, str> {
    match &value.value {
        Some(Value::StringValue(text)) => Cow::Borrowed(text),
        None => Cow::Borrowed(""),
        Some(_) => {
            let encoded = value.encode_to_vec();
            let text = AnyValue::view(Message::new(&encoded)).to_text();
            Cow::Owned(text.into_owned())
        }
    }
}

/// Formats a number as ECMAScript does.
fn number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        _ if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) => {
            let text = format!("{value:e}");
            if text.contains("e-") {
                text
            } else {
                text.replace('e', "e+")
            }
        }
        _ => value.to_string(),
    }
}

/// Writes a value as JSON. The validator limits the depth of values.
fn json(value: &AnyValue<'_>, output: &mut String) -> Option<()> {
    match value {
        AnyValue::Empty | AnyValue::StringIndex(_) => output.push_str("null"),
        AnyValue::Double(value) if !value.is_finite() => return None,
        AnyValue::Bool(_) | AnyValue::Int(_) | AnyValue::Double(_) => {
            output.push_str(&value.to_text());
        }
        AnyValue::String(_) | AnyValue::Bytes(_) => quote(&value.to_text(), output),
        AnyValue::Array(values) => {
            output.push('[');
            for (at, value) in values.clone().enumerate() {
                if at > 0 {
                    output.push(',');
                }
                json(&value, output)?;
            }
            output.push(']');
        }
        AnyValue::Map(entries) => {
            let entries = entries.clone();
            let sorted: BTreeMap<_, _> = entries
                .map(|entry| (entry.key(), entry.value().unwrap_or(AnyValue::Empty)))
                .collect();
            output.push('{');
            for (at, (key, value)) in sorted.iter().enumerate() {
                if at > 0 {
                    output.push(',');
                }
                quote(key, output);
                output.push(':');
                json(value, output)?;
            }
            output.push('}');
        }
    }
    Some(())
}

fn quote(text: &str, output: &mut String) {
    let quoted = serde_json::to_string(text).unwrap_or_default();
    output.push_str(
        &quoted
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts come from `pcommon.Value.AsString`.
    #[test]
    fn text_of_values_matches_collector() {
        let any = |value| proto::AnyValue { value: Some(value) };
        let entry = |key: &str, value: Option<Value>| proto::KeyValue {
            key: key.to_owned(),
            value: value.map(any),
            ..proto::KeyValue::default()
        };
        let text = |text: &str| Value::StringValue(text.to_owned());
        let list = |values: Vec<Value>| {
            Value::ArrayValue(proto::ArrayValue {
                values: values.into_iter().map(any).collect(),
            })
        };
        let map = |values| Value::KvlistValue(proto::KeyValueList { values });
        for (value, expected) in [
            (text("<a> \"b\""), "<a> \"b\""),
            (Value::DoubleValue(0.000_001), "0.000001"),
            (
                Value::DoubleValue(100_000_000_000_000_000_000.0),
                "100000000000000000000",
            ),
            (Value::DoubleValue(-2.5e30), "-2.5e+30"),
            (Value::DoubleValue(f64::NEG_INFINITY), "-Infinity"),
            (
                map(vec![
                    entry(
                        "z",
                        Some(list(vec![Value::IntValue(1), Value::BoolValue(false)])),
                    ),
                    entry("a", Some(text("<&>\n\u{2028}"))),
                    entry("none", None),
                    entry("bytes", Some(Value::BytesValue(vec![1, 2]))),
                    entry("x", Some(Value::DoubleValue(1.0))),
                ]),
                r#"{"a":"<&>\n\u2028","bytes":"AQI=","none":null,"x":1,"z":[1,false]}"#,
            ),
            (list(vec![Value::DoubleValue(f64::NAN)]), ""),
            (list(vec![]), "[]"),
        ] {
            let value = any(value);
            assert_eq!(text_of(&value), expected);
            let encoded = value.encode_to_vec();
            let value = AnyValue::view(Message::new(&encoded));
            assert_eq!(value.to_text(), expected);
        }
    }
}
