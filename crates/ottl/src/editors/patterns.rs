//! Editors that replace texts by patterns.

use std::borrow::Cow;

use regex::{Captures, Regex};

use super::maps::{edit, text_entry};
use super::{Editing, Editor, Effect, TARGET};
use crate::functions::ParameterKind::{Function as FunctionName, Glob, LiteralText, Pattern, Text};
use crate::functions::{Arguments, Function, Parameter};
use crate::target::EvaluationTarget;
use crate::value::{Undecided, Value};
use crate::write::{MapEntry, write};

const GLOB: Parameter = Parameter::new("pattern", Glob);
const REGEX: Parameter = Parameter::new("regex", Pattern);
const REPLACEMENT: Parameter = Parameter::new("replacement", Text);
const FUNCTION: Parameter = Parameter::optional("function", FunctionName);
const FORMAT: Parameter = Parameter::optional("replacement_format", Text);

pub(super) const ALL: &[Editor] = &[
    Editor::new(
        "replace_match",
        &[TARGET, GLOB, REPLACEMENT, FUNCTION, FORMAT],
        |editing| {
            let pattern = editing.arguments.pattern(1)?;
            let replacement = Replacement::new(editing, 2)?.whole()?;
            let Value::Text(text) = editing.current()? else {
                return Ok(Effect::default());
            };
            if !pattern.is_match(&text) {
                return Ok(Effect::default());
            }
            write(
                editing.path()?,
                editing.here,
                &Value::owned_text(replacement),
            )
            .map(Effect::from)
        },
    ),
    Editor::new(
        "replace_all_matches",
        &[TARGET, GLOB, REPLACEMENT, FUNCTION, FORMAT],
        |editing| {
            let pattern = editing.arguments.pattern(1)?;
            let replacement = Replacement::new(editing, 2)?.whole()?;
            edit(editing, |mut entries| {
                let mut is_changed = false;
                for entry in &mut entries {
                    if entry.text().is_some_and(|text| pattern.is_match(text)) {
                        *entry = text_entry(entry.key.clone(), &replacement);
                        is_changed = true;
                    }
                }
                Ok(is_changed.then_some(entries))
            })
        },
    ),
    Editor::new(
        "replace_pattern",
        &[TARGET, REGEX, REPLACEMENT, FUNCTION, FORMAT],
        |editing| {
            let pattern = editing.arguments.pattern(1)?;
            let current = editing.current()?;
            if matches!(current, Value::Nil) {
                return Ok(Effect::default());
            }
            let replacement = Replacement::new(editing, 2)?;
            let Value::Text(text) = current else {
                return Ok(Effect::default());
            };
            if !pattern.is_match(&text) {
                return Ok(Effect::default());
            }
            let replaced = replacement.of_pattern(pattern, &text)?;
            write(editing.path()?, editing.here, &Value::owned_text(replaced)).map(Effect::from)
        },
    ),
    Editor::new(
        "replace_all_patterns",
        &[
            TARGET,
            Parameter::new("mode", LiteralText),
            REGEX,
            REPLACEMENT,
            FUNCTION,
            FORMAT,
        ],
        replace_all_patterns,
    )
    .checked(|literals| match literals.text(1) {
        Some("key" | "value") | None => Ok(()),
        Some(other) => Err(format!("the mode `{other}` is not key or value")),
    }),
];

fn replace_all_patterns(editing: &mut Editing<'_, '_>) -> Result<Effect, Undecided> {
    let pattern = editing.arguments.pattern(2)?;
    let replacement = Replacement::new(editing, 3)?;
    let is_key = editing.arguments.text(1)? == "key";
    edit(editing, |entries| {
        let mut is_changed = false;
        let mut after: Vec<MapEntry<'_>> = Vec::with_capacity(entries.len());
        let mut positions = std::collections::HashMap::new();
        for entry in entries {
            let text = match is_key {
                true => Some(&*entry.key),
                false => entry.text(),
            };
            let replaced = match text.filter(|text| pattern.is_match(text)) {
                None => entry,
                Some(text) => {
                    is_changed = true;
                    match replacement.of_pattern(pattern, text) {
                        Ok(key) if is_key => MapEntry::new(Cow::Owned(key), entry.value()),
                        Ok(text) => text_entry(entry.key.clone(), &text),
                        // As in the Collector, an error drops the key and keeps the value.
                        Err(_) if is_key => continue,
                        Err(_) => entry,
                    }
                }
            };
            if !is_key {
                after.push(replaced);
                continue;
            }
            let at = *positions
                .entry(replaced.key.to_string())
                .or_insert(after.len());
            match after.get_mut(at) {
                Some(known) => *known = replaced,
                None => after.push(replaced),
            }
        }
        Ok(is_changed.then_some(after))
    })
}

/// A replacement text, with a function that is applied to it.
struct Replacement<'c, 'v> {
    text: String,
    function: Option<&'static Function>,
    format: Option<(String, String)>,
    here: &'c EvaluationTarget<'v>,
}

impl<'c, 'v> Replacement<'c, 'v> {
    /// Reads the replacement at a position of the arguments, and the two arguments after it.
    fn new(editing: &Editing<'c, 'v>, at: usize) -> Result<Self, Undecided> {
        let format = match editing.arguments.get(at + 2) {
            Some(format) => Some(parts(format.plain_text()?)?),
            None => None,
        };
        Ok(Replacement {
            text: editing.arguments.text(at)?.to_owned(),
            function: editing.function(at + 1),
            format,
            here: editing.here,
        })
    }

    /// Returns the replacement of a whole text.
    fn whole(&self) -> Result<String, Undecided> {
        self.applied(&self.text)
    }

    fn applied(&self, text: &str) -> Result<String, Undecided> {
        let Some(function) = self.function else {
            return Ok(text.to_owned());
        };
        let mut values = vec![None; function.parameters.len()];
        if let Some(first) = values.first_mut() {
            *first = Some(Value::owned_text(text.to_owned()));
        }
        let value = (function.call)(&mut Arguments::new(&mut values, self.here))?;
        let text = value.plain_text()?;
        Ok(match &self.format {
            Some((before, after)) => format!("{before}{text}{after}"),
            None => text.to_owned(),
        })
    }

    /// Replaces all matches in a text. `$1` and `${name}` stand for groups, and `$$` for a dollar sign.
    fn of_pattern(&self, pattern: &Regex, text: &str) -> Result<String, Undecided> {
        let mut output = String::with_capacity(text.len());
        let mut end = 0;
        for captures in pattern.captures_iter(text) {
            let Some(found) = captures.get(0) else {
                continue;
            };
            output.push_str(text.get(end..found.start()).unwrap_or_default());
            output.push_str(&self.applied(&self.expanded(&captures))?);
            end = found.end();
        }
        output.push_str(text.get(end..).unwrap_or_default());
        Ok(output)
    }

    fn expanded(&self, captures: &Captures<'_>) -> String {
        let mut expanded = String::new();
        captures.expand(&self.text, &mut expanded);
        expanded
    }
}

/// Splits a format at its single `%s`.
fn parts(format: &str) -> Result<(String, String), Undecided> {
    const WRONG: Undecided =
        Undecided::Because("the replacement format must have one %s and no other verb");
    let (before, after) = format.split_once("%s").ok_or(WRONG)?;
    match before.contains('%') || after.contains('%') {
        true => Err(WRONG),
        false => Ok((before.to_owned(), after.to_owned())),
    }
}
