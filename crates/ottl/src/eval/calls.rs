//! Functions of values.

use std::borrow::Cow;
use std::time::SystemTime;

use serde_json::Value as Json;

use crate::Function;
use crate::path::Key;
use crate::value::{Undecided, Value};

/// Applies a function to its arguments, and looks up the keys in the result.
pub(super) fn call<'v>(
    function: Function,
    arguments: &[Value<'v>],
    keys: &[Key],
) -> Result<Value<'v>, Undecided> {
    let first = || arguments.first().cloned().unwrap_or(Value::Nil);
    let value = match function {
        Function::Concat => concat(arguments)?,
        Function::ParseJson => return parse_json(first().plain_text()?, keys),
        Function::Now => Value::Time(now()),
        Function::ToLowerCase => Value::Text(first().plain_text()?.to_lowercase().into()),
        Function::ToUpperCase => Value::Text(first().plain_text()?.to_uppercase().into()),
        Function::String => first().text().map_or(Value::Nil, Value::Text),
        Function::Int => int(first())?,
        Function::Double => double(first())?,
        Function::Substring => substring(arguments)?,
    };
    match keys {
        [] => Ok(value),
        _ => Err(Undecided::NoKeys),
    }
}

/// Returns the current time in nanoseconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX))
}

fn concat<'v>(arguments: &[Value<'v>]) -> Result<Value<'v>, Undecided> {
    let [Value::List(values), delimiter] = arguments else {
        return Err(Undecided::NoList);
    };
    let delimiter = delimiter.plain_text()?;
    // The Collector's text for a missing value.
    let texts = values.iter().cloned();
    let texts: Vec<Cow<'_, str>> = texts
        .map(|value| value.text().unwrap_or("<nil>".into()))
        .collect();
    Ok(Value::Text(Cow::Owned(texts.join(delimiter))))
}

fn parse_json(text: &str, keys: &[Key]) -> Result<Value<'static>, Undecided> {
    let mut json: Json = serde_json::from_str(text).map_err(|_| Undecided::NoJson)?;
    if !(json.is_object() || json.is_array()) {
        return Err(Undecided::NoJson);
    }
    for key in keys {
        let found = match (&mut json, key) {
            (Json::Object(entries), Key::Name(name)) => {
                entries.get_mut(name).ok_or(Undecided::NoKeys)?
            }
            (Json::Array(values), Key::Position(at)) => {
                let at = usize::try_from(*at).map_err(|_| Undecided::NoPosition)?;
                values.get_mut(at).ok_or(Undecided::NoPosition)?
            }
            (_, Key::Name(_)) => return Err(Undecided::NoKeys),
            (_, Key::Position(_)) => return Err(Undecided::NoPosition),
        };
        json = found.take();
    }
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => Value::Double(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::Text(Cow::Owned(text)),
        json => Value::Json(json),
    })
}

/// Converts to a whole number as Go does: fractions are cut off, and decimal texts are parsed.
fn int(value: Value<'_>) -> Result<Value<'_>, Undecided> {
    Ok(match value {
        Value::Int(value) => Value::Int(value),
        #[allow(clippy::cast_possible_truncation)] // What is asked for.
        Value::Double(value) => Value::Int(value as i64),
        Value::Bool(value) => Value::Int(value.into()),
        Value::Text(text) => text.parse().map_or(Value::Nil, Value::Int),
        Value::Nil => Value::Nil,
        _ => return Err(Undecided::NoNumber),
    })
}

fn double(value: Value<'_>) -> Result<Value<'_>, Undecided> {
    Ok(match value {
        Value::Double(value) => Value::Double(value),
        Value::Int(value) => Value::Double(value as f64),
        Value::Bool(value) => Value::Double(u8::from(value).into()),
        Value::Text(text) => text.parse().map_or(Value::Nil, Value::Double),
        Value::Nil => Value::Nil,
        _ => return Err(Undecided::NoNumber),
    })
}

fn substring<'v>(arguments: &[Value<'v>]) -> Result<Value<'v>, Undecided> {
    let [text, Value::Int(start), Value::Int(length)] = arguments else {
        return Err(Undecided::NoText);
    };
    let position = |number: i64| usize::try_from(number).map_err(|_| Undecided::NoPart);
    let (start, length) = (position(*start)?, position(*length)?);
    let end = start.checked_add(length).filter(|_| length > 0);
    let part = end.and_then(|end| text.plain_text().ok()?.get(start..end).map(str::to_owned));
    text.plain_text()?;
    part.map(|part| Value::Text(Cow::Owned(part)))
        .ok_or(Undecided::NoPart)
}

impl<'a> Value<'a> {}
