//! `collector profiles top`.

use std::fmt::Write as _;
use std::path::Path;

use super::{Done, load, output};
use crate::profiles::top;

pub(super) fn top(file: &Path, sample_type: Option<&str>, count: usize, exact: bool) -> Done {
    let loaded = load::load(file)?;
    let profiles = &loaded.profiles;
    let kind = output::kind(profiles, sample_type)?;
    let top = top::top(profiles, kind);
    let (name, unit) = (&top.sample_type.0, top.sample_type.1.as_str());
    let show = |value: i64| match exact {
        true => value.to_string(),
        false => scaled(value, unit),
    };
    let mut text = String::new();
    let _ = writeln!(text, "Type: {name} ({unit})");
    let _ = writeln!(text, "Total: {}", show(top.total));
    let shown = match count {
        0 => top.rows.len(),
        count => count.min(top.rows.len()),
    };
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
    Ok((text.into_bytes(), loaded.notes))
}

/// A name comes from anywhere and goes to a terminal.
fn printable(name: &str) -> String {
    name.replace(char::is_control, "\u{fffd}")
}

/// A value in the unit that suits it: two decimals, as pprof shows it.
fn scaled(value: i64, unit: &str) -> String {
    const TIMES: [(f64, &str); 5] = [
        (3600e9, "hrs"),
        (60e9, "mins"),
        (1e9, "s"),
        (1e6, "ms"),
        (1e3, "us"),
    ];
    const SIZES: [(f64, &str); 4] = [
        ((1_u64 << 40) as f64, "TB"),
        ((1 << 30) as f64, "GB"),
        ((1 << 20) as f64, "MB"),
        ((1 << 10) as f64, "kB"),
    ];
    let (scales, base, smallest): (&[(f64, &str)], f64, &str) = match unit {
        "nanoseconds" | "nanosecond" | "ns" => (&TIMES, 1.0, "ns"),
        "microseconds" | "microsecond" | "us" => (&TIMES, 1e3, "us"),
        "milliseconds" | "millisecond" | "ms" => (&TIMES, 1e6, "ms"),
        "seconds" | "second" | "s" => (&TIMES, 1e9, "s"),
        "bytes" | "byte" | "By" | "B" => (&SIZES, 1.0, "B"),
        "count" | "" => return value.to_string(),
        unit => return format!("{value} {unit}"),
    };
    if value == 0 {
        return "0".to_owned();
    }
    let amount = value as f64 * base;
    let scale = scales.iter().find(|(size, _)| amount.abs() >= *size);
    match scale {
        Some((size, name)) => {
            let number = format!("{:.2}", amount / size);
            let number = number.trim_end_matches('0').trim_end_matches('.');
            format!("{number}{name}")
        }
        None => format!("{value}{smallest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_in_the_unit_that_suits_them() {
        assert_eq!(scaled(1_500_000_000, "nanoseconds"), "1.5s");
        assert_eq!(scaled(20, "milliseconds"), "20ms");
        assert_eq!(scaled(-2048, "bytes"), "-2kB");
        assert_eq!(scaled(0, "bytes"), "0");
        assert_eq!(scaled(512, "bytes"), "512B");
        assert_eq!(scaled(7, "count"), "7");
        assert_eq!(scaled(7, "objects"), "7 objects");
    }
}
