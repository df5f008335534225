//! `${...}` in values: `${env:NAME}`, `${NAME}`, `${env:NAME:-default}`, `${env:NAME:+alternative}`,
//! `${env:NAME:+alternative:-default}`, `${file:PATH}`, `${yaml:TEXT}`.
//!
//! It works on the values of the merged tree, one scalar after the other, so positions are those of
//! the files and no variable can bring in keys it is not asked for. The rules are those of the
//! Collector (its RFC "env-vars"): `$$` is a dollar sign, `$NAME` is text, expansions nest, and
//! what an expansion gives is expanded again. `:+` is the shell's, and not in the Collector: the
//! alternative stands if the variable is set and not empty.

mod resolve;

use super::node::{Content, Node};
use super::report::{Diagnostic, Report};
use super::source::Span;
use resolve::Resolver;

/// How many expansions one value may take, and how deep they may nest. The Collector's limit.
const MAX_EXPANSIONS: usize = 1000;

/// Deeper nesting is a cycle. Far below what the stack can take.
const MAX_DEPTH: usize = 32;

/// What all expansions of one value may hold together, in bytes.
const MAX_EXPANDED_SIZE: usize = 16 << 20;

/// Expands every scalar of the tree in place. Returns the defaults and alternatives that the environment did not
/// choose: what they name is not forgotten, though nothing uses it.
pub fn expand(tree: &mut Node, report: &mut Report) -> Vec<String> {
    let mut resolver = Resolver::new(report);
    walk(tree, &mut Vec::new(), &mut resolver, 0);
    resolver.not_taken
}

fn walk(node: &mut Node, path: &mut Vec<String>, resolver: &mut Resolver<'_>, depth: usize) {
    match &mut node.content {
        Content::Sequence(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push(index.to_string());
                walk(item, path, resolver, depth);
                path.pop();
            }
        }
        Content::Mapping(pairs) => {
            for pair in pairs {
                path.push(pair.name.clone());
                walk(&mut pair.value, path, resolver, depth);
                path.pop();
            }
        }
        Content::Scalar(scalar) if scalar.text.contains('$') => {
            let text = std::mem::take(&mut scalar.text);
            if depth == 0 {
                resolver.begin(node.span, path);
            }
            match value(&text, resolver, depth) {
                Ok(Expanded::Text(text)) => {
                    // Without an expansion only `$$` was replaced, and the style still says what it
                    // is.
                    scalar.text = text;
                }
                Ok(Expanded::Joined(text)) => {
                    let key = node.key;
                    *node = Node::text(node.span, text.clone());
                    node.expanded = Some(text);
                    node.key = key;
                }
                Ok(Expanded::Whole(mut inner)) => {
                    walk(&mut inner, path, resolver, depth + 1);
                    // The original text is expanded like the rest of what came in.
                    inner.expanded = match inner.expanded.take() {
                        Some(text) if text.contains('$') => {
                            join(&text, resolver, depth + 1).map(|(text, _)| text).ok()
                        }
                        other => other,
                    };
                    inner.key = node.key;
                    *node = *inner;
                }
                Err(Failed) => node.content = Content::Removed,
            }
        }
        _ => {}
    }
}

/// What a scalar becomes.
enum Expanded {
    /// The same text, its `$$` replaced.
    Text(String),
    /// A text with expansions in it.
    Joined(String),
    /// The value of the one expansion that is the whole scalar.
    Whole(Box<Node>),
}

/// It went wrong, and has been reported.
struct Failed;

fn value(text: &str, resolver: &mut Resolver<'_>, depth: usize) -> Result<Expanded, Failed> {
    let body = text
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'));
    if let Some(inner) = body.filter(|inner| closes_at_its_end(inner)) {
        let (reference, _) = join(inner, resolver, depth + 1)?;
        return resolver
            .resolve(&reference, depth)
            .map(|node| Expanded::Whole(Box::new(node)));
    }
    let (text, expanded) = join(text, resolver, depth)?;
    Ok(if expanded {
        Expanded::Joined(text)
    } else {
        Expanded::Text(text)
    })
}

/// The text with everything expanded in it, and whether there was anything.
fn join(text: &str, resolver: &mut Resolver<'_>, depth: usize) -> Result<(String, bool), Failed> {
    if depth > MAX_DEPTH {
        return Err(resolver.error("these expansions go in circles, or nest too deep"));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut expanded = false;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(inner) = after.strip_prefix('{') {
            let Some(end) = closing(inner) else {
                resolver.warn(
                    "`${` without a `}`: this stays as it is",
                    "write `$${` to mean it",
                );
                out.push('$');
                rest = after;
                if !rest.contains('}') {
                    break;
                }
                continue;
            };
            let (reference, behind) = inner.split_at(end);
            let (reference, _) = join(reference, resolver, depth + 1)?;
            let resolved = resolver.resolve(&reference, depth)?;
            let Some(text) = as_text(&resolved) else {
                let message = format!(
                    "`${{{}}}` is {}: it cannot be a part of a text",
                    resolve::shown(&reference),
                    resolved.kind()
                );
                return Err(resolver.error(&message));
            };
            out.push_str(&join(text, resolver, depth + 1)?.0);
            expanded = true;
            rest = behind.get(1..).unwrap_or_default();
        } else {
            out.push('$');
            rest = after;
        }
        if out.len() > MAX_EXPANDED_SIZE {
            return Err(resolver.error("the expanded text is too long"));
        }
    }
    out.push_str(rest);
    Ok((out, expanded))
}

/// Where the brace that was open before this text closes.
///
/// Braces of the value itself count, as in `${yaml:{a: b}}`, unless they do not come in pairs; then
/// only those of nested references do, which is the Collector's rule.
fn closing(text: &str) -> Option<usize> {
    closing_brace(text, true).or_else(|| closing_brace(text, false))
}

/// Whether a reference with this inside is all of the text.
fn closes_at_its_end(inner: &str) -> bool {
    closing(&format!("{inner}}}")) == Some(inner.len())
}

fn closing_brace(text: &str, all: bool) -> Option<usize> {
    let mut open = 1usize;
    let mut after_dollar = false;
    for (index, letter) in text.char_indices() {
        match letter {
            '{' if all || after_dollar => open += 1,
            '}' => {
                open -= 1;
                if open == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
        after_dollar = letter == '$';
    }
    None
}

fn as_text(node: &Node) -> Option<&str> {
    match (&node.expanded, &node.content) {
        (Some(text), _) => Some(text),
        (None, Content::Scalar(scalar)) => Some(&scalar.text),
        _ => None,
    }
}

/// A finding about the value that is being expanded.
fn found(diagnostic: Diagnostic, path: &[String]) -> Diagnostic {
    diagnostic.path(path.iter().cloned())
}

/// Where a value stands, for findings about it.
type At = (Span, Vec<String>);
