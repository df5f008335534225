//! `collector profiles diff`: shows growth and checks it against a limit.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{
    EXIT_COMPARISON_FAILED, EXIT_GROWTH, EXIT_SUCCESS, Outcome, flamegraph, input, load, output,
    table,
};
use crate::app::cli::options::Shape;
use crate::app::cli::printable;
use tributary_profiles::dictionary::ValueType;
use tributary_profiles::diff::{Change, Diff, DiffRow, Scales, diff};
use tributary_profiles::top;
use tributary_profiles::top::Top;

/// The compared profiles and the limits of growth.
#[derive(Debug, Args)]
pub(in crate::app::cli) struct Comparison {
    /// First measurement: a file, optionally compressed with gzip, a URL, or a directory whose
    /// files are the runs of one measurement; `-` is stdin.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Second measurement, in the same forms.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Exit with 1 if the total grew by more than this, such as 10%.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above: Option<f64>,
    /// Apply the limit to the cumulative value of this function instead of the total. May be given
    /// several times.
    #[arg(long, value_name = "NAME", requires = "fail_above")]
    function: Vec<String>,
    /// Apply the limit to the flat value of each function instead of the total.
    #[arg(long, requires = "fail_above", conflicts_with = "function")]
    each_function: bool,
    /// Value of a function: `flat`, of the function itself, or `cum`, including the functions that
    /// it calls. Also the sort order of the table. Default: `cum` with --function, else `flat`.
    #[arg(long, value_enum, value_name = "COLUMN")]
    by: Option<Column>,
    /// Minimum share of the total, in the first or the second measurement; functions below are left
    /// out, because few samples are noise. Functions named by --function are always included.
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "1%")]
    min_share: f64,
    /// Compare shares: scale the first measurement to the total of the second. For measurements of
    /// different duration or load. The total cannot grow then.
    #[arg(long)]
    normalize: bool,
    /// Also write a page with the flame graph of both measurements, colored by their difference.
    /// --focus and --ignore have no effect on it.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Maximum number of frames in the page. The lightest ones are shown as `(N more)`.
    #[arg(long, value_name = "COUNT", requires = "html", default_value_t = flamegraph::MAX_FRAMES)]
    max_frames: usize,
    #[command(flatten)]
    table: table::Table,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    reading: load::Reading,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Column {
    Flat,
    Cum,
}

impl Column {
    fn of(self, row: &DiffRow) -> Change {
        match self {
            Column::Flat => row.flat,
            Column::Cum => row.cumulative,
        }
    }
}

/// Compares the measurements, and checks the limit if there is one.
pub(super) fn compare(arguments: &Comparison) -> Outcome {
    match arguments.compare() {
        Ok((output, notes, grew)) => Outcome {
            output: output.into_bytes(),
            notes,
            code: if grew { EXIT_GROWTH } else { EXIT_SUCCESS },
        },
        Err(error) => Outcome {
            output: Vec::new(),
            notes: format!("error: {error}\n"),
            code: EXIT_COMPARISON_FAILED,
        },
    }
}

/// One of the two measurements.
struct Side {
    top: Top,
    loaded: load::Loaded,
    kind: ValueType,
    runs: usize,
    notes: String,
}

impl Comparison {
    fn compare(&self) -> Result<(String, String, bool), String> {
        let gated_by_total = !self.each_function && self.function.is_empty();
        if self.normalize && gated_by_total && self.fail_above.is_some() {
            return Err("--fail-above needs --function or --each-function with --normalize, which makes both totals \
                        equal"
                .to_owned());
        }
        let before = self.side(&self.before, self.table.sample_type.as_deref())?;
        let kind = self.table.sample_type.as_deref();
        let after = self.side(&self.after, kind.or(Some(&before.top.sample_type.0)))?;
        let [first, second] = [&before, &after].map(|side| &side.top.sample_type);
        if first != second {
            return Err(format!(
                "{} is in {} before, but in {} after",
                printable(&first.0),
                printable(&first.1),
                printable(&second.1)
            ));
        }
        let mut scales = Scales {
            before: 1.0 / before.runs as f64,
            after: 1.0 / after.runs as f64,
        };
        if self.normalize {
            scales = scales.normalized(&before.top, &after.top);
        }
        if let Some(file) = &self.html {
            let sides = [&before, &after].map(|side| (&side.loaded, side.kind));
            let scales = [scales.before, scales.after];
            let page = flamegraph::comparison(sides, scales, self.max_frames)?;
            output::save(file, page.as_bytes())?;
        }
        let diff = diff(&before.top, &after.top, scales);
        let mut text = self.heading(&before, &after, diff.total);
        self.rows(&mut text, &first.1, &diff);
        let mut verdict = String::new();
        let grew = match self.fail_above {
            Some(limit) => self.judge(&mut verdict, &first.1, &diff, limit)?,
            None => false,
        };
        match self.shape.json {
            true => text = self.as_json(first, &diff, grew, &verdict)?,
            false => text += &verdict,
        }
        Ok((text, before.notes + &after.notes, grew))
    }

    /// Returns the tables as JSON: values in the profile's own unit, largest changes first.
    fn as_json(
        &self,
        sample_type: &(String, String),
        diff: &Diff,
        grew: bool,
        verdict: &str,
    ) -> Result<String, String> {
        let change =
            |change: Change| serde_json::json!({"before": change.before, "after": change.after});
        let column = self.column();
        let difference = |row: &DiffRow| column.of(row).difference();
        let large = |row: &&DiffRow| row.cumulative.share(diff.total) >= self.min_share;
        let rows = diff.rows.iter().filter(large);
        let mut rows: Vec<&DiffRow> = rows.filter(|row| difference(row) != 0.0).collect();
        rows.sort_by(|a, b| {
            let by = difference(b).abs().total_cmp(&difference(a).abs());
            by.then_with(|| a.name.cmp(&b.name))
        });
        let shown = rows.iter().take(self.table.shown(rows.len()));
        let shown = shown.map(|row| {
            serde_json::json!({"name": row.name, "flat": change(row.flat), "cum": change(row.cumulative)})
        });
        let failed = verdict
            .lines()
            .filter_map(|line| line.strip_prefix("FAILED: "));
        let value = serde_json::json!({
            "type": sample_type.0,
            "unit": sample_type.1,
            "total": change(diff.total),
            "changed": rows.len(),
            "rows": shown.collect::<Vec<_>>(),
            "passed": self.fail_above.map(|_| !grew),
            "failed": failed.collect::<Vec<_>>(),
        });
        let text = serde_json::to_string_pretty(&value).map_err(|error| error.to_string())?;
        Ok(text + "\n")
    }

    fn side(&self, place: &Path, sample_type: Option<&str>) -> Result<Side, String> {
        let files = input::runs(place)?;
        let mut loaded = match files.as_slice() {
            [file] => load::load(file, &self.reading)?,
            files => load::merge(files, &self.reading)?,
        };
        loaded.name = place.display().to_string();
        let kind = output::kind(&loaded, sample_type)?;
        let top = top::top(&loaded.profiles, kind, &self.table.selection());
        let mut notes = std::mem::take(&mut loaded.notes);
        for note in &top.notes {
            let _ = writeln!(notes, "{}: note: {}", place.display(), printable(note));
        }
        Ok(Side {
            top,
            loaded,
            kind,
            runs: files.len(),
            notes,
        })
    }

    fn column(&self) -> Column {
        self.by.unwrap_or(match self.function.is_empty() {
            true => Column::Flat,
            false => Column::Cum,
        })
    }

    fn heading(&self, before: &Side, after: &Side, total: Change) -> String {
        let (name, unit) = &before.top.sample_type;
        let mut text = String::new();
        let _ = writeln!(text, "Type: {} ({})", printable(name), printable(unit));
        let scaled = if self.normalize {
            ", scaled to the total after"
        } else {
            ""
        };
        for (word, value, side, scaled) in [
            ("Before", total.before, before, scaled),
            ("After", total.after, after, ""),
        ] {
            let runs = match side.runs {
                1 => String::new(),
                runs => format!(" (mean of {runs} files)"),
            };
            let value = self.value(value, unit);
            let _ = writeln!(text, "{word}: {value}{runs}{scaled}");
        }
        let _ = writeln!(text, "Total: {}", self.change(total, unit));
        text
    }

    /// Lists the changes, largest first.
    fn rows(&self, text: &mut String, unit: &str, diff: &Diff) {
        let column = self.column();
        let large = |row: &&DiffRow| row.cumulative.share(diff.total) >= self.min_share;
        let changed = diff.rows.iter().filter(large);
        let changed = changed.filter(|row| column.of(row).difference() != 0.0);
        let (mut grew, mut shrank): (Vec<&DiffRow>, Vec<&DiffRow>) =
            changed.partition(|row| column.of(row).difference() > 0.0);
        for (rows, what) in [(&mut grew, "Grew"), (&mut shrank, "Shrank")] {
            rows.sort_by(|a, b| {
                let by = |row: &DiffRow| column.of(row).difference().abs();
                by(b).total_cmp(&by(a)).then_with(|| a.name.cmp(&b.name))
            });
            let shown = self.table.shown(rows.len());
            let _ = match (shown, rows.len()) {
                (_, 0) => writeln!(text, "{what}: none"),
                (shown, all) if shown < all => writeln!(text, "{what}: {all}, of which {shown}"),
                (_, all) => writeln!(text, "{what}: {all}"),
            };
            if rows.is_empty() {
                continue;
            }
            let _ = writeln!(
                text,
                "{:>12} {:>12} {:>9} {:>12} {:>12}",
                "flat", "change", "", "cum", "change"
            );
            for row in rows.iter().take(shown) {
                for change in [row.flat, row.cumulative] {
                    let _ = write!(
                        text,
                        "{:>12} {:>12} {:>9} ",
                        self.value(change.after, unit),
                        self.signed(change.difference(), unit),
                        growth(change)
                    );
                }
                let _ = writeln!(text, " {}", printable(&row.name));
            }
        }
    }

    /// Reports growth above the limit; returns whether there was any.
    fn judge(
        &self,
        text: &mut String,
        unit: &str,
        diff: &Diff,
        limit: f64,
    ) -> Result<bool, String> {
        let column = self.column();
        let mut judged: Vec<(String, Change)> = Vec::new();
        if self.each_function {
            let large = |row: &&DiffRow| column.of(row).share(diff.total) >= self.min_share;
            let rows = diff.rows.iter().filter(large);
            judged.extend(rows.map(|row| (printable(&row.name), column.of(row))));
        } else if self.function.is_empty() {
            judged.push(("the total".to_owned(), diff.total));
        }
        for name in &self.function {
            // A guard on a function without samples has no effect, so report it.
            let row = diff.rows.iter().find(|row| row.name == *name);
            let row = row.ok_or_else(|| unknown(name, diff))?;
            judged.push((printable(name), column.of(row)));
        }
        let (mut bad, good): (Vec<_>, Vec<_>) = judged
            .into_iter()
            .partition(|(_, change)| change.growth() > limit);
        bad.sort_by(|(_, a), (_, b)| b.difference().total_cmp(&a.difference()));
        let limit = format!("{:.4}", limit * 100.0);
        let limit = limit.trim_end_matches('0').trim_end_matches('.');
        for (name, change) in &bad {
            let change = self.change(*change, unit);
            let _ = writeln!(text, "FAILED: {name}: {change}, more than {limit}%");
        }
        if bad.is_empty() {
            let _ = match good.as_slice() {
                [(name, change)] => {
                    let change = self.change(*change, unit);
                    writeln!(text, "passed: {name}: {change}, not more than {limit}%")
                }
                all => writeln!(
                    text,
                    "passed: none of {} functions grew by more than {limit}%",
                    all.len()
                ),
            };
        }
        Ok(!bad.is_empty())
    }

    fn change(&self, change: Change, unit: &str) -> String {
        format!(
            "{} -> {}, {} ({})",
            self.value(change.before, unit),
            self.value(change.after, unit),
            self.signed(change.difference(), unit),
            growth(change)
        )
    }

    fn value(&self, value: f64, unit: &str) -> String {
        self.table.show(value.round() as i64, unit)
    }

    fn signed(&self, value: f64, unit: &str) -> String {
        let shown = self.value(value, unit);
        match value.round() > 0.0 {
            true => format!("+{shown}"),
            false => shown,
        }
    }
}

/// Formats the growth of a value relative to its old value.
fn growth(change: Change) -> String {
    match change.growth() {
        growth if growth.is_infinite() => "new".to_owned(),
        growth => format!("{:+.2}%", growth * 100.0),
    }
}

/// Returns the error for a function that neither measurement has.
fn unknown(name: &str, diff: &Diff) -> String {
    let similar = diff.rows.iter().map(|row| row.name.as_str());
    let mut similar: Vec<String> = similar
        .filter(|known| known.contains(name))
        .map(printable)
        .collect();
    similar.sort_by_key(String::len);
    similar.truncate(3);
    let hint = match similar.as_slice() {
        [] => "`collector profiles top -n 0` lists them".to_owned(),
        names => format!("did you mean {}?", names.join(" or ")),
    };
    format!(
        "neither measurement has a function `{}`; {hint}",
        printable(name)
    )
}

/// Parses `10%` or `10` into a fraction of 1.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    match number.parse::<f64>() {
        Ok(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err("must be a percentage of at least 0, such as 10%".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percents_are_read_with_and_without_the_sign() {
        assert_eq!(percent("10%"), Ok(0.1));
        assert_eq!(percent("0.5"), Ok(0.005));
        assert_eq!(percent("0 %"), Ok(0.0));
        for bad in ["-1%", "ten", "%", "inf", "NaN"] {
            assert!(percent(bad).is_err(), "{bad}");
        }
    }
}
