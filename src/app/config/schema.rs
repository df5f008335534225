//! The JSON Schema of a configuration file, made from the types that read it.

use std::collections::BTreeMap;

use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::assemble::Kind;
use super::load::Registries;
use crate::component::Entry;
use crate::telemetry::config::TelemetryConfig;
use tributary_otlp::Signal;

/// In the order of the file.
const KINDS: [Kind; 5] = [
    Kind::Receiver,
    Kind::Processor,
    Kind::Exporter,
    Kind::Connector,
    Kind::Extension,
];

/// The JSON Schema (draft 2020-12) of a whole configuration file, for editors.
pub fn schema() -> Value {
    schema_with(&Registries::built_in())
}

pub(super) fn schema_with(registries: &Registries) -> Value {
    let mut generator = SchemaGenerator::default();
    let mut properties = Map::new();
    let generator_ref = &mut generator;
    let mut section = |kind: Kind, what: &str, components: Map<String, Value>| {
        let schema = json!({
            "description": what,
            "type": ["object", "null"],
            "patternProperties": components,
            "additionalProperties": false,
        });
        properties.insert(kind.section().to_owned(), schema);
    };
    let receivers = components(registries.receivers, generator_ref);
    section(Kind::Receiver, "Where telemetry comes in.", receivers);
    let processors = components(registries.processors, generator_ref);
    section(
        Kind::Processor,
        "What is done to telemetry on its way.",
        processors,
    );
    let exporters = components(registries.exporters, generator_ref);
    section(Kind::Exporter, "Where telemetry goes out.", exporters);
    let connectors = components(registries.connectors, generator_ref);
    section(Kind::Connector, "What joins pipelines.", connectors);
    let extensions = components(registries.extensions, generator_ref);
    section(
        Kind::Extension,
        "What runs beside the pipelines.",
        extensions,
    );
    properties.insert("service".to_owned(), service(generator_ref));

    let definitions = generator.take_definitions(true);
    let mut schema = json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of the collector",
        "type": "object",
        "properties": properties,
        "required": ["service"],
        "additionalProperties": false,
        "$defs": definitions,
    });
    RecursiveTransform(allow_references).transform(&mut schema);
    let mut schema = schema.to_value();
    name_definitions(&mut schema);
    schema
}

/// Gives the configurations of components names that say whose they are: most of the types are
/// called `Config`.
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
                let name = pattern.trim_start_matches('^').trim_end_matches("(/.+)?$");
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
    for entry in registry {
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
            patterns.insert(format!("^{name}(/.+)?$"), schema);
        }
    }
    patterns
}

fn service(generator: &mut SchemaGenerator) -> Value {
    let telemetry = generator.subschema_for::<TelemetryConfig>().to_value();
    let signals = Signal::ALL.map(Signal::name).join("|");
    let ids = |what: &str| {
        json!({
            "description": what,
            "anyOf": [
                {"type": "array", "items": {"type": "string"}},
                {"type": "string", "description": "Ids with commas between them."},
                {"type": "null"},
            ],
        })
    };
    let pipeline = json!({
        "type": "object",
        "properties": {
            "receivers": ids("Where its telemetry comes from: receivers and connectors."),
            "processors": ids("What is done to it, in this order."),
            "exporters": ids("Where it goes: exporters and connectors."),
        },
        "required": ["receivers", "exporters"],
        "additionalProperties": false,
    });
    json!({
        "description": "Which components run, and how.",
        "type": "object",
        "properties": {
            "extensions": ids("The extensions that run, in the order of their start."),
            "pipelines": {
                "description": "The pipelines: `signal` or `signal/name`.",
                "type": "object",
                "patternProperties": {format!("^({signals})(/.+)?$"): pipeline},
                "additionalProperties": false,
            },
            "telemetry": telemetry,
        },
        "required": ["pipelines"],
        "additionalProperties": false,
    })
}

/// A number or a boolean may be written as `${env:NAME}`, which for a schema is text.
fn allow_references(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    let mut types = match object.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several
            .iter()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => return,
    };
    let scalar = |name: &String| matches!(name.as_str(), "integer" | "number" | "boolean");
    if types.iter().any(scalar) && !types.iter().any(|name| name == "string") {
        types.push("string".to_owned());
        object.insert("type".to_owned(), json!(types));
        object.insert("pattern".to_owned(), json!("\\$\\{"));
    }
}
