//! The filter and the sampler on random requests.

use proptest::prelude::*;
use tributary_otlp::Signal;

use crate::request;
use crate::sieve::{
    Condition, Level, Literal, filter, filters_like_prost, opposites_do_not_meet,
    samples_each_alike,
};

/// Tokens of random conditions. Many are whole comparisons, so that some sequences of tokens are valid conditions.
const WORDS: &[&str] = &[
    "resource.attributes[\"a\"] + 1 == 2",
    "HasPrefix(scope.name, \"a\")",
    "HasSuffix(resource.attributes[\"a\"], resource.attributes[\"b\"])",
    "Len(resource.attributes[\"a\"]) > 1",
    "resource.attributes[\"a\"][0] != nil",
    "span.end_time - span.start_time > Duration(\"1s\")",
    "log.body",
    "metric.name",
    "==",
    "<",
    "and",
    "and",
    "or",
    "or",
    "not",
    "(",
    ")",
    "[",
    "]",
    "+",
    "-",
    "*",
    "/",
    ",",
    "0",
    "2.5",
    "\"a\"",
    "0x01",
    "true",
    "nil",
    "Duration(",
    "Len(",
    "HasPrefix(",
];

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "d", "", "text.7"])
}

fn condition() -> impl Strategy<Value = Condition> {
    let level = prop::sample::select(vec![Level::Resource, Level::Scope, Level::Item]);
    let literal = prop_oneof![
        Just(Literal::Nil),
        (0..3_i64).prop_map(Literal::Int),
        name().prop_map(Literal::Text),
    ];
    let plain = prop_oneof![
        (level, name(), literal)
            .prop_map(|(level, key, literal)| Condition::Attribute(level, key, literal)),
        name().prop_map(Condition::Name),
        name().prop_map(Condition::Prefix),
        (name(), -2..2_i64, 0..5_i64).prop_map(|(key, plus, sum)| Condition::Sum(key, plus, sum)),
    ];
    plain.prop_recursive(3, 8, 2, |inner| {
        let pair = || {
            (
                inner.clone().prop_map(Box::new),
                inner.clone().prop_map(Box::new),
            )
        };
        prop_oneof![
            inner
                .clone()
                .prop_map(|inner| Condition::Not(Box::new(inner))),
            pair().prop_map(|(a, b)| Condition::Both(a, b)),
            pair().prop_map(|(a, b)| Condition::Either(a, b)),
        ]
    })
}

proptest! {
    #[test]
    fn filtering_encoded_equals_filtering_decoded(
        (signal, request) in request(),
        condition in condition(),
    ) {
        if signal != Signal::Profiles {
            filters_like_prost(signal, &request, condition);
        }
    }

    #[test]
    fn sampling_is_independent_of_batching_and_tiers(
        (signal, request) in request(),
        mode in prop::sample::select(vec!["hash_seed", "equalizing"]),
        percentage in prop::sample::select(vec![1, 50, 100]),
        fail_closed in any::<bool>(),
    ) {
        if matches!(signal, Signal::Traces | Signal::Logs) {
            let config = format!(
                "{{mode: {mode}, sampling_percentage: {percentage}, fail_closed: {fail_closed}, from_attribute: a}}"
            );
            samples_each_alike(signal, &request, &serde_yaml::from_str(&config).unwrap());
        }
    }

    #[test]
    fn any_token_sequence_parses_or_errors_with_position(
        words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 1..16),
        (signal, request) in request(),
    ) {
        let text = words.join(" ");
        match filter(&text, signal) {
            Err(problems) => for problem in problems.found() {
                prop_assert!(problem.message.starts_with("character "), "{}: {}", text, problem.message);
            },
            Ok(_) if signal != Signal::Profiles => opposites_do_not_meet(&text, signal, &request),
            Ok(_) => {}
        }
    }

    #[test]
    fn condition_and_its_opposite_never_drop_the_same_item(
        (signal, request) in request(),
        path in prop::sample::select(vec![
            "resource.attributes[\"a\"]", "scope.name", "span.kind", "span.end_time_unix_nano",
            "spanevent.name", "metric.unit", "datapoint.value_int", "datapoint.count", "log.body",
            "log.body[\"a\"]", "log.severity_number",
        ]),
        comparison in prop::sample::select(vec!["==", "!=", "<", ">="]),
        value in prop::sample::select(vec!["nil", "0", "1.5", "\"a\"", "true", "0x01"]),
    ) {
        // Profiles are excluded, because random profiles violate the rules of their dictionary.
        if signal != Signal::Profiles {
            opposites_do_not_meet(&format!("{path} {comparison} {value}"), signal, &request);
        }
    }
}
