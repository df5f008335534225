//! Adds the rules of the deserializer to a schema.

use schemars::Schema;
use schemars::transform::Transform;
use serde_json::{Map, Value, json};

/// Adds the deserializer's rules: values that `${env:NAME}` may stand for, plain numbers as
/// strings, `a,b` as a list, and a key without a value as its default.
pub(super) struct AsRead {
    /// Definitions that references point to.
    pub(super) named: Value,
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
