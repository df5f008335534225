//! Durations in Prometheus' notation: `1d`, `1h30m`, `15s`, `500ms`.

use std::fmt::Write as _;
use std::time::Duration;

/// Units with their milliseconds, largest first.
const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Parses a duration; `None` for other texts. Each unit may occur once, larger ones first; `0` needs no unit.
pub fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after
            .bytes()
            .take_while(|byte| !byte.is_ascii_digit())
            .count();
        let (unit, after) = after.split_at(letters);
        let (_, scale) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*scale)?)?;
        rest = after;
    }
    // Go's durations have 63 bits of nanoseconds.
    let limit = u64::MAX / 2 / 1_000_000;
    (!text.is_empty() && total <= limit).then(|| Duration::from_millis(total))
}

/// Formats a duration, cut to milliseconds. Years and weeks are used only if nothing is left over.
pub fn format(duration: Duration) -> String {
    let mut left = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if left == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (at, (unit, scale)) in UNITS.iter().enumerate() {
        let count = left / scale;
        let is_exact = at > 1 || left.is_multiple_of(*scale);
        if count > 0 && is_exact {
            // Writing to a text does not fail.
            let _ = write!(text, "{count}{unit}");
            left %= scale;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of Prometheus' own tests.
    #[test]
    fn durations_are_read_and_written_as_in_prometheus() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("324ms", 324),
            ("3s", 3_000),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("4d", 4 * 86_400_000),
            ("4d1h", 4 * 86_400_000 + 3_600_000),
            ("3w", 21 * 86_400_000),
            ("10y", 3650 * 86_400_000),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for (milliseconds, text) in [
            (0, "0s"),
            (90_000, "1m30s"),
            (4 * 86_400_000, "4d"),
            (1_500, "1s500ms"),
        ] {
            assert_eq!(format(Duration::from_millis(milliseconds)), text);
        }
        for wrong in ["", "1", "1s1m", "-1w", "1.5d", "d", "294y", "1s1s", "1us"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
