//! The part of a resource that is retained.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

/// Attributes that identify a service, for values per request.
const SERVICE: [&str; 2] = ["service.namespace", "service.name"];

/// Encodes a `Resource` with only the attributes of these keys, in their order: equal for equal
/// values.
pub(super) fn retained<K: AsRef<str>>(resource: Option<&Resource>, keys: &[K]) -> Vec<u8> {
    let attributes = resource.map_or(&[][..], |resource| &resource.attributes);
    let find = |key: &K| attributes.iter().find(|found| found.key == key.as_ref());
    let resource = Resource {
        attributes: keys.iter().filter_map(find).cloned().collect(),
        ..Resource::default()
    };
    resource.encode_to_vec()
}

pub(super) fn service(resource: Option<&Resource>) -> Vec<u8> {
    retained(resource, &SERVICE)
}

/// Returns the resource that stands for all resources beyond the limit, as in OpenTelemetry's
/// metrics SDK.
pub(super) fn overflow() -> Vec<u8> {
    let overflow = KeyValue {
        key: "otel.metric.overflow".to_owned(),
        value: Some(AnyValue {
            value: Some(Value::BoolValue(true)),
        }),
        key_strindex: 0,
    };
    let resource = Resource {
        attributes: vec![overflow],
        ..Resource::default()
    };
    resource.encode_to_vec()
}
