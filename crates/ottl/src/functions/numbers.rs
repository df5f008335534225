//! Functions that convert between scalars.

use super::ParameterKind::{Int, Text};
use super::{Arguments, Function, Parameter, TARGET, TARGET_TEXT};
use crate::value::{Undecided, Value};

const NOT_CONVERTIBLE: Undecided = Undecided::Because("a value cannot be converted");

pub(super) const ALL: &[Function] = &[
    Function::new("String", &[TARGET], |arguments| {
        let text = arguments.take(0).into_text()?;
        Ok(text.map_or(Value::Nil, Value::Text))
    }),
    Function::new("Int", &[TARGET], |arguments| {
        Ok(match arguments.take(0) {
            Value::Int(value) => Value::Int(value),
            Value::Double(value) => Value::Int(truncated(value)),
            Value::Bool(value) => Value::Int(value.into()),
            Value::Text(text) => Value::Int(text.parse().map_err(|_| NOT_CONVERTIBLE)?),
            Value::Nil => Value::Nil,
            _ => return Err(NOT_CONVERTIBLE),
        })
    }),
    Function::new("Double", &[TARGET], |arguments| {
        let value = double(arguments.take(0))?;
        Ok(value.map_or(Value::Nil, Value::Double))
    }),
    Function::new("Bool", &[TARGET], |arguments| {
        Ok(match arguments.take(0) {
            Value::Bool(value) => Value::Bool(value),
            Value::Int(value) => Value::Bool(value != 0),
            Value::Double(value) => Value::Bool(value != 0.0),
            Value::Text(text) => Value::Bool(match &*text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
                "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
                _ => return Err(NOT_CONVERTIBLE),
            }),
            Value::Nil => Value::Nil,
            _ => return Err(NOT_CONVERTIBLE),
        })
    }),
    Function::new("Log", &[TARGET], |arguments| {
        match double(arguments.take(0))? {
            Some(value) if value > 0.0 || value.is_nan() => Ok(Value::Double(value.ln())),
            _ => Err(Undecided::Because("Log needs a number above zero")),
        }
    }),
    Function::new(
        "ParseInt",
        &[TARGET_TEXT, Parameter::new("base", Int)],
        parse_int,
    ),
    Function::new(
        "IsValidLuhn",
        &[Parameter::new("target", Text)],
        is_valid_luhn,
    ),
];

/// Cuts off the fraction. As in Go on common processors, a value out of range becomes the smallest number.
#[allow(clippy::cast_possible_truncation)] // The range is checked.
fn truncated(value: f64) -> i64 {
    match (-9.223_372_036_854_775_8e18..9.223_372_036_854_775_8e18).contains(&value) {
        true => value as i64,
        false => i64::MIN,
    }
}

/// Converts to a number; `None` for `nil`.
fn double(value: Value<'_>) -> Result<Option<f64>, Undecided> {
    Ok(Some(match value {
        Value::Double(value) => value,
        Value::Int(value) => value as f64,
        Value::Bool(value) => u8::from(value).into(),
        Value::Text(text) => {
            let value: f64 = text.parse().map_err(|_| NOT_CONVERTIBLE)?;
            let is_word = text.contains(['i', 'I']);
            if value.is_infinite() && !is_word {
                return Err(NOT_CONVERTIBLE);
            }
            value
        }
        Value::Nil => return Ok(None),
        _ => return Err(NOT_CONVERTIBLE),
    }))
}

/// Parses a number like Go's `strconv.ParseInt`: base 0 reads the base from a prefix.
fn parse_int<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    const NO_NUMBER: Undecided = Undecided::Because("ParseInt needs a number in its base");
    let text = arguments.text(0)?;
    let base = u32::try_from(arguments.int(1)?).map_err(|_| NO_NUMBER)?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.starts_with(['+', '-']) {
        return Err(NO_NUMBER);
    }
    let (base, digits) = match base {
        0 => {
            let lower = digits.to_ascii_lowercase();
            let digits = lower.replace('_', "");
            let prefixed = |prefix: &str, base: u32| {
                let rest = digits.strip_prefix(prefix);
                rest.map(|rest| (base, rest.to_owned()))
            };
            prefixed("0x", 16)
                .or_else(|| prefixed("0b", 2))
                .or_else(|| prefixed("0o", 8))
                .or_else(|| prefixed("0", 8).filter(|(_, rest)| !rest.is_empty()))
                .unwrap_or((10, digits.clone()))
        }
        base => (base, digits.to_owned()),
    };
    if !(2..=36).contains(&base) {
        return Err(NO_NUMBER);
    }
    let number = i64::from_str_radix(&format!("{sign}{digits}"), base);
    number.map(Value::Int).map_err(|_| NO_NUMBER)
}

fn is_valid_luhn<'v>(arguments: &mut Arguments<'_, 'v>) -> Result<Value<'v>, Undecided> {
    let text = arguments.take(0).into_text()?;
    let text = text.ok_or(Undecided::NoText)?.replace(' ', "");
    let digits = text.chars().rev().map(|digit| digit.to_digit(10));
    let digits: Option<Vec<u32>> = digits.collect();
    let digits = digits.ok_or(Undecided::Because("IsValidLuhn needs digits"))?;
    if digits.is_empty() {
        return Ok(Value::Bool(false));
    }
    let sum: u32 = digits
        .iter()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => *digit,
            (_, doubled @ 0..=9) => doubled,
            (_, doubled) => doubled - 9,
        })
        .sum();
    Ok(Value::Bool(sum.is_multiple_of(10)))
}
