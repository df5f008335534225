//! Findings as text, with the source line and a caret under what is meant.

use std::fmt::Write as _;

use super::report::{Diagnostic, Level, Report};

pub(super) fn render(report: &Report) -> String {
    let mut diagnostics: Vec<&Diagnostic> = report.diagnostics().iter().collect();
    diagnostics.sort_by_key(|diagnostic| diagnostic.span);
    let mut out = String::new();
    for diagnostic in diagnostics {
        let level = match diagnostic.level {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Notice => "notice",
        };
        let _ = writeln!(out, "{level}: {}", diagnostic.message);
        if let Some((span, source)) = diagnostic
            .span
            .and_then(|span| Some((span, report.source(span)?)))
        {
            let _ = writeln!(out, " --> {}:{}:{}", source.name, span.line, span.column);
        }
    }
    out
}
