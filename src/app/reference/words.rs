//! Words for types, bounds and defaults.

use serde_json::Value;

/// Returns the words for the types that the index page explains.
pub(super) fn well_known(definition: &str) -> Option<&'static str> {
    Some(match definition {
        "Duration" => "duration",
        "ByteSize" => "size",
        "Endpoint" => "`host:port`",
        "ComponentId" => "component id",
        "PipelineId" => "pipeline id",
        "Secret" => "secret",
        "Headers" => "map of strings",
        "Literal" => "any value",
        "Unread" | "Section_Unread" => "not supported",
        _ => return None,
    })
}

/// Replaces line breaks and repeated blanks by single blanks.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes a last remark `(The Collector ...)` from a description and returns it.
pub(super) fn split_collector(description: &str) -> (String, Option<String>) {
    match description.rsplit_once("(The Collector") {
        Some((before, remark)) if remark.ends_with(')') => {
            let remark = format!("(The Collector{remark}");
            (before.trim_end().to_owned(), Some(remark))
        }
        _ => (description.to_owned(), None),
    }
}

/// Removes a last sentence `Default: VALUE.` from a description and returns the value.
pub(super) fn split_default(description: &str) -> (String, Option<String>) {
    if let Some((before, value)) = description.rsplit_once("Default: ")
        && let Some(value) = value.strip_suffix('.')
        && !value.contains(". ")
    {
        return (before.trim_end().to_owned(), Some(value.to_owned()));
    }
    (description.to_owned(), None)
}

/// Puts a plain value in backquotes, but not words such as `none`.
pub(super) fn quoted(value: String) -> String {
    let is_plain = !value.contains([' ', '`']);
    let is_value = value == "true"
        || value == "false"
        || value.starts_with(|c: char| !c.is_ascii_alphabetic());
    match is_plain && is_value {
        true => format!("`{value}`"),
        false => value,
    }
}

/// Removes a last sentence `Required.` from a description and returns whether there was one.
pub(super) fn remove_required(description: &mut String) -> bool {
    let Some(before) = description.strip_suffix("Required.") else {
        return false;
    };
    *description = before.trim_end().to_owned();
    true
}

/// Returns a default in words, or `None` if the value is empty.
pub(super) fn default(value: &Value) -> Option<String> {
    let is_empty = match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        _ => false,
    };
    (!is_empty).then(|| match value {
        Value::String(text) => format!("`{text}`"),
        value => format!("`{value}`"),
    })
}

pub(super) fn constant(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        // The empty string is another spelling of `none`.
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(format!("`{text}`")),
        value => Some(format!("`{value}`")),
    }
}

/// Joins alternatives: `a, b or c`.
pub(super) fn alternatives(parts: &[String]) -> String {
    match parts {
        [] => "any value".to_owned(),
        [one] => one.clone(),
        [before @ .., last] => format!("{} or {last}", before.join(", ")),
    }
}

pub(super) fn list(items: &str) -> String {
    match items {
        "not supported" => items.to_owned(),
        items => format!("list of {}", plural(items)),
    }
}

/// Returns the plural of a type, for elements of lists and maps.
pub(super) fn plural(kind: &str) -> String {
    match kind {
        "" | "any value" => "any values".to_owned(),
        "string" | "section" | "duration" | "size" | "integer" | "number" | "boolean"
        | "component id" | "pipeline id" | "secret" => format!("{kind}s"),
        kind if kind.ends_with(" or section") => format!("{kind}s"),
        kind => kind.to_owned(),
    }
}

/// Removes short sentences about bounds from a description, and returns them as the end of a type: `, at least 1`.
pub(super) fn take_bounds(description: &mut String) -> String {
    const BEGINNINGS: [&str; 5] = [
        "At least ",
        "At most ",
        "Above ",
        "From ",
        "0, or at least ",
    ];
    let mut bounds = String::new();
    let mut rest: Vec<&str> = Vec::new();
    let is_bound = |sentence: &str| {
        let is_short = sentence.split(' ').count() <= 9 && !sentence.contains("required");
        is_short
            && BEGINNINGS
                .iter()
                .any(|beginning| sentence.starts_with(beginning))
    };
    for sentence in description.split_inclusive(". ") {
        let text = sentence.trim().trim_end_matches('.');
        match is_bound(text) {
            true => {
                bounds.push_str(", ");
                let (first, rest) = text.split_at(1);
                bounds.extend([first.to_ascii_lowercase().as_str(), rest]);
            }
            false => rest.push(sentence),
        }
    }
    *description = rest.concat().trim_end().to_owned();
    bounds
}
