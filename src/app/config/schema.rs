//! The JSON Schema of a configuration file, generated from the types that deserialize it.
//!
//! The types define the keys and their kinds. [`as_read`] adds the deserializer's rules for these
//! kinds, so that an editor and `--validate` agree.

mod as_read;

#[cfg(test)]
mod agreement;

use std::collections::BTreeMap;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use self::as_read::AsRead;
use super::facts::Kind;
use super::registries::Registries;
use crate::component::Entry;
use crate::telemetry::config::TelemetryConfig;
use tributary_otlp::Signal;

/// Component kinds in the order of the file.
const KINDS: [Kind; 5] = [
    Kind::Receiver,
    Kind::Processor,
    Kind::Exporter,
    Kind::Connector,
    Kind::Extension,
];

/// Returns the JSON Schema (draft 2020-12) of a whole configuration file, for editors.
pub fn schema() -> Value {
    schema_with(&Registries::built_in())
}

pub(super) fn schema_with(registries: &Registries) -> Value {
    let mut generator = SchemaGenerator::default();
    let mut properties = Map::new();
    let generator_ref = &mut generator;
    let mut section = |kind: Kind, description: &str, components: Map<String, Value>| {
        let schema = json!({
            "description": description,
            "type": ["object", "null"],
            "patternProperties": components,
            "additionalProperties": false,
        });
        properties.insert(kind.section().to_owned(), schema);
    };
    let receivers = components(registries.receivers, generator_ref);
    section(Kind::Receiver, "Receivers: inputs of telemetry.", receivers);
    let processors = components(registries.processors, generator_ref);
    section(
        Kind::Processor,
        "Processors: steps that edit, drop or buffer telemetry.",
        processors,
    );
    let exporters = components(registries.exporters, generator_ref);
    section(
        Kind::Exporter,
        "Exporters: outputs of telemetry.",
        exporters,
    );
    let connectors = components(registries.connectors, generator_ref);
    section(
        Kind::Connector,
        "Connectors: outputs of pipelines that are inputs of other pipelines.",
        connectors,
    );
    let extensions = components(registries.extensions, generator_ref);
    section(
        Kind::Extension,
        "Extensions: services beside the pipelines, such as authentication.",
        extensions,
    );
    properties.insert("service".to_owned(), service(generator_ref));

    let definitions = generator.take_definitions(true);
    let mut schema = json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of the collector",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        "$defs": definitions,
    });
    let named = schema.get("$defs").cloned().unwrap_or_default();
    RecursiveTransform(AsRead { named }).transform(&mut schema);
    let mut schema = schema.to_value();
    name_definitions(&mut schema);
    schema
}

/// Renames the definitions of component configurations after their components: most of the types
/// are called `Config`.
fn name_definitions(schema: &mut Value) {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for kind in KINDS {
        let Some(patterns) = schema
            .pointer(&format!("/properties/{}/patternProperties", kind.section()))
            .and_then(Value::as_object)
        else {
            continue;
        };
        for (pattern, component) in patterns {
            let reference = component.pointer("/anyOf/0/$ref").and_then(Value::as_str);
            if let Some(reference) = reference {
                let name = pattern.strip_prefix(BEFORE_KIND).unwrap_or(pattern);
                let name = name.strip_suffix(AFTER_KIND).unwrap_or(name);
                names
                    .entry(reference.to_owned())
                    .or_insert_with(|| format!("{name}_{}", kind.name()));
            }
        }
    }
    if let Some(definitions) = schema.get_mut("$defs").and_then(Value::as_object_mut) {
        *definitions = std::mem::take(definitions)
            .into_iter()
            .map(|(name, body)| match names.get(&format!("#/$defs/{name}")) {
                Some(new) => (new.clone(), body),
                None => (name, body),
            })
            .collect();
    }
    rename_references(schema, &names);
}

fn rename_references(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get_mut("$ref")
                && let Some(name) = names.get(reference)
            {
                *reference = format!("#/$defs/{name}");
            }
            object
                .values_mut()
                .for_each(|value| rename_references(value, names));
        }
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| rename_references(value, names)),
        _ => {}
    }
}

fn components<C: ?Sized>(
    registry: &'static [Entry<C>],
    generator: &mut SchemaGenerator,
) -> Map<String, Value> {
    let mut patterns = Map::new();
    for entry in registry.iter().filter(|entry| entry.is_built_in()) {
        let body = (entry.schema)(generator).to_value();
        let names = std::iter::once((&entry.name, false));
        let aliases = entry.aliases.iter().map(|alias| (alias, true));
        for (name, deprecated) in names.chain(aliases) {
            let mut schema = json!({
                "description": entry.summary,
                "anyOf": [body.clone(), {"type": "null"}],
            });
            if let (true, Some(schema)) = (deprecated, schema.as_object_mut()) {
                schema.insert("deprecated".to_owned(), true.into());
            }
            patterns.insert(ids_of(name), schema);
        }
    }
    patterns
}

/// Beginning of an id's pattern: blanks around the parts of an id are ignored.
const BEFORE_KIND: &str = "^\\s*";

/// Rest of an id's pattern: an optional name without blanks and symbols.
const AFTER_KIND: &str = "\\s*(/\\s*[^\\s$+<=>^`|~]+\\s*)?$";

/// Returns the pattern of the ids of components of a kind, or of pipelines of a signal.
pub(super) fn ids_of(kind: &str) -> String {
    format!("{BEFORE_KIND}{kind}{AFTER_KIND}")
}

fn service(generator: &mut SchemaGenerator) -> Value {
    let telemetry = generator.subschema_for::<TelemetryConfig>().to_value();
    let signals = Signal::ALL.map(Signal::name).join("|");
    let ids = |what: &str| {
        json!({
            "description": what,
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "string", "description": "Ids, separated by commas."},
                {"type": "null"},
            ],
        })
    };
    let pipeline = json!({
        "type": ["object", "null"],
        "properties": {
            "receivers": ids("Inputs of the pipeline: receivers and connectors."),
            "processors": ids("Processors of the pipeline, in this order."),
            "exporters": ids("Outputs of the pipeline: exporters and connectors."),
        },
        "additionalProperties": false,
    });
    json!({
        "description": "Components that run, and the collector's own telemetry.",
        "type": ["object", "null"],
        "properties": {
            "extensions": ids("Extensions that run, in the order of their start."),
            "pipelines": {
                "description": "Pipelines, by id: `signal` or `signal/name`.",
                "type": ["object", "null"],
                "patternProperties": {ids_of(&format!("({signals})")): pipeline},
                "additionalProperties": false,
            },
            "telemetry": telemetry,
        },
        "additionalProperties": false,
    })
}
