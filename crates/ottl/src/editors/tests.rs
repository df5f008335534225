use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::parse_statement;
use crate::statement::{Effect, PartChange};
use crate::target::EvaluationTarget;
use crate::value::Undecided;
use tributary_otlp::Signal;
use tributary_otlp::view::Message;

fn entry(key: &str, value: Any) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

fn execute(statement: &str, signal: Signal, item: &[u8]) -> Result<Effect, Undecided> {
    let statement = parse_statement(statement, signal, None).unwrap();
    statement.execute(&EvaluationTarget {
        item: Message::new(item),
        ..EvaluationTarget::default()
    })
}

fn record(effect: Effect) -> LogRecord {
    let Some(PartChange::Part(_, bytes)) = effect.change else {
        panic!("nothing changed");
    };
    LogRecord::decode(bytes.as_slice()).unwrap()
}

#[test]
fn flattened_keys_are_unique_after_conflicts() {
    let inner = KeyValueList {
        values: vec![entry("b", Any::IntValue(3))],
    };
    let before = LogRecord {
        attributes: vec![
            entry("a.b.0", Any::IntValue(1)),
            entry("a.b", Any::IntValue(2)),
            entry("a", Any::KvlistValue(inner)),
        ],
        ..LogRecord::default()
    };
    let statement = r#"flatten(log.attributes, resolve_conflicts=true)"#;
    let after = execute(statement, Signal::Logs, &before.encode_to_vec()).unwrap();
    let expected = [
        entry("a.b.0", Any::IntValue(3)),
        entry("a.b", Any::IntValue(2)),
    ];
    assert_eq!(record(after).attributes, expected);
}

#[test]
fn written_values_nest_no_deeper_than_readers_accept() {
    let set = |keys: usize| {
        let statement = format!("set(log.attributes{}, 1)", r#"["a"]"#.repeat(keys));
        execute(&statement, Signal::Logs, &[])
    };
    assert_eq!(record(set(31).unwrap()).attributes.len(), 1);
    assert!(set(32).is_err());
}

#[test]
fn key_of_trace_state_may_be_computed() {
    let span = Span {
        name: "k".to_owned(),
        trace_state: "k=v".to_owned(),
        ..Span::default()
    };
    let span = span.encode_to_vec();
    let statement = r#"set(span.status.message, "x") where span.trace_state[span.name] == "v""#;
    assert!(
        !execute(statement, Signal::Traces, &span)
            .unwrap()
            .is_empty()
    );
    let statement = r#"set(span.trace_state[span.name], "v")"#;
    assert!(
        execute(statement, Signal::Traces, &span)
            .unwrap()
            .is_empty()
    );
}
