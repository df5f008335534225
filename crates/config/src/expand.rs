//! Expansion of `${...}` in values: `${env:NAME}`, `${NAME}`, `${env:NAME:-default}`, `${env:NAME:+alternative}`,
//! `${env:NAME:+alternative:-default}`, `${file:PATH}`, `${yaml:TEXT}`.
//!
//! Expansion works on the values of the merged tree, one scalar at a time. Therefore positions refer to the files, and
//! a variable cannot add keys elsewhere. The rules are those of the Collector (its RFC "env-vars"): `$$` is a dollar
//! sign, `$NAME` is text, expansions nest, and results are expanded again. `:+` comes from the shell and is unknown to
//! the Collector: the alternative is used if the variable is set and not empty.

mod resolve;

use super::node::{Content, Node};
use super::report::{Diagnostic, Report};
use super::source::Span;
use resolve::Resolver;

/// Maximum number and nesting of expansions of one value, as in the Collector.
const MAX_EXPANSIONS: usize = 1000;

/// Maximum nesting depth. Deeper nesting is a cycle. The limit is far below the capacity of the stack.
const MAX_DEPTH: usize = 32;

/// Maximum total size of all expansions of one value, in bytes.
const MAX_EXPANDED_SIZE: usize = 16 << 20;

/// Expands every scalar of the tree in place. Returns the unused defaults and alternatives, so that components named
/// only in them are not reported as unused.
pub fn expand(tree: &mut Node, report: &mut Report) -> Vec<String> {
    let mut resolver = Resolver::new(report);
    walk(tree, &mut Vec::new(), &mut resolver, 0);
    resolver.unused_alternatives
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
                    // Without an expansion only `$$` was replaced, so the style still determines the type.
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
                    // The original text is expanded like the rest of the result.
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

/// Result of expanding a scalar.
enum Expanded {
    /// The same text with `$$` replaced.
    Text(String),
    /// A text that contains expansions.
    Joined(String),
    /// The value of an expansion that is the whole scalar.
    Whole(Box<Node>),
}

/// A failure that has already been reported.
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

/// Expands everything in the text. Also returns whether the text contained an expansion.
fn join(text: &str, resolver: &mut Resolver<'_>, depth: usize) -> Result<(String, bool), Failed> {
    if depth > MAX_DEPTH {
        return Err(resolver.error("the expansions are circular or nested too deep"));
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
                    "`${` without a `}`: the text is not expanded",
                    "write `$${` for a literal `${`",
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
                    "`${{{}}}` is {}, which cannot be part of a string",
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

/// Returns the position of the closing brace for a brace that was opened before this text.
///
/// Braces of the value count, as in `${yaml:{a: b}}`. If they are not balanced, only braces of nested references count,
/// as in the Collector.
fn closing(text: &str) -> Option<usize> {
    closing_brace(text, true).or_else(|| closing_brace(text, false))
}

/// Whether a reference with this inside extends over the whole text.
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

/// Adds the path of the value that is being expanded.
fn found(diagnostic: Diagnostic, path: &[String]) -> Diagnostic {
    diagnostic.path(path.iter().cloned())
}

/// Position and path of a value, for findings.
type At = (Span, Vec<String>);
