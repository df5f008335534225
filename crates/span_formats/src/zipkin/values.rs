//! Values of tags that may be numbers or booleans.

use std::borrow::Cow;

use crate::attributes::Value;

/// Converts a text to an integer, a floating-point number or a boolean if it looks like one and `parse` is set.
pub(super) fn value(text: Cow<'_, str>, parse: bool) -> Value<'_> {
    let parsed = parse.then(|| parsed(&text)).flatten();
    parsed.unwrap_or(Value::Text(text))
}

fn parsed(text: &str) -> Option<Value<'static>> {
    match text {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match unsigned.split_once('.') {
        // A number out of range becomes the nearest one, as in the Collector.
        None if is_digits(unsigned) => Some(Value::Int(match text.parse() {
            Ok(value) => value,
            Err(_) if text.starts_with('-') => i64::MIN,
            Err(_) => i64::MAX,
        })),
        Some((whole, fraction)) if is_digits(whole) && is_digits(fraction) => {
            text.parse().ok().map(Value::Double)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_parsed_by_their_form() {
        for (text, expected) in [
            ("", Value::Text("".into())),
            ("-12", Value::Int(-12)),
            ("+1", Value::Text("+1".into())),
            ("99999999999999999999", Value::Int(i64::MAX)),
            ("-99999999999999999999", Value::Int(i64::MIN)),
            ("1.50", Value::Double(1.5)),
            ("1.", Value::Text("1.".into())),
            ("1e3", Value::Text("1e3".into())),
            ("true", Value::Bool(true)),
            ("True", Value::Text("True".into())),
        ] {
            assert_eq!(value(text.into(), true), expected);
            assert_eq!(value(text.into(), false), Value::Text(text.into()));
        }
    }
}
