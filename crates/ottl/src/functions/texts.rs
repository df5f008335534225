//! Functions of texts.

use std::borrow::Cow;

use super::ParameterKind::{Any, Int, List, LiteralBool, LiteralText, Pattern, Text};
use super::parse::{MOST_ELEMENTS, TOO_MANY};
use super::{Arguments, Function, Parameter, TARGET, TARGET_TEXT};
use crate::value::{Undecided, Value};

pub(super) const ALL: &[Function] = &[
    Function::new(
        "Concat",
        &[
            Parameter::new("vals", List),
            Parameter::new("delimiter", Text),
        ],
        concat,
    ),
    Function::new(
        "Split",
        &[TARGET_TEXT, Parameter::new("delimiter", Text)],
        split,
    ),
    Function::new(
        "Substring",
        &[
            TARGET_TEXT,
            Parameter::new("start", Int),
            Parameter::new("length", Int),
            Parameter::optional("utf8_safe", LiteralBool),
        ],
        substring,
    ),
    Function::new(
        "Trim",
        &[TARGET_TEXT, Parameter::optional("replacement", LiteralText)],
        |arguments| {
            let characters = arguments.text_or(1, " ")?.to_owned();
            let text = arguments.take_text(0)?;
            let trimmed = text.trim_matches(|found| characters.contains(found));
            Ok(Value::owned_text(trimmed.to_owned()))
        },
    ),
    Function::new(
        "TrimPrefix",
        &[TARGET_TEXT, Parameter::new("prefix", Text)],
        |arguments| {
            let (text, prefix) = (arguments.text(0)?, arguments.text(1)?);
            let rest = text.strip_prefix(prefix).unwrap_or(text);
            Ok(Value::owned_text(rest.to_owned()))
        },
    ),
    Function::new(
        "TrimSuffix",
        &[TARGET_TEXT, Parameter::new("suffix", Text)],
        |arguments| {
            let (text, suffix) = (arguments.text(0)?, arguments.text(1)?);
            let rest = text.strip_suffix(suffix).unwrap_or(text);
            Ok(Value::owned_text(rest.to_owned()))
        },
    ),
    Function::new(
        "HasPrefix",
        &[TARGET_TEXT, Parameter::new("prefix", Text)],
        |arguments| {
            let starts = arguments.text(0)?.starts_with(arguments.text(1)?);
            Ok(Value::Bool(starts))
        },
    ),
    Function::new(
        "HasSuffix",
        &[TARGET_TEXT, Parameter::new("suffix", Text)],
        |arguments| {
            let ends = arguments.text(0)?.ends_with(arguments.text(1)?);
            Ok(Value::Bool(ends))
        },
    ),
    Function::new(
        "IsMatch",
        &[TARGET, Parameter::new("pattern", Pattern)],
        |arguments| {
            let pattern = arguments.pattern(1)?;
            let text = arguments.take(0).into_text()?;
            Ok(Value::Bool(
                text.is_some_and(|text| pattern.is_match(&text)),
            ))
        },
    ),
    Function::new(
        "ExtractPatterns",
        &[TARGET_TEXT, Parameter::new("pattern", Pattern)],
        extract_patterns,
    ),
    Function::new("Len", &[TARGET], |arguments| {
        arguments.value(0).len().map(Value::Int)
    }),
    Function::new("Index", &[TARGET, Parameter::new("value", Any)], index),
    Function::new(
        "Format",
        &[
            Parameter::new("format", LiteralText),
            Parameter::new("vals", List),
        ],
        format,
    ),
];

fn concat<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let values = arguments.list(0)?;
    let delimiter = arguments.text(1)?;
    let mut joined = String::new();
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            joined.push_str(delimiter);
        }
        // The Collector's text for a missing value.
        joined.push_str(&value.into_text()?.unwrap_or(Cow::Borrowed("<nil>")));
    }
    Ok(Value::owned_text(joined))
}

fn split<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let (text, delimiter) = (arguments.text(0)?, arguments.text(1)?);
    let part = |part: &str| Value::owned_text(part.to_owned());
    if text.matches(delimiter).nth(MOST_ELEMENTS).is_some() {
        return Err(TOO_MANY);
    }
    Ok(Value::List(match delimiter {
        // As in Go, an empty delimiter separates all characters.
        "" => text
            .split("")
            .filter(|part| !part.is_empty())
            .map(part)
            .collect(),
        delimiter => text.split(delimiter).map(part).collect(),
    }))
}

fn substring<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let position = |number: i64| usize::try_from(number).map_err(|_| Undecided::NoPart);
    let (mut start, length) = (position(arguments.int(1)?)?, position(arguments.int(2)?)?);
    let is_safe = arguments.bool_or(3, false);
    let text = arguments.take_text(0)?;
    let mut end = start
        .checked_add(length)
        .filter(|end| length > 0 && *end <= text.len())
        .ok_or(Undecided::NoPart)?;
    if is_safe {
        while !text.is_char_boundary(start) {
            start += 1;
        }
        while start < end && !text.is_char_boundary(end) {
            end -= 1;
        }
        end = end.max(start);
    }
    let part = text.get(start..end);
    part.map(|part| Value::owned_text(part.to_owned()))
        .ok_or(Undecided::NoPart)
}

fn extract_patterns<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let pattern = arguments.pattern(1)?;
    if pattern.capture_names().flatten().next().is_none() {
        return Err(Undecided::Because("the pattern has no named group"));
    }
    let text = arguments.text(0)?;
    let mut entries: Vec<(Cow<'v, str>, Value<'v>)> = Vec::new();
    if let Some(captures) = pattern.captures(text) {
        for (at, name) in pattern.capture_names().enumerate() {
            let Some(name) = name else { continue };
            let found = captures.get(at).map_or("", |found| found.as_str());
            entries.push((Cow::Borrowed(name), Value::owned_text(found.to_owned())));
        }
    }
    Ok(Value::Map(entries))
}

fn index<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let found = match arguments.value(0) {
        Value::Text(text) => text.find(arguments.text(1)?),
        _ => {
            let values = arguments.list(0)?;
            let mut values = values.iter();
            values.position(|value| value.equals(arguments.value(1)))
        }
    };
    let at = found.and_then(|at| i64::try_from(at).ok());
    Ok(Value::Int(at.unwrap_or(-1)))
}

/// Formats values by the verbs of Go's `fmt` that telemetry needs: `%s`, `%v`, `%q`, `%d`, `%x`, `%X`, `%f`, `%e`,
/// `%g`, `%t` and `%%`, with width, precision and the flags `-`, `+` and `0`.
fn format<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let mut values = arguments.list(1)?.into_iter();
    let format = arguments.text(0)?;
    let mut output = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        output.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at + 1..).unwrap_or_default();
        let end = rest
            .find(|next: char| !matches!(next, '0'..='9' | '.' | '-' | '+' | '#' | ' '))
            .unwrap_or(rest.len());
        let flags = rest.get(..end).unwrap_or_default();
        let Some(verb) = rest.get(end..).and_then(|rest| rest.chars().next()) else {
            output.push_str("%!(NOVERB)");
            rest = "";
            break;
        };
        rest = rest.get(end + verb.len_utf8()..).unwrap_or_default();
        match verb {
            '%' => output.push('%'),
            verb => match values.next() {
                Some(value) => output.push_str(&verbatim(verb, flags, value)?),
                None => {
                    output.push_str("%!");
                    output.push(verb);
                    output.push_str("(MISSING)");
                }
            },
        }
    }
    output.push_str(rest);
    if values.next().is_some() {
        return Err(Undecided::Because("Format has more values than verbs"));
    }
    Ok(Value::owned_text(output))
}

/// Maximum number of digits after the point in `Format`. The standard library panics above 65,535.
const MOST_DECIMALS: usize = 1000;

fn verbatim(verb: char, flags: &str, value: Value<'_>) -> Result<String, Undecided> {
    let number = |text: &str| text.parse::<usize>().ok();
    let signs = flags.trim_end_matches(|next: char| matches!(next, '1'..='9' | '.') || next == '0');
    let digits = flags.get(signs.len()..).unwrap_or_default();
    let is_padded = digits.starts_with('0');
    let (width, precision) = digits.split_once('.').unwrap_or((digits, ""));
    let (width, precision) = (number(width).unwrap_or(0), number(precision));
    let decimals = precision.unwrap_or(6).min(MOST_DECIMALS);
    // A verb that does not fit its value shows the type and the value.
    let unfit = |value: Value<'_>| -> Result<String, Undecided> {
        let kind = match &value {
            Value::Nil => return Ok(format!("%!{verb}(<nil>)")),
            Value::Text(_) => "string",
            Value::Int(_) => "int64",
            Value::Double(_) => "float64",
            Value::Bool(_) => "bool",
            _ => {
                return Err(Undecided::Because(
                    "a value does not fit its verb in Format",
                ));
            }
        };
        Ok(format!("%!{verb}({kind}={})", verbatim('v', flags, value)?))
    };
    let mut text = match (verb, value) {
        ('d' | 'v', Value::Int(value)) => value.to_string(),
        ('x', Value::Int(value)) => format!("{value:x}"),
        ('X', Value::Int(value)) => format!("{value:X}"),
        ('f', Value::Double(value)) => format!("{value:.decimals$}"),
        ('e', Value::Double(value)) => exponent(value, decimals),
        ('v' | 'g', Value::Double(value)) => shortest(value),
        ('t' | 'v', Value::Bool(value)) => value.to_string(),
        ('v', Value::Nil) => "<nil>".to_owned(),
        ('s' | 'v', Value::Text(text)) => match precision {
            Some(precision) => text.chars().take(precision).collect(),
            None => text.into_owned(),
        },
        ('q', Value::Text(text)) => format!("{text:?}"),
        ('x', Value::Text(text)) => crate::value::hexadecimal(text.as_bytes()),
        ('x', Value::Bytes(bytes)) => crate::value::hexadecimal(&bytes),
        ('s', Value::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        ('s' | 'v', value) if value.is_list() || value.is_map() => {
            return Err(Undecided::Because("Format does not support lists and maps"));
        }
        (_, value) => return unfit(value),
    };
    let is_number = matches!(verb, 'd' | 'f' | 'e' | 'g' | 'x' | 'X' | 'v');
    if signs.contains('+') && matches!(verb, 'd' | 'f' | 'e' | 'g') && !text.starts_with('-') {
        text.insert(0, '+');
    }
    // A width from a configuration is small, but it multiplies with the number of items.
    let lacking = width.min(1000).saturating_sub(text.chars().count());
    let padding = |fill: &str| fill.repeat(lacking);
    Ok(match () {
        () if signs.contains('-') => text + &padding(" "),
        () if is_padded && is_number => {
            let sign = usize::from(text.starts_with(['-', '+']));
            text.insert_str(sign, &padding("0"));
            text
        }
        () => padding(" ") + &text,
    })
}

/// Formats a number like Go's verb `%e`.
fn exponent(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// Formats a number like Go's verb `%v`.
pub(super) fn shortest(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ if value != 0.0 && !(1e-4..1e6).contains(&value.abs()) => {
            let text = format!("{value:e}");
            match text.split_once('e') {
                Some((digits, exponent)) => {
                    let sign = if exponent.starts_with('-') { '-' } else { '+' };
                    let exponent = exponent.trim_start_matches('-');
                    format!("{digits}e{sign}{exponent:0>2}")
                }
                None => text,
            }
        }
        _ => value.to_string(),
    }
}
