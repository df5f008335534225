//! Decodes a node into a typed value and reports all errors, not only the first.

use serde::de::DeserializeOwned;

use super::de::{DecodeError, DecodeErrorKind, ErrorTarget, NodeDeserializer, Secrets, Step};
use super::node::{Content, Node};
use super::report::{Diagnostic, Level, Report};
use super::source::Span;
use super::suggest;
use super::{Problems, Validate};

/// Decodes a component's configuration from its node. An empty body means all defaults.
///
/// All errors go to the report with their positions: unknown keys, wrong types, missing keys, and the findings of
/// [`Validate::validate`]. Returns `None` if there was any error.
pub fn decode<T: DeserializeOwned + Default + Validate>(
    node: &Node,
    report: &mut Report,
) -> Option<T> {
    let before = report.errors();
    let (value, wrong) = if node.is_null() {
        (Some(T::default()), Vec::new())
    } else {
        read(node, report)
    };
    let value = value?;
    let mut wrong = wrong;
    removed(node, &mut Vec::new(), &mut wrong);
    validate(&value, node, &wrong, report);
    (report.errors() == before).then_some(value)
}

/// Maximum number of counted errors in one component. More errors indicate a misplaced section.
const MAX_ERRORS: usize = 100;

/// Maximum number of attempts, so that a large and wrong body does not take minutes.
const MAX_ATTEMPTS: usize = 10_000;

/// Decodes as much as possible. Also returns the paths of values that could not be decoded.
///
/// serde stops at the first error. Therefore the wrong value is removed from a copy, and decoding starts again, until
/// it succeeds or the error cannot be removed. This loop is fast enough, because configurations are small and errors
/// are few.
fn read<T: DeserializeOwned + Validate>(
    node: &Node,
    report: &mut Report,
) -> (Option<T>, Vec<Vec<String>>) {
    let secrets = Secrets::default();
    let mut work = node.clone();
    let mut wrong = Vec::new();
    // Paths of keys without a value, which were removed silently.
    let mut empty: Vec<Vec<String>> = Vec::new();
    let mut attempts = 0;
    let value = loop {
        attempts += 1;
        if wrong.len() >= MAX_ERRORS || attempts > MAX_ATTEMPTS {
            let span = node.key.unwrap_or(node.span);
            report.push(Diagnostic::error(
                "there are more errors in this section",
                span,
            ));
            break None;
        }
        let error = match T::deserialize(NodeDeserializer::new(&work, &secrets)) {
            Ok(value) => break Some(value),
            Err(error) => error,
        };
        let steps: Vec<Step> = error.steps.iter().rev().copied().collect();
        let path = names(&work, &steps);
        if error.trouble == DecodeErrorKind::Null && !steps.is_empty() {
            // A key without a value keeps the default, as in the Collector. In a list, a missing value is a mistake.
            if !in_list(&work, &steps) {
                empty.push(path);
                remove(&mut work, &steps);
                continue;
            }
        }
        let follows = matches!(&error.trouble, DecodeErrorKind::Missing(key)
            if follow(&work, &steps).and_then(|parent| parent.child(key)).is_some()
                && !empty.iter().any(|empty| is_key(empty, &path, key)));
        if !follows {
            let key = path.join(".");
            let mut removed = T::removed_keys().iter();
            let advice = removed.find(|(name, _)| *name == key);
            let advice = advice.map(|(_, advice)| *advice);
            let mut diagnostic = explain(&work, &steps, path.clone(), error, advice);
            let value = follow(&work, &steps).unwrap_or(&work);
            if let Some(unset) = unset_variable(report, value.span) {
                diagnostic = diagnostic.help(unset);
            }
            report.push(diagnostic);
        }
        wrong.push(path);
        if steps.is_empty() {
            break None;
        }
        remove(&mut work, &steps);
    };
    for span in secrets.into_inner() {
        report.add_secret(span);
    }
    (value, wrong)
}

/// Whether `path` is the path of `key` directly below `above`.
fn is_key(path: &[String], above: &[String], key: &str) -> bool {
    path.split_last()
        .is_some_and(|(last, rest)| last.as_str() == &*key && rest == above)
}

/// Describes an error. `advice` is for a key of an earlier build, see [`Validate::removed_keys`].
fn explain(
    work: &Node,
    steps: &[Step],
    path: Vec<String>,
    error: DecodeError,
    advice: Option<&str>,
) -> Diagnostic {
    let node = follow(work, steps).unwrap_or(work);
    let span = match (error.place, &error.trouble) {
        (ErrorTarget::Key, _) | (_, DecodeErrorKind::Missing(_)) => node.key.unwrap_or(node.span),
        _ => node.place(),
    };
    let mut message = unexpanded(node, error.message);
    let mut help = error.help;
    if let DecodeErrorKind::Unknown {
        name: unknown,
        known,
    } = &error.trouble
    {
        let name = if node.expanded.is_some() && error.place == ErrorTarget::Value {
            None
        } else {
            suggest::closest(unknown, known)
        };
        match (advice, name) {
            (Some(advice), _) => {
                message = format!("the key `{unknown}` was removed");
                help = Some(advice.to_owned());
            }
            (None, Some(name)) => message.push_str(&format!(", did you mean `{name}`?")),
            (None, None) => help = Some(suggest::list(known)),
        }
    }
    let mut path = path;
    if error.place == ErrorTarget::Key {
        // The message contains the key, and the path names the section without it.
        path.pop();
    }
    let mut diagnostic = Diagnostic::error(message, span).path(path);
    if let Some(help) = help {
        diagnostic = diagnostic.help(help);
    }
    diagnostic
}

/// Removes the result of a `${...}` from the message. The result may be a secret, and the displayed line names its
/// origin. Messages may quote the whole result or a part.
fn unexpanded(node: &Node, message: String) -> String {
    const REFERENCE: &str = "${...}";
    /// Minimum length of a replaced text. A shorter text may be part of any word.
    const MIN_TEXT_LENGTH: usize = 8;
    let Some(text) = node.expanded.as_deref().filter(|text| !text.is_empty()) else {
        return message;
    };
    let mut out = String::with_capacity(message.len());
    let mut rest = message.as_str();
    while let Some((before, quote, after)) = next_quote(rest) {
        out.push_str(before);
        out.push(quote);
        let Some((quoted, behind)) = after.split_once(quote) else {
            rest = after;
            continue;
        };
        if !quoted.is_empty() && text.contains(quoted) {
            out.push_str(REFERENCE);
        } else {
            out.push_str(&quoted.replace(text, REFERENCE));
        }
        out.push(quote);
        rest = behind;
    }
    out.push_str(rest);
    if text.len() >= MIN_TEXT_LENGTH {
        out = out.replace(text, REFERENCE);
    }
    out
}

fn next_quote(text: &str) -> Option<(&str, char, &str)> {
    let at = text.find(['`', '"'])?;
    let (before, after) = text.split_at(at);
    let quote = after.chars().next()?;
    Some((before, quote, after.get(quote.len_utf8()..)?))
}

fn validate<T: Validate>(value: &T, node: &Node, wrong: &[Vec<String>], report: &mut Report) {
    let mut problems = Problems::default();
    value.validate(&mut problems);
    for (path, endpoint) in value.listens_on() {
        if let Err(message) = endpoint.check() {
            problems.error(&path, message);
        }
    }
    for problem in problems.found() {
        // A removed value is replaced by its default here. Findings about the default, or its surroundings, are not the
        // operator's mistake.
        let consequence = wrong
            .iter()
            .any(|path| path.starts_with(&problem.path) || problem.path.starts_with(path));
        if consequence {
            continue;
        }
        let level = if problem.warning {
            Level::Warning
        } else {
            Level::Error
        };
        let span = node.locate(&problem.path);
        let value = problem
            .path
            .iter()
            .try_fold(node, |node, key| node.child(key));
        let message = unexpanded(value.unwrap_or(node), problem.message.clone());
        let within = value.zip(problem.within).and_then(|(value, character)| {
            let source = report.source(span).filter(|source| !source.inline)?;
            value.locate_within(character, source.line(span.line)?)
        });
        let mut diagnostic = Diagnostic::new(level, message, Some(within.unwrap_or(span)));
        diagnostic.is_checked = true;
        if let Some(unset) = value.and_then(|value| unset_variable(report, value.span)) {
            diagnostic = diagnostic.help(unset);
        }
        report.push(diagnostic.path(problem.path.clone()));
    }
}

/// Returns the warning about an unset variable that provides the value at this position. An error such as "endpoint
/// without a host" does not reveal the cause.
fn unset_variable(report: &Report, span: Span) -> Option<String> {
    let mut warnings = report.diagnostics().iter();
    let found = warnings.find(|warning| {
        let is_here = warning.span == Some(span) || warning.repeats.contains(&span);
        warning.level == Level::Warning && warning.message.contains("is not set") && is_here
    });
    found.map(|warning| warning.message.clone())
}

/// Collects the paths of values that were removed because their expansion failed.
fn removed(node: &Node, path: &mut Vec<String>, wrong: &mut Vec<Vec<String>>) {
    let mut visit = |name: String, child: &Node| {
        path.push(name);
        removed(child, path, wrong);
        path.pop();
    };
    match &node.content {
        Content::Removed => wrong.push(path.clone()),
        Content::Mapping(pairs) => {
            for pair in pairs {
                visit(pair.name.clone(), &pair.value);
            }
        }
        Content::Sequence(items) => {
            for (index, item) in items.iter().enumerate() {
                visit(index.to_string(), item);
            }
        }
        Content::Scalar(_) => {}
    }
}

fn follow<'a>(node: &'a Node, steps: &[Step]) -> Option<&'a Node> {
    steps
        .iter()
        .try_fold(node, |node, step| match &node.content {
            Content::Mapping(pairs) => pairs.get(*step).map(|pair| &pair.value),
            Content::Sequence(items) => items.get(*step),
            _ => None,
        })
}

fn in_list(node: &Node, steps: &[Step]) -> bool {
    let parent = steps.split_last().and_then(|(_, up)| follow(node, up));
    parent.is_some_and(|parent| matches!(parent.content, Content::Sequence(_)))
}

fn names(node: &Node, steps: &[Step]) -> Vec<String> {
    let mut node = Some(node);
    let mut names = Vec::with_capacity(steps.len());
    for step in steps {
        node = match node.map(|node| &node.content) {
            Some(Content::Mapping(pairs)) => pairs.get(*step).map(|pair| {
                names.push(pair.name.clone());
                &pair.value
            }),
            Some(Content::Sequence(items)) => {
                names.push(step.to_string());
                items.get(*step)
            }
            _ => None,
        };
    }
    names
}

fn remove(node: &mut Node, steps: &[Step]) {
    let Some((step, below)) = steps.split_first() else {
        node.content = Content::Removed;
        node.expanded = None;
        return;
    };
    let child = match &mut node.content {
        Content::Mapping(pairs) => pairs.get_mut(*step).map(|pair| &mut pair.value),
        Content::Sequence(items) => items.get_mut(*step),
        _ => None,
    };
    if let Some(child) = child {
        remove(child, below);
    }
}
