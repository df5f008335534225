//! Component ids: `type` or `type/name`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a component in a configuration: a type, and a name when there are several of that type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    kind: Arc<str>,
    name: Option<Arc<str>>,
}

/// Why a text is no component id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidId(pub String);

impl ComponentId {
    /// The type, as written (aliases are not resolved).
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What follows the slash.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

impl FromStr for ComponentId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind.trim(), Some(name.trim())),
            None => (text.trim(), None),
        };
        if kind.is_empty() {
            return Err(InvalidId(format!(
                "in \"{text}\" the part before / must not be empty"
            )));
        }
        if name.is_some_and(str::is_empty) {
            return Err(InvalidId(format!(
                "in \"{text}\" the part after / must not be empty"
            )));
        }
        Ok(ComponentId {
            kind: kind.into(),
            name: name.map(Into::into),
        })
    }
}

impl<'de> Deserialize<'de> for ComponentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for ComponentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for ComponentId {
    fn schema_name() -> Cow<'static, str> {
        "ComponentId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "The id of a component: `type` or `type/name`.",
            "pattern": "^[a-zA-Z][0-9a-zA-Z_]{0,62}(/.+)?$",
        })
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}
