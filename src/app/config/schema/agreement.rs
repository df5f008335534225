//! Tests that the schema and `--validate` agree on keys and kinds, with generated configurations of
//! every component.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Kind, ids_of};
use crate::component::Entry;
use crate::{connectors, exporters, extensions, processors, receivers};
use tributary_config::report::{Level, Report};
use tributary_config::{parse, source};

/// A validator for the JSON Schema keywords in use. Any other keyword fails the test.
struct Validator<'s> {
    root: &'s Value,
}

impl Validator<'_> {
    fn accepts(&self, schema: &Value, value: &Value) -> bool {
        let schema = match schema {
            Value::Bool(all) => return *all,
            schema => schema.as_object().unwrap(),
        };
        let mut keywords = schema.iter();
        keywords.all(|(keyword, argument)| self.keyword(schema, keyword, argument, value))
    }

    fn keyword(
        &self,
        schema: &Map<String, Value>,
        keyword: &str,
        argument: &Value,
        value: &Value,
    ) -> bool {
        let object = value.as_object();
        match keyword {
            "$ref" => self.accepts(self.target(argument), value),
            "type" => match argument {
                Value::String(one) => is_type(one, value),
                several => each(several).any(|one| is_type(one.as_str().unwrap(), value)),
            },
            "enum" => each(argument).any(|one| one == value),
            "const" => argument == value,
            "anyOf" => each(argument).any(|one| self.accepts(one, value)),
            "oneOf" => {
                each(argument)
                    .filter(|one| self.accepts(one, value))
                    .count()
                    == 1
            }
            "not" => !self.accepts(argument, value),
            "allOf" => each(argument).all(|one| self.accepts(one, value)),
            "properties" => object.is_none_or(|object| {
                object.iter().all(|(key, value)| {
                    let schema = argument.get(key);
                    schema.is_none_or(|schema| self.accepts(schema, value))
                })
            }),
            "patternProperties" => object.is_none_or(|object| {
                object.iter().all(|(key, value)| {
                    let mut patterns = argument.as_object().unwrap().iter();
                    patterns.all(|(pattern, schema)| {
                        !matches(pattern, key) || self.accepts(schema, value)
                    })
                })
            }),
            "additionalProperties" => object.is_none_or(|object| {
                let mut others = object.iter().filter(|(key, _)| !is_named(schema, key));
                others.all(|(_, value)| self.accepts(argument, value))
            }),
            "required" => object.is_none_or(|object| {
                each(argument).all(|name| object.contains_key(name.as_str().unwrap()))
            }),
            "items" => value
                .as_array()
                .is_none_or(|items| items.iter().all(|item| self.accepts(argument, item))),
            "pattern" => value
                .as_str()
                .is_none_or(|text| matches(argument.as_str().unwrap(), text)),
            "minimum" => value
                .as_f64()
                .is_none_or(|number| number >= argument.as_f64().unwrap()),
            "maximum" => value
                .as_f64()
                .is_none_or(|number| number <= argument.as_f64().unwrap()),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= argument.as_u64().unwrap()),
            "minItems" => value
                .as_array()
                .is_none_or(|items| items.len() as u64 >= argument.as_u64().unwrap()),
            "description" | "title" | "default" | "format" | "deprecated" | "writeOnly"
            | "$defs" | "$schema" => true,
            other => panic!("this test does not know the keyword {other}"),
        }
    }

    fn target(&self, reference: &Value) -> &Value {
        let pointer = reference.as_str().unwrap().trim_start_matches('#');
        self.root.pointer(pointer).unwrap()
    }

    /// Whether a schema accepts only null.
    fn refuses(&self, schema: &Value) -> bool {
        let Some(object) = schema.as_object() else {
            return *schema == Value::Bool(false);
        };
        if let Some(reference) = object.get("$ref") {
            return self.refuses(self.target(reference));
        }
        let alternatives = object.get("anyOf").map(each).into_iter().flatten();
        object.contains_key("not") || alternatives.clone().any(|one| self.refuses(one))
    }

    /// Collects the schemas of a value after resolving references and alternatives.
    fn leaves<'a>(&'a self, schema: &'a Value, into: &mut Vec<&'a Map<String, Value>>) {
        let Some(object) = schema.as_object() else {
            return;
        };
        if let Some(reference) = object.get("$ref") {
            self.leaves(self.target(reference), into);
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for one in object.get(key).map(each).into_iter().flatten() {
                self.leaves(one, into);
            }
        }
        into.push(object);
    }
}

/// Whether an object's schema has a key by name or by pattern.
fn is_named(schema: &Map<String, Value>, key: &str) -> bool {
    let names = |keyword: &str| schema.get(keyword).and_then(Value::as_object);
    names("properties").is_some_and(|names| names.contains_key(key))
        || names("patternProperties")
            .is_some_and(|names| names.keys().any(|name| matches(name, key)))
}

fn each(list: &Value) -> std::slice::Iter<'_, Value> {
    list.as_array().unwrap().iter()
}

fn matches(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).unwrap().is_match(text)
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type"),
    }
}

/// Generates configurations: mostly valid ones, sometimes with values that the schema does not
/// allow.
struct Generator<'s> {
    validator: &'s Validator<'s>,
    random: fastrand::Rng,
}

impl Generator<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let validator = self.validator;
        let mut leaves = Vec::new();
        validator.leaves(schema, &mut leaves);
        // Skip values that are always refused: the check reports a reason, where the schema only
        // refuses.
        if validator.refuses(schema) {
            return Value::Null;
        }
        if depth > 8 || self.random.u8(..10) == 0 {
            return self.anything();
        }
        let with = |key: &str| -> Vec<&Map<String, Value>> {
            let leaves = leaves.iter().filter(|leaf| leaf.contains_key(key));
            leaves.copied().collect()
        };
        if let Some(leaf) = self.random.choice(with("properties")) {
            return self.object(leaf, depth);
        }
        if let Some(leaf) = self.random.choice(with("items")) {
            let items = 0..self.random.usize(..3);
            let items = items.map(|_| self.value(&leaf["items"], depth + 1));
            return items.collect();
        }
        if let Some(leaf) = self.random.choice(with("enum")) {
            return self.random.choice(each(&leaf["enum"])).unwrap().clone();
        }
        if let Some(leaf) = self.random.choice(with("additionalProperties")) {
            return json!({"a": self.value(&leaf["additionalProperties"], depth + 1)});
        }
        self.anything()
    }

    /// Generates a few keys of an object, and sometimes an unknown key.
    fn object(&mut self, leaf: &Map<String, Value>, depth: usize) -> Value {
        let properties: Vec<_> = leaf["properties"].as_object().unwrap().iter().collect();
        let required = leaf.get("required").map(each).into_iter().flatten();
        let required: BTreeSet<&str> = required.filter_map(Value::as_str).collect();
        let mut object = Map::new();
        for _ in 0..self.random.usize(1..3).min(properties.len()) {
            let (key, schema) = properties[self.random.usize(..properties.len())];
            object.insert(key.clone(), self.value(schema, depth + 1));
        }
        for (key, schema) in properties {
            let is_missing = required.contains(key.as_str()) && !object.contains_key(key);
            if is_missing && self.random.u8(..20) != 0 {
                object.insert(key.clone(), self.value(schema, depth + 1));
            }
        }
        if self.random.u8(..20) == 0 {
            object.insert("no_such_key".to_owned(), json!(1));
        }
        Value::Object(object)
    }

    fn anything(&mut self) -> Value {
        let pool = json!([
            null, true, false, 0, 1, 3, 100, -1, 70_000, 5_000_000_000_u64, 0.5, 2.0, "", "text",
            "a,b", "5s", "10MiB", "localhost:4317", "gzip", [], ["a"], [1], [null], {}, {"a": "b"},
            {"enabled": false}
        ]);
        self.random.choice(each(&pool)).unwrap().clone()
    }
}

/// Whether `--validate` accepts the keys and kinds of a component's configuration.
fn is_read<C: ?Sized>(entry: &Entry<C>, value: &Value) -> bool {
    let text = serde_yaml::to_string(value).unwrap();
    let mut report = Report::default();
    let source = report.add_source(source::SourceText {
        name: "generated.yaml".to_owned(),
        text: text.clone(),
        inline: false,
        hidden: false,
    });
    let node = parse::parse(&text, source, &mut report).unwrap();
    (entry.decode)(&node, &mut report);
    let mut found = report.diagnostics().iter();
    !found.any(|diagnostic| diagnostic.level == Level::Error && !diagnostic.is_checked)
}

/// Configurations generated for each component.
const GENERATED: usize = 400;

/// Compares both; returns the number of valid configurations.
fn compare<C: ?Sized>(
    kind: Kind,
    registry: &'static [Entry<C>],
    root: &Value,
    differences: &mut BTreeSet<String>,
) -> usize {
    let validator = Validator { root };
    let mut accepted = 0;
    for entry in registry.iter().filter(|entry| entry.is_built_in()) {
        let patterns = &root["properties"][kind.section()]["patternProperties"];
        let schema = &patterns[ids_of(entry.name)];
        let mut generator = Generator {
            validator: &validator,
            random: fastrand::Rng::with_seed(entry.name.len() as u64),
        };
        for _ in 0..GENERATED {
            let value = generator.value(schema, 0);
            let by_schema = validator.accepts(schema, &value);
            let by_validate = is_read(entry, &value);
            accepted += usize::from(by_schema);
            if by_schema != by_validate {
                let says = |good: bool| if good { "accepts" } else { "refuses" };
                differences.insert(format!(
                    "{}.{}: the schema {} and --validate {} {value}",
                    kind.section(),
                    entry.name,
                    says(by_schema),
                    says(by_validate),
                ));
            }
        }
    }
    accepted
}

/// Number of differences shown in a failure.
const MAX_SHOWN_DIFFERENCES: usize = 150;

#[test]
fn generated_configurations_get_one_answer_from_both() {
    let root = super::schema();
    let mut found = BTreeSet::new();
    let accepted = compare(Kind::Receiver, receivers::REGISTRY, &root, &mut found)
        + compare(Kind::Processor, processors::REGISTRY, &root, &mut found)
        + compare(Kind::Exporter, exporters::REGISTRY, &root, &mut found)
        + compare(Kind::Connector, connectors::REGISTRY, &root, &mut found)
        + compare(Kind::Extension, extensions::REGISTRY, &root, &mut found);
    assert!(accepted > 1000, "only {accepted} were good");
    let count = found.len();
    let shown: Vec<String> = found.into_iter().take(MAX_SHOWN_DIFFERENCES).collect();
    assert_eq!(count, 0, "{count} differences:\n{}", shown.join("\n"));
}

#[test]
fn valid_files_match_schema() {
    let root = super::schema();
    let validator = Validator { root: &root };
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seen = 0;
    for place in ["config", "examples/configs"] {
        for file in std::fs::read_dir(directory.join(place)).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            if text.starts_with("# built with: kafka") && !cfg!(feature = "kafka") {
                continue;
            }
            let value: Value = serde_yaml::from_str(&text).unwrap();
            for (name, schema) in root["properties"].as_object().unwrap() {
                let is_good = value
                    .get(name)
                    .is_none_or(|part| validator.accepts(schema, part));
                assert!(is_good, "{}: {name}", path.display());
            }
            assert!(validator.accepts(&root, &value), "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 10);
}
