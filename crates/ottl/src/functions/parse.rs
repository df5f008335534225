//! Functions that parse structured texts, and the reverse.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::ParameterKind::{Any, LiteralBool, LiteralText, Text};
use super::lists::unique;
use super::{Arguments, Function, Literals, Parameter, TARGET, TARGET_TEXT};
use crate::value::{DEEPEST, LIST_LEVEL, MAP_LEVEL, Undecided, Value};

const DELIMITER: Parameter = Parameter::optional("delimiter", LiteralText);
const PAIR_DELIMITER: Parameter = Parameter::optional("pair_delimiter", LiteralText);

pub(super) const ALL: &[Function] = &[
    Function::new("ParseJSON", &[TARGET_TEXT], |arguments| {
        let text = arguments.text(0)?;
        if json_elements(text) > MOST_ELEMENTS {
            return Err(TOO_MANY);
        }
        let json = serde_json::from_str(text).map_err(|_| Undecided::NoJson)?;
        match of_json(json, DEEPEST)? {
            value if value.is_list() || value.is_map() => Ok(value),
            _ => Err(Undecided::NoJson),
        }
    }),
    Function::new(
        "ParseKeyValue",
        &[TARGET_TEXT, DELIMITER, PAIR_DELIMITER],
        parse_key_value,
    )
    .checked(delimiters),
    Function::new(
        "ToKeyValueString",
        &[
            TARGET,
            DELIMITER,
            PAIR_DELIMITER,
            Parameter::optional("sort_output", LiteralBool),
        ],
        to_key_value,
    )
    .checked(delimiters),
    Function::new(
        "ParseCSV",
        &[
            TARGET_TEXT,
            Parameter::new("header", Text),
            DELIMITER,
            Parameter::optional("header_delimiter", LiteralText),
            Parameter::optional("mode", LiteralText),
        ],
        parse_csv,
    )
    .checked(csv_options),
    Function::new(
        "ParseSeverity",
        &[TARGET, Parameter::new("mapping", Any)],
        parse_severity,
    ),
];

/// Maximum number of elements that a call makes of a text. An element takes some hundred bytes, although it may have
/// been two bytes of the text.
pub(super) const MOST_ELEMENTS: usize = 100_000;
pub(super) const TOO_MANY: Undecided = Undecided::Because("a text has more than 100,000 elements");

/// Returns the number of elements and entries in a JSON text, or a few more.
fn json_elements(text: &str) -> usize {
    let (mut is_text, mut is_escaped, mut count) = (false, false, 0);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_text,
            b'"' => is_text = !is_text,
            b',' | b'[' | b'{' if !is_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Converts JSON that may have `left` messages in each other. Numbers become doubles, and the keys of objects are sorted.
fn of_json(json: Json, left: usize) -> Result<Value<'static>, Undecided> {
    let below = |level: usize| left.checked_sub(level).ok_or(Undecided::NoJson);
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Bool(value),
        Json::Number(number) => Value::Double(number.as_f64().unwrap_or_default()),
        Json::String(text) => Value::Text(Cow::Owned(text)),
        Json::Array(values) => {
            let left = below(LIST_LEVEL)?;
            let values = values.into_iter().map(|value| of_json(value, left));
            Value::List(values.collect::<Result<_, _>>()?)
        }
        Json::Object(entries) => {
            let left = below(MAP_LEVEL)?;
            let entries = entries
                .into_iter()
                .map(|(key, value)| Ok((Cow::Owned(key), of_json(value, left)?)));
            Value::Map(entries.collect::<Result<_, Undecided>>()?)
        }
    })
}

fn delimiters(literals: &Literals<'_>) -> Result<(), String> {
    let (delimiter, pair) = (
        literals.text(1).unwrap_or("="),
        literals.text(2).unwrap_or(" "),
    );
    if delimiter.is_empty() || pair.is_empty() {
        return Err("a delimiter must not be empty".to_owned());
    }
    match delimiter == pair {
        true => Err("the delimiter and the pair delimiter must differ".to_owned()),
        false => Ok(()),
    }
}

fn parse_key_value<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_PAIRS: Undecided =
        Undecided::Because("ParseKeyValue needs pairs of a key, the delimiter and a value");
    let source = arguments.text(0)?;
    if source.is_empty() {
        return Err(NO_PAIRS);
    }
    let delimiter = arguments.text_or(1, "=")?;
    let pair_delimiter = arguments.text_or(2, " ")?;
    if source.matches(pair_delimiter).nth(MOST_ELEMENTS).is_some() {
        return Err(TOO_MANY);
    }
    let pairs = quoted_parts(source, pair_delimiter).ok_or(NO_PAIRS)?;
    let mut entries = Vec::new();
    for pair in pairs {
        let (key, value) = pair.split_once(delimiter).ok_or(NO_PAIRS)?;
        entries.push((
            Cow::Owned(key.trim().to_owned()),
            Value::owned_text(value.trim().to_owned()),
        ));
    }
    Ok(Value::Map(unique(entries)))
}

/// Splits a text at a delimiter outside of quotes, and removes the quotes; `None` if a quote is not closed.
fn quoted_parts(text: &str, delimiter: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut current = String::new();
    let mut quote = None;
    let mut is_escaped = false;
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        if quote.is_none()
            && let Some(after) = rest.strip_prefix(delimiter)
        {
            if !current.is_empty() {
                parts.push(std::mem::take(&mut current));
            }
            rest = after;
            continue;
        }
        rest = rest.get(next.len_utf8()..).unwrap_or_default();
        if is_escaped {
            is_escaped = false;
        } else {
            if quote.is_none() && matches!(next, '"' | '\'') {
                quote = Some(next);
                continue;
            }
            if quote == Some(next) {
                quote = None;
                continue;
            }
            is_escaped = next == '\\';
        }
        current.push(next);
    }
    if !current.is_empty() {
        parts.push(current);
    }
    quote.is_none().then_some(parts)
}

fn to_key_value<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let mut entries = arguments.map(0)?;
    let delimiter = arguments.text_or(1, "=")?;
    let pair_delimiter = arguments.text_or(2, " ")?;
    if arguments.bool_or(3, false) {
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
    }
    let quoted = |text: &str| {
        let text = text.replace('"', "\\\"");
        match text.contains(pair_delimiter) || text.contains(delimiter) {
            true => format!("\"{text}\""),
            false => text,
        }
    };
    let pairs = entries.iter().map(|(key, value)| {
        let value = value.attribute_text();
        format!("{}{delimiter}{}", quoted(key), quoted(&value))
    });
    let pairs: Vec<String> = pairs.collect();
    Ok(Value::owned_text(pairs.join(pair_delimiter)))
}

fn csv_options(literals: &Literals<'_>) -> Result<(), String> {
    for at in [2, 3] {
        if literals
            .text(at)
            .is_some_and(|text| text.chars().count() != 1)
        {
            return Err("a delimiter must be one character".to_owned());
        }
    }
    match literals.text(4) {
        None | Some("strict" | "lazyQuotes" | "ignoreQuotes") => Ok(()),
        Some(mode) => Err(format!(
            "the mode `{mode}` is not strict, lazyQuotes or ignoreQuotes"
        )),
    }
}

fn parse_csv<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_ROW: Undecided = Undecided::Because("ParseCSV needs a row that fits the header");
    let delimiter = arguments.text_or(2, ",")?;
    let header = arguments.text(1)?;
    if header.is_empty() {
        return Err(NO_ROW);
    }
    let header = header.split(arguments.text_or(3, delimiter)?);
    let row = arguments.text(0)?;
    if row.matches(delimiter).nth(MOST_ELEMENTS).is_some() {
        return Err(TOO_MANY);
    }
    let fields = match arguments.text_or(4, "strict")? {
        "ignoreQuotes" => row.split(delimiter).map(str::to_owned).collect(),
        mode => csv_row(row, delimiter, mode == "lazyQuotes").ok_or(NO_ROW)?,
    };
    let header: Vec<&str> = header.collect();
    if header.len() != fields.len() {
        return Err(NO_ROW);
    }
    let entries = header.into_iter().zip(fields);
    let entries =
        entries.map(|(key, field)| (Cow::Owned(key.to_owned()), Value::owned_text(field)));
    Ok(Value::Map(unique(entries.collect())))
}

/// Reads one row, in which a line break belongs to its field. `None` if the quotes are wrong.
fn csv_row(row: &str, delimiter: &str, is_lazy: bool) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = row;
    if row.is_empty() {
        return None;
    }
    loop {
        let mut field = String::new();
        match rest.strip_prefix('"') {
            Some(quoted) => {
                rest = quoted;
                loop {
                    let at = match rest.find('"') {
                        Some(at) => at,
                        None if is_lazy => {
                            field.push_str(rest);
                            rest = "";
                            break;
                        }
                        None => return None,
                    };
                    field.push_str(rest.get(..at)?);
                    rest = rest.get(at + 1..)?;
                    if let Some(after) = rest.strip_prefix('"') {
                        field.push('"');
                        rest = after;
                    } else if rest.is_empty() || rest.starts_with(delimiter) {
                        break;
                    } else if is_lazy {
                        field.push('"');
                    } else {
                        return None;
                    }
                }
            }
            None => {
                let end = rest.find(delimiter).unwrap_or(rest.len());
                let plain = rest.get(..end)?;
                if !is_lazy && plain.contains('"') {
                    return None;
                }
                field.push_str(plain);
                rest = rest.get(end..)?;
            }
        }
        fields.push(field);
        match rest.strip_prefix(delimiter) {
            Some(after) => rest = after,
            None => return Some(fields),
        }
    }
}

/// Returns the first level of a mapping, in the order of the levels' names, one of whose criteria matches.
fn parse_severity<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_LEVEL: Undecided = Undecided::Because("ParseSeverity has no level for the value");
    let mut levels = arguments.map(1)?;
    levels.sort_by(|(left, _), (right, _)| left.cmp(right));
    let value = arguments.value(0);
    if !matches!(value, Value::Text(_) | Value::Int(_)) {
        return Err(NO_LEVEL);
    }
    for (level, criteria) in levels {
        for criterion in criteria.into_list()? {
            if fits(criterion, value)? {
                return Ok(Value::Text(level));
            }
        }
    }
    Err(NO_LEVEL)
}

fn fits(criterion: Value<'_>, value: &Value<'_>) -> Result<bool, Undecided> {
    let mut matches = false;
    for (name, expected) in criterion.into_map()? {
        matches |= match (&*name, value) {
            ("equals", Value::Text(_)) => {
                let texts = expected.into_list()?;
                texts.iter().any(|text| text.equals(value))
            }
            ("range", Value::Int(number)) => range(expected)?.contains(number),
            _ => false,
        };
    }
    Ok(matches)
}

fn range(expected: Value<'_>) -> Result<std::ops::RangeInclusive<i64>, Undecided> {
    const NO_RANGE: Undecided = Undecided::Because("a range needs min and max, or 2xx to 5xx");
    if let Value::Text(text) = &expected {
        return Ok(match &**text {
            "2xx" => 200..=299,
            "3xx" => 300..=399,
            "4xx" => 400..=499,
            "5xx" => 500..=599,
            _ => return Err(NO_RANGE),
        });
    }
    let entries = expected.into_map()?;
    let bound = |name: &str| {
        let found = entries.iter().find(|(key, _)| key == name);
        match found {
            Some((_, Value::Int(bound))) => Ok(*bound),
            _ => Err(NO_RANGE),
        }
    };
    Ok(bound("min")?..=bound("max")?)
}
