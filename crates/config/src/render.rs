//! Renders findings as text, with the source line and carets under the value.

mod line;

use std::fmt::Write as _;

use super::report::{Diagnostic, Level, Report};
use super::source::{SourceText, Span};
use line::Shown;

impl Report {
    /// Renders all findings as text, ordered by file and position.
    pub fn render(&self) -> String {
        self.render_with_colours(false)
    }

    /// Renders all findings as text, with terminal colours if `has_colours` is set.
    pub fn render_with_colours(&self, has_colours: bool) -> String {
        render(self, has_colours)
    }

    /// Returns every finding with the text of its position, for structured logs.
    pub fn findings(&self) -> impl Iterator<Item = (&Diagnostic, String)> {
        self.diagnostics.iter().map(|diagnostic| {
            let location = diagnostic
                .span
                .and_then(|span| Some((span, self.source(span)?)));
            let text = location.map(|(span, source)| position(source, span));
            (diagnostic, text.unwrap_or_default())
        })
    }
}

/// Renders all findings, ordered by source and position.
pub(crate) fn render(report: &Report, has_colours: bool) -> String {
    let mut diagnostics: Vec<&Diagnostic> = report.diagnostics().iter().collect();
    diagnostics.sort_by_key(|diagnostic| {
        diagnostic
            .span
            .map(|span| (span.source, span.line, span.column))
    });
    let mut out = String::new();
    for diagnostic in diagnostics {
        render_one(report, diagnostic, has_colours, &mut out);
    }
    let counted = [
        count(report.errors(), "error"),
        count(report.warnings(), "warning"),
    ];
    let summary: Vec<String> = counted.into_iter().flatten().collect();
    if report.unlisted() > 0 {
        let _ = writeln!(out, "and {} more\n", report.unlisted());
    }
    if !summary.is_empty() {
        let _ = writeln!(out, "{}", summary.join(", "));
    }
    out
}

fn count(number: usize, noun: &str) -> Option<String> {
    match number {
        0 => None,
        1 => Some(format!("1 {noun}")),
        _ => Some(format!("{number} {noun}s")),
    }
}

fn render_one(report: &Report, diagnostic: &Diagnostic, has_colours: bool, out: &mut String) {
    // Bold red, yellow and cyan, as in compilers.
    let colour = match diagnostic.level {
        Level::Error => "1;31",
        Level::Warning => "1;33",
        Level::Notice => "1;36",
    };
    let paint = |text: &str| match has_colours {
        true => format!("\x1b[{colour}m{text}\x1b[0m"),
        false => text.to_owned(),
    };
    let level = paint(diagnostic.level.name());
    let _ = writeln!(out, "{level}: {}", printable(&diagnostic.message));
    let location = diagnostic
        .span
        .and_then(|span| Some((span, report.source(span)?)));
    let mut gutter = String::new();
    if let Some((span, source)) = location {
        gutter = " ".repeat(span.line.to_string().len());
        let _ = writeln!(out, "{gutter}--> {}", position(source, span));
        if let Some(shown) = Shown::new(report, source, span) {
            let _ = writeln!(out, "{gutter} |");
            let _ = writeln!(out, "{} | {}", span.line, shown.text.trim_end());
            let carets = paint(&shown.carets);
            let _ = writeln!(out, "{gutter} | {}{carets}", shown.indent);
        }
    }
    if !diagnostic.path.is_empty() {
        let _ = writeln!(out, "{gutter} = at: {}", path(&diagnostic.path));
    }
    for (span, text) in &diagnostic.related {
        if let Some(source) = report.source(*span) {
            let _ = writeln!(out, "{gutter} = note: {text}: {}", position(source, *span));
        }
    }
    let repeats: Vec<String> = diagnostic
        .repeats
        .iter()
        .filter_map(|span| Some(position(report.source(*span)?, *span)))
        .collect();
    if !repeats.is_empty() {
        let _ = writeln!(
            out,
            "{gutter} = note: also at: {}",
            printable(&repeats.join(", "))
        );
    }
    for help in &diagnostic.help {
        let _ = writeln!(out, "{gutter} = help: {}", printable(help));
    }
    out.push('\n');
}

pub(crate) fn position(source: &SourceText, span: Span) -> String {
    let name = printable(&source.name);
    if source.inline {
        return name;
    }
    format!("{name}:{}:{}", span.line, span.column)
}

/// Formats a path as `a.b[1].c`. Numeric segments are indices of lists.
fn path(segments: &[String]) -> String {
    let mut out = String::new();
    for segment in segments {
        let number = !segment.is_empty() && segment.bytes().all(|byte| byte.is_ascii_digit());
        if number && !out.is_empty() {
            let _ = write!(out, "[{segment}]");
        } else {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&printable(segment));
        }
    }
    out
}

/// Replaces control characters, which a terminal could interpret, and shortens long messages.
fn printable(text: &str) -> String {
    // A message that quotes a value may be as long as the configuration.
    const MAX_CHARACTERS: usize = 600;
    let harmless = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut out: String = text.chars().take(MAX_CHARACTERS).map(harmless).collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        out.push_str("...");
    }
    out
}
