//! Applies actions to decoded requests.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::{Action, AttributeLevel, Operation, ValueSource, change};
use crate::Decoded;

pub(super) fn apply(action: &Action, attributes: &mut Vec<KeyValue>) {
    let find = |attributes: &[KeyValue], key: &str| {
        let mut found = attributes.iter();
        found.position(|attribute| attribute.key == key)
    };
    let present = find(attributes, &action.key);
    let source = match &action.operation {
        Operation::Delete => return attributes.retain(|attribute| attribute.key != action.key),
        Operation::DeleteMatching(pattern) => {
            return attributes.retain(|attribute| !pattern.is_match(&attribute.key));
        }
        Operation::Hash => return change_one(attributes, &action.key, hashed),
        Operation::HashMatching(pattern) => {
            let keys = attributes.iter().map(|attribute| attribute.key.clone());
            let keys: BTreeSet<String> = keys.filter(|key| pattern.is_match(key)).collect();
            return keys
                .iter()
                .for_each(|key| change_one(attributes, key, hashed));
        }
        Operation::Convert(to) => {
            return change_one(attributes, &action.key, |value| {
                change::encoded(value, |value| change::converted(value, *to))
            });
        }
        Operation::Extract(pattern) => {
            let value = present.and_then(|present| attributes.get(present));
            let Some(Value::StringValue(text)) = value
                .and_then(|attribute| attribute.value.as_ref())
                .and_then(|value| value.value.as_ref())
            else {
                return;
            };
            for (name, text) in change::extracted(pattern, text) {
                set(attributes, &name, any_value(Value::StringValue(text)));
            }
            return;
        }
        Operation::Insert(source) if present.is_none() => source,
        Operation::Update(source) if present.is_some() => source,
        Operation::Upsert(source) => source,
        Operation::Insert(_) | Operation::Update(_) => return,
    };
    let of = |key: &str| {
        let at = find(attributes, key)?;
        attributes.get(at).map(|attribute| attribute.value.clone())
    };
    let value = match source {
        ValueSource::Value(value) => any_value(value.clone()),
        ValueSource::Attribute(key) => match of(key) {
            Some(value) => value,
            None => return,
        },
        ValueSource::AttributeOr(key, value) => of(key).unwrap_or_else(|| any_value(value.clone())),
    };
    set(attributes, &action.key, value);
}

fn any_value(value: Value) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

fn hashed(value: Option<&AnyValue>) -> Option<Value> {
    change::encoded(value, |value| Some(change::hashed(value)))
}

/// Changes the value of a key, if the key exists and `change` returns a value.
fn change_one(
    attributes: &mut Vec<KeyValue>,
    key: &str,
    change: impl Fn(Option<&AnyValue>) -> Option<Value>,
) {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    if let Some(value) = found.and_then(|attribute| change(attribute.value.as_ref())) {
        set(attributes, key, any_value(value));
    }
}

/// Sets an attribute: replaces the value of the key's first attribute, and removes the other ones.
fn set(attributes: &mut Vec<KeyValue>, key: &str, value: Option<AnyValue>) {
    let mut value = Some(value);
    attributes.retain_mut(|attribute| {
        if attribute.key != key {
            return true;
        }
        let Some(value) = value.take() else {
            return false;
        };
        attribute.value = value;
        true
    });
    if let Some(value) = value {
        attributes.push(KeyValue {
            key: key.to_owned(),
            value,
            ..KeyValue::default()
        });
    }
}

/// Calls `edit` for each set of attributes of a level.
pub(super) fn each_set(
    level: AttributeLevel,
    request: &mut Decoded,
    mut edit: impl FnMut(&mut Vec<KeyValue>),
) {
    match (level, request) {
        (AttributeLevel::Resources, request) => each_resource(request, |resource| {
            if let Some(resource) = resource {
                return edit(&mut resource.attributes);
            }
            // A missing resource is created only if the actions add attributes.
            let mut fresh = Resource::default();
            edit(&mut fresh.attributes);
            if !fresh.attributes.is_empty() {
                *resource = Some(fresh);
            }
        }),
        (AttributeLevel::Items, Decoded::Traces(request)) => request
            .resource_spans
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_spans)
            .flat_map(|scope| &mut scope.spans)
            .for_each(|span| edit(&mut span.attributes)),
        (AttributeLevel::Items, Decoded::Logs(request)) => request
            .resource_logs
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_logs)
            .flat_map(|scope| &mut scope.log_records)
            .for_each(|record| edit(&mut record.attributes)),
        (AttributeLevel::Items, Decoded::Metrics(request)) => request
            .resource_metrics
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_metrics)
            .flat_map(|scope| &mut scope.metrics)
            .for_each(|metric| each_point(metric, &mut edit)),
        (AttributeLevel::Items, Decoded::Profiles(_)) => {}
    }
}

fn each_point(metric: &mut Metric, edit: &mut impl FnMut(&mut Vec<KeyValue>)) {
    macro_rules! points {
        ($data:expr) => {
            for point in &mut $data.data_points {
                edit(&mut point.attributes);
            }
        };
    }
    match &mut metric.data {
        Some(Data::Gauge(data)) => points!(data),
        Some(Data::Sum(data)) => points!(data),
        Some(Data::Histogram(data)) => points!(data),
        Some(Data::ExponentialHistogram(data)) => points!(data),
        Some(Data::Summary(data)) => points!(data),
        None => {}
    }
}

fn each_resource(request: &mut Decoded, mut edit: impl FnMut(&mut Option<Resource>)) {
    match request {
        Decoded::Traces(request) => request
            .resource_spans
            .iter_mut()
            .for_each(|entry| edit(&mut entry.resource)),
        Decoded::Metrics(request) => request
            .resource_metrics
            .iter_mut()
            .for_each(|entry| edit(&mut entry.resource)),
        Decoded::Logs(request) => request
            .resource_logs
            .iter_mut()
            .for_each(|entry| edit(&mut entry.resource)),
        Decoded::Profiles(_) => {}
    }
}
