//! The keys of a configuration, read from its JSON Schema.

use serde::Serialize;
use serde_json::{Map, Value};

use super::words;

#[derive(Debug, Clone, Serialize)]
pub(in crate::app) struct Key {
    /// Name in its section.
    pub name: String,
    /// Type, with bounds, in words.
    #[serde(rename = "type")]
    pub kind: String,
    /// Default in words. `None` if the key has no default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Whether a configuration without the key is invalid.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// Meaning and unit.
    pub description: String,
    /// Difference from the Collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collector: Option<String>,
    /// Keys of a section, of the elements of a list, or of the entries of a map.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Key>,
    /// Place of the nested keys.
    #[serde(skip)]
    pub shape: Shape,
    /// Default as a value; null if there is none.
    #[serde(skip)]
    pub value: Value,
}

/// Place of the keys below a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum Shape {
    /// The key has a plain value.
    Plain,
    /// The value is one section, which is present by default.
    Section,
    /// The value is one section, which is off or absent by default.
    OffSection,
    /// The value is a list of sections.
    List,
    /// The value is a map from names to sections.
    Map,
}

struct KeyDefault<'v> {
    value: Option<&'v Value>,
    /// Whether the value is that of the whole section, and differs from the default in the description of the key.
    is_of_section: bool,
}

/// Reads keys from schemas that refer to these definitions.
pub(super) struct Reader<'s> {
    definitions: &'s Map<String, Value>,
}

impl<'s> Reader<'s> {
    pub(super) fn new(definitions: &'s Map<String, Value>) -> Self {
        Reader { definitions }
    }

    pub(super) fn keys(&self, schema: &'s Value) -> Vec<Key> {
        self.section(schema, None, &mut Vec::new())
    }

    /// Returns the keys of a section. `default` is the section's own default. `above` are the definitions that the
    /// section is nested in.
    fn section(
        &self,
        schema: &'s Value,
        default: Option<&Value>,
        above: &mut Vec<&'s str>,
    ) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        for leaf in self.leaves(schema) {
            let required = leaf.get("required").and_then(Value::as_array);
            let properties = leaf.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                let is_required =
                    required.is_some_and(|names| names.contains(&name.as_str().into()));
                let own = property.get("default");
                let from_section = default.and_then(|default| default.get(name));
                let default = KeyDefault {
                    value: from_section.or(own),
                    is_of_section: from_section.is_some() && from_section != own,
                };
                if keys.iter().all(|key| key.name != *name) {
                    keys.push(self.key(name, property, default, is_required, above));
                }
            }
        }
        keys
    }

    fn key(
        &self,
        name: &str,
        property: &'s Value,
        default: KeyDefault<'_>,
        is_required: bool,
        above: &mut Vec<&'s str>,
    ) -> Key {
        let name = name.to_owned();
        // The remark on the Collector is before or after the default.
        let (description, first) = words::split_default(&self.description(property));
        let (description, collector) = words::split_collector(&description);
        let (mut description, second) = words::split_default(&description);
        let said = first.or(second).filter(|_| !default.is_of_section);
        let said = said.map(words::quoted);
        let default = default.value;
        let required = words::remove_required(&mut description) || is_required;
        let bounds = words::take_bounds(&mut description);
        let (shape, nested) = self.nested(property, default);
        let is_switchable = self.is_switchable(property);
        let is_inside = nested
            .and_then(reference)
            .is_some_and(|name| above.contains(&name));
        let mut keys = Vec::new();
        if let (Some(schema), false) = (nested, is_inside) {
            let depth = above.len();
            above.extend(self.references(schema));
            let is_whole = |default: &&Value| !(is_switchable && is_off(default));
            let default = default.filter(|default| is_whole(default) && shape == Shape::Section);
            keys = self.section(schema, default, above);
            above.truncate(depth);
        }
        let shown = match shape {
            Shape::Section if is_switchable => Some("on".to_owned()),
            Shape::Section if default.is_some_and(is_off) => Some("off".to_owned()),
            Shape::OffSection => Some(said.unwrap_or_else(|| "off".to_owned())),
            Shape::Section => said,
            _ => said.or_else(|| default.and_then(words::default)),
        };
        Key {
            kind: self.kind(property) + &bounds,
            default: shown.filter(|_| !required),
            required,
            description,
            collector,
            keys,
            shape,
            value: default.cloned().unwrap_or_default(),
            name,
        }
    }

    /// Returns the description of a property, or of its type.
    fn description(&self, property: &'s Value) -> String {
        let own = property.get("description").and_then(Value::as_str);
        let of_type = || {
            let name = reference(property)?;
            self.definitions.get(name)?.get("description")?.as_str()
        };
        words::one_line(own.or_else(of_type).unwrap_or_default())
    }

    /// Returns the schema with the keys below a property, and where they are.
    fn nested(&self, property: &'s Value, default: Option<&Value>) -> (Shape, Option<&'s Value>) {
        if self.well_known(property).is_some() {
            return (Shape::Plain, None);
        }
        for leaf in self.leaves(property) {
            if leaf.contains_key("properties") {
                let is_absent = !self.is_switchable(property) && default.is_none_or(Value::is_null);
                let shape = match default {
                    Some(default) if is_off(default) && self.is_switchable(property) => {
                        Shape::OffSection
                    }
                    _ if is_absent && self.is_optional(property) => Shape::OffSection,
                    _ => Shape::Section,
                };
                return (shape, Some(property));
            }
        }
        for leaf in self.leaves(property) {
            for (keyword, shape) in [("items", Shape::List), ("additionalProperties", Shape::Map)] {
                if let Some(inner) = leaf.get(keyword)
                    && self.well_known(inner).is_none()
                    && self
                        .leaves(inner)
                        .iter()
                        .any(|leaf| leaf.contains_key("properties"))
                {
                    return (shape, Some(inner));
                }
            }
        }
        (Shape::Plain, None)
    }

    /// Whether the property is a section with the key `enabled`.
    fn is_switchable(&self, property: &'s Value) -> bool {
        let references = self.references(property);
        references.iter().any(|name| name.starts_with("Section_"))
    }

    /// Whether null is one of the alternatives.
    fn is_optional(&self, property: &Value) -> bool {
        let alternatives = ["anyOf", "oneOf"]
            .iter()
            .filter_map(|key| property.get(key)?.as_array());
        alternatives
            .flatten()
            .any(|schema| schema.get("type") == Some(&"null".into()))
    }

    /// Returns the definitions that a schema refers to, directly or as an alternative.
    fn references(&self, schema: &'s Value) -> Vec<&'s str> {
        let alternatives = ["anyOf", "oneOf", "allOf"].iter();
        let alternatives = alternatives
            .filter_map(|key| schema.get(key)?.as_array())
            .flatten();
        let own = reference(schema).into_iter();
        own.chain(alternatives.filter_map(reference)).collect()
    }

    /// Returns the concrete alternatives of a schema, without null.
    fn leaves(&self, schema: &'s Value) -> Vec<&'s Map<String, Value>> {
        let mut leaves = Vec::new();
        self.collect(schema, &mut leaves);
        leaves
    }

    fn collect(&self, schema: &'s Value, leaves: &mut Vec<&'s Map<String, Value>>) {
        let Some(object) = schema.as_object() else {
            return;
        };
        if let Some(target) = reference(schema).and_then(|name| self.definitions.get(name)) {
            return self.collect(target, leaves);
        }
        let alternatives = ["anyOf", "oneOf", "allOf"].iter();
        let alternatives = alternatives.filter_map(|key| object.get(*key)?.as_array());
        let before = leaves.len();
        for schema in alternatives.flatten() {
            self.collect(schema, leaves);
        }
        let is_null = object.get("type") == Some(&"null".into());
        if leaves.len() == before && !is_null {
            leaves.push(object);
        }
    }

    /// Returns the words for a type that the reference explains once.
    fn well_known(&self, schema: &'s Value) -> Option<&'static str> {
        self.references(schema)
            .into_iter()
            .find_map(words::well_known)
    }

    /// Returns the type of a property in words.
    fn kind(&self, property: &'s Value) -> String {
        if let Some(known) = self.well_known(property) {
            return known.to_owned();
        }
        let mut kinds: Vec<String> = Vec::new();
        let mut values: Vec<String> = Vec::new();
        for leaf in self.leaves(property) {
            let constants = leaf.get("const").into_iter();
            let listed = leaf
                .get("enum")
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            let is_enumeration = leaf.contains_key("const") || leaf.contains_key("enum");
            for value in constants.chain(listed).filter_map(words::constant) {
                // Other spellings of a value are accepted for compatibility.
                if !values
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(&value))
                {
                    values.push(value);
                }
            }
            if !is_enumeration {
                kinds.extend(self.leaf_kinds(leaf));
            }
        }
        if !values.is_empty() {
            kinds.insert(0, words::alternatives(&values));
        }
        let mut seen: Vec<String> = Vec::new();
        kinds.retain(|kind| {
            let is_new = !seen.contains(kind);
            seen.push(kind.clone());
            is_new
        });
        words::alternatives(&kinds)
    }

    fn leaf_kinds(&self, leaf: &'s Map<String, Value>) -> Vec<String> {
        let types: Vec<&str> = match leaf.get("type") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let types = types.into_iter().filter(|name| *name != "null");
        types
            .map(|name| match name {
                "array" => {
                    let items = leaf.get("items").map(|items| self.kind(items));
                    words::list(&items.unwrap_or_default())
                }
                "object" if leaf.contains_key("properties") => "section".to_owned(),
                "object" => {
                    let values = leaf
                        .get("additionalProperties")
                        .map(|values| self.kind(values));
                    format!("map of {}", words::plural(&values.unwrap_or_default()))
                }
                name => name.to_owned(),
            })
            .collect()
    }
}

/// Returns the definition that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

fn is_off(default: &Value) -> bool {
    default.get("enabled") == Some(&Value::Bool(false))
}

impl Key {
    pub(super) fn is_section(&self) -> bool {
        matches!(self.shape, Shape::Section | Shape::OffSection)
    }
}

impl Shape {
    /// Returns the text between the path of a key and the names of the keys below it.
    pub(super) fn separator(self) -> &'static str {
        match self {
            Shape::Plain | Shape::Section | Shape::OffSection => ".",
            Shape::List => "[].",
            Shape::Map => ".NAME.",
        }
    }
}
