//! The index of the reference.

use std::fmt::Write;

use super::Page;
use super::markdown::{MARK, cell};

/// Text before the tables.
const HEAD: &str = include_str!("index.md");

pub(super) fn render(pages: &[Page]) -> String {
    let mut out = format!("{MARK}{HEAD}");
    let mut kind = "";
    for page in pages {
        if page.kind != kind {
            kind = page.kind;
            let title = match kind {
                "receiver" => "Receivers",
                "processor" => "Processors",
                "exporter" => "Exporters",
                "connector" => "Connectors",
                "extension" => "Extensions",
                _ => "The collector itself",
            };
            let _ = writeln!(
                out,
                "\n## {title}\n\n| Component | Purpose | Signals |\n|---|---|---|"
            );
        }
        let signals: Vec<&str> = page.signals.iter().map(|support| support.signal).collect();
        let name = match kind {
            "service" => "service.telemetry",
            _ => page.name,
        };
        let (path, summary) = (page.path(), cell(&page.summary));
        let _ = writeln!(
            out,
            "| [`{name}`]({path}) | {summary} | {} |",
            signals.join(", ")
        );
    }
    out
}
