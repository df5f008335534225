use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use tributary_otlp::edit::put_delimited;
use tributary_otlp::stamp::Stamp;
use tributary_otlp::{Decoded, Signal};

use crate::oracle::stamps_like_prost;
use crate::request;

proptest! {
    #[test]
    fn stamping_encoded_equals_stamping_decoded(
        (signal, request) in request(),
        // Frequent keys of the generator.
        key in prop::sample::select(vec!["a", "b", "c", "d", "text.7", "another"]),
        identity in prop::option::of("[a-z]{0,200}"),
    ) {
        stamps_like_prost(signal, &request, key, identity.as_deref());
    }
}

fn field(number: u32, body: &[u8]) -> Vec<u8> {
    let mut output = Vec::new();
    put_delimited(number, body, &mut output);
    output
}

/// Returns a traces request of one resource with these encoded attributes, without spans.
fn with_attributes(attributes: &[&[u8]]) -> Vec<u8> {
    let attributes: Vec<Vec<u8>> = attributes.iter().map(|body| field(1, body)).collect();
    field(1, &field(1, &attributes.concat()))
}

fn stamped(signal: Signal, request: &[u8]) -> Option<Vec<u8>> {
    stamps_like_prost(signal, request, "who", Some("me"));
    let stamp = Stamp::new("who");
    let stamping = stamp.prepare(signal, Some("me"), request).unwrap();
    stamping.write().unwrap()
}

fn stamp() -> Vec<u8> {
    [field(1, b"who"), field(2, &field(1, b"me"))].concat()
}

#[test]
fn repeated_forged_stamp_is_replaced() {
    let forged = [field(1, b"who"), field(2, &field(1, b"admin"))].concat();
    let backwards = [field(2, &field(1, b"admin")), field(1, b"who")].concat();
    let bare = field(1, b"who");
    let other = [field(1, b"whose"), field(2, &field(1, b"x"))].concat();
    let request = with_attributes(&[&forged, &other, &backwards, &bare, &forged]);
    assert_eq!(
        stamped(Signal::Traces, &request),
        Some(with_attributes(&[&other, &stamp()]))
    );
}

#[test]
fn overridden_names_are_removed() {
    let value = field(2, &field(1, b"admin"));
    let hidden = [&field(1, b"who")[..], &value, &field(1, b"x")].concat();
    let bare = [&value[..], &field(1, b"x")].concat();
    let shown = [&field(1, b"x")[..], &value, &field(1, b"who")].concat();
    let request = with_attributes(&[&hidden, &shown]);
    assert_eq!(
        stamped(Signal::Logs, &request),
        Some(with_attributes(&[&bare, &stamp()]))
    );
}

#[test]
fn every_resource_is_stamped_and_missing_one_created() {
    for signal in Signal::ALL {
        let request = [
            field(1, &[]),
            field(1, &field(3, b"a schema")),
            // The Collector writes the resource last.
            field(1, &[field(2, &[]), field(1, &[])].concat()),
            field(1, &[field(1, &[]), field(1, &[])].concat()),
        ]
        .concat();
        stamps_like_prost(signal, &request, "who", Some("me"));
        assert_eq!(stamped(signal, &[]), None);
    }
}

#[test]
fn missing_identity_removes_forged_stamps_only() {
    let forged = [field(1, b"who"), field(2, &field(1, b"admin"))].concat();
    let other = [field(1, b"other"), field(2, &field(1, b"x"))].concat();
    let stamp = Stamp::new("who");
    let strip = |request: &[u8]| {
        stamps_like_prost(Signal::Traces, request, "who", None);
        let stamping = stamp.prepare(Signal::Traces, None, request).unwrap();
        stamping.write().unwrap()
    };
    let clean = with_attributes(&[&other]);
    assert_eq!(
        strip(&with_attributes(&[&forged, &other])),
        Some(clean.clone())
    );
    assert_eq!(strip(&clean), None);
}

#[test]
fn references_to_the_key_are_removed_in_profiles() {
    let text = |text: &str| {
        Some(AnyValue {
            value: Some(Value::StringValue(text.to_owned())),
        })
    };
    let reference = |key_strindex| KeyValue {
        key_strindex,
        value: text("admin"),
        ..KeyValue::default()
    };
    let strings = ["", "who", "x", "who"].map(str::to_owned).to_vec();
    // References to the key, dangling references, and an attribute with both a key and a reference.
    let forged = [1, 3, 4, -1, i32::MAX].map(reference);
    let both = KeyValue {
        key: "who".to_owned(),
        ..reference(2)
    };
    let honest = reference(2);
    let mut request =
        opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest::default();
    request.dictionary.get_or_insert_default().string_table = strings;
    request.resource_profiles.push(Default::default());
    request.resource_profiles[0].resource = Some(Resource {
        attributes: [&forged[..], &[honest.clone(), both]].concat(),
        ..Resource::default()
    });
    let encoded = Decoded::Profiles(request).encode();
    let output = stamped(Signal::Profiles, &encoded).unwrap();
    let Decoded::Profiles(output) = Decoded::decode(Signal::Profiles, &output).unwrap() else {
        unreachable!("it was decoded as profiles");
    };
    let resource = output.resource_profiles[0].resource.as_ref().unwrap();
    let stamp = KeyValue {
        key: "who".to_owned(),
        value: text("me"),
        ..KeyValue::default()
    };
    assert_eq!(resource.attributes, [honest, stamp]);
}

#[test]
fn stamped_size_is_known_before_writing() {
    // Two bytes per resource: the case with the largest growth.
    let request = field(1, &[]).repeat(10_000);
    let stamp = Stamp::new("who");
    let stamping = stamp
        .prepare(Signal::Metrics, Some("me"), &request)
        .unwrap();
    let bytes = stamping.bytes().unwrap();
    let output = stamping.write().unwrap().unwrap();
    assert_eq!((output.len(), output.capacity()), (bytes, bytes));
}

#[test]
fn invalid_message_bytes_are_refused() {
    let stamp = Stamp::new("who");
    assert!(
        stamp
            .prepare(Signal::Traces, Some("me"), &[0x0a, 9, 1])
            .is_err()
    );
}
