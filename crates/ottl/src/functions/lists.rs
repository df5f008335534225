//! Functions of lists and maps.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::ParameterKind::{Any, LiteralText, LiteralTexts};
use super::{Arguments, Function, Literals, Parameter, TARGET};
use crate::value::{Undecided, Value};

pub(super) const ALL: &[Function] = &[
    Function::new(
        "ContainsValue",
        &[TARGET, Parameter::new("item", Any)],
        |arguments| {
            let values = arguments.list(0)?;
            let item = arguments.value(1);
            Ok(Value::Bool(values.iter().any(|value| value.equals(item))))
        },
    ),
    Function::new("Keys", &[TARGET], |arguments| {
        let entries = arguments.map(0)?.into_iter();
        Ok(Value::List(
            entries.map(|(key, _)| Value::Text(key)).collect(),
        ))
    }),
    Function::new("Values", &[TARGET], |arguments| {
        let entries = arguments.map(0)?.into_iter();
        Ok(Value::List(entries.map(|(_, value)| value).collect()))
    }),
    Function::new(
        "Sort",
        &[TARGET, Parameter::optional("order", LiteralText)],
        sort,
    )
    .checked(order),
    Function::new(
        "SliceToMap",
        &[
            TARGET,
            Parameter::optional("key_path", LiteralTexts),
            Parameter::optional("value_path", LiteralTexts),
        ],
        slice_to_map,
    ),
];

fn order(literals: &Literals<'_>) -> Result<(), String> {
    match literals.text(1) {
        Some("asc" | "desc") | None => Ok(()),
        Some(other) => Err(format!("the order `{other}` is not asc or desc")),
    }
}

/// Sorts a list of comparable values. Numbers of both types are compared as numbers, and a list with a text or a boolean
/// is compared as texts. A list with another value keeps its order.
fn sort<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let is_descending = arguments.text_or(1, "asc")? == "desc";
    let values = arguments.list(0)?;
    let is_text = |value: &Value<'_>| matches!(value, Value::Text(_) | Value::Bool(_) | Value::Nil);
    let is_number = |value: &Value<'_>| matches!(value, Value::Int(_) | Value::Double(_));
    if !values
        .iter()
        .all(|value| is_text(value) || is_number(value))
    {
        return Ok(Value::List(values));
    }
    let mut sorted = values;
    if sorted.iter().any(is_text) {
        sorted.sort_by(|left, right| {
            let order = left.attribute_text().cmp(&right.attribute_text());
            if is_descending {
                order.reverse()
            } else {
                order
            }
        });
    } else {
        // Two whole numbers that differ may equal the same double, so one rule for all pairs is needed.
        let is_whole = sorted.iter().all(|value| matches!(value, Value::Int(_)));
        sorted.sort_by(|left, right| {
            let order = numbers(left, right, is_whole);
            if is_descending {
                order.reverse()
            } else {
                order
            }
        });
    }
    Ok(Value::List(sorted))
}

fn numbers(left: &Value<'_>, right: &Value<'_>, is_whole: bool) -> Ordering {
    let double = |value: &Value<'_>| match value {
        Value::Int(value) => *value as f64,
        Value::Double(value) => *value,
        _ => 0.0,
    };
    match (left, right) {
        (Value::Int(left), Value::Int(right)) if is_whole => left.cmp(right),
        (left, right) => {
            let (left, right) = (double(left), double(right));
            // As in Go, a value that is not a number comes first.
            let order = left.partial_cmp(&right);
            order.unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
        }
    }
}

fn slice_to_map<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let path = |value: Value<'v>| -> Result<Option<Vec<String>>, Undecided> {
        match value {
            Value::Nil => Ok(None),
            value => value
                .into_list()?
                .iter()
                .map(|name| name.plain_text().map(str::to_owned))
                .collect::<Result<_, _>>()
                .map(Some),
        }
    };
    let key_path = path(arguments.take(1))?;
    let value_path = path(arguments.take(2))?;
    let mut entries: Vec<(Cow<'v, str>, Value<'v>)> = Vec::new();
    for (at, element) in arguments.list(0)?.into_iter().enumerate() {
        let key = match &key_path {
            None => Cow::Owned(at.to_string()),
            Some(path) => match at_path(element.clone(), path)? {
                Value::Text(text) => text,
                _ => return Err(Undecided::NoText),
            },
        };
        let value = match &value_path {
            None if key_path.is_some() && !element.is_map() => return Err(Undecided::NoMap),
            None => element,
            Some(path) => at_path(element, path)?,
        };
        entries.push((key, value));
    }
    Ok(Value::Map(unique(entries)))
}

fn at_path<'v>(value: Value<'v>, path: &[String]) -> Result<Value<'v>, Undecided> {
    if path.is_empty() {
        return Err(Undecided::NoKeys);
    }
    path.iter().try_fold(value, |value, name| {
        let entries = value.into_map()?;
        let found = entries.into_iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value).ok_or(Undecided::NoKeys)
    })
}

/// Keeps the last value of each key, at the position of the first.
pub(super) fn unique<'v>(
    entries: Vec<(Cow<'v, str>, Value<'v>)>,
) -> Vec<(Cow<'v, str>, Value<'v>)> {
    let mut positions = std::collections::HashMap::new();
    let mut unique: Vec<(Cow<'v, str>, Value<'v>)> = Vec::new();
    for (key, value) in entries {
        let at = *positions.entry(key.clone()).or_insert(unique.len());
        match unique.get_mut(at) {
            Some((_, known)) => *known = value,
            None => unique.push((key, value)),
        }
    }
    unique
}

/// Appends values to a list, or to a list of one scalar.
pub(crate) fn append<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Vec<Value<'v>>, Undecided> {
    let mut values = match arguments.take(0) {
        Value::Nil => Vec::new(),
        value if value.is_list() => value.into_list()?,
        value if value.is_map() => return Err(Undecided::NoList),
        value => vec![value],
    };
    if arguments.get(1).is_some() {
        values.push(arguments.take(1));
    }
    if arguments.get(2).is_some() {
        values.extend(arguments.list(2)?);
    }
    Ok(values)
}

/// Removes the elements from one index to before another.
pub(crate) fn delete_index<'v>(
    arguments: &mut Arguments<'_, 'v>,
) -> Result<Vec<Value<'v>>, Undecided> {
    let position = |value: i64| usize::try_from(value).map_err(|_| Undecided::NoPosition);
    let start = position(arguments.int(1)?)?;
    let end = match arguments.get(2) {
        Some(_) => position(arguments.int(2)?)?,
        None => start.saturating_add(1),
    };
    let mut values = arguments.list(0)?;
    if start == 0 && end == values.len() {
        return Ok(Vec::new());
    }
    if start >= values.len() || end < start || end > values.len() {
        return Err(Undecided::NoPosition);
    }
    values.drain(start..end);
    Ok(values)
}
