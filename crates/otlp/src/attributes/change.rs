//! Derives new values from old ones, like the Collector's attributes processor.

use std::fmt::Write as _;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use regex::Regex;
use ring::digest::{SHA256, digest};

use crate::view;
use crate::view::{Message, View as _};

/// Target type of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    /// A text: numbers in decimal digits, bytes in base64, lists and maps as JSON.
    String,
    /// An integer, from a number (truncated), a boolean, or decimal digits.
    Int,
    /// A floating-point number, from a number, a boolean, or a decimal number.
    Double,
}

/// Applies `change` to a decoded value and encodes the result.
pub(super) fn encoded(
    value: Option<&AnyValue>,
    change: impl Fn(view::AnyValue<'_>) -> Option<Value>,
) -> Option<Value> {
    let value = value.map(AnyValue::encode_to_vec).unwrap_or_default();
    change(view::AnyValue::view(Message::new(&value)))
}

/// See [`Operation::Hash`](super::Operation::Hash).
pub(super) fn hashed(value: view::AnyValue<'_>) -> Value {
    let sum = |bytes: &[u8]| {
        let mut text = String::with_capacity(64);
        for byte in digest(&SHA256, bytes).as_ref() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    };
    Value::StringValue(match value {
        view::AnyValue::String(text) => sum(text.as_bytes()),
        view::AnyValue::Bool(value) => sum(&[u8::from(value)]),
        view::AnyValue::Int(value) => sum(&value.to_le_bytes()),
        view::AnyValue::Double(value) => sum(&value.to_bits().to_le_bytes()),
        _ => String::new(),
    })
}

/// Converts a value; `None` if it already has the type or cannot be converted.
pub(super) fn converted(value: view::AnyValue<'_>, to: Type) -> Option<Value> {
    use view::AnyValue::{Bool, Double, Int, String};
    Some(match (to, value) {
        (Type::String, String(_)) | (Type::Int, Int(_)) | (Type::Double, Double(_)) => return None,
        (Type::String, value) => Value::StringValue(value.to_text().into_owned()),
        #[allow(clippy::cast_possible_truncation)] // A value outside of the range saturates.
        (Type::Int, Double(value)) => Value::IntValue(value as i64),
        (Type::Int, Bool(value)) => Value::IntValue(value.into()),
        (Type::Int, String(text)) => Value::IntValue(text.parse().ok()?),
        (Type::Double, Int(value)) => Value::DoubleValue(value as f64),
        (Type::Double, Bool(value)) => Value::DoubleValue(f64::from(u8::from(value))),
        (Type::Double, String(text)) => Value::DoubleValue(double(text)?),
        _ => return None,
    })
}

/// Parses a decimal number; `None` if it exceeds the range.
fn double(text: &str) -> Option<f64> {
    let value: f64 = text.parse().ok()?;
    let is_word = text.contains(['i', 'I']);
    (value.is_finite() || value.is_nan() || is_word).then_some(value)
}

/// Returns the named groups of the first match with their texts; empty texts for groups without a match.
pub(super) fn extracted(pattern: &Regex, text: &str) -> Vec<(String, String)> {
    let Some(captures) = pattern.captures(text) else {
        return Vec::new();
    };
    let names = pattern.capture_names().enumerate();
    names
        .filter_map(|(at, name)| {
            let text = captures.get(at).map_or("", |found| found.as_str());
            Some((name?.to_owned(), text.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn viewed(value: Value, change: impl Fn(view::AnyValue<'_>) -> Option<Value>) -> Option<Value> {
        encoded(Some(&AnyValue { value: Some(value) }), change)
    }

    fn text(text: &str) -> Value {
        Value::StringValue(text.to_owned())
    }

    /// Expected values come from the Collector's processor (contrib 0.156).
    #[test]
    fn hashes_match_collector() {
        for (value, expected) in [
            (
                text("jane"),
                "81f8f6dde88365f3928796ec7aa53f72820b06db8664f5fe76a7eb13e24546a2",
            ),
            (
                Value::IntValue(42),
                "ed049108bc18f2c64369e8d0ea42850bdd1a7d1dd340cfde716315579702a76c",
            ),
            (
                Value::DoubleValue(1.5),
                "e163f8cb0f7067a7fc78ca859a77f849aea3214f38fb75b884e4a16be725c905",
            ),
            (
                Value::BoolValue(true),
                "4bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a",
            ),
            (Value::BytesValue(vec![1]), ""),
        ] {
            let hash = viewed(value.clone(), |value| Some(hashed(value)));
            assert_eq!(hash, Some(text(expected)), "{value:?}");
        }
    }

    #[test]
    fn conversions_match_collector() {
        let convert = |value: Value, to| viewed(value, |value| converted(value, to));
        for (value, to, expected) in [
            (Value::IntValue(-7), Type::String, Some(text("-7"))),
            (Value::DoubleValue(1.0), Type::String, Some(text("1"))),
            (Value::DoubleValue(1e21), Type::String, Some(text("1e+21"))),
            (
                Value::DoubleValue(1.5e-7),
                Type::String,
                Some(text("1.5e-7")),
            ),
            (Value::BoolValue(true), Type::String, Some(text("true"))),
            (
                Value::BytesValue(vec![1, 2]),
                Type::String,
                Some(text("AQI=")),
            ),
            (text("x"), Type::String, None),
            (text("+42"), Type::Int, Some(Value::IntValue(42))),
            (text("42.5"), Type::Int, None),
            (
                Value::DoubleValue(-2.9),
                Type::Int,
                Some(Value::IntValue(-2)),
            ),
            (Value::BoolValue(true), Type::Int, Some(Value::IntValue(1))),
            (Value::BytesValue(vec![]), Type::Int, None),
            (text("1e3"), Type::Double, Some(Value::DoubleValue(1000.0))),
            (text("1e999"), Type::Double, None),
            (text("many"), Type::Double, None),
            (
                Value::IntValue(3),
                Type::Double,
                Some(Value::DoubleValue(3.0)),
            ),
        ] {
            assert_eq!(convert(value.clone(), to), expected, "{value:?} {to:?}");
        }
    }

    #[test]
    fn group_without_match_extracts_empty_text() {
        let pattern = Regex::new("^(?P<user>[a-z]+)(@(?P<host>.+))?$").unwrap();
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(
            extracted(&pattern, "jane"),
            [pair("user", "jane"), pair("host", "")]
        );
        assert!(extracted(&pattern, "42").is_empty());
    }
}
