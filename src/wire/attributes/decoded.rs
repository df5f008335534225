//! The same actions on decoded requests.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::{Action, Level, Operation, Source};
use crate::batch::Decoded;

/// Carries out one action on one set of attributes.
pub(super) fn apply(action: &Action, attributes: &mut Vec<KeyValue>) {
    let position = |key: &str| attributes.iter().position(|attribute| attribute.key == key);
    let present = position(&action.key);
    let source = match &action.operation {
        Operation::Delete => return attributes.retain(|attribute| attribute.key != action.key),
        Operation::Insert(source) if present.is_none() => source,
        Operation::Update(source) if present.is_some() => source,
        Operation::Upsert(source) => source,
        Operation::Insert(_) | Operation::Update(_) => return,
    };
    let value = match source {
        Source::Value(value) => Some(AnyValue {
            value: Some(value.clone()),
        }),
        Source::Attribute(key) => {
            match position(key).and_then(|position| attributes.get(position)) {
                Some(attribute) => attribute.value.clone(),
                None => return,
            }
        }
    };
    match present {
        None => attributes.push(KeyValue {
            key: action.key.clone(),
            value,
            ..KeyValue::default()
        }),
        Some(first) => {
            let mut at = 0;
            attributes.retain_mut(|attribute| {
                at += 1;
                if at - 1 == first {
                    attribute.value = value.clone();
                }
                at - 1 == first || attribute.key != action.key
            });
        }
    }
}

/// Calls `edit` for each set of attributes of that level.
pub(super) fn each_set(
    level: Level,
    request: &mut Decoded,
    mut edit: impl FnMut(&mut Vec<KeyValue>),
) {
    match (level, request) {
        (Level::Resources, request) => each_resource(request, |resource| {
            if let Some(resource) = resource {
                return edit(&mut resource.attributes);
            }
            // A resource that is not there appears only with something in it.
            let mut fresh = Resource::default();
            edit(&mut fresh.attributes);
            if !fresh.attributes.is_empty() {
                *resource = Some(fresh);
            }
        }),
        (Level::Items, Decoded::Traces(request)) => request
            .resource_spans
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_spans)
            .flat_map(|scope| &mut scope.spans)
            .for_each(|span| edit(&mut span.attributes)),
        (Level::Items, Decoded::Logs(request)) => request
            .resource_logs
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_logs)
            .flat_map(|scope| &mut scope.log_records)
            .for_each(|record| edit(&mut record.attributes)),
        (Level::Items, Decoded::Metrics(request)) => request
            .resource_metrics
            .iter_mut()
            .flat_map(|resource| &mut resource.scope_metrics)
            .flat_map(|scope| &mut scope.metrics)
            .for_each(|metric| each_point(metric, &mut edit)),
        (Level::Items, Decoded::Profiles(_)) => {}
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
