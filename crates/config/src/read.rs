//! Reads the sources and merges them into one tree.

use std::env::VarError;
use std::fs::File;
use std::io::Read as _;

pub(crate) use super::limits::MAX_FILE_SIZE;
use super::node::{Content, Node, Pair};
use super::report::{Diagnostic, Level, Report};
use super::source::{SourceText, Span};
use super::{merge, parse};

/// Sources of the configuration, from the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Values of `--config`, in order: a path, `file:PATH`, `yaml:TEXT` or `env:NAME`. Later sources take precedence.
    /// If empty, the built-in default configuration is read.
    pub configs: Vec<String>,
    /// Values of `--set`, in order: `a.b.c=VALUE`, with the value as YAML. They take precedence over all files.
    pub sets: Vec<String>,
}

/// Reads and merges the sources. Returns `None` if a source cannot be read. `default` is the configuration that is read
/// if `sources` is empty.
pub fn read(sources: &Sources, default: &str, report: &mut Report) -> Option<Node> {
    let mut trees = Vec::new();
    let mut complete = true;
    if sources.configs.is_empty() {
        let message = "no `--config` is given: using the built-in default configuration";
        let help =
            "show the default with `collector print-config`; name another one with `--config=FILE`";
        report.push(Diagnostic::new(Level::Notice, message, None).help(help));
        let name = "(built-in default)".to_owned();
        trees.extend(source(name, default.to_owned(), false, report));
    }
    for location in &sources.configs {
        match config(location, report) {
            Some(tree) => trees.push(tree),
            None => complete = false,
        }
    }
    for argument in &sources.sets {
        match set(argument, report) {
            Some(tree) => trees.push(tree),
            None => complete = false,
        }
    }
    if !complete {
        return None;
    }
    let mut trees = trees.into_iter();
    let mut merged = trees.next()?;
    for tree in trees {
        merge::merge(&mut merged, tree, &mut Vec::new(), report);
    }
    Some(merged)
}

fn config(location: &str, report: &mut Report) -> Option<Node> {
    let (name, text, hidden) = match scheme(location) {
        Some(("yaml", text)) => ("yaml".to_owned(), Ok(text.to_owned()), false),
        Some(("env", name)) => {
            let text = std::env::var(name).map_err(|error| match error {
                VarError::NotPresent => {
                    format!("the environment variable {name}, named by --config, is not set")
                }
                VarError::NotUnicode(_) => {
                    format!("the environment variable {name}, named by --config, is not UTF-8")
                }
            });
            (location.to_owned(), text, true)
        }
        Some(("file", path)) => (path.to_owned(), read_file(path), false),
        Some((scheme @ ("http" | "https"), _)) => {
            let message = format!(
                "`{scheme}:` is not supported in --config {location}: fetch the file first, and \
                 name its path"
            );
            report.push(Diagnostic::new(Level::Error, message, None));
            return None;
        }
        Some((scheme, _)) => {
            let message = format!("unknown scheme `{scheme}:` in --config {location}");
            let help = "known schemes: `file:`, `env:`, `yaml:`; a path with a colon needs `file:`";
            report.push(Diagnostic::new(Level::Error, message, None).help(help));
            return None;
        }
        None => (location.to_owned(), read_file(location), false),
    };
    match text {
        Ok(text) => {
            let tree = source(name, text, hidden, report)?;
            Some(nested(tree, report))
        }
        Err(message) => {
            report.push(Diagnostic::new(Level::Error, message, None));
            None
        }
    }
}

/// Expands top-level keys such as `a::b` into nested mappings. Users of the Collector change single values with
/// `yaml:processors::batch::timeout: 2s`.
fn nested(mut tree: Node, report: &mut Report) -> Node {
    let Content::Mapping(pairs) = &mut tree.content else {
        return tree;
    };
    if !pairs.iter().any(|pair| pair.name.contains("::")) {
        return tree;
    }
    let pairs = std::mem::take(pairs);
    for Pair { name, mut value } in pairs {
        let span = value.key.unwrap_or(value.span);
        for key in name.rsplit("::") {
            value.key = Some(span);
            let pair = Pair {
                name: key.to_owned(),
                value,
            };
            value = Node::new(span, Content::Mapping(vec![pair]));
        }
        merge::merge(&mut tree, value, &mut Vec::new(), report);
    }
    tree
}

fn source(name: String, text: String, hidden: bool, report: &mut Report) -> Option<Node> {
    let source = report.add_source(SourceText {
        name,
        text: text.clone(),
        inline: false,
        hidden,
    });
    parse::parse(&text, source, report)
}

/// Splits a location into its scheme and the rest. A scheme has at least two characters; a single character is a drive
/// letter.
pub(crate) fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once(':')?;
    let mut bytes = scheme.bytes();
    let letter = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic());
    let valid =
        bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'.' | b'-'));
    (letter && valid && scheme.len() > 1).then_some((scheme, rest))
}

/// Reads a file's text without its byte order mark.
pub(crate) fn read_file(path: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read the file {path}: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        let mebibytes = MAX_FILE_SIZE >> 20;
        return Err(format!("the file {path} is larger than {mebibytes} MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..valid).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("the file {path} is not UTF-8 at line {line}")
    })?;
    Ok(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Parses `a.b.c=value` into a tree. The argument is a separate source with one line.
fn set(argument: &str, report: &mut Report) -> Option<Node> {
    let source = report.add_source(SourceText {
        // The name omits the value, which may be a secret. The displayed line is masked.
        name: format!("--set {}", argument.split('=').next().unwrap_or_default()),
        text: argument.to_owned(),
        inline: true,
        hidden: false,
    });
    let length = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let at = |column: u32, length: u32| Span {
        source,
        line: 1,
        column,
        length,
    };
    let Some((path, value)) = argument.split_once('=') else {
        let span = at(1, length(argument));
        let message = "the `=` is missing: write `--set section.key=value`";
        report.push(Diagnostic::error(message, span));
        return None;
    };
    let value_span = at(length(path) + 2, length(value).max(1));
    let mut node = parse::parse_inline(value, value_span, report)?;
    let mut keys = Vec::new();
    let mut column = 1;
    for part in path.replace("::", "\u{1}\u{1}").split('.') {
        for key in part.split("\u{1}\u{1}") {
            keys.push((key.trim().to_owned(), at(column, length(key).max(1))));
            column += length(key) + 2;
        }
        column -= 1;
    }
    if keys.iter().any(|(key, _)| key.is_empty()) {
        let span = at(1, length(path).max(1));
        report.push(Diagnostic::error("a key of this path is empty", span));
        return None;
    }
    for (name, span) in keys.into_iter().rev() {
        node.key = Some(span);
        let pair = Pair { name, value: node };
        node = Node::new(span, Content::Mapping(vec![pair]));
    }
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_two_colons_are_paths() {
        let mut report = Report::default();
        let location = "yaml:{a::b: 1, \"a::c::d\": 2, e: {f: 3}}";
        let tree = config(location, &mut report).unwrap();
        let text = |path: &[&str]| {
            let mut node = &tree;
            for key in path {
                node = node.child(key).unwrap();
            }
            match &node.content {
                Content::Scalar(scalar) => scalar.text.clone(),
                _ => String::new(),
            }
        };
        let values = [text(&["a", "b"]), text(&["a", "c", "d"]), text(&["e", "f"])];
        assert_eq!(values, ["1", "2", "3"]);
        assert_eq!(report.render(), "");
    }
}
