//! Text of values, as functions such as `String` and `IsMatch` see it (contrib, `StandardStringLikeGetter`).

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{Moment, Undecided, Value};
use crate::calendar;
use tributary_otlp::view::{AnyValue, text_of};

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl<'a> Value<'a> {
    /// Returns the text; `None` for `nil`. Lists, maps, times and ids are JSON.
    pub(crate) fn into_text(self) -> Result<Option<Cow<'a, str>>, Undecided> {
        Ok(Some(match self {
            Value::Nil => return Ok(None),
            Value::Text(text) => text,
            Value::Bytes(bytes) => Cow::Owned(hexadecimal(&bytes)),
            // The Collector's JSON of an id is a list of its bytes.
            Value::Id(id) => Cow::Owned(format!("{id:?}").replace(' ', "")),
            Value::Bool(value) => AnyValue::Bool(value).to_text(),
            Value::Int(value) | Value::Duration(value) => AnyValue::Int(value).to_text(),
            Value::Double(value) if !value.is_finite() => {
                return Err(Undecided::Because("a number is not finite"));
            }
            Value::Double(value) => Cow::Owned(double(value)),
            Value::Time(time) => Cow::Owned(format!("\"{}\"", rfc3339(time))),
            value @ (Value::List(_) | Value::Map(_) | Value::Encoded(_)) => {
                let text = text_of(&value.proto()).into_owned();
                if text.is_empty() {
                    return Err(Undecided::Because("a number is not finite"));
                }
                Cow::Owned(escaped(&text))
            }
            Value::Messages(_) | Value::Pattern(_) => {
                return Err(Undecided::Because("a value has no text"));
            }
        }))
    }

    /// Returns the text by the rules for values of attributes: numbers that are not finite have a text, too.
    pub(crate) fn attribute_text(&self) -> Cow<'_, str> {
        match self {
            Value::Text(text) => Cow::Borrowed(text),
            value => Cow::Owned(text_of(&value.proto()).into_owned()),
        }
    }
}

/// Formats a number like the Collector's JSON encoder, whose negative exponents have two digits.
fn double(value: f64) -> String {
    let text = AnyValue::Double(value).to_text();
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text.into_owned(),
    }
}

/// Escapes the characters that Go's JSON encoder escapes for HTML.
fn escaped(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Formats a time as Go's JSON encoder does.
fn rfc3339(time: Moment) -> String {
    let date = calendar::Date::of(time);
    let mut text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        date.year, date.month, date.day, date.hour, date.minute, date.second
    );
    if date.nanosecond > 0 {
        let digits = format!(".{:09}", date.nanosecond);
        text.push_str(digits.trim_end_matches('0'));
    }
    match time.offset {
        0 => text.push('Z'),
        offset => text.push_str(&calendar::offset(offset, ":")),
    }
    text
}
