//! `collector profiles top`.

use std::fmt::Write as _;
use std::path::Path;

use super::{Done, load, output, table};
use crate::app::cli::printable;
use tributary_profiles::top;

pub(super) fn top(file: &Path, reading: &load::Reading, table: &table::Table) -> Done {
    let loaded = load::load(file, reading)?;
    let kind = output::kind(&loaded, table.sample_type.as_deref())?;
    let top = top::top(&loaded.profiles, kind, &table.selection());
    let mut notes = loaded.notes;
    for note in &top.notes {
        let _ = writeln!(notes, "{}: note: {}", file.display(), printable(note));
    }
    let (name, unit) = (&top.sample_type.0, top.sample_type.1.as_str());
    let show = |value: i64| table.show(value, unit);
    let mut text = String::new();
    let _ = writeln!(text, "Type: {} ({})", printable(name), printable(unit));
    let _ = writeln!(text, "Total: {}", show(top.total));
    let shown = table.shown(top.rows.len());
    let _ = writeln!(text, "Showing {shown} of {} functions", top.rows.len());
    let _ = writeln!(
        text,
        "{:>12} {:>7} {:>7} {:>12} {:>7}",
        "flat", "flat%", "sum%", "cum", "cum%"
    );
    let percent = |value: i128| match top.total {
        0 => "0%".to_owned(),
        total => format!("{:.2}%", value as f64 * 100.0 / total as f64),
    };
    let mut sum: i128 = 0;
    for row in top.rows.iter().take(shown) {
        sum += i128::from(row.flat);
        let _ = writeln!(
            text,
            "{:>12} {:>7} {:>7} {:>12} {:>7}  {}",
            show(row.flat),
            percent(row.flat.into()),
            percent(sum),
            show(row.cumulative),
            percent(row.cumulative.into()),
            printable(&row.name),
        );
    }
    Ok((text.into_bytes(), notes))
}
