//! Removes keys unknown to the Collector from the printed configuration if they have their default
//! values. The output then loads in the Collector unless the configuration uses a feature that the
//! Collector lacks.

use serde_json::Value as Json;
use serde_yaml::{Mapping, Value};

use crate::app::config::schema::ids_of;

/// Keys that only this program has in components shared with the Collector, as suffixes of paths.
/// Kinds replace ids in the paths.
const OWN: [&str; 34] = [
    "limits",
    "tls.allowed_client_names",
    "tls.client_crl_file",
    "tls.client_identity_attribute",
    "tls.crl_file",
    "sending_queue.compression",
    "sending_queue.drop_on_overflow",
    "sending_queue.overflow",
    "service.telemetry.metrics.address",
    "service.telemetry.metrics.auth",
    "service.telemetry.metrics.limits",
    "service.telemetry.metrics.tls",
    "extensions.file_storage.compression",
    "extensions.file_storage.fsync_interval",
    "extensions.health_check.recovery_duration",
    "processors.batch.send_batch_bytes",
    "processors.batch.send_batch_max_bytes",
    "processors.log_dedup.max_bytes",
    "processors.redaction.detectors",
    "processors.redaction.embedded_otlp",
    "processors.redaction.profiles",
    "processors.redaction.rules",
    "processors.redaction.scan",
    "exporters.file.sending_queue",
    "exporters.file.retry_on_failure",
    "exporters.prometheus.max_series",
    "exporters.prometheus.limits",
    "exporters.otlp_grpc.compression_params",
    "exporters.otlp_grpc.connections",
    "receivers.otlp.protocols.http.max_concurrent_streams",
    "receivers.otlp_json_file.storage",
    "receivers.otlp_json_file.compression",
    "receivers.otlp_json_file.format",
    "receivers.otlp_json_file.max_log_size",
];

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
        let component = &patterns[ids_of(kind)];
        let mut path = vec![section.to_owned(), kind.to_owned()];
        self.walk(value, component, &mut path);
    }

    /// Prunes `service.telemetry`.
    pub(super) fn telemetry(&self, value: &mut Value) {
        let schema = &self.schema["properties"]["service"]["properties"]["telemetry"];
        let mut path = vec!["service".to_owned(), "telemetry".to_owned()];
        self.walk(value, schema, &mut path);
    }

    fn walk(&self, value: &mut Value, schema: &Json, path: &mut Vec<String>) {
        let Value::Mapping(mapping) = value else {
            return;
        };
        let properties = self.properties(schema);
        let mut kept = Mapping::new();
        for (key, mut value) in std::mem::take(mapping) {
            let name = key.as_str().unwrap_or_default().to_owned();
            let schema = properties.map_or(&Json::Null, |all| &all[name.as_str()]);
            path.push(name);
            let is_default = serde_json::to_value(&value).is_ok_and(|value| {
                schema
                    .get("default")
                    .is_some_and(|default| *default == value)
            });
            if !(is_default && is_own(path)) {
                self.walk(&mut value, schema, path);
                kept.insert(key, value);
            }
            path.pop();
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

fn is_own(path: &[String]) -> bool {
    OWN.iter().any(|own| {
        let keys: Vec<&str> = own.split('.').collect();
        let from = path.len().checked_sub(keys.len());
        from.and_then(|from| path.get(from..))
            .is_some_and(|end| end == keys)
    })
}
