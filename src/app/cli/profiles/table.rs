//! Common parts of the tables for people: scaled units, sanitized names, filters of samples.

use clap::Args;
use regex::Regex;

use crate::app::cli::printable;
use tributary_profiles::frames::Selection;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct Table {
    /// Sample type to count, such as `cpu` or `inuse_space`. Default: the default sample type of
    /// the profile, else the last sample type of a pprof file.
    #[arg(long, value_name = "NAME")]
    pub(super) sample_type: Option<String>,
    /// Number of functions to show; 0 shows all.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 30)]
    pub(super) count: usize,
    /// Show whole numbers in the profile's own unit.
    #[arg(long)]
    pub(super) exact: bool,
    /// Count only samples with a frame whose function, file or binary matches this regular
    /// expression.
    #[arg(long, value_name = "REGEX")]
    focus: Option<Regex>,
    /// Skip samples with a frame whose function, file or binary matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    ignore: Option<Regex>,
}

impl Table {
    pub(super) fn selection(&self) -> Selection {
        Selection {
            focus: self.focus.clone(),
            ignore: self.ignore.clone(),
        }
    }

    pub(super) fn show(&self, value: i64, unit: &str) -> String {
        match self.exact {
            true => value.to_string(),
            false => scaled(value, unit),
        }
    }

    pub(super) fn shown(&self, rows: usize) -> usize {
        match self.count {
            0 => rows,
            count => count.min(rows),
        }
    }
}

/// Formats a value in a suitable unit with two decimals, as pprof does.
pub(super) fn scaled(value: i64, unit: &str) -> String {
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
        unit => return format!("{value} {}", printable(unit)),
    };
    if value == 0 {
        return "0".to_owned();
    }
    let amount = value as f64 * base;
    // With two decimals, a minute or an hour is rounded by up to 0.3 or 18 seconds. Minutes and
    // hours therefore begin at ten, where the relative error is small.
    let fits = |size: f64, name: &str| match name {
        "hrs" | "mins" => amount.abs() >= 10.0 * size,
        _ => amount.abs() >= size,
    };
    let scale = scales.iter().find(|(size, name)| fits(*size, name));
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
    fn values_are_shown_in_suitable_unit() {
        assert_eq!(scaled(1_500_000_000, "nanoseconds"), "1.5s");
        assert_eq!(scaled(20, "milliseconds"), "20ms");
        assert_eq!(scaled(240_290, "milliseconds"), "240.29s");
        assert_eq!(scaled(660, "seconds"), "11mins");
        assert_eq!(scaled(-2048, "bytes"), "-2kB");
        assert_eq!(scaled(0, "bytes"), "0");
        assert_eq!(scaled(512, "bytes"), "512B");
        assert_eq!(scaled(7, "count"), "7");
        assert_eq!(scaled(7, "objects"), "7 objects");
    }
}
