//! Alternative spellings of enum variants, for the JSON Schema.

use schemars::Schema;
use schemars::transform::Transform;
use serde_json::{Value, json};

/// Alternative spellings that an enum accepts. The schema does not list them as variants.
#[derive(Debug, Clone)]
pub struct Aliases(pub &'static [&'static str]);

impl Transform for Aliases {
    fn transform(&mut self, schema: &mut Schema) {
        let Some(object) = schema.as_object_mut() else {
            return;
        };
        if let Some(Value::Array(values)) = object.get_mut("enum") {
            values.extend(self.0.iter().map(|word| Value::from(*word)));
        } else if let Some(Value::Array(alternatives)) = object.get_mut("oneOf") {
            alternatives.extend(self.0.iter().map(|word| json!({"const": word})));
        }
    }
}
