//! Units, and names without their suffixes, by the rules of the Collector.

use std::borrow::Cow;

use super::point::PointKind;

/// Words for units with their codes in UCUM, as the Collector has them.
const WORDS: [(&str, &str); 25] = [
    ("days", "d"),
    ("hours", "h"),
    ("minutes", "min"),
    ("seconds", "s"),
    ("milliseconds", "ms"),
    ("microseconds", "us"),
    ("nanoseconds", "ns"),
    ("bytes", "By"),
    ("kibibytes", "KiBy"),
    ("mebibytes", "MiBy"),
    ("gibibytes", "GiBy"),
    ("tibibytes", "TiBy"),
    ("kilobytes", "KBy"),
    ("megabytes", "MBy"),
    ("gigabytes", "GBy"),
    ("terabytes", "TBy"),
    ("meters", "m"),
    ("volts", "V"),
    ("amperes", "A"),
    ("joules", "J"),
    ("watts", "W"),
    ("grams", "g"),
    ("celsius", "Cel"),
    ("hertz", "Hz"),
    ("percent", "%"),
];

/// Words after `per`.
const PER: [(&str, &str); 7] = [
    ("second", "s"),
    ("minute", "m"),
    ("hour", "h"),
    ("day", "d"),
    ("week", "w"),
    ("month", "mo"),
    ("year", "y"),
];

/// Returns the UCUM code of a unit: `s` for `seconds`, `By/s` for `bytes_per_second`.
pub(super) fn ucum(unit: &str) -> Cow<'_, str> {
    let (word, per) = unit.split_once("_per_").unwrap_or((unit, ""));
    let word = match word {
        "ratio" => "1",
        word => translated(&WORDS, word),
    };
    match per {
        "" => word.into(),
        per => format!("{word}/{}", translated(&PER, per)).into(),
    }
}

fn translated<'a>(words: &[(&'static str, &'static str)], word: &'a str) -> &'a str {
    words
        .iter()
        .find(|(name, _)| *name == word)
        .map_or(word, |(_, code)| code)
}

/// Returns the name of a metric without its suffixes of type and unit.
pub(super) fn trimmed<'n>(name: &'n str, kind: PointKind, unit: &str) -> Cow<'n, str> {
    if !name.contains('_') {
        return name.into();
    }
    let name = match kind {
        PointKind::Sum { .. } => name.strip_suffix("_total").unwrap_or(name),
        _ => name,
    };
    let base = name
        .strip_suffix(unit)
        .and_then(|base| base.strip_suffix('_'));
    base.unwrap_or(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_ucum_codes() {
        for (unit, code) in [
            ("", ""),
            ("seconds", "s"),
            ("bytes_per_second", "By/s"),
            ("ratio", "1"),
            ("requests", "requests"),
        ] {
            assert_eq!(ucum(unit), code);
        }
    }

    #[test]
    fn suffixes_of_type_and_unit_are_trimmed() {
        let sum = PointKind::Sum { is_monotonic: true };
        for (name, kind, unit, expected) in [
            ("a_seconds_total", sum, "seconds", "a"),
            (
                "a_bytes_per_second",
                PointKind::Gauge,
                "bytes_per_second",
                "a",
            ),
            ("a_total", PointKind::Gauge, "", "a_total"),
            ("seconds", PointKind::Gauge, "seconds", "seconds"),
            ("a_total", sum, "seconds", "a"),
        ] {
            assert_eq!(trimmed(name, kind, unit), expected);
        }
    }
}
