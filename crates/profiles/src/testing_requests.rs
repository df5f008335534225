//! Generated requests, and small requests with named samples, for tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message as _;

use super::testing;

/// Generates valid requests.
pub fn requests() -> impl Strategy<Value = ExportProfilesServiceRequest> {
    proptest::collection::vec(any::<u8>(), 0..500).prop_map(|bytes| testing::request(&bytes))
}
/// Returns a profile of the resource `service` at a time, with a sample of value 1 in a function of each
/// name.
pub fn named<'a>(
    service: &str,
    time: u64,
    names: impl IntoIterator<Item = &'a str>,
) -> ExportProfilesServiceRequest {
    let mut tables = proto::ProfilesDictionary {
        mapping_table: vec![Default::default()],
        location_table: vec![Default::default()],
        function_table: vec![Default::default()],
        link_table: vec![Default::default()],
        string_table: vec![String::new(), "cpu".to_owned(), "nanoseconds".to_owned()],
        attribute_table: vec![Default::default()],
        stack_table: vec![Default::default()],
    };
    let mut samples = Vec::new();
    for (name, at) in names.into_iter().zip(1..) {
        tables.string_table.push(name.to_owned());
        tables.function_table.push(proto::Function {
            name_strindex: at + 2,
            ..Default::default()
        });
        tables.location_table.push(proto::Location {
            lines: vec![proto::Line {
                function_index: at,
                ..Default::default()
            }],
            ..Default::default()
        });
        tables.stack_table.push(proto::Stack {
            location_indices: vec![at],
        });
        samples.push(proto::Sample {
            stack_index: at,
            values: vec![1],
            ..Default::default()
        });
    }
    let cpu = Some(proto::ValueType {
        type_strindex: 1,
        unit_strindex: 2,
    });
    let profile = proto::Profile {
        sample_type: cpu,
        period_type: cpu,
        period: 10_000_000,
        time_unix_nano: time,
        duration_nano: 1_000_000_000,
        samples,
        ..Default::default()
    };
    let service = KeyValue {
        key: "service.name".to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(service.to_owned())),
        }),
        ..Default::default()
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![proto::ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![service],
                ..Default::default()
            }),
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![profile],
                ..Default::default()
            }],
            ..Default::default()
        }],
        dictionary: Some(tables),
    }
}

/// Returns the innermost function name of each sample, in order.
pub fn sample_names(request: &[u8]) -> Vec<String> {
    let request = ExportProfilesServiceRequest::decode(request).unwrap();
    let profiles = super::resolve::resolve(&request).unwrap();
    let samples = profiles.iter().flat_map(|profile| &profile.samples);
    samples
        .map(|sample| sample.stack[0].lines[0].name.to_owned())
        .collect()
}
