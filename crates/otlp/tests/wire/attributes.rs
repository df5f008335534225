use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use proptest::prelude::*;
use regex::Regex;
use tributary_otlp::Signal;
use tributary_otlp::attributes::{Action, Actions, AttributeLevel, Operation, Type, ValueSource};

use crate::oracle::edits_like_prost;
use crate::request;

fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "text.7"]).prop_map(str::to_owned)
}

fn source() -> impl Strategy<Value = ValueSource> {
    prop_oneof![
        key().prop_map(ValueSource::Attribute),
        key().prop_map(|key| ValueSource::AttributeOr(key, Value::IntValue(7))),
        any::<i64>().prop_map(|number| ValueSource::Value(Value::IntValue(number))),
        (0..300_usize)
            .prop_map(|length| ValueSource::Value(Value::StringValue("v".repeat(length)))),
        any::<bool>().prop_map(|flag| ValueSource::Value(Value::BoolValue(flag))),
        (-1e9..1e9).prop_map(|number| ValueSource::Value(Value::DoubleValue(number))),
    ]
}

/// Matches some of the frequent keys and some other keys.
fn pattern() -> impl Strategy<Value = Arc<Regex>> {
    let patterns = vec!["^[ab]$", "^text", "", "[c7]$", "^no such key$"];
    prop::sample::select(patterns).prop_map(|pattern| Arc::new(Regex::new(pattern).unwrap()))
}

fn action() -> impl Strategy<Value = Action> {
    let operation = prop_oneof![
        source().prop_map(Operation::Insert),
        source().prop_map(Operation::Update),
        source().prop_map(Operation::Upsert),
        Just(Operation::Delete),
        pattern().prop_map(Operation::DeleteMatching),
        Just(Operation::Hash),
        pattern().prop_map(Operation::HashMatching),
        Just(Operation::Extract(Arc::new(
            Regex::new("^(?P<a>t)?(?P<new>.)").unwrap()
        ))),
        prop::sample::select(vec![Type::String, Type::Int, Type::Double])
            .prop_map(Operation::Convert),
    ];
    (key(), operation).prop_map(|(key, operation)| Action { key, operation })
}

proptest! {
    #[test]
    fn editing_encoded_equals_editing_decoded(
        (signal, request) in request(),
        actions in prop::collection::vec(action(), 1..5),
        resources in any::<bool>(),
    ) {
        let level = if resources { AttributeLevel::Resources } else { AttributeLevel::Items };
        edits_like_prost(signal, &request, level, &Actions::new(actions));
    }
}

fn delete(key: &str) -> Actions {
    Actions::new(vec![Action {
        key: key.to_owned(),
        operation: Operation::Delete,
    }])
}

#[test]
fn unknown_fields_survive_an_edit() {
    // A span with an attribute that has the unknown field 99, and with that field itself.
    let span = |attributes: &[&[u8]]| {
        let mut request = [&attributes.concat()[..], &[0x98, 0x06, 7]].concat();
        for tag in [0x12, 0x12, 0x0a] {
            request = [&[tag, request.len() as u8], &request[..]].concat();
        }
        request
    };
    let stays: &[u8] = &[0x4a, 6, 0x0a, 1, b'a', 0x98, 0x06, 7];
    let goes: &[u8] = &[0x4a, 6, 0x98, 0x06, 7, 0x0a, 1, b'b'];
    let edited = delete("b").apply(Signal::Traces, AttributeLevel::Items, &span(&[stays, goes]));
    assert_eq!(edited, Ok(Some(span(&[stays]).into())));
}

#[test]
fn overridden_key_does_not_match() {
    // An attribute with two keys: readers see the last one.
    let attribute: &[u8] = &[0x0a, 1, b'a', 0x0a, 1, b'b'];
    let mut request = [&[0x4a, 6], attribute].concat();
    for tag in [0x12, 0x12, 0x0a] {
        request = [&[tag, request.len() as u8], &request[..]].concat();
    }
    edits_like_prost(
        Signal::Traces,
        &request,
        AttributeLevel::Items,
        &delete("a"),
    );
    edits_like_prost(
        Signal::Traces,
        &request,
        AttributeLevel::Items,
        &delete("b"),
    );
}
