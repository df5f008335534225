//! The page about components of the Collector that this collector does not have.

use std::fmt::Write;

use super::Page;
use super::markdown::{MARK, cell};
use crate::app::config::{COUNTERPARTS, Counterpart};

/// Path of the page below `docs/reference`.
pub(super) const PATH: &str = "compatibility.md";

/// Text before the table.
const HEAD: &str = include_str!("compatibility.md");

/// Renders the page. Components with a page of their own are omitted.
pub(super) fn render(pages: &[Page]) -> String {
    let exists = |row: &Counterpart| {
        let mut pages = pages.iter().filter(|page| page.kind == row.kind.name());
        pages.any(|page| {
            row.names
                .iter()
                .any(|name| page.name == *name || page.aliases.contains(name))
        })
    };
    let mut out = format!("{MARK}{HEAD}");
    for row in COUNTERPARTS.iter().filter(|row| !exists(row)) {
        let names: Vec<String> = row.names.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            row.kind.name(),
            names.join(", "),
            row.outlook.words().trim_start_matches("is "),
            cell(row.instead)
        );
    }
    out
}
