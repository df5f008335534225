//! Resolution of one `${...}`.

use super::{At, Failed, MAX_EXPANSIONS, found};
use crate::node::{Content, Node};
use crate::parse;
use crate::read::{read_file, scheme};
use crate::report::{Diagnostic, Report};
use crate::source::{SourceText, Span};

pub(super) struct Resolver<'a> {
    report: &'a mut Report,
    at: At,
    expansions: usize,
    /// Texts of defaults and alternatives that were not used.
    pub(super) unused_alternatives: Vec<String>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(report: &'a mut Report) -> Self {
        Resolver {
            report,
            at: (Span::default(), Vec::new()),
            expansions: 0,
            unused_alternatives: Vec::new(),
        }
    }

    /// Starts with the value at this position.
    pub(super) fn begin(&mut self, span: Span, path: &[String]) {
        self.at = (span, path.to_vec());
        self.expansions = 0;
    }

    pub(super) fn error(&mut self, message: &str) -> Failed {
        self.fail(Diagnostic::error(message, self.at.0))
    }

    pub(super) fn warn(&mut self, message: &str, help: &str) {
        let warning = Diagnostic::warning(message, self.at.0).help(help);
        self.report.push(found(warning, &self.at.1));
    }

    /// Returns the value of a reference, without further expansion.
    pub(super) fn resolve(&mut self, reference: &str, depth: usize) -> Result<Node, Failed> {
        self.expansions += 1;
        if self.expansions > MAX_EXPANSIONS || depth > super::MAX_DEPTH {
            return Err(self.error("the expansions are circular or too many"));
        }
        // `NAME:-default` also looks like a scheme.
        match scheme(reference) {
            Some(("env", name)) => self.variable(name),
            Some(("file", path)) => self.file(path),
            Some(("yaml", text)) => self.inline(text),
            Some((scheme @ ("http" | "https"), _)) => {
                let message = format!("`{scheme}:` is not supported in `${{...}}`");
                let help = "save the content to a file, and use `${file:PATH}`";
                Err(self.fail(Diagnostic::error(message, self.at.0).help(help)))
            }
            Some((scheme, rest)) if !rest.starts_with(['-', '+']) => {
                let message = format!("unknown scheme `{scheme}:` in `${{...}}`");
                let help = "known: `${env:NAME}`, `${file:PATH}`, `${yaml:TEXT}`; for a literal `${` write `$${`";
                Err(self.fail(Diagnostic::error(message, self.at.0).help(help)))
            }
            _ => self.variable(reference),
        }
    }

    fn variable(&mut self, reference: &str) -> Result<Node, Failed> {
        let Reference {
            name,
            alternative,
            default,
        } = Reference::parse(reference);
        if !is_name(name) {
            let message = format!(
                "`{}` is not the name of an environment variable",
                shown(name)
            );
            let help = "names have letters, digits and `_`, and do not begin with a digit; for a literal `${` write \
                        `$${`";
            return Err(self.fail(Diagnostic::error(message, self.at.0).help(help)));
        }
        let value = match std::env::var(name) {
            Ok(text) => Some(text),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => {
                let message = format!("the environment variable `{name}` is not UTF-8");
                return Err(self.error(&message));
            }
        };
        let (taken, unused_alternatives) = match (alternative, value) {
            (Some(alternative), Some(text)) if !text.is_empty() => {
                (Some(alternative.to_owned()), default)
            }
            (Some(alternative), _) => {
                let default = default.unwrap_or_default();
                (Some(default.to_owned()), Some(alternative))
            }
            (None, Some(text)) => (Some(text), default),
            (None, None) => (default.map(str::to_owned), None),
        };
        self.unused_alternatives
            .extend(unused_alternatives.map(str::to_owned));
        let Some(text) = taken else {
            self.warn(
                &format!("the environment variable `{name}` is not set; using an empty value"),
                &format!("set it, or give a default as in `${{env:{name}:-value}}`"),
            );
            return Ok(Node::null(self.at.0));
        };
        Ok(self.typed(text))
    }

    /// Returns a node that has the value of the text for typed fields, and the text itself for text fields.
    fn typed(&mut self, text: String) -> Node {
        // A text that is not valid YAML may be an intended plain text.
        let mut quiet = Report::default();
        let parsed = parse::parse_inline(&text, self.at.0, &mut quiet);
        let mut node = parsed.unwrap_or_else(|| Node::text(self.at.0, text.clone()));
        node.expanded = Some(text);
        node
    }

    fn file(&mut self, path: &str) -> Result<Node, Failed> {
        let text = match read_file(path) {
            // Editors end files with a line feed, which is never part of a token.
            Ok(text) => text.trim_end_matches(['\r', '\n']).to_owned(),
            Err(message) => return Err(self.error(&message)),
        };
        // A file with a single value is often a secret, and its text may be intended even if it is not YAML. In both
        // cases the values get no positions within the file, so that no line of the file is ever shown.
        let node = self.typed(text.clone());
        if matches!(node.content, Content::Scalar(_)) {
            return Ok(node);
        }
        let source = self.report.add_source(SourceText {
            name: path.to_owned(),
            text: text.clone(),
            inline: false,
            hidden: false,
        });
        let path: Vec<&str> = self.at.1.iter().map(String::as_str).collect();
        let parsed = self
            .report
            .within(&path, |report| parse::parse(&text, source, report));
        match parsed {
            Some(mut parsed) => {
                parsed.expanded = Some(text);
                Ok(parsed)
            }
            None => Err(Failed),
        }
    }

    fn inline(&mut self, text: &str) -> Result<Node, Failed> {
        match parse::parse_inline(text, self.at.0, self.report) {
            Some(mut node) => {
                node.expanded = Some(text.to_owned());
                Ok(node)
            }
            None => Err(Failed),
        }
    }

    fn fail(&mut self, diagnostic: Diagnostic) -> Failed {
        self.report.push(found(diagnostic, &self.at.1));
        Failed
    }
}

/// The parts of `NAME`, `NAME:-DEFAULT`, `NAME:+ALTERNATIVE` and `NAME:+ALTERNATIVE:-DEFAULT`.
struct Reference<'a> {
    name: &'a str,
    /// Value to use instead of the variable's value if the variable is set and not empty.
    alternative: Option<&'a str>,
    default: Option<&'a str>,
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Self {
        let split = |text: &'a str| match text.split_once(":-") {
            Some((before, default)) => (before, Some(default)),
            None => (text, None),
        };
        let (before, default) = split(text);
        match before.split_once(":+") {
            Some((name, alternative)) => Reference {
                name,
                alternative: Some(alternative),
                default,
            },
            None => Reference {
                name: before,
                alternative: None,
                default,
            },
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(letter) && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// Shortens a reference for messages, because an inner expansion may have put a secret into it.
pub(super) fn shown(reference: &str) -> &str {
    match reference.char_indices().nth(40) {
        Some((end, _)) => reference.get(..end).unwrap_or_default(),
        None => reference,
    }
}
