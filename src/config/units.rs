//! The types of configuration values that several components share.

use std::fmt;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration as Go writes them: `200ms`, `1m30s`, `1.5h`; `0` or `0s` is zero. Units: `ns us ms s m h`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration(pub std::time::Duration);

impl Duration {
    /// From seconds.
    pub const fn secs(seconds: u64) -> Self {
        Duration(std::time::Duration::from_secs(seconds))
    }

    /// From milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Duration(std::time::Duration::from_millis(millis))
    }
}

impl Deref for Duration {
    type Target = std::time::Duration;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A text that never shows in logs, errors, metrics or `print-config`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[REDACTED]")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("[REDACTED]")
    }
}

/// Where to listen or connect: `host:port`. An empty host means all interfaces when listening.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Endpoint(pub String);

/// A part of a configuration that may be absent. Present but empty means on with its defaults, and
/// `enabled: false` inside it means absent, whatever else it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Section<T>(pub Option<T>);

impl<T> Default for Section<T> {
    fn default() -> Self {
        Section(None)
    }
}

impl<T> Deref for Section<T> {
    type Target = Option<T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T: Serialize> Serialize for Section<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Section(Some(
            Option::<T>::deserialize(deserializer)?.unwrap_or_default(),
        )))
    }
}

impl<T: JsonSchema> JsonSchema for Section<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Section_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:?}", self.0))
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let split = text
            .find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number: f64 = number.parse().map_err(serde::de::Error::custom)?;
        let seconds = match unit {
            "ms" => number / 1e3,
            "s" | "" => number,
            "m" => number * 60.0,
            "h" => number * 3600.0,
            _ => return Err(serde::de::Error::custom("unknown unit")),
        };
        Ok(Duration(std::time::Duration::from_secs_f64(seconds)))
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}
