//! Texts with references to groups of a regular expression, in the syntax of Go's `Regexp.Expand`.

use regex::Captures;

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Number(usize),
    Name(String),
}

impl Template {
    /// Parses `$1`, `${1}`, `$name`, `${name}` and `$$`. A name without braces is as long as possible: `$1x` is the
    /// group `1x`. Malformed references are plain text.
    pub(super) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            push_text(&mut parts, before);
            if let Some(after) = after.strip_prefix('$') {
                push_text(&mut parts, "$");
                rest = after;
                continue;
            }
            match reference(after) {
                Some((name, after)) => {
                    parts.push(group(name));
                    rest = after;
                }
                None => {
                    push_text(&mut parts, "$");
                    rest = after;
                }
            }
        }
        push_text(&mut parts, rest);
        Template(parts)
    }

    /// Replaces the references. Groups that do not exist or did not match are empty.
    pub(super) fn expand(&self, captures: &Captures<'_>) -> String {
        let mut output = String::new();
        for part in &self.0 {
            let text = match part {
                Part::Text(text) => Some(text.as_str()),
                Part::Number(number) => captures.get(*number).map(|group| group.as_str()),
                Part::Name(name) => captures.name(name).map(|group| group.as_str()),
            };
            output.push_str(text.unwrap_or_default());
        }
        output
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(last)) => last.push_str(text),
        _ if text.is_empty() => {}
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

/// Splits the name of a group from the text after a `$`.
fn reference(text: &str) -> Option<(&str, &str)> {
    let (inner, has_brace) = match text.strip_prefix('{') {
        Some(inner) => (inner, true),
        None => (text, false),
    };
    let end = inner.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    let (name, rest) = inner.split_at(end.unwrap_or(inner.len()));
    if name.is_empty() {
        return None;
    }
    match has_brace {
        true => rest.strip_prefix('}').map(|rest| (name, rest)),
        false => Some((name, rest)),
    }
}

fn group(name: &str) -> Part {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = name.len() > 1 && name.starts_with('0');
    match name.parse() {
        Ok(number) if is_number && !has_leading_zero => Part::Number(number),
        _ => Part::Name(name.to_owned()),
    }
}
