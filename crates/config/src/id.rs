//! Component ids: `type` or `type/name`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Id of a component in a configuration: a type, and a name if there are several components of that type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    kind: Arc<str>,
    name: Option<Arc<str>>,
}

/// Reason why a text is not a component id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidId(pub String);

impl ComponentId {
    /// Returns the type as written. Aliases are not resolved.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the part after the slash.
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
                "the part before / in \"{text}\" must not be empty"
            )));
        }
        if name.is_some_and(str::is_empty) {
            return Err(InvalidId(format!(
                "the part after / in \"{text}\" must not be empty"
            )));
        }
        check_kind(kind)?;
        if let Some(name) = name {
            check_name(name)?;
        }
        Ok(ComponentId {
            kind: kind.into(),
            name: name.map(Into::into),
        })
    }
}

/// Checks the Collector's rule: `^[a-zA-Z][0-9a-zA-Z_]{0,62}$`.
fn check_kind(kind: &str) -> Result<(), InvalidId> {
    let first = kind
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if first && kind.bytes().all(valid) && kind.len() <= 63 {
        return Ok(());
    }
    Err(InvalidId(format!(
        "\"{kind}\" is not a type: a type has a letter, followed by up to 62 letters, digits and _"
    )))
}

/// Checks the Collector's rule: 1 to 1024 characters, without spaces, control characters or symbols.
fn check_name(name: &str) -> Result<(), InvalidId> {
    let symbol = |letter: char| "$+<=>^`|~".contains(letter);
    let bad = |letter: &char| letter.is_whitespace() || letter.is_control() || symbol(*letter);
    if let Some(letter) = name.chars().find(bad) {
        return Err(InvalidId(format!(
            "a name must not contain {letter:?}, as \"{name}\" does"
        )));
    }
    if name.chars().count() > 1024 {
        return Err(InvalidId("a name has at most 1024 characters".to_owned()));
    }
    Ok(())
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
            // `true` is a valid name.
            "type": ["string", "boolean"],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_rules_of_the_collector() {
        for (text, shown) in [
            ("otlp", "otlp"),
            (" otlp / rack-1.eu ", "otlp/rack-1.eu"),
            ("a/b/c", "a/b/c"),
            ("otlp/\u{fc}ber", "otlp/\u{fc}ber"),
        ] {
            assert_eq!(text.parse::<ComponentId>().unwrap().to_string(), shown);
        }
        let long = "x".repeat(64);
        let bad = [
            "", "/", "/a", "a/", "1a", "a-b", "a b", "a/b c", "a/b=c", "a/\u{7}", &long,
        ];
        for text in bad {
            assert!(text.parse::<ComponentId>().is_err(), "{text}");
        }
    }
}
