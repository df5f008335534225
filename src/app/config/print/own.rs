//! Removes keys unknown to the Collector from the printed configuration if they have their default
//! values. The output then loads in the Collector unless the configuration uses a feature that the
//! Collector lacks.

use serde_json::Value as Json;
use serde_yaml::{Mapping, Value};

use crate::app::config::schema::ids_of;

/// Remark in the description of a key that the Collector does not have. The description is the key's doc comment.
pub(in crate::app) const ONLY_HERE: &str = "(The Collector has no such key";

/// Removes keys of this program with default values from parts of a configuration.
pub(super) struct Pruner<'s> {
    schema: &'s Json,
}

impl<'s> Pruner<'s> {
    /// `schema` is the schema of whole configurations, which contains the defaults.
    pub(super) fn new(schema: &'s Json) -> Self {
        Pruner { schema }
    }

    /// Prunes the configuration of a component of this kind (such as `otlp_grpc`) in a section.
    pub(super) fn component(&self, section: &str, kind: &str, value: &mut Value) {
        let patterns = &self.schema["properties"][section]["patternProperties"];
        self.walk(value, &patterns[ids_of(kind)]);
    }

    /// Prunes `service.telemetry`.
    pub(super) fn telemetry(&self, value: &mut Value) {
        let schema = &self.schema["properties"]["service"]["properties"]["telemetry"];
        self.walk(value, schema);
    }

    fn walk(&self, value: &mut Value, schema: &Json) {
        let Value::Mapping(mapping) = value else {
            return;
        };
        let properties = self.properties(schema);
        let mut kept = Mapping::new();
        for (key, mut value) in std::mem::take(mapping) {
            let name = key.as_str().unwrap_or_default().to_owned();
            let schema = properties.map_or(&Json::Null, |all| &all[name.as_str()]);
            let is_default = serde_json::to_value(&value).is_ok_and(|value| {
                schema
                    .get("default")
                    .is_some_and(|default| *default == value)
            });
            if !(is_default && is_own(schema)) {
                self.walk(&mut value, schema);
                kept.insert(key, value);
            }
        }
        *mapping = kept;
    }

    /// Returns the properties of the object that a schema allows, after resolving references and
    /// alternatives.
    fn properties<'a>(&'a self, schema: &'a Json) -> Option<&'a Json> {
        if let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
            let target = self.schema.pointer(reference.strip_prefix('#')?)?;
            return self.properties(target);
        }
        if let Some(properties) = schema.get("properties") {
            return Some(properties);
        }
        let alternatives = ["anyOf", "oneOf", "allOf"].iter();
        alternatives
            .filter_map(|key| schema.get(key)?.as_array())
            .flatten()
            .find_map(|schema| self.properties(schema))
    }
}

/// Whether the Collector does not have the key with this schema.
fn is_own(schema: &Json) -> bool {
    let description = schema.get("description").and_then(Json::as_str);
    description.is_some_and(|text| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join(" ").contains(ONLY_HERE)
    })
}
