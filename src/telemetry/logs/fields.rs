//! Fields of a log line.

use std::fmt;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};

/// Fields that name the component of a line.
const COMPONENT_KIND: &str = "otelcol.component.kind";
pub(super) const COMPONENT_ID: &str = "otelcol.component.id";

/// Message and fields of a line.
pub(super) struct Fields {
    pub(super) message: String,
    pub(super) rest: Map<String, Value>,
}

impl Fields {
    /// Returns the component, the message and the fields, as `exporter otlp_grpc: message key=value key=value`.
    pub(super) fn in_one_line(&self) -> String {
        let text = |key: &str| self.rest.get(key).and_then(Value::as_str);
        let mut line = match (text(COMPONENT_KIND), text(COMPONENT_ID)) {
            (Some(kind), Some(id)) => format!("{kind} {id}: {}", self.message),
            _ => self.message.clone(),
        };
        let is_shown = |key: &str| ![COMPONENT_KIND, COMPONENT_ID, "suppressed"].contains(&key);
        for (key, value) in self.rest.iter().filter(|(key, _)| is_shown(key)) {
            let value = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            line.push_str(&format!(" {key}={value}"));
        }
        line
    }

    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.rest.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.put(field, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}
