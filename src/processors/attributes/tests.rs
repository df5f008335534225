use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use super::*;
use tributary_otlp::Decoded;

fn config(yaml: &str) -> Result<AttributesConfig, serde_yaml::Error> {
    serde_yaml::from_str(yaml)
}

fn processor(yaml: &str) -> Attributes {
    of(&config(yaml).unwrap(), Signal::Logs)
}

fn of(config: &AttributesConfig, signal: Signal) -> Attributes {
    Attributes {
        level: AttributeLevel::Items,
        actions: Prepared::new(&config.actions).unwrap(),
        choice: Choice::new(signal, config.include.as_ref(), config.exclude.as_ref()).unwrap(),
        budget: tributary_memory::Budget::new(1 << 30),
    }
}

fn logs(attributes: &[(&str, &str)]) -> Decoded {
    let attributes = attributes.iter().map(|(key, value)| KeyValue {
        key: (*key).to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue((*value).to_owned())),
        }),
        ..KeyValue::default()
    });
    Decoded::Logs(ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records: vec![LogRecord {
                    attributes: attributes.collect(),
                    ..LogRecord::default()
                }],
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    })
}

fn batch(attributes: &[(&str, &str)]) -> Batch {
    Batch::new(Signal::Logs, 1, logs(attributes).encode())
}

const FOUR_ACTIONS: &str = "
actions:
  - {key: env, action: insert, value: prod}
  - {key: user, action: update, value: redacted}
  - {key: copy, action: upsert, from_attribute: env}
  - {key: secret, action: delete}
";

#[test]
fn actions_are_carried_out_in_order() {
    let before = [("user", "jane"), ("secret", "x"), ("stays", "as it is")];
    let after = logs(&[
        ("user", "redacted"),
        ("stays", "as it is"),
        ("env", "prod"),
        ("copy", "prod"),
    ]);
    let edited = processor(FOUR_ACTIONS).process(batch(&before));
    let edited = edited.unwrap().unwrap();
    assert_eq!(edited.items(), 1);
    assert_eq!(edited.decoded().unwrap(), after);
}

#[test]
fn batch_without_hits_is_forwarded_unchanged() {
    let batch = batch(&[("stays", "as it is")]);
    let before = batch.wire().to_bytes();
    let processor = processor("actions: [{key: secret, action: delete}]");
    let after = processor.process(batch).unwrap().unwrap();
    assert_eq!(after.wire().to_bytes().as_ptr(), before.as_ptr());
}

#[test]
fn values_keep_their_type() {
    for (yaml, expected) in [
        ("1", Value::IntValue(1)),
        ("1.5", Value::DoubleValue(1.5)),
        ("true", Value::BoolValue(true)),
        ("\"1\"", Value::StringValue("1".to_owned())),
    ] {
        let config = config(&format!(
            "actions: [{{key: a, action: insert, value: {yaml}}}]"
        ));
        let value = config.unwrap().actions[0].value.clone();
        assert_eq!(value.unwrap().to_value(), expected);
    }
}

#[test]
fn mistakes_are_reported_at_their_positions() {
    let problems = |yaml: &str| -> Vec<String> {
        let mut problems = Problems::default();
        config(yaml).unwrap().validate(&mut problems);
        let found = problems.found().iter();
        found.map(|problem| problem.path.join(".")).collect()
    };
    assert!(problems(FOUR_ACTIONS).is_empty());
    assert_eq!(problems("{}"), ["actions"]);
    assert_eq!(
        problems(
            "
actions:
  - {action: delete}
  - {key: a, action: insert}
  - {key: a, action: upsert, value: 1, from_attribute: b}
  - {key: a, action: delete, value: 1}
  - {key: a, action: delete, from_attribute: b}
  - {key: a, action: update, from_attribute: ''}
"
        ),
        [
            "actions.0.key",
            "actions.1.action",
            "actions.2.from_attribute",
            "actions.3.value",
            "actions.4.from_attribute",
            "actions.5.from_attribute",
        ]
    );
    assert_eq!(
        problems(
            "
actions:
  - {action: hash}
  - {key: a, action: hash, value: 1}
  - {action: delete, pattern: '('}
  - {key: a, action: extract}
  - {key: a, action: extract, pattern: '^a$'}
  - {key: a, action: extract, pattern: '(?P<b>.)(.)'}
  - {key: a, action: convert}
  - {key: a, action: insert, pattern: a, value: 1}
  - {key: a, action: insert, from_context: auth.subject}
  - {key: a, action: insert, from_context: client.address}
  - {key: a, action: upsert, value: 1, default_value: 2}
  - {key: a, action: convert, converted_type: int, default_value: 2}
include: {services: [a]}
exclude: {match_type: regexp}
"
        ),
        [
            "actions.0.key",
            "actions.1.value",
            "actions.2.pattern",
            "actions.3.action",
            "actions.4.pattern",
            "actions.5.pattern",
            "actions.6.action",
            "actions.7.pattern",
            "actions.8.from_context",
            "actions.9.from_context",
            "actions.10.default_value",
            "actions.11.default_value",
            "include.match_type",
            "exclude",
        ]
    );
    assert_eq!(
        problems(
            "
actions: [{key: a, action: delete}]
include:
  match_type: regexp
  span_names: [a, '(']
  attributes: [{key: a, value: 1}, {key: a, value: [1]}, {value: a}]
exclude:
  match_type: strict
  span_kinds: [SERVER]
  libraries: [{name: a, version: '('}]
"
        ),
        [
            "include.span_names.1",
            "include.attributes.0.value",
            "include.attributes.1.value",
            "include.attributes.2.key",
            "exclude.span_kinds.0",
        ]
    );
    assert!(config("actions: [{key: a, action: insert, valeu: 1}]").is_err());
}

/// See the file.
const GOLDEN: &str = include_str!("golden.yaml");

#[derive(serde::Deserialize)]
struct Case {
    #[serde(default)]
    log: bool,
    config: serde_yaml::Value,
    item: Item,
    result: std::collections::BTreeMap<String, String>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Item {
    name: String,
    kind: i32,
    body: String,
    severity_text: String,
    severity: i32,
    attributes: std::collections::BTreeMap<String, serde_yaml::Value>,
    resource: std::collections::BTreeMap<String, serde_yaml::Value>,
    scope: Vec<String>,
    metadata: crate::pipeline::batch::Metadata,
}

fn any(value: &serde_yaml::Value) -> AnyValue {
    let value = match value {
        serde_yaml::Value::Null => None,
        serde_yaml::Value::Sequence(values) => Some(Value::ArrayValue(
            opentelemetry_proto::tonic::common::v1::ArrayValue {
                values: values.iter().map(any).collect(),
            },
        )),
        serde_yaml::Value::Mapping(_) => {
            let entries: std::collections::BTreeMap<String, serde_yaml::Value> =
                serde_yaml::from_value(value.clone()).unwrap();
            Some(Value::KvlistValue(
                opentelemetry_proto::tonic::common::v1::KeyValueList {
                    values: key_values(&entries),
                },
            ))
        }
        value => Some(
            serde_yaml::from_value::<crate::processors::matching::Literal>(value.clone())
                .unwrap()
                .to_value(),
        ),
    };
    AnyValue { value }
}

fn key_values(from: &std::collections::BTreeMap<String, serde_yaml::Value>) -> Vec<KeyValue> {
    let entries = from.iter().map(|(key, value)| KeyValue {
        key: key.clone(),
        value: Some(any(value)),
        ..KeyValue::default()
    });
    entries.collect()
}

fn told(attribute: &KeyValue) -> String {
    let value = attribute.value.clone().unwrap_or_default();
    let kind = match &value.value {
        None => "Empty",
        Some(Value::StringValue(_)) => "Str",
        Some(Value::BoolValue(_)) => "Bool",
        Some(Value::IntValue(_)) => "Int",
        Some(Value::DoubleValue(_)) => "Double",
        Some(Value::ArrayValue(_)) => "Slice",
        Some(Value::KvlistValue(_)) => "Map",
        Some(_) => "Bytes",
    };
    let encoded = value.encode_to_vec();
    use tributary_otlp::view;
    use tributary_otlp::view::View as _;
    let view = view::AnyValue::view(view::Message::new(&encoded));
    format!("{kind} {}", view.to_text())
}

#[test]
fn attributes_match_collector_output() {
    let cases: Vec<Case> = serde_yaml::from_str(GOLDEN).unwrap();
    for case in cases {
        let config: AttributesConfig = serde_yaml::from_value(case.config.clone()).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        assert!(problems.found().is_empty(), "{:?}", problems.found());
        let item = case.item;
        let resource = Some(Resource {
            attributes: key_values(&item.resource),
            ..Resource::default()
        });
        let scope = match item.scope.as_slice() {
            [name, version] => Some(InstrumentationScope {
                name: name.clone(),
                version: version.clone(),
                ..InstrumentationScope::default()
            }),
            _ => None,
        };
        let attributes = key_values(&item.attributes);
        let (signal, request) = if case.log {
            let record = LogRecord {
                body: Some(any(&serde_yaml::Value::String(item.body))),
                severity_text: item.severity_text,
                severity_number: item.severity,
                attributes,
                ..LogRecord::default()
            };
            let scope_logs = ScopeLogs {
                scope,
                log_records: vec![record],
                ..ScopeLogs::default()
            };
            let request = Decoded::Logs(ExportLogsServiceRequest {
                resource_logs: vec![ResourceLogs {
                    resource,
                    scope_logs: vec![scope_logs],
                    ..ResourceLogs::default()
                }],
            });
            (Signal::Logs, request)
        } else {
            let span = Span {
                name: item.name,
                kind: item.kind,
                attributes,
                ..Span::default()
            };
            let scope_spans = ScopeSpans {
                scope,
                spans: vec![span],
                ..ScopeSpans::default()
            };
            let request = Decoded::Traces(ExportTraceServiceRequest {
                resource_spans: vec![ResourceSpans {
                    resource,
                    scope_spans: vec![scope_spans],
                    ..ResourceSpans::default()
                }],
            });
            (Signal::Traces, request)
        };
        let mut batch = Batch::new(signal, 1, request.encode());
        batch.metadata = Some(std::sync::Arc::new(item.metadata));
        let edited = of(&config, signal).process(batch).unwrap().unwrap();
        let edited = edited.decoded().unwrap();
        let attributes = match &edited {
            Decoded::Logs(request) => {
                &request.resource_logs[0].scope_logs[0].log_records[0].attributes
            }
            Decoded::Traces(request) => {
                &request.resource_spans[0].scope_spans[0].spans[0].attributes
            }
            _ => unreachable!(),
        };
        let result: std::collections::BTreeMap<_, _> = attributes
            .iter()
            .map(|attribute| (attribute.key.clone(), told(attribute)))
            .collect();
        assert_eq!(result, case.result, "{:?}", case.config);
    }
}

#[test]
fn labels_of_profiles_are_edited_and_constants_are_added_once() {
    use tributary_profiles::testing_requests::named;
    let mut request = named("shop", 1, ["a", "b"]);
    let tables = request.dictionary.as_mut().unwrap();
    let strings = tables.string_table.len() as i32;
    tables
        .string_table
        .extend(["thread".to_owned(), "secret-thread".to_owned()]);
    tables.attribute_table.push(
        opentelemetry_proto::tonic::profiles::v1development::KeyValueAndUnit {
            key_strindex: strings,
            value: Some(AnyValue {
                value: Some(Value::StringValue("secret-thread".to_owned())),
            }),
            unit_strindex: 0,
        },
    );
    let label = tables.attribute_table.len() as i32 - 1;
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.samples[0].attribute_indices.push(label);
    profile.original_payload_format = "pprof".to_owned();
    profile.original_payload = b"a file that says whose-thread it is".to_vec();
    let request = Bytes::from(request.encode_to_vec());
    let edit = |yaml: &str| {
        let batch = Batch::new(Signal::Profiles, 2, request.clone());
        let processor = of(&config(yaml).unwrap(), Signal::Profiles);
        let batch = processor.process(batch).unwrap().unwrap();
        assert_eq!(batch.items(), 2);
        batch.wire().to_bytes()
    };
    let has = |bytes: &Bytes, text: &str| {
        bytes
            .windows(text.len())
            .any(|found| found == text.as_bytes())
    };
    assert!(has(&request, "secret-thread"));
    let deleted = edit("actions: [{key: thread, action: delete}]");
    assert!(!has(&deleted, "secret-thread"));
    // The original file of the profile does not contain it either.
    assert!(!has(&deleted, "whose-thread") && !has(&deleted, "pprof"));
    assert_eq!(tributary_otlp::count(Signal::Profiles, &deleted), 2);
    let same = edit("actions: [{key: no such key, action: delete}]");
    assert_eq!(same.as_ptr(), request.as_ptr());
    let added = edit("actions: [{key: env, action: insert, value: prod}]");
    let Decoded::Profiles(added) = Decoded::decode(Signal::Profiles, &added).unwrap() else {
        unreachable!();
    };
    let profiles = tributary_profiles::resolve::resolve(&added).unwrap();
    assert_eq!(
        profiles[0]
            .attributes
            .iter()
            .filter(|(key, ..)| *key == "env")
            .count(),
        1
    );
    let labels = profiles[0]
        .samples
        .iter()
        .flat_map(|sample| &sample.attributes);
    assert!(labels.clone().all(|(key, ..)| *key != "env"));
    let renamed = edit(
        "actions: [{key: t, action: insert, from_attribute: thread}, {key: thread, action: delete}]",
    );
    let Decoded::Profiles(renamed) = Decoded::decode(Signal::Profiles, &renamed).unwrap() else {
        unreachable!();
    };
    let profiles = tributary_profiles::resolve::resolve(&renamed).unwrap();
    let keys = profiles[0]
        .samples
        .iter()
        .flat_map(|sample| &sample.attributes);
    assert!(
        keys.clone().any(|(key, ..)| *key == "t") && keys.clone().all(|(key, ..)| *key != "thread")
    );
}

#[test]
fn patterns_have_go_syntax() {
    let edited = processor("actions: [{action: delete, pattern: '^\\Qa.b\\E\\d{id}$'}]")
        .process(batch(&[
            ("a.b1{id}", ""),
            ("axb1{id}", ""),
            ("a.b\u{661}{id}", ""),
        ]))
        .unwrap()
        .unwrap();
    let Decoded::Logs(left) = edited.decoded().unwrap() else {
        unreachable!();
    };
    let attributes = &left.resource_logs[0].scope_logs[0].log_records[0].attributes;
    let keys: Vec<&str> = attributes.iter().map(|left| left.key.as_str()).collect();
    assert_eq!(keys, ["axb1{id}", "a.b\u{661}{id}"]);
    for yaml in [
        "{match_type: regexp, log_bodies: ['^/users/{id}/\\d$']}",
        "{match_type: regexp, attributes: [{key: path, value: '^/users/{id}/\\d$'}]}",
    ] {
        let config = format!("{{actions: [{{key: path, action: delete}}], include: {yaml}}}");
        let config: AttributesConfig = serde_yaml::from_str(&config).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        assert!(problems.found().is_empty(), "{yaml}");
        let left = |path: &str| {
            let mut request = logs(&[("path", path)]);
            let Decoded::Logs(logs) = &mut request else {
                unreachable!();
            };
            logs.resource_logs[0].scope_logs[0].log_records[0].body = Some(AnyValue {
                value: Some(Value::StringValue(path.to_owned())),
            });
            let batch = Batch::new(Signal::Logs, 1, request.encode());
            let edited = of(&config, Signal::Logs).process(batch).unwrap().unwrap();
            match edited.decoded().unwrap() {
                Decoded::Logs(logs) => logs.resource_logs[0].scope_logs[0].log_records[0]
                    .attributes
                    .len(),
                _ => unreachable!(),
            }
        };
        assert_eq!(left("/users/{id}/7"), 0, "{yaml}");
        assert_eq!(left("/users/{id}/\u{661}"), 1, "{yaml}");
    }
}

#[test]
fn profiles_without_decode_memory_are_refused_temporarily() {
    let budget = tributary_memory::Budget::new(1 << 20);
    let _others = budget.acquire((1 << 20) - 2_000).unwrap();
    let config = config("{actions: [{key: a, value: b, action: insert}]}").unwrap();
    let processor = Attributes {
        budget,
        ..of(&config, Signal::Profiles)
    };
    let batch = crate::testing::named_batch("s", ["a"]);
    let nack = processor.process(batch).unwrap_err();
    assert!(nack.retryable && nack.retry_after.is_some(), "{nack:?}");
}
