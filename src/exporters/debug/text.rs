//! Text of single values. Control characters in received values are escaped, so that each value stays on one line.

use std::fmt::{self, Display, Formatter, Write};

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};

use tributary_otlp::view::text_of;

/// Escapes the control characters of a text.
pub(super) struct Plain<'a>(pub(super) &'a str);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            // A tab cannot forge a line.
            if character.is_control() && character != '\t' {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Returns an id in hexadecimal digits; empty if there is no id.
pub(super) struct Id<'a>(pub(super) &'a [u8]);

impl Display for Id<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.iter().all(|byte| *byte == 0) {
            true => Ok(()),
            false => Hex(self.0).fmt(f),
        }
    }
}

/// A time in nanoseconds since 1970, as Go prints it.
pub(super) struct Timestamp(pub(super) u64);

impl Display for Timestamp {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Go's time is signed: a larger number is a time before 1970.
        let nanoseconds = self.0.cast_signed();
        let (second, fraction) = (
            nanoseconds.div_euclid(1_000_000_000),
            nanoseconds.rem_euclid(1_000_000_000),
        );
        let time = jiff::Timestamp::from_second(second).map_err(|_| fmt::Error)?;
        let time = jiff::tz::Offset::UTC.to_datetime(time);
        let (date, time) = (time.date(), time.time());
        write!(
            f,
            "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
            date.year(),
            date.month(),
            date.day(),
            time.hour(),
            time.minute(),
            time.second()
        )?;
        if fraction != 0 {
            let digits = format!("{fraction:09}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str(" +0000 UTC")
    }
}

/// A number as Go prints it with `%f`: six digits behind the point.
pub(super) struct Decimal(pub(super) f64);

impl Display for Decimal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            value if value.is_nan() => f.write_str("NaN"),
            value => write!(f, "{value:.6}"),
        }
    }
}

/// A value with its type, as the Collector prints it: `Str(text)`.
pub(super) fn typed(value: Option<&AnyValue>, strings: Strings<'_>) -> String {
    let any = value.and_then(|value| value.value.as_ref());
    let kind = match any {
        None => return "Empty()".to_owned(),
        Some(Any::StringValueStrindex(index)) => return format!("Str({})", strings.get(*index)),
        Some(Any::StringValue(_)) => "Str",
        Some(Any::BoolValue(_)) => "Bool",
        Some(Any::IntValue(_)) => "Int",
        Some(Any::DoubleValue(_)) => "Double",
        Some(Any::ArrayValue(_)) => "Slice",
        Some(Any::KvlistValue(_)) => "Map",
        Some(Any::BytesValue(_)) => "Bytes",
    };
    let text = value.map(text_of).unwrap_or_default();
    format!("{kind}({})", Plain(&text))
}

/// Returns the name of an enum value without the common prefix; empty if OTLP has no name for the value.
pub(super) fn known_name(name: Option<&'static str>, prefix: &str) -> String {
    match name {
        Some(name) => enum_name(Some(name), prefix, 0),
        None => String::new(),
    }
}

/// Formats bytes in hexadecimal digits.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Formats a time in nanoseconds since 1970 in readable and exact form. Zero means no time.
pub(super) struct Time(pub(super) u64);

impl Display for Time {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("unset"),
            nanos => write!(f, "{} ({nanos})", Utc(nanos)),
        }
    }
}

/// A time in nanoseconds since 1970, as in RFC 3339.
pub(super) struct Utc(pub(super) u64);

impl Display for Utc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1_000_000_000;
        let (year, month, day) = civil(seconds / 86_400);
        let of_day = seconds % 86_400;
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:09}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60,
            self.0 % 1_000_000_000
        )
    }
}

/// Returns year, month and day for a number of days since 1970, in the proleptic Gregorian calendar. The calculation
/// uses years that begin in March, so that the leap day comes last, and eras of 400 years, after which the calendar
/// repeats.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year + era * 400 + carry, month, day)
}

/// An amount of nanoseconds: readable, and exact.
pub(super) struct Nanos(pub(super) u64);

impl Display for Nanos {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", std::time::Duration::from_nanos(self.0))
    }
}

/// Result of resolving a possible reference: the text, or an index out of bounds.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Resolved<'a> {
    /// The text.
    Text(&'a str),
    /// The index is out of range.
    Invalid(i32),
}

impl Resolved<'_> {
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Resolved::Text(""))
    }
}

impl Display for Resolved<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Resolved::Text(text) => Plain(text).fmt(f),
            Resolved::Invalid(index) => write!(f, "<invalid index {index}>"),
        }
    }
}

/// Strings that keys and values may refer to: those of a profiles dictionary, or none.
#[derive(Clone, Copy, Default)]
pub(super) struct Strings<'a>(pub(super) &'a [String]);

impl<'a> Strings<'a> {
    pub(super) fn get(self, index: i32) -> Resolved<'a> {
        usize::try_from(index)
            .ok()
            .and_then(|at| self.0.get(at))
            .map_or(Resolved::Invalid(index), |text| Resolved::Text(text))
    }

    /// Returns the string; index 0 means none.
    pub(super) fn get_or_empty(self, index: i32) -> Resolved<'a> {
        match index {
            0 => Resolved::Text(""),
            index => self.get(index),
        }
    }

    pub(super) fn attribute(self, attribute: &'a KeyValue) -> Attribute<'a> {
        Attribute {
            key: match attribute.key_strindex {
                0 => Resolved::Text(&attribute.key),
                index => self.get(index),
            },
            value: self.value(attribute.value.as_ref()),
            unit: Resolved::Text(""),
        }
    }

    pub(super) fn attributes(self, list: &'a [KeyValue]) -> Vec<Attribute<'a>> {
        list.iter()
            .map(|attribute| self.attribute(attribute))
            .collect()
    }

    pub(super) fn value(self, value: Option<&'a AnyValue>) -> Value<'a> {
        Value {
            value: value.and_then(|value| value.value.as_ref()),
            strings: self,
        }
    }
}

/// An attribute. Displays as `key: Str(value)`, and as `key=value` with `{:#}`.
pub(super) struct Attribute<'a> {
    pub(super) key: Resolved<'a>,
    pub(super) value: Value<'a>,
    pub(super) unit: Resolved<'a>,
}

impl Display for Attribute<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let (Resolved::Invalid(_), None) = (self.key, self.value.value) {
            return self.key.fmt(f);
        }
        if f.alternate() {
            return write!(f, "{}={:#}", self.key, self.value);
        }
        write!(f, "{}: {}", self.key, self.value)?;
        match self.unit {
            unit if unit.is_empty() => Ok(()),
            unit => write!(f, " {unit}"),
        }
    }
}

/// A value. Displays with its type as `Str(text)`, and without with `{:#}`.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    value: Option<&'a Any>,
    strings: Strings<'a>,
}

impl Display for Value<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self.value {
            Some(Any::StringValue(text)) => Resolved::Text(text),
            Some(Any::StringValueStrindex(index)) => self.strings.get(*index),
            _ => Resolved::Text(""),
        };
        let kind = match self.value {
            None => return f.write_str(if f.alternate() { "" } else { "Empty()" }),
            Some(Any::StringValue(_) | Any::StringValueStrindex(_)) if f.alternate() => {
                return text.fmt(f);
            }
            Some(Any::StringValue(_) | Any::StringValueStrindex(_)) => {
                return write!(f, "Str({text})");
            }
            Some(Any::BoolValue(_)) => "Bool",
            Some(Any::IntValue(_)) => "Int",
            Some(Any::DoubleValue(_)) => "Double",
            Some(Any::ArrayValue(_)) => "Slice",
            Some(Any::KvlistValue(_)) => "Map",
            Some(Any::BytesValue(_)) => "Bytes",
        };
        if f.alternate() {
            return self.nested(f);
        }
        write!(f, "{kind}(")?;
        self.nested(f)?;
        f.write_str(")")
    }
}

impl Value<'_> {
    /// Quotes bytes inside a list or a map, because `12` would be a number there.
    fn element(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(Any::BytesValue(bytes)) => write!(f, "\"{}\"", Hex(bytes)),
            _ => self.nested(f),
        }
    }

    /// Writes a value as JSON, with bytes in hexadecimal digits.
    fn nested(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let strings = self.strings;
        match self.value {
            None => f.write_str("null"),
            Some(Any::StringValue(text)) => quoted(f, Resolved::Text(text)),
            Some(Any::StringValueStrindex(index)) => quoted(f, strings.get(*index)),
            Some(Any::BoolValue(value)) => value.fmt(f),
            Some(Any::IntValue(value)) => value.fmt(f),
            Some(Any::DoubleValue(value)) => write!(f, "{value:?}"),
            Some(Any::BytesValue(bytes)) => Hex(bytes).fmt(f),
            Some(Any::ArrayValue(array)) => {
                f.write_str("[")?;
                for (at, value) in array.values.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    strings.value(Some(value)).element(f)?;
                }
                f.write_str("]")
            }
            Some(Any::KvlistValue(list)) => {
                f.write_str("{")?;
                for (at, pair) in list.values.iter().enumerate() {
                    f.write_str(if at > 0 { "," } else { "" })?;
                    let attribute = strings.attribute(pair);
                    quoted(f, attribute.key)?;
                    f.write_str(":")?;
                    attribute.value.element(f)?;
                }
                f.write_str("}")
            }
        }
    }
}

fn quoted(f: &mut Formatter<'_>, text: Resolved<'_>) -> fmt::Result {
    match text {
        Resolved::Text(text) => write!(f, "\"{}\"", Plain(&text.replace('"', "\\\""))),
        Resolved::Invalid(_) => text.fmt(f),
    }
}

/// Returns `name@version`, or the parts that are present.
pub(super) struct Scope<'a>(pub(super) &'a InstrumentationScope);

impl Display for Scope<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Plain(&self.0.name).fmt(f)?;
        if !self.0.version.is_empty() {
            write!(f, "@{}", Plain(&self.0.version))?;
        }
        Ok(())
    }
}

/// Returns the name of an enum value without the common prefix, or the number if OTLP has no name for it.
pub(super) fn enum_name(name: Option<&'static str>, prefix: &str, number: i32) -> String {
    match name.and_then(|name| name.strip_prefix(prefix)) {
        Some(name) => name
            .split('_')
            .map(|word| {
                let (first, rest) = word.split_at(word.len().min(1));
                first.to_owned() + &rest.to_lowercase()
            })
            .collect(),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_calendar() {
        for (nanos, text) in [
            (1, "1970-01-01T00:00:00.000000001Z"),
            (951_782_399_000_000_000, "2000-02-28T23:59:59.000000000Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (1_581_452_772_000_000_321, "2020-02-11T20:26:12.000000321Z"),
            (4_107_542_400_000_000_000, "2100-03-01T00:00:00.000000000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(Utc(nanos).to_string(), text);
        }
    }

    #[test]
    fn control_characters_cannot_forge_lines() {
        assert_eq!(
            Plain("a\nb\u{1b}[31m\t\u{e9}").to_string(),
            "a\\nb\\u{1b}[31m\t\u{e9}"
        );
    }

    #[test]
    fn values_are_formatted_as_in_go() {
        for (nanoseconds, text) in [
            (0, "1970-01-01 00:00:00 +0000 UTC"),
            (
                1_581_452_772_012_500_000,
                "2020-02-11 20:26:12.0125 +0000 UTC",
            ),
            (u64::MAX, "1969-12-31 23:59:59.999999999 +0000 UTC"),
        ] {
            assert_eq!(Timestamp(nanoseconds).to_string(), text);
        }
        for (number, text) in [
            (1.5, "1.500000"),
            (-0.1, "-0.100000"),
            (f64::INFINITY, "+Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Decimal(number).to_string(), text);
        }
        assert_eq!(Id(&[0; 16]).to_string(), "");
    }
}
