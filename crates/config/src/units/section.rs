//! Optional sections of a configuration.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::markers::SECTION;

/// A section of a configuration that may be absent.
///
/// A present but empty section is enabled with its defaults. `enabled: false` inside the section disables it; its
/// other keys must still be valid. `enabled: true` changes nothing. The Collector calls this an optional section.
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

/// An absent section is serialized explicitly, because an empty one would mean "enabled" when it is read again.
impl<T: Serialize> Serialize for Section<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(value) => value.serialize(serializer),
            None => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("enabled", &false)?;
                map.end()
            }
        }
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Section<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(SECTION, SectionVisitor(PhantomData))
    }
}

struct SectionVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for SectionVisitor<T> {
    type Value = Section<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    /// This crate's deserializer returns a boolean (enabled), then the body if it is not empty.
    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Section<T>, A::Error> {
        let enabled: bool = parts.next_element()?.unwrap_or(true);
        let body: T = parts.next_element()?.unwrap_or_default();
        Ok(Section(enabled.then_some(body)))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<Section<T>, D::Error> {
        let mut value = Value::deserialize(inner)?;
        let enabled = match value.as_object_mut().and_then(|map| map.remove("enabled")) {
            None => true,
            Some(Value::Bool(enabled)) => enabled,
            Some(_) => return Err(de::Error::custom("`enabled` must be true or false")),
        };
        let body = match value {
            Value::Null => T::default(),
            value => T::deserialize(value).map_err(de::Error::custom)?,
        };
        Ok(Section(enabled.then_some(body)))
    }
}

impl<T: JsonSchema> JsonSchema for Section<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Section_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut body = T::json_schema(generator);
        let switch = json_schema!({
            "type": "boolean",
            "description": "Whether the section is on. Default: true, if the section is present.",
        });
        let properties = body
            .ensure_object()
            .entry("properties")
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Some(properties) = properties.as_object_mut() {
            properties.entry("enabled").or_insert(switch.into());
        }
        json_schema!({"anyOf": [body, {"type": "null"}]})
    }
}
