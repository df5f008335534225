//! Amounts of bytes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Accepted units, largest first, so that printing finds the shortest form.
const UNITS: [(&str, u64); 8] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// An amount of bytes: `4MiB`, `512KiB`, `10MB`, or a plain number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// Creates an amount from bytes.
    pub const fn bytes(bytes: u64) -> Self {
        ByteSize(bytes)
    }

    /// Creates an amount from kibibytes.
    pub const fn kib(kibibytes: u64) -> Self {
        ByteSize(kibibytes << 10)
    }

    /// Creates an amount from mebibytes.
    pub const fn mib(mebibytes: u64) -> Self {
        ByteSize(mebibytes << 20)
    }

    /// Converts the amount to `usize`, saturating at `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let invalid =
            || format!("`{text}` is not a size: write `4MiB`, `512KiB` or `1048576`, for example");
        let end = text
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number: u64 = number.parse().map_err(|_| invalid())?;
        let unit = unit.trim();
        let scale = match unit {
            "" | "B" => 1,
            _ => UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, scale)| *scale)
                .ok_or_else(invalid)?,
        };
        number
            .checked_mul(scale)
            .map(ByteSize)
            .ok_or_else(|| format!("`{text}` is more than 16 EiB"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS
            .iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale));
        match unit {
            Some((name, scale)) => write!(f, "{}{name}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as `4MiB` or `1048576`")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        Ok(ByteSize(bytes))
    }

    /// Accepts `1e6`, which is a whole number too.
    fn visit_f64<E: de::Error>(self, bytes: f64) -> Result<ByteSize, E> {
        // Floats cannot represent all whole numbers above 2^53.
        const MAX_EXACT_FLOAT: f64 = 9_007_199_254_740_992.0;
        if bytes.fract() != 0.0 || !(0.0..MAX_EXACT_FLOAT).contains(&bytes) {
            return Err(E::invalid_value(de::Unexpected::Float(bytes), &self));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded above
        Ok(ByteSize(bytes as u64))
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        u64::try_from(bytes)
            .map(ByteSize)
            .map_err(|_| E::custom(format!("`{bytes}` is negative: a size must be at least 0")))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A size such as `4MiB` or `512KiB`; a plain number is bytes.",
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": "^[0-9]+ ?([kKMGT]i?B|B)?$|\\$\\{"},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed() {
        for (text, bytes, printed) in [
            ("4MiB", 4 << 20, "4MiB"),
            ("512 KiB", 512 << 10, "512KiB"),
            ("1048576", 1 << 20, "1MiB"),
            ("10MB", 10_000_000, "10MB"),
            ("7B", 7, "7"),
            ("0", 0, "0"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(
                (size.0, size.to_string().as_str()),
                (bytes, printed),
                "{text}"
            );
        }
        for text in ["", "MiB", "1.5MiB", "4 apples", "-1", "99999999999TiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
