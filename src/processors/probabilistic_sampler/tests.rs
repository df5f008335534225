use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use super::*;
use crate::component::Host;

/// Decisions and output of the Collector's processor (contrib 0.156) for random spans and records, in lines of
///
/// ```text
/// span|MODE|SEED|PERCENTAGE|FAIL_CLOSED|PRECISION|TRACE_ID|TRACE_STATE|PRIORITY|RESULT
/// log|MODE|SEED|PERCENTAGE|FAIL_CLOSED|PRECISION|TRACE_ID|SOURCE|THRESHOLD,RANDOMNESS|ORDER_ID|PRIORITY|RESULT
/// ```
///
/// The result is `-`, or `+` with the trace state or threshold and randomness afterwards.
const GOLDEN: &str = include_str!("golden.txt");

fn config(mode: &str, numbers: &[&str]) -> Config {
    let [seed, percentage, fail_closed, precision] = numbers else {
        panic!("{numbers:?}");
    };
    serde_yaml::from_str(&format!(
        "{{mode: {mode}, hash_seed: {seed}, sampling_percentage: {percentage}, fail_closed: {fail_closed}, \
         sampling_precision: {precision}}}"
    ))
    .unwrap()
}

fn processor(config: &Config, signal: Signal) -> Box<dyn Processor> {
    let id = "probabilistic_sampler".parse().unwrap();
    match config
        .build(&Host::for_tests().context(&id), signal)
        .unwrap()
    {
        Stage::Pure(processor) => processor,
        Stage::Buffering(_) => panic!("holds nothing"),
    }
}

fn value(text: &str) -> Option<Value> {
    let (kind, text) = text.split_at_checked(1)?;
    Some(match kind {
        "s" => Value::StringValue(text.to_owned()),
        "y" => Value::BytesValue(text.as_bytes().to_vec()),
        "i" => Value::IntValue(text.parse().unwrap()),
        "d" => Value::DoubleValue(text.parse().unwrap()),
        _ => Value::BoolValue(text == "true"),
    })
}

fn attribute(key: &str, value: Option<Value>) -> Option<KeyValue> {
    value.map(|value| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    })
}

fn text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| Value::StringValue(text.to_owned()))
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    (0..hexadecimal.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
        .collect()
}

fn spans(spans: Vec<Span>) -> Batch {
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: spans.clone(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    Batch::new(
        Signal::Traces,
        spans.len(),
        Bytes::from(request.encode_to_vec()),
    )
}

fn logs(records: Vec<LogRecord>) -> Batch {
    let request = ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            scope_logs: vec![ScopeLogs {
                log_records: records.clone(),
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }],
    };
    Batch::new(
        Signal::Logs,
        records.len(),
        Bytes::from(request.encode_to_vec()),
    )
}

fn result_of_span(config: &Config, trace_id: &str, state: &str, priority: &str) -> String {
    let priority = attribute("sampling.priority", value(priority));
    let batch = spans(vec![Span {
        trace_id: bytes(trace_id),
        trace_state: state.to_owned(),
        name: "stays".to_owned(),
        attributes: priority.into_iter().collect(),
        ..Span::default()
    }]);
    match processor(config, Signal::Traces).process(batch).unwrap() {
        None => "-".to_owned(),
        Some(batch) => {
            let bytes = batch.into_wire().to_bytes();
            assert!(tributary_otlp::validate(Signal::Traces, &bytes).is_ok());
            let request = ExportTraceServiceRequest::decode(bytes).unwrap();
            let span = &request.resource_spans[0].scope_spans[0].spans[0];
            assert_eq!(span.name, "stays");
            format!("+{}", span.trace_state)
        }
    }
}

fn result_of_record(config: &Config, trace_id: &str, attributes: Vec<Option<KeyValue>>) -> String {
    let batch = logs(vec![LogRecord {
        trace_id: bytes(trace_id),
        attributes: attributes.into_iter().flatten().collect(),
        ..LogRecord::default()
    }]);
    match processor(config, Signal::Logs).process(batch).unwrap() {
        None => "-".to_owned(),
        Some(batch) => {
            let bytes = batch.into_wire().to_bytes();
            assert!(tributary_otlp::validate(Signal::Logs, &bytes).is_ok());
            let request = ExportLogsServiceRequest::decode(bytes).unwrap();
            let record = &request.resource_logs[0].scope_logs[0].log_records[0];
            let get = |key: &str| {
                let found = record
                    .attributes
                    .iter()
                    .find(|attribute| attribute.key == key);
                match found.and_then(|found| found.value.clone()?.value) {
                    Some(Value::StringValue(text)) => text,
                    _ => String::new(),
                }
            };
            format!(
                "+{},{}",
                get("sampling.threshold"),
                get("sampling.randomness")
            )
        }
    }
}

#[test]
fn decisions_and_attributes_match_collector() {
    for line in GOLDEN.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let mut config = config(fields[1], &fields[2..6]);
        let (expected, result) = match fields[0] {
            "span" => (
                fields[9],
                result_of_span(&config, fields[6], fields[7], fields[8]),
            ),
            _ => {
                config.attribute_source = match fields[7] {
                    "record" => AttributeSource::Record,
                    _ => AttributeSource::TraceId,
                };
                config.from_attribute = "order.id".to_owned();
                config.sampling_priority = "priority".to_owned();
                let (threshold, randomness) = fields[8].split_once(',').unwrap();
                let attributes = vec![
                    attribute("sampling.threshold", text(threshold)),
                    attribute("order.id", value(fields[9])),
                    attribute("sampling.randomness", text(randomness)),
                    attribute("priority", value(fields[10])),
                ];
                (fields[11], result_of_record(&config, fields[6], attributes))
            }
        };
        // A trace state that cannot be parsed stays unchanged here; the Collector may overwrite it.
        let unreadable = ["bad state", "ot=rv:1", "zz", ",1"];
        if unreadable.iter().any(|text| {
            fields[7] == *text || fields[8].starts_with(*text) || fields[8].ends_with(*text)
        }) {
            assert_eq!(result[..1], expected[..1], "{line}");
        } else {
            // Trailing zeros of a threshold have no meaning. The Collector removes them when it rewrites an equal
            // threshold; here the threshold stays unchanged.
            let plain = |result: &str| result.replace("+c00,", "+c,");
            assert_eq!(plain(&result), plain(expected), "{line}");
        }
    }
}

/// Ten thousand traces.
fn many() -> Vec<Span> {
    let mut random = fastrand::Rng::with_seed(7);
    let all = (0..10_000).map(|_| Span {
        trace_id: (0..16).map(|_| random.u8(..)).collect(),
        ..Span::default()
    });
    all.collect()
}

fn tier(hash_seed: u32, sampling_percentage: f32) -> Config {
    Config {
        sampling_percentage,
        hash_seed,
        ..Config::default()
    }
}

/// Returns the spans that pass the sampler.
fn through(config: &Config, before: &[Span]) -> Vec<Span> {
    let batch = processor(config, Signal::Traces).process(spans(before.to_vec()));
    let batch = batch.unwrap().unwrap();
    let items = batch.items();
    let request = ExportTraceServiceRequest::decode(batch.into_wire().to_bytes()).unwrap();
    let left = request.resource_spans[0].scope_spans[0].spans.clone();
    assert_eq!(left.len(), items);
    left
}

#[test]
fn larger_percentage_includes_smaller_sample() {
    let passing = |percentage: f32| -> Vec<Vec<u8>> {
        let left = through(&tier(22, percentage), &many());
        left.into_iter().map(|span| span.trace_id).collect()
    };
    let (tenth, half) = (passing(10.0), passing(50.0));
    assert!((850..1150).contains(&tenth.len()), "{}", tenth.len());
    assert!((4700..5300).contains(&half.len()), "{}", half.len());
    assert!(tenth.iter().all(|trace_id| half.contains(trace_id)));
}

#[test]
fn tiers_with_the_same_seed_agree() {
    let first = through(&tier(22, 50.0), &many());
    assert_eq!(through(&tier(22, 50.0), &first), first);
    // A smaller percentage is relative to the original traffic and lowers the probability; a larger percentage
    // changes nothing.
    assert_eq!(
        through(&tier(22, 10.0), &first),
        through(&tier(22, 10.0), &many())
    );
    assert_eq!(through(&tier(22, 80.0), &first), first);
}

#[test]
fn tiers_with_different_seeds_sample_independently() {
    let first = through(&tier(2, 50.0), &many());
    let second = through(&tier(3, 10.0), &first);
    assert!((420..580).contains(&second.len()), "{}", second.len());
    for span in &second {
        let state = span.trace_state.strip_prefix("ot=rv:").unwrap();
        assert_eq!(state.len(), 14, "{state}");
    }
}

#[test]
fn tiers_agree_about_log_records_too() {
    let attributes = vec![attribute("order.id", value("sorder-1"))];
    let mut same = Config {
        attribute_source: AttributeSource::Record,
        from_attribute: "order.id".to_owned(),
        ..tier(5, 50.0)
    };
    let seed = (0..).find(|seed| {
        same.hash_seed = *seed;
        result_of_record(&same, "", attributes.clone()) != "-"
    });
    same.hash_seed = seed.unwrap();
    let first = result_of_record(&same, "", attributes.clone());
    let (threshold, randomness) = first[1..].split_once(',').unwrap();
    let after = [
        attribute("sampling.threshold", text(threshold)),
        attribute("sampling.randomness", text(randomness)),
    ];
    let arriving = [attributes, after.to_vec()].concat();
    assert_eq!(result_of_record(&same, "", arriving.clone()), first);
    // After sampling with another seed, the threshold is removed.
    let all = Config {
        sampling_percentage: 100.0,
        hash_seed: same.hash_seed + 1,
        ..same
    };
    assert_eq!(
        result_of_record(&all, "", arriving),
        format!("+,{randomness}")
    );
}

#[test]
fn profiles_are_sampled_by_profile_id() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;

    use tributary_profiles::testing_requests::named;

    let config = tier(7, 50.0);
    let spans = many();
    let kept: Vec<Vec<u8>> = through(&config, &spans)
        .into_iter()
        .map(|span| span.trace_id)
        .collect();
    let mut request = named("a", 1, ["kept", "dropped"]);
    let scope = &mut request.resource_profiles[0].scope_profiles[0];
    let profile = scope.profiles[0].clone();
    let dropped = spans.iter().find(|span| !kept.contains(&span.trace_id));
    for (at, id) in [kept[0].clone(), dropped.unwrap().trace_id.clone(), vec![]]
        .into_iter()
        .enumerate()
    {
        let mut one = profile.clone();
        one.profile_id = id;
        one.samples.swap(0, at % 2);
        one.samples.truncate(1);
        scope.profiles.push(one);
    }
    scope.profiles.remove(0);
    let before = Batch::new(Signal::Profiles, 3, Bytes::from(request.encode_to_vec()));
    let after = processor(&config, Signal::Profiles)
        .process(before)
        .unwrap()
        .unwrap();
    // An item without an id cannot be sampled.
    assert_eq!(after.items(), 1);
    let after = ExportProfilesServiceRequest::decode(after.wire().to_bytes()).unwrap();
    let profiles = &after.resource_profiles[0].scope_profiles[0].profiles;
    assert_eq!(profiles.len(), 1);
    assert_eq!(profiles[0].profile_id, kept[0]);
    let strings = &after.dictionary.as_ref().unwrap().string_table;
    assert!(strings.iter().any(|text| text == "kept"));
    assert!(!strings.iter().any(|text| text == "dropped"));
}

#[test]
fn contradictory_settings_are_reported() {
    let problems = |yaml: &str| -> Vec<String> {
        let config: Config = serde_yaml::from_str(yaml).unwrap();
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let found = problems.found().iter();
        found
            .map(|problem| {
                format!(
                    "{}{}",
                    if problem.warning { "~" } else { "" },
                    problem.path.join(".")
                )
            })
            .collect()
    };
    assert!(problems("{sampling_percentage: 15.3}").is_empty());
    assert!(problems("{sampling_percentage: 150}").is_empty());
    assert_eq!(problems("{}"), ["~sampling_percentage"]);
    for percentage in ["-1", ".nan", ".inf", "1e-16"] {
        let yaml = format!("{{sampling_percentage: {percentage}}}");
        assert_eq!(problems(&yaml), ["sampling_percentage"], "{percentage}");
    }
    assert_eq!(
        problems("{sampling_percentage: 1, sampling_precision: 15, attribute_source: record}"),
        ["sampling_precision", "~attribute_source"]
    );
    assert_eq!(
        problems("{sampling_percentage: 1, sampling_precision: 0}"),
        ["sampling_precision"]
    );
}
