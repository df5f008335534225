//! The two ways in which the Collector takes attributes of the process.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

type Attributes = BTreeMap<String, Option<String>>;

/// Reads `{service.name: x}` or `{attributes: [{name: service.name, value: x}]}`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Attributes, D::Error> {
    input.deserialize_map(ResourceVisitor)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Attribute {
    name: String,
    #[serde(default)]
    value: Option<String>,
}

struct ResourceVisitor;

impl<'de> Visitor<'de> for ResourceVisitor {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Attributes, A::Error> {
        let mut attributes = Attributes::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "attributes" {
                let list: Vec<Attribute> = map.next_value()?;
                attributes.extend(list.into_iter().map(|entry| (entry.name, entry.value)));
            } else {
                attributes.insert(name, map.next_value()?);
            }
        }
        Ok(attributes)
    }
}
