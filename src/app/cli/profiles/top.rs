//! `collector profiles top`.

use std::fmt::Write as _;
use std::path::Path;

use super::{Done, load, output, table};
use crate::app::cli::options::Shape;
use crate::app::cli::printable;
use tributary_profiles::top;
use tributary_profiles::top::Top;

/// Returns the table as JSON, with values in the profile's own unit.
fn as_json(top: &Top, table: &table::Table) -> Result<String, String> {
    let rows = top.rows.iter().take(table.shown(top.rows.len()));
    let rows = rows
        .map(|row| serde_json::json!({"name": row.name, "flat": row.flat, "cum": row.cumulative}));
    let value = serde_json::json!({
        "type": top.sample_type.0,
        "unit": top.sample_type.1,
        "total": top.total,
        "functions": top.rows.len(),
        "rows": rows.collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

pub(super) fn top(
    file: &Path,
    reading: &load::Reading,
    table: &table::Table,
    shape: Shape,
) -> Done {
    let loaded = load::load(file, reading)?;
    let kind = output::kind(&loaded, table.sample_type.as_deref())?;
    let top = top::top(&loaded.profiles, kind, &table.selection());
    let mut notes = loaded.notes;
    for note in &top.notes {
        let _ = writeln!(notes, "{}: note: {}", file.display(), printable(note));
    }
    if shape.json {
        return Ok((as_json(&top, table)?.into_bytes(), notes));
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
