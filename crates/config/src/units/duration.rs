//! Durations in Go's notation.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const EXAMPLE: &str = "write `200ms`, `1m30s` or `1.5h`, for example";

/// A duration as Go writes them: `200ms`, `1m30s`, `1.5h`; `0` or `0s` is zero. Units: `ns us ms s
/// m h`.
///
/// Never negative, and at most 2^63 - 1 ns (292 years), as Go's. See
/// <https://pkg.go.dev/time#ParseDuration>.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    /// Creates a duration from seconds.
    pub const fn secs(seconds: u64) -> Self {
        Duration(std::time::Duration::from_secs(seconds))
    }

    /// Creates a duration from milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Duration(std::time::Duration::from_millis(millis))
    }

    /// Returns `None` for zero, for keys in which 0 means no limit.
    pub const fn unless_zero(self) -> Option<std::time::Duration> {
        match self.0.is_zero() {
            true => None,
            false => Some(self.0),
        }
    }
}

impl Deref for Duration {
    type Target = std::time::Duration;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl std::str::FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let invalid = || format!("`{text}` is not a duration: {EXAMPLE}");
        if text.starts_with('-') {
            return Err(format!(
                "`{text}` is negative: a duration must be at least 0"
            ));
        }
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Duration::default());
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u128 = 0;
        while !rest.is_empty() {
            let (number, after) = split(rest, |letter| letter.is_ascii_digit() || letter == '.');
            let (unit, after) = split(after, |letter| !letter.is_ascii_digit() && letter != '.');
            if number.is_empty() {
                return Err(invalid());
            }
            let Some(scale) = nanoseconds(unit) else {
                return Err(match unit {
                    "" => format!("`{text}` has no unit: {EXAMPLE}"),
                    _ => {
                        let unit = unit.trim();
                        format!("`{unit}` in `{text}` is not a unit: use ns, us, ms, s, m or h")
                    }
                });
            };
            total = scaled(number, scale)
                .and_then(|part| total.checked_add(part))
                .ok_or_else(invalid)?;
            rest = after;
        }
        match i64::try_from(total).map(i64::unsigned_abs) {
            Ok(nanoseconds) => Ok(Duration(std::time::Duration::from_nanos(nanoseconds))),
            Err(_) => Err(format!(
                "`{text}` is longer than 292 years, the longest duration"
            )),
        }
    }
}

/// Splits the text after its longest prefix of fitting letters.
fn split(text: &str, fits: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|letter| !fits(letter)).unwrap_or(text.len());
    text.split_at(end)
}

fn nanoseconds(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        // Go accepts both letters that look like a Greek mu.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Returns a decimal number times `scale`. Fractions of a nanosecond are cut off, as in Go.
fn scaled(number: &str, scale: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut total = whole.checked_mul(scale)?;
    // After 13 digits (of an hour), further digits are below a nanosecond.
    let digits = fraction.get(..fraction.len().min(16))?;
    if !digits.is_empty() {
        let power = 10u128.pow(u32::try_from(digits.len()).ok()?);
        total = total.checked_add(digits.parse::<u128>().ok()? * scale / power)?;
    }
    Some(total)
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let nanoseconds = self.0.subsec_nanos();
        if seconds == 0 {
            return match nanoseconds {
                0 => f.write_str("0s"),
                1..1_000 => write!(f, "{nanoseconds}ns"),
                1_000..1_000_000 => write!(f, "{}us", decimal(nanoseconds, 1_000)),
                _ => write!(f, "{}ms", decimal(nanoseconds, 1_000_000)),
            };
        }
        let (hours, minutes) = (seconds / 3600, seconds % 3600 / 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        let fraction = decimal(nanoseconds, 1_000_000_000);
        write!(f, "{}{}s", seconds % 60, fraction.trim_start_matches('0'))
    }
}

/// Formats `value / scale` with as many digits as needed.
fn decimal(value: u32, scale: u32) -> String {
    let (whole, fraction) = (value / scale, value % scale);
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = scale.ilog10() as usize;
    let fraction = format!("{fraction:0digits$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DurationVisitor)
    }
}

fn unit_needed(number: impl fmt::Display) -> String {
    format!(
        "a duration needs a unit: write `{number}s` for seconds or `{number}ms` for milliseconds"
    )
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as `200ms` or `1m30s`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Duration, E> {
        match number {
            0 => Ok(Duration::default()),
            // The Collector reads a bare number as nanoseconds, which is never intended.
            _ => Err(E::custom(unit_needed(number))),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Duration, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!(
                "`{number}` is negative: a duration must be at least 0"
            ))),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Duration, E> {
        Err(E::custom(unit_needed(number)))
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let text = "^\\+?(0|([0-9]*\\.?[0-9]*(ns|us|\u{b5}s|ms|s|m|h))+)$|\\$\\{";
        json_schema!({
            "description": "A duration such as `200ms`, `1m30s` or `1.5h`; units: ns us ms s m h.",
            "anyOf": [
                {"type": "string", "pattern": text},
                {"const": 0},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_printed_like_go() {
        for (text, nanoseconds, printed) in [
            ("0", 0, "0s"),
            ("200ms", 200_000_000, "200ms"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("+.5s", 500_000_000, "500ms"),
            ("1h0m0.25s", 3_600_250_000_000, "1h0m0.25s"),
            ("1500us", 1_500_000, "1.5ms"),
            ("1.0000000019s", 1_000_000_001, "1.000000001s"),
            ("10s", 10_000_000_000, "10s"),
            ("1.05s", 1_050_000_000, "1.05s"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.as_nanos(), nanoseconds, "{text}");
            assert_eq!(duration.to_string(), printed, "{text}");
            assert_eq!(printed.parse::<Duration>().unwrap(), duration, "{printed}");
        }
    }

    #[test]
    fn invalid_duration_has_a_reason() {
        for (text, part) in [
            ("", "is not a duration"),
            ("5", "has no unit"),
            ("-1s", "negative"),
            ("5 apples", "is not a unit"),
            ("1d", "use ns, us, ms, s, m or h"),
            ("1.2.3s", "is not a duration"),
            (".s", "is not a duration"),
            ("s", "is not a duration"),
            ("9999999h", "292 years"),
        ] {
            let error = text.parse::<Duration>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
