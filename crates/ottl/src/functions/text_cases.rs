//! Functions that change the case of texts. `ToCamelCase` and `ToSnakeCase` follow the library `strcase` for Go, which
//! the Collector uses.

use super::ParameterKind::LiteralText;
use super::{Function, Literals, Parameter, TARGET_TEXT};
use crate::value::Value;

pub(super) const ALL: &[Function] = &[
    Function::new("ToLowerCase", &[TARGET_TEXT], |arguments| {
        Ok(Value::owned_text(lower(arguments.text(0)?)))
    }),
    Function::new("ToUpperCase", &[TARGET_TEXT], |arguments| {
        Ok(Value::owned_text(upper(arguments.text(0)?)))
    }),
    Function::new("ToCamelCase", &[TARGET_TEXT], |arguments| {
        Ok(Value::owned_text(camel(arguments.text(0)?)))
    }),
    Function::new("ToSnakeCase", &[TARGET_TEXT], |arguments| {
        Ok(Value::owned_text(snake(arguments.text(0)?)))
    }),
    Function::new(
        "ConvertCase",
        &[TARGET_TEXT, Parameter::new("to_case", LiteralText)],
        |arguments| {
            let text = arguments.text(0)?;
            Ok(Value::owned_text(match arguments.text(1)? {
                "lower" => lower(text),
                "upper" => upper(text),
                "snake" => snake(text),
                _ => camel(text),
            }))
        },
    )
    .checked(case_is_known),
];

fn case_is_known(literals: &Literals<'_>) -> Result<(), String> {
    match literals.text(1) {
        Some("lower" | "upper" | "snake" | "camel") | None => Ok(()),
        Some(other) => Err(format!("`{other}` is not lower, upper, snake or camel")),
    }
}

/// Converts each character by itself, as Go does.
fn lower(text: &str) -> String {
    let one = |character: char| match character {
        // The only character whose lower case has two characters; Go keeps the first.
        '\u{130}' => 'i',
        other => other.to_lowercase().next().unwrap_or(other),
    };
    text.chars().map(one).collect()
}

/// Converts each character by itself, as Go does. A character whose upper case has several characters stays.
fn upper(text: &str) -> String {
    let one = |character: char| {
        let mut upper = character.to_uppercase();
        match (upper.next(), upper.next()) {
            (Some(upper), None) => upper,
            _ => character,
        }
    };
    text.chars().map(one).collect()
}

fn camel(text: &str) -> String {
    // The library's list of acronyms has this entry.
    let text = match text.trim() {
        "ID" => "id",
        text => text,
    };
    let mut output = String::new();
    let mut is_start = true;
    let mut was_upper = false;
    for character in text.chars() {
        let is_upper = character.is_ascii_uppercase();
        let is_letter = character.is_ascii_alphabetic();
        let shown = match character {
            letter if is_start => letter.to_ascii_uppercase(),
            letter if was_upper && is_upper => letter.to_ascii_lowercase(),
            letter => letter,
        };
        was_upper = is_upper;
        if is_letter {
            output.push(shown);
            is_start = false;
        } else if character.is_ascii_digit() {
            output.push(character);
            is_start = true;
        } else {
            is_start = matches!(character, '_' | ' ' | '-' | '.');
        }
    }
    output
}

fn snake(text: &str) -> String {
    let characters: Vec<char> = text.trim().chars().collect();
    let at = |at: usize| characters.get(at).copied();
    let mut output = String::new();
    for (position, character) in characters.iter().copied().enumerate() {
        let shown = character.to_ascii_lowercase();
        if let Some(next) = at(position + 1) {
            let (is_upper, is_lower, is_digit) = sorts(character);
            let (next_upper, next_lower, next_digit) = sorts(next);
            let changes = is_upper && (next_lower || next_digit)
                || is_lower && (next_upper || next_digit)
                || is_digit && (next_upper || next_lower);
            if changes {
                let before = position.checked_sub(1).and_then(at);
                if is_upper
                    && next_lower
                    && before.is_some_and(|before| before.is_ascii_uppercase())
                {
                    output.push('_');
                }
                output.push(shown);
                if is_lower || is_digit || next_digit {
                    output.push('_');
                }
                continue;
            }
        }
        match character {
            ' ' | '_' | '-' | '.' => output.push('_'),
            _ => output.push(shown),
        }
    }
    output
}

fn sorts(character: char) -> (bool, bool, bool) {
    (
        character.is_ascii_uppercase(),
        character.is_ascii_lowercase(),
        character.is_ascii_digit(),
    )
}
