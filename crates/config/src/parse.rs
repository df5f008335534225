//! Parser from YAML text to the tree with positions.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

use super::node::{Content, Node, Pair};
use super::report::{Diagnostic, Report};
use super::source::Span;
use crate::scalar::{Scalar, Tag};

/// Maximum nesting. Deeper nesting occurs only in attacks, and later steps walk the tree recursively.
const MAX_DEPTH: usize = 100;

/// Maximum number of nodes that aliases may copy. Nine levels of nine aliases each would copy 400 million.
const MAX_COPIED_NODES: usize = 100_000;

/// Parses one source. Mistakes go to the report. Returns `None` after a syntax error.
pub fn parse(text: &str, source: u32, report: &mut Report) -> Option<Node> {
    parse_at(text, Origin::Source(source), report)
}

/// Parses a text that is not in a file. All its values have the position `span`.
pub(crate) fn parse_inline(text: &str, span: Span, report: &mut Report) -> Option<Node> {
    parse_at(text, Origin::Fixed(span), report)
}

#[derive(Clone, Copy)]
enum Origin {
    Source(u32),
    Fixed(Span),
}

/// Boxed, because every step returns the type and an error is rare.
type Flaw = Box<Diagnostic>;

fn parse_at(text: &str, origin: Origin, report: &mut Report) -> Option<Node> {
    let mut builder = Builder {
        events: Parser::new_from_str(text),
        origin,
        anchors: HashMap::new(),
        copied: 0,
        duplicates: Vec::new(),
        path: Vec::new(),
    };
    let outcome = builder.document();
    let duplicates = builder.duplicates;
    let clean = duplicates.is_empty();
    for duplicate in duplicates {
        report.push(duplicate);
    }
    match outcome {
        Ok(node) => clean.then_some(node),
        Err(flaw) => {
            report.push(*flaw);
            None
        }
    }
}

struct Builder<'a> {
    events: Parser<'a, StrInput<'a>>,
    origin: Origin,
    anchors: HashMap<usize, Node>,
    copied: usize,
    duplicates: Vec<Diagnostic>,
    /// Path of the current value in the configuration.
    path: Vec<String>,
}

impl<'a> Builder<'a> {
    fn document(&mut self) -> Result<Node, Flaw> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::StreamEnd => break,
                Event::DocumentStart(_) if root.is_some() => {
                    return Err(self.flaw(
                        span,
                        "a second YAML document starts here: a configuration is one document",
                        Some("move each document to a separate --config; configurations are merged in order"),
                    ));
                }
                Event::DocumentStart(_) => {}
                event => root = Some(self.node(event, span, 0)?),
            }
        }
        Ok(root.unwrap_or_else(|| Node::null(self.start())))
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Flaw> {
        if depth > MAX_DEPTH {
            let message = format!("nested deeper than {MAX_DEPTH} levels");
            return Err(self.flaw(span, &message, None));
        }
        let (node, anchor) = match event {
            Event::Alias(anchor) => return self.alias(anchor, span),
            Event::Scalar(text, style, anchor, tag) => {
                let tag = match tag {
                    Some(tag) => Some(self.tag(&tag.handle, &tag.suffix, span)?),
                    None => None,
                };
                let scalar = Scalar {
                    text: text.into_owned(),
                    plain: style == ScalarStyle::Plain,
                    tag,
                };
                (Node::new(span, Content::Scalar(scalar)), anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    let (event, at) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    self.path.push(items.len().to_string());
                    items.push(self.node(event, at, depth + 1)?);
                    self.path.pop();
                }
                (Node::new(span, Content::Sequence(items)), anchor)
            }
            Event::MappingStart(anchor, _) => {
                let pairs = self.mapping(depth)?;
                (Node::new(span, Content::Mapping(pairs)), anchor)
            }
            _ => return Err(self.flaw(span, "this is not a value", None)),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn mapping(&mut self, depth: usize) -> Result<Vec<Pair>, Flaw> {
        let mut pairs: Vec<Pair> = Vec::new();
        let mut positions: HashMap<String, usize> = HashMap::new();
        let mut merged: Vec<Node> = Vec::new();
        loop {
            let (event, key_span) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, key_span, depth + 1)?;
            let Content::Scalar(scalar) = key.content else {
                let message = "a key must be text, not a list or a mapping";
                return Err(self.flaw(key_span, message, None));
            };
            self.path.push(scalar.text.clone());
            let (event, value_span) = self.next()?;
            let mut value = self.node(event, value_span, depth + 1)?;
            value.key = Some(key_span);
            self.path.pop();
            if scalar.plain && scalar.text == "<<" {
                merged.push(value);
                continue;
            }
            if let Some(first) = positions.get(&scalar.text).and_then(|at| pairs.get(*at)) {
                let mut duplicate =
                    Diagnostic::error(format!("`{}` is written twice", scalar.text), key_span);
                if let Some(first) = first.value.key {
                    duplicate = duplicate.related(first, "the first one");
                }
                self.duplicates.push(
                    duplicate
                        .path(self.path.clone())
                        .help("remove one of the two, or merge their values"),
                );
                continue;
            }
            positions.insert(scalar.text.clone(), pairs.len());
            pairs.push(Pair {
                name: scalar.text,
                value,
            });
        }
        for value in merged {
            self.merge_key(value, &mut pairs)?;
        }
        Ok(pairs)
    }

    /// Merges `<<: *base` or `<<: [*a, *b]`. Existing keys take precedence, and earlier mappings take precedence over
    /// later mappings.
    fn merge_key(&mut self, value: Node, pairs: &mut Vec<Pair>) -> Result<(), Flaw> {
        let span = value.key.unwrap_or(value.span);
        let bases = match value.content {
            Content::Sequence(items) => items,
            _ => vec![value],
        };
        for base in bases {
            let Content::Mapping(inherited) = base.content else {
                return Err(self.flaw(span, "`<<` takes a mapping, or a list of mappings", None));
            };
            for pair in inherited {
                if !pairs.iter().any(|own| own.name == pair.name) {
                    pairs.push(pair);
                }
            }
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<Node, Flaw> {
        let Some(node) = self.anchors.get(&anchor) else {
            return Err(self.flaw(
                span,
                "the alias is inside the value that it refers to",
                None,
            ));
        };
        self.copied = self.copied.saturating_add(node.size());
        if self.copied > MAX_COPIED_NODES {
            let message = format!("aliases copy more than {MAX_COPIED_NODES} values");
            return Err(self.flaw(span, &message, None));
        }
        Ok(node.clone())
    }

    fn tag(&self, handle: &str, suffix: &str, span: Span) -> Result<Tag, Flaw> {
        match (handle, suffix) {
            ("tag:yaml.org,2002:", "str") | ("!", "") | ("", "!") => Ok(Tag::Text),
            ("tag:yaml.org,2002:", "int" | "float" | "bool" | "null") => Ok(Tag::Resolve),
            _ => Err(self.flaw(
                span,
                &format!("the tag `{handle}{suffix}` is not supported"),
                Some("known tags: !!str, !!int, !!float, !!bool, !!null"),
            )),
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Flaw> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                let length = if span.start.line() == span.end.line() {
                    span.end.col().saturating_sub(span.start.col())
                } else {
                    usize::MAX
                };
                let span = self.span(span.start.line(), span.start.col(), length);
                Ok((event, span))
            }
            Some(Err(error)) => {
                let marker = error.marker();
                let span = self.span(marker.line(), marker.col(), 1);
                let tab = error.info().contains("tab");
                let help =
                    tab.then_some("indent with spaces: YAML does not allow tabs for indentation");
                let message = format!("invalid YAML: {}", error.info());
                Err(self.flaw(span, &message, help))
            }
            None => Ok((Event::StreamEnd, self.start())),
        }
    }

    fn span(&self, line: usize, column: usize, length: usize) -> Span {
        match self.origin {
            Origin::Fixed(span) => span,
            Origin::Source(source) => Span {
                source,
                line: u32::try_from(line).unwrap_or(u32::MAX),
                column: u32::try_from(column.saturating_add(1)).unwrap_or(u32::MAX),
                length: u32::try_from(length).unwrap_or(u32::MAX),
            },
        }
    }

    fn start(&self) -> Span {
        self.span(1, 0, 1)
    }

    fn flaw(&self, span: Span, message: &str, help: Option<&str>) -> Flaw {
        let diagnostic = Diagnostic::error(message, span).path(self.path.clone());
        Box::new(match help {
            Some(help) => diagnostic.help(help),
            None => diagnostic,
        })
    }
}
