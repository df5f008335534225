//! Component ids: `type` or `type/name`.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}/{name}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}
