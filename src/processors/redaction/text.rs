//! Values as text, as the Collector's `AsString` has them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;

/// A value as text: strings as they are, bytes in base64, lists and maps as JSON with sorted keys.
pub(super) fn as_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::StringValueStrindex(_)) => String::new(),
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => double(*number),
        Some(Value::BytesValue(bytes)) => STANDARD.encode(bytes),
        Some(value) => {
            let mut output = String::new();
            json(Some(value), &mut output);
            output
        }
    }
}

/// As Go's JSON encoder writes it.
fn double(number: f64) -> String {
    if !number.is_finite() {
        let name = match number {
            number if number.is_nan() => "NaN",
            number if number > 0.0 => "+Inf",
            _ => "-Inf",
        };
        return format!("json: unsupported value: {name}");
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{number:e}");
        // A sign always.
        return match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                format!("{digits}e+{exponent}")
            }
            _ => text,
        };
    }
    number.to_string()
}

fn json(value: Option<&Value>, output: &mut String) {
    match value {
        None | Some(Value::StringValueStrindex(_)) => output.push_str("null"),
        Some(Value::StringValue(text)) => quoted(text, output),
        Some(Value::BytesValue(bytes)) => quoted(&STANDARD.encode(bytes), output),
        Some(Value::ArrayValue(array)) => list(array.values.iter().map(inner), output),
        Some(Value::KvlistValue(map)) => {
            let entries: BTreeMap<&str, Option<&Value>> = map
                .values
                .iter()
                .map(|entry| (entry.key.as_str(), entry.value.as_ref().and_then(inner)))
                .collect();
            output.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                if at > 0 {
                    output.push(',');
                }
                quoted(key, output);
                output.push(':');
                json(value, output);
            }
            output.push('}');
        }
        scalar => output.push_str(&as_text(scalar)),
    }
}

fn inner(value: &AnyValue) -> Option<&Value> {
    value.value.as_ref()
}

fn list<'v>(values: impl Iterator<Item = Option<&'v Value>>, output: &mut String) {
    output.push('[');
    for (at, value) in values.enumerate() {
        if at > 0 {
            output.push(',');
        }
        json(value, output);
    }
    output.push(']');
}

/// Go escapes what HTML would read, too.
fn quoted(text: &str, output: &mut String) {
    output.push('"');
    for character in text.chars() {
        match character {
            '"' => output.push_str("\\\""),
            '\\' => output.push_str("\\\\"),
            '\n' => output.push_str("\\n"),
            '\r' => output.push_str("\\r"),
            '\t' => output.push_str("\\t"),
            '\u{8}' => output.push_str("\\b"),
            '\u{c}' => output.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..'\u{20}' => {
                // Writing to a string does not fail.
                let _ = write!(output, "\\u{:04x}", u32::from(character));
            }
            other => output.push(other),
        }
    }
    output.push('"');
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValue, KeyValueList};

    use super::*;

    #[test]
    fn values_read_as_the_collector_prints_them() {
        let any = |value| AnyValue { value: Some(value) };
        for (number, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (-123456.75, "-123456.75"),
        ] {
            assert_eq!(as_text(Some(&Value::DoubleValue(number))), text);
        }
        assert_eq!(as_text(Some(&Value::BytesValue(b"abc".to_vec()))), "YWJj");
        let entry = |key: &str, value| KeyValue {
            key: key.to_owned(),
            value: Some(any(value)),
            ..KeyValue::default()
        };
        let list = Value::ArrayValue(ArrayValue {
            values: vec![any(Value::IntValue(1)), AnyValue::default()],
        });
        let map = Value::KvlistValue(KeyValueList {
            values: vec![
                entry("z", Value::StringValue("<\"\n".to_owned())),
                entry("a", list),
            ],
        });
        assert_eq!(as_text(Some(&map)), r#"{"a":[1,null],"z":"\u003c\"\n"}"#);
    }
}
