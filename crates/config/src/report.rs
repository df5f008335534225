//! Findings about a configuration.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::sensitive::without_url_secrets;
use super::source::{SourceText, Span};

/// Maximum number of listed findings. Further findings are only counted.
const MAX_LISTED: usize = 500;

/// All findings about a configuration.
#[derive(Debug, Default)]
pub struct Report {
    sources: Vec<SourceText>,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Number of findings that are only counted, by level.
    unlisted: [usize; 3],
    /// Positions of values that must not be shown.
    secrets: BTreeSet<Span>,
    /// Path of the value that is being read, a prefix of the paths of its findings.
    at: Vec<String>,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The configuration cannot be used.
    Error,
    /// The configuration is probably not as intended. An error with `--strict`.
    Warning,
    /// The finding is informational.
    Notice,
}

impl Level {
    /// Returns the printed name.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Notice => "notice",
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnostic {
    /// Severity.
    pub level: Level,
    /// Description of the mistake, in one sentence.
    pub message: String,
    /// Position of the value concerned.
    pub span: Option<Span>,
    /// Keys from the root of the configuration to the value.
    pub path: Vec<String>,
    /// Advice, one line each.
    pub help: Vec<String>,
    /// Other positions that explain the finding, each with a label.
    pub related: Vec<(Span, String)>,
    /// Further positions of the same warning.
    pub repeats: Vec<Span>,
    /// Whether a component's validation made this finding, beyond keys and types. No schema can check it.
    pub is_checked: bool,
}

impl Diagnostic {
    /// Creates a finding without advice.
    pub fn new(level: Level, message: impl Into<String>, span: Option<Span>) -> Self {
        Diagnostic {
            level,
            message: message.into(),
            span,
            path: Vec::new(),
            help: Vec::new(),
            related: Vec::new(),
            repeats: Vec::new(),
            is_checked: false,
        }
    }

    /// Creates an error at a position.
    pub fn error(message: impl Into<String>, span: Span) -> Self {
        Self::new(Level::Error, message, Some(span))
    }

    /// Creates a warning at a position.
    pub fn warning(message: impl Into<String>, span: Span) -> Self {
        Self::new(Level::Warning, message, Some(span))
    }

    /// Adds a line of advice.
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help.push(text.into());
        self
    }

    /// Adds a position that explains the finding.
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push((span, text.into()));
        self
    }

    /// Sets the path, relative to the value that is being read.
    pub fn path<S: Into<String>>(mut self, path: impl IntoIterator<Item = S>) -> Self {
        self.path = path.into_iter().map(Into::into).collect();
        self
    }
}

impl Report {
    /// Whether the configuration cannot be used.
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// Returns the number of errors.
    pub fn errors(&self) -> usize {
        self.count(Level::Error)
    }

    /// Returns the number of warnings.
    pub fn warnings(&self) -> usize {
        self.count(Level::Warning)
    }

    /// Returns all findings as a list of objects, for scripts.
    pub fn to_json(&self) -> serde_json::Value {
        let findings = self.diagnostics.iter().map(|diagnostic| {
            let source = diagnostic.span.and_then(|span| self.source(span));
            let span = diagnostic.span.filter(|_| source.is_some());
            serde_json::json!({
                "level": diagnostic.level.name(),
                "message": diagnostic.message,
                "file": source.map(|source| source.name.as_str()),
                "line": span.map(|span| span.line),
                "column": span.map(|span| span.column),
                "path": diagnostic.path,
                "help": diagnostic.help,
            })
        });
        findings.collect()
    }

    /// Adds a finding. Equal findings are kept once, and equal warnings become one warning with several positions.
    pub fn push(&mut self, mut diagnostic: Diagnostic) {
        // Messages may quote values.
        for text in std::iter::once(&mut diagnostic.message).chain(&mut diagnostic.help) {
            if let Cow::Owned(shown) = without_url_secrets(text) {
                *text = shown;
            }
        }
        if !self.at.is_empty() {
            let mut path = self.at.clone();
            path.append(&mut diagnostic.path);
            diagnostic.path = path;
        }
        if diagnostic.level == Level::Warning && self.repeat(&diagnostic) {
            return;
        }
        if self.diagnostics.len() >= MAX_LISTED {
            self.unlisted[diagnostic.level as usize] += 1;
        } else if !self.diagnostics.contains(&diagnostic) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds the position to an equal warning, if there is any. An unset variable is often used in many positions.
    fn repeat(&mut self, warning: &Diagnostic) -> bool {
        let same = |other: &&mut Diagnostic| {
            other.level == warning.level
                && other.message == warning.message
                && other.help == warning.help
                && other.related == warning.related
        };
        let (Some(span), Some(first)) = (warning.span, self.diagnostics.iter_mut().find(same))
        else {
            return false;
        };
        if first.span != Some(span) && !first.repeats.contains(&span) {
            first.repeats.push(span);
        }
        true
    }

    /// Drops the findings below a path, because they concern a component that does not exist.
    pub fn forget_below(&mut self, path: &[&str]) {
        self.diagnostics.retain_mut(|diagnostic| {
            let below = diagnostic.path.len() > path.len()
                && diagnostic.path.iter().zip(path).all(|(a, b)| a == b);
            if !below || diagnostic.repeats.is_empty() {
                return !below;
            }
            // The warning also applies to other positions. The removed path belongs to the first position.
            diagnostic.span = Some(diagnostic.repeats.remove(0));
            diagnostic.path.clear();
            true
        });
    }

    /// Runs `read` with `path` in front of the paths of all its findings.
    pub fn within<R>(&mut self, path: &[&str], read: impl FnOnce(&mut Report) -> R) -> R {
        let before = self.at.len();
        self.at
            .extend(path.iter().map(|segment| (*segment).to_owned()));
        let result = read(self);
        self.at.truncate(before);
        result
    }

    /// Adds a source text and returns its number, for [`Span::source`].
    pub fn add_source(&mut self, source: SourceText) -> u32 {
        self.sources.push(source);
        u32::try_from(self.sources.len() - 1).unwrap_or(u32::MAX)
    }

    /// Returns the source text of a position.
    pub fn source(&self, span: Span) -> Option<&SourceText> {
        self.sources.get(usize::try_from(span.source).ok()?)
    }

    /// Marks a position whose value must never be shown.
    pub fn add_secret(&mut self, span: Span) {
        self.secrets.insert(span);
    }

    /// Returns the positions whose values must never be shown.
    pub fn secrets(&self) -> &BTreeSet<Span> {
        &self.secrets
    }

    /// Returns the listed findings.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Returns the number of findings that are not listed.
    pub fn unlisted(&self) -> usize {
        self.unlisted.iter().sum()
    }

    /// Turns every warning into an error.
    pub fn make_strict(&mut self) {
        let warnings = std::mem::take(&mut self.unlisted[Level::Warning as usize]);
        self.unlisted[Level::Error as usize] += warnings;
        for diagnostic in &mut self.diagnostics {
            if diagnostic.level == Level::Warning {
                diagnostic.level = Level::Error;
                diagnostic
                    .help
                    .push("without `--strict` this is a warning".to_owned());
            }
        }
    }

    fn count(&self, level: Level) -> usize {
        self.diagnostics
            .iter()
            .filter(|diagnostic| diagnostic.level == level)
            .count()
            + self.unlisted[level as usize]
    }
}
