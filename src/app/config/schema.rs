//! The JSON Schema of a configuration file, generated from the types that deserialize it.
//!
//! The types define the keys and their kinds. [`as_read`] adds the deserializer's rules for these
//! kinds, so that an editor and `--validate` agree.

#[cfg(test)]
mod agreement;

use std::collections::BTreeMap;

use schemars::transform::{RecursiveTransform, Transform};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::assemble::Kind;
use super::load::Registries;
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

/// Adds the deserializer's rules: values that `${env:NAME}` may stand for, plain numbers as
/// strings, `a,b` as a list, and a key without a value as its default.
struct AsRead {
    /// Definitions that references point to.
    named: Value,
}

impl Transform for AsRead {
    fn transform(&mut self, schema: &mut Schema) {
        if let Some(object) = schema.as_object_mut() {
            as_read(object, &self.named);
        }
    }
}

fn as_read(object: &mut Map<String, Value>, named: &Value) {
    defaults_for_nothing(object);
    widest(object);
    let types = types(object);
    let has = |name: &str| types.iter().any(|one| one == name);
    let is_free = !["enum", "const", "pattern", "format"]
        .iter()
        .any(|key| object.contains_key(*key));
    let mut more: Vec<&str> = Vec::new();
    if has("string") && is_free {
        // A string accepts any scalar, including `4317` and `true`.
        more.extend(["number", "boolean"]);
    }
    if has("array") && !has("string") {
        more.push("string");
        let texts = match object.get("items").map(|items| texts(items, named)) {
            Some(Texts::Any) => None,
            Some(Texts::Like(one)) => Some(format!(r"^(({one})(,({one}))*)?$|\$\{{")),
            Some(Texts::Of(words)) => {
                let word = format!("({})", words.join("|"));
                Some(format!(r"^({word}(,{word})*)?$|\$\{{"))
            }
            _ => Some(r"^$|\$\{".to_owned()),
        };
        if let Some(texts) = texts {
            object.insert("pattern".to_owned(), texts.into());
        }
    }
    let is_scalar = ["integer", "number", "boolean"]
        .iter()
        .any(|name| has(name));
    if is_scalar && !has("string") {
        more.push("string");
        // `1_000` is a number in the Collector's YAML, but a string for an editor.
        object.insert("pattern".to_owned(), json!(r"\$\{|^[-+]?[0-9][0-9_.]*$"));
    }
    if more.is_empty() {
        return;
    }
    let mut all = types;
    for name in more {
        if !all.iter().any(|one| one == name) {
            all.push(name.to_owned());
        }
    }
    object.insert("type".to_owned(), json!(all));
}

/// Returns the types that a schema names.
fn types(object: &Map<String, Value>) -> Vec<String> {
    match object.get("type") {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(several)) => several
            .iter()
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// The strings that a schema allows.
enum Texts {
    None,
    Any,
    /// Strings that match a pattern as a whole.
    Like(String),
    Of(Vec<String>),
}

/// Returns the strings that a value may be. A list of strings may be written with commas between
/// them.
fn texts(schema: &Value, named: &Value) -> Texts {
    let Some(object) = schema.as_object() else {
        return Texts::None;
    };
    let words = |values: Vec<&Value>| {
        let words = values.into_iter().filter_map(Value::as_str);
        Texts::Of(words.map(str::to_owned).collect())
    };
    if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return named
            .get(name)
            .map_or(Texts::None, |schema| texts(schema, named));
    }
    if let Some(value) = object.get("const") {
        return words(vec![value]);
    }
    if let Some(values) = object.get("enum").and_then(Value::as_array) {
        return words(values.iter().collect());
    }
    if types(object).iter().any(|one| one == "string") {
        let pattern = object.get("pattern").and_then(Value::as_str);
        let whole = pattern.and_then(|pattern| pattern.strip_prefix('^')?.strip_suffix('$'));
        return whole.map_or(Texts::Any, |whole| Texts::Like(whole.to_owned()));
    }
    let mut all = Vec::new();
    for key in ["anyOf", "oneOf"] {
        let alternatives = object.get(key).and_then(Value::as_array);
        for schema in alternatives.into_iter().flatten() {
            match texts(schema, named) {
                Texts::Any | Texts::Like(_) => return Texts::Any,
                Texts::Of(words) => all.extend(words),
                Texts::None => {}
            }
        }
    }
    match all.is_empty() {
        true => Texts::None,
        false => Texts::Of(all),
    }
}

/// Adds the numeric bounds of a schema's `format`, which most editors ignore.
fn widest(object: &mut Map<String, Value>) {
    let format = object.get("format").and_then(Value::as_str);
    let (least, most) = match format {
        Some("uint8") => (0_i64, u64::from(u8::MAX)),
        Some("uint16") => (0, u64::from(u16::MAX)),
        Some("uint32") => (0, u64::from(u32::MAX)),
        Some("uint64" | "uint") => (0, u64::MAX),
        Some("int32") => (i32::MIN.into(), i32::MAX.unsigned_abs().into()),
        Some("int64") => (i64::MIN, i64::MAX.unsigned_abs()),
        _ => return,
    };
    object.entry("minimum").or_insert(json!(least));
    object.entry("maximum").or_insert(json!(most));
}

/// Allows a key without a value as its default, unless the key is required.
fn defaults_for_nothing(object: &mut Map<String, Value>) {
    let required: Vec<String> = object
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect();
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            if !required.contains(name) {
                allow_nothing(property);
            }
        }
    }
    if let Some(others) = object.get_mut("additionalProperties")
        && others.is_object()
    {
        allow_nothing(others);
    }
}

/// Allows null in a schema.
fn allow_nothing(schema: &mut Value) {
    let nothing = json!({"type": "null"});
    // Schemas that refuse every value stay unchanged.
    if *schema == Value::Bool(false) || schema.get("not").is_some() {
        *schema = nothing;
        return;
    }
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    for key in ["anyOf", "oneOf"] {
        if let Some(alternatives) = object.get_mut(key).and_then(Value::as_array_mut) {
            if !alternatives.contains(&nothing) {
                alternatives.push(nothing);
            }
            return;
        }
    }
    let types = types(object);
    let is_plain =
        !types.is_empty() && !object.contains_key("enum") && !object.contains_key("const");
    if is_plain {
        if !types.iter().any(|one| one == "null") {
            let mut types = types;
            types.push("null".to_owned());
            object.insert("type".to_owned(), json!(types));
        }
        return;
    }
    let names = ["$ref", "enum", "const", "type", "allOf"];
    let body: Map<String, Value> = names
        .iter()
        .filter_map(|name| object.remove_entry(*name))
        .collect();
    if !body.is_empty() {
        object.insert("anyOf".to_owned(), json!([body, nothing]));
    }
}
