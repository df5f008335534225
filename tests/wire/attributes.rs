use opentelemetry_proto::tonic::common::v1::any_value::Value;
use proptest::prelude::*;
use tributary::batch::Decoded;
use tributary::wire;
use tributary::wire::attributes::{Action, Actions, Level, Operation, Source};

use crate::request;

/// The keys that the generator uses most.
fn key() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "d", "text.7"]).prop_map(str::to_owned)
}

fn source() -> impl Strategy<Value = Source> {
    prop_oneof![
        key().prop_map(Source::Attribute),
        any::<i64>().prop_map(|number| Source::Value(Value::IntValue(number))),
        (0..300_usize).prop_map(|length| Source::Value(Value::StringValue("v".repeat(length)))),
        any::<bool>().prop_map(|flag| Source::Value(Value::BoolValue(flag))),
        (-1e9..1e9).prop_map(|number| Source::Value(Value::DoubleValue(number))),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let operation = prop_oneof![
        source().prop_map(Operation::Insert),
        source().prop_map(Operation::Update),
        source().prop_map(Operation::Upsert),
        Just(Operation::Delete),
    ];
    (key(), operation).prop_map(|(key, operation)| Action { key, operation })
}

proptest! {
    #[test]
    fn editing_on_the_wire_equals_decoding_editing_and_encoding(
        (signal, request) in request(),
        actions in prop::collection::vec(action(), 1..5),
        resources in any::<bool>(),
    ) {
        let level = if resources { Level::Resources } else { Level::Items };
        let actions = Actions::new(actions);
        let mut expected = Decoded::decode(signal, &request).unwrap();
        actions.apply_decoded(level, &mut expected);
        let edited = actions.apply(signal, level, &request).unwrap();
        let edited = edited.as_deref().unwrap_or(&request);
        prop_assert!(wire::validate(signal, edited).is_ok());
        let edited = Decoded::decode(signal, edited).unwrap();
        // Debug output, because NaN is not equal to itself.
        prop_assert_eq!(format!("{edited:?}"), format!("{expected:?}"));
    }
}
