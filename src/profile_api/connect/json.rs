//! The JSON form of protobuf numbers: 64-bit integers are texts, enumerations are names. Both are read as numbers, too.

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An integer of 64 bits.
#[derive(Debug, Clone, Copy, Default)]
struct Int64(i64);

impl Serialize for Int64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Int64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Integer)
    }
}

struct Integer;

impl Visitor<'_> for Integer {
    type Value = Int64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer, as a number or a text")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Int64, E> {
        Ok(Int64(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Int64, E> {
        i64::try_from(value).map(Int64).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Int64, E> {
        // JSON of other writers has whole numbers as `1.0e3`.
        match value.fract() == 0.0 && value.abs() < i64::MAX as f64 {
            true => Ok(Int64(value as i64)),
            false => Err(E::invalid_value(de::Unexpected::Float(value), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Int64, E> {
        value.parse().map(Int64).map_err(E::custom)
    }
}

pub(super) mod int64 {
    use super::{Deserialize as _, Deserializer, Int64, Serialize as _, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        value: &i64,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Int64(*value).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<i64, D::Error> {
        // `null` is the default.
        Ok(Option::<Int64>::deserialize(deserializer)?
            .unwrap_or_default()
            .0)
    }
}

pub(super) mod optional_int64 {
    use super::{Deserialize as _, Deserializer, Int64, Serialize as _, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        value: &Option<i64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(Int64).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<i64>, D::Error> {
        let value = Option::<Int64>::deserialize(deserializer)?;
        Ok(value.map(|value| value.0))
    }
}

pub(super) mod int64s {
    use super::{Deserialize as _, Deserializer, Int64, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(
        values: &[i64],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(|value| Int64(*value)))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<i64>, D::Error> {
        let values = Vec::<Int64>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|value| value.0).collect())
    }
}

/// Reads a value of an enumeration.
pub(super) fn word<'de, D: Deserializer<'de>>(
    names: &[&str],
    deserializer: D,
) -> Result<i32, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Word {
        Number(i32),
        Name(String),
    }
    match Option::<Word>::deserialize(deserializer)? {
        None => Ok(0),
        Some(Word::Number(number)) => Ok(number),
        Some(Word::Name(name)) => {
            let at = names.iter().position(|known| **known == name);
            let at = at.and_then(|at| i32::try_from(at).ok());
            at.ok_or_else(|| de::Error::custom(format!("there is no `{name}`")))
        }
    }
}

/// Defines a module with the JSON form of an enumeration.
macro_rules! words {
    ($module:ident, $names:ident) => {
        mod $module {
            pub(super) fn serialize<S: serde::Serializer>(
                value: &i32,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let at = usize::try_from(*value).ok();
                match at.and_then(|at| super::$names.get(at)) {
                    Some(name) => serializer.serialize_str(name),
                    None => serializer.serialize_i32(*value),
                }
            }

            pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<i32, D::Error> {
                super::super::json::word(&super::$names, deserializer)
            }
        }
    };
}
pub(super) use words;
