use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics,
    Sum, Summary, SummaryDataPoint,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::span::Event;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use prost::Message as _;

use super::*;
use crate::component::Host;
use tributary_otlp::Decoded;
use tributary_otlp::edit::put_delimited;

/// Configurations, one per line, each followed by the items of [`traces`], [`metrics`] and [`logs`] that the
/// Collector's processor (contrib 0.156) passed: spans with their events, metrics with their number of data points,
/// records.
const GOLDEN: &str = include_str!("golden.txt");

fn text(text: &str) -> Value {
    Value::StringValue(text.to_owned())
}

fn attributes<const N: usize>(entries: [(&str, Value); N]) -> Vec<KeyValue> {
    let entries = entries.into_iter().map(|(key, value)| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    });
    entries.collect()
}

fn resource(service: &str) -> Option<Resource> {
    Some(Resource {
        attributes: attributes([
            ("service.name", text(service)),
            ("replica", Value::IntValue(2)),
        ]),
        ..Resource::default()
    })
}

fn scope(name: &str) -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: name.to_owned(),
        version: "1.0".to_owned(),
        ..InstrumentationScope::default()
    })
}

fn span(name: &str, kind: i32, status: i32, attributes: Vec<KeyValue>, events: &[&str]) -> Span {
    let event = |name: &&str| Event {
        name: (*name).to_owned(),
        attributes: self::attributes([("grpc", Value::BoolValue(name.starts_with('g')))]),
        ..Event::default()
    };
    Span {
        trace_id: vec![kind as u8; 16],
        span_id: vec![7; 8],
        parent_span_id: if kind == 2 { Vec::new() } else { vec![1; 8] },
        name: name.to_owned(),
        kind,
        start_time_unix_nano: 100,
        end_time_unix_nano: 100 + kind as u64,
        status: (status != 0).then(|| Status {
            code: status,
            message: "failed".to_owned(),
        }),
        attributes,
        events: events.iter().map(event).collect(),
        ..Span::default()
    }
}

fn traces() -> Decoded {
    let nested = Value::KvlistValue(KeyValueList {
        values: attributes([("inner", text("deep"))]),
    });
    let of = |service: &str, name: &str, spans: Vec<Span>| ResourceSpans {
        resource: resource(service),
        scope_spans: vec![ScopeSpans {
            scope: scope(name),
            spans,
            ..ScopeSpans::default()
        }],
        ..ResourceSpans::default()
    };
    let path = |path: &str| attributes([("path", text(path)), ("code", Value::IntValue(200))]);
    Decoded::Traces(ExportTraceServiceRequest {
        resource_spans: vec![
            of(
                "shop",
                "http",
                vec![
                    span("health", 2, 1, path("/healthz"), &["grpc.timeout", "log"]),
                    span("pay", 2, 2, path("/pay"), &[]),
                    span(
                        "query",
                        3,
                        0,
                        attributes([("map", nested), ("ratio", Value::DoubleValue(0.5))]),
                        &["x"],
                    ),
                ],
            ),
            of(
                "db",
                "sql",
                vec![span("select", 1, 0, path("/healthz"), &["g"])],
            ),
        ],
    })
}

fn metrics() -> Decoded {
    let point = |value, code| NumberDataPoint {
        attributes: attributes([("code", text(code))]),
        value: Some(value),
        ..NumberDataPoint::default()
    };
    let metric = |name: &str, data| Metric {
        name: name.to_owned(),
        unit: "s".to_owned(),
        data: Some(data),
        ..Metric::default()
    };
    let gauge = Data::Gauge(Gauge {
        data_points: vec![
            point(Number::AsInt(4), "a"),
            point(Number::AsDouble(1.5), "b"),
        ],
    });
    let sum = Data::Sum(Sum {
        data_points: vec![point(Number::AsInt(5), "a")],
        aggregation_temporality: 2,
        is_monotonic: true,
    });
    let histogram = Data::Histogram(Histogram {
        data_points: vec![HistogramDataPoint {
            attributes: attributes([("code", text("c"))]),
            count: 9,
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: 1,
    });
    let summary = Data::Summary(Summary {
        data_points: vec![SummaryDataPoint {
            count: 1,
            sum: 2.0,
            ..SummaryDataPoint::default()
        }],
    });
    let of = |service: &str, metrics: Vec<Metric>| ResourceMetrics {
        resource: resource(service),
        scope_metrics: vec![ScopeMetrics {
            scope: scope("meter"),
            metrics,
            ..ScopeMetrics::default()
        }],
        ..ResourceMetrics::default()
    };
    Decoded::Metrics(ExportMetricsServiceRequest {
        resource_metrics: vec![
            of("shop", vec![metric("load", gauge), metric("requests", sum)]),
            of(
                "db",
                vec![metric("latency", histogram), metric("sizes", summary)],
            ),
        ],
    })
}

fn logs() -> Decoded {
    let record = |name: &str, severity: i32, level: &str, body: Option<Value>| LogRecord {
        event_name: name.to_owned(),
        severity_number: severity,
        severity_text: level.to_owned(),
        body: body.map(|value| AnyValue { value: Some(value) }),
        attributes: attributes([
            ("user", text(name)),
            ("raw", Value::BytesValue(vec![1, 255])),
        ]),
        ..LogRecord::default()
    };
    let of = |service: &str, records: Vec<LogRecord>| ResourceLogs {
        resource: resource(service),
        scope_logs: vec![ScopeLogs {
            scope: scope("logger"),
            log_records: records,
            ..ScopeLogs::default()
        }],
        ..ResourceLogs::default()
    };
    let map = Value::KvlistValue(KeyValueList {
        values: attributes([("level", text("secret"))]),
    });
    Decoded::Logs(ExportLogsServiceRequest {
        resource_logs: vec![
            of(
                "shop",
                vec![
                    record("one", 9, "INFO", Some(text("the password is"))),
                    record("two", 13, "WARN", Some(map)),
                    record("three", 0, "", None),
                ],
            ),
            of(
                "db",
                vec![record("four", 17, "ERROR", Some(Value::IntValue(42)))],
            ),
        ],
    })
}

fn config(yaml: &str) -> Config {
    serde_yaml::from_str(yaml).unwrap()
}

fn filter(config: &Config, request: &Decoded, signal: Signal) -> Result<Option<Batch>, Nack> {
    let bytes = request.encode();
    let items = tributary_otlp::count(signal, &bytes);
    let id = "filter".parse().unwrap();
    let stage = config
        .build(&Host::for_tests().context(&id), signal)
        .unwrap();
    let Stage::Pure(processor) = stage else {
        panic!("holds nothing");
    };
    let batch = processor.process(Batch::new(signal, items, bytes))?;
    if let Some(batch) = batch.clone() {
        let items = batch.items();
        let left = batch.into_wire().to_bytes();
        assert_eq!(tributary_otlp::validate(signal, &left), Ok(items));
    }
    Ok(batch)
}

/// Lists the items that pass the filter, as words.
fn passing(config: &Config) -> String {
    let mut words = Vec::new();
    for (signal, request) in [
        (Signal::Traces, traces()),
        (Signal::Metrics, metrics()),
        (Signal::Logs, logs()),
    ] {
        match filter(config, &request, signal) {
            Err(_) => words.push("error".to_owned()),
            Ok(None) => {}
            Ok(Some(batch)) => words.extend(named(&batch.decoded().unwrap())),
        }
    }
    words.join(" ")
}

fn named(request: &Decoded) -> Vec<String> {
    match request {
        Decoded::Traces(request) => {
            let scopes = request
                .resource_spans
                .iter()
                .flat_map(|entry| &entry.scope_spans);
            let spans = scopes.flat_map(|scope| &scope.spans);
            spans
                .map(|span| {
                    let events = span.events.iter().map(|event| format!("+{}", event.name));
                    format!("{}{}", span.name, events.collect::<String>())
                })
                .collect()
        }
        Decoded::Metrics(request) => {
            let scopes = request
                .resource_metrics
                .iter()
                .flat_map(|entry| &entry.scope_metrics);
            let metrics = scopes.flat_map(|scope| &scope.metrics);
            metrics
                .map(|metric| {
                    let points = tributary_otlp::count(
                        Signal::Metrics,
                        &ExportMetricsServiceRequest {
                            resource_metrics: vec![ResourceMetrics {
                                scope_metrics: vec![ScopeMetrics {
                                    metrics: vec![metric.clone()],
                                    ..ScopeMetrics::default()
                                }],
                                ..ResourceMetrics::default()
                            }],
                        }
                        .encode_to_vec(),
                    );
                    format!("{}:{points}", metric.name)
                })
                .collect()
        }
        Decoded::Logs(request) => {
            let scopes = request
                .resource_logs
                .iter()
                .flat_map(|entry| &entry.scope_logs);
            let records = scopes.flat_map(|scope| &scope.log_records);
            records.map(|record| record.event_name.clone()).collect()
        }
        Decoded::Profiles(_) => Vec::new(),
    }
}

#[test]
fn passed_items_match_collector() {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    for pair in lines.chunks(2) {
        let config = config(pair[0]);
        let mut problems = Problems::default();
        config.validate(&mut problems);
        assert!(
            problems.found().is_empty(),
            "{}: {:?}",
            pair[0],
            problems.found()
        );
        assert_eq!(passing(&config), pair[1], "{}", pair[0]);
    }
}

#[test]
fn unchanged_batch_keeps_its_bytes() {
    let bytes = traces().encode();
    let config = config("{trace_conditions: ['span.name == \"no such span\"']}");
    let rules = Rules::new(&config, Signal::Traces).unwrap();
    let metrics = FilterMetrics::new(&"filter".parse().unwrap(), Signal::Traces);
    let batch = Batch::new(Signal::Traces, 4, bytes.clone());
    let filter = Filter {
        rules,
        budget: Budget::new(0),
        metrics,
    };
    let after = filter.process(batch).unwrap().unwrap();
    assert_eq!(after.into_wire().to_bytes().as_ptr(), bytes.as_ptr());
}

#[test]
fn metric_is_dropped_when_all_its_fields_are_empty() {
    // Protobuf merges the fields into one sum.
    let sum = |value| {
        let point = NumberDataPoint {
            value: Some(Number::AsInt(value)),
            ..NumberDataPoint::default()
        };
        let metric = Metric {
            data: Some(Data::Sum(Sum {
                data_points: vec![point],
                ..Sum::default()
            })),
            ..Metric::default()
        };
        metric.encode_to_vec()
    };
    let config = config("{metric_conditions: ['datapoint.value_int == 0']}");
    for (values, left) in [([7, 0], 1), ([0, 7], 1), ([0, 0], 0), ([7, 7], 2)] {
        let mut request = values.map(sum).concat();
        for field in [2, 2, 1] {
            let mut around = Vec::new();
            put_delimited(field, &request, &mut around);
            request = around;
        }
        let batch = Batch::new(Signal::Metrics, 2, Bytes::from(request));
        let filter = Filter {
            rules: Rules::new(&config, Signal::Metrics).unwrap(),
            budget: Budget::new(0),
            metrics: FilterMetrics::new(&"filter".parse().unwrap(), Signal::Metrics),
        };
        let after = filter.process(batch).unwrap();
        assert_eq!(after.map_or(0, |after| after.items()), left, "{values:?}");
    }
}

#[test]
fn dropped_profiles_lose_their_dictionary_entries() {
    use tributary_profiles::testing_requests::{named, sample_names};
    let parts = [("shop", ["a", "b"]), ("secret-shop", ["b", "c"])]
        .map(|(service, names)| Bytes::from(named(service, 1, names).encode_to_vec()));
    let joined = tributary_profiles::join(&parts, usize::MAX);
    let [joined] = &joined[..] else {
        panic!("{joined:?}");
    };
    let request = Decoded::decode(Signal::Profiles, &joined.request).unwrap();
    let left = |yaml: &str| filter(&config(yaml), &request, Signal::Profiles).unwrap();
    assert!(left("{profile_conditions: ['profile.period >= 0']}").is_none());
    let all = left("{profiles: {resource: ['attributes[\"service.name\"] == \"x\"']}}").unwrap();
    assert_eq!(all.items(), 4);
    let some =
        left("{profiles: {resource: ['IsMatch(attributes[\"service.name\"], \"^secret\")']}}");
    let some = some.unwrap();
    assert_eq!(some.items(), 2);
    let some = some.into_wire().to_bytes();
    assert_eq!(sample_names(&some), ["a", "b"]);
    assert!(!some.windows(6).any(|bytes| bytes == b"secret"));
    let Ok(Decoded::Profiles(some)) = Decoded::decode(Signal::Profiles, &some) else {
        panic!("no profiles");
    };
    assert!(
        !some
            .dictionary
            .as_ref()
            .unwrap()
            .string_table
            .contains(&"c".to_owned())
    );
    let report = tributary_profiles::check::check(&some);
    assert!(
        !report
            .counts()
            .contains_key(&tributary_profiles::check::Rule::Orphan)
    );
}

proptest::proptest! {
    #[test]
    fn kept_profiles_are_unchanged_without_orphans(
        request in tributary_profiles::testing_requests::requests(),
    ) {
        use tributary_profiles::resolve::resolve;
        let bytes = Bytes::from(request.encode_to_vec());
        let decoded = Decoded::decode(Signal::Profiles, &bytes).unwrap();
        let mut expected = resolve(&request).unwrap();
        let before = expected.len();
        expected.retain(|profile| profile.period.2 != 1);
        let config = config("{profile_conditions: ['profile.period == 1']}");
        let left = filter(&config, &decoded, Signal::Profiles).unwrap();
        match left {
            None => assert!(expected.is_empty()),
            Some(left) => {
                let Ok(Decoded::Profiles(left)) =
                    Decoded::decode(Signal::Profiles, &left.into_wire().to_bytes())
                else {
                    panic!("no profiles");
                };
                let mut profiles = resolve(&left).unwrap();
                if expected.len() < before {
                    let report = tributary_profiles::check::check(&left);
                    let orphans = report.counts().get(&tributary_profiles::check::Rule::Orphan);
                    assert_eq!(orphans, None, "{:?}", report.findings());
                }
                profiles.sort();
                expected.sort();
                assert_eq!(profiles, expected);
            }
        }
    }
}

#[test]
fn evaluation_error_refuses_only_with_propagate() {
    let condition = "{traces: {span: ['attributes[\"path\"][\"a\"] == \"b\"']}, error_mode: MODE}";
    for (mode, refused) in [("ignore", false), ("silent", false), ("propagate", true)] {
        let config = config(&condition.replace("MODE", mode));
        assert_eq!(filter(&config, &traces(), Signal::Traces).is_err(), refused);
    }
}

/// Whether a span that took from 7 ns to 107 ns, with some attributes, is dropped.
fn drops(condition: &str) -> Result<bool, Nack> {
    let mut request = traces();
    let Decoded::Traces(traces) = &mut request else {
        unreachable!()
    };
    traces.resource_spans.truncate(1);
    let resource = &mut traces.resource_spans[0];
    resource.scope_spans.truncate(1);
    let spans = &mut resource.scope_spans[0].spans;
    spans.truncate(1);
    spans[0].start_time_unix_nano = 7;
    spans[0].end_time_unix_nano = 107;
    let map = || {
        Value::KvlistValue(KeyValueList {
            values: attributes([("a", text("b"))]),
        })
    };
    let values = [Some(Value::IntValue(1)), Some(map()), None];
    let list = Value::ArrayValue(ArrayValue {
        values: values.map(|value| AnyValue { value }).into(),
    });
    spans[0].attributes = attributes([
        ("ratio", Value::DoubleValue(0.5)),
        ("bytes", Value::IntValue(2048)),
        ("path", text("/pay")),
        ("list", list),
        ("map", map()),
    ]);
    let yaml = serde_yaml::to_string(&serde_json::json!({
        "error_mode": "propagate",
        "trace_conditions": [condition],
    }));
    filter(&config(&yaml.unwrap()), &request, Signal::Traces).map(|left| left.is_none())
}

#[test]
fn arithmetic_follows_ottl() {
    for (condition, dropped) in [
        (
            "span.end_time_unix_nano - span.start_time_unix_nano > 99",
            true,
        ),
        (
            "span.end_time_unix_nano - span.start_time_unix_nano > 100",
            false,
        ),
        (
            "(span.end_time_unix_nano-span.start_time_unix_nano)/10 == 10",
            true,
        ),
        (
            "(span.end_time_unix_nano - span.start_time_unix_nano) >= 100 and (true)",
            true,
        ),
        (
            "span.end_time - span.start_time >= Duration(\"100ns\")",
            true,
        ),
        (
            "span.end_time - span.start_time > Duration(\"1ms\") - Duration(\"0.5ms\")",
            false,
        ),
        (
            "span.start_time + Duration(\"100ns\") == span.end_time",
            true,
        ),
        ("span.end_time > span.start_time", true),
        // A time is not a number.
        ("span.end_time == 107", false),
        ("span.attributes[\"bytes\"] / 1024 == 2", true),
        ("span.attributes[\"bytes\"] / 1000 == 2", true),
        ("span.attributes[\"bytes\"] / 1000.0 == 2.048", true),
        ("span.attributes[\"ratio\"] * 100 == 50", true),
        ("1 + 2 * 3 == 7", true),
        ("(1 + 2) * 3 == 9", true),
        ("((1 + 2) * 3 == 9)", true),
        ("10 - 4 - 3 == 3", true),
        ("7 / 2 * 2 == 6", true),
        ("-1 - -2 == 1", true),
        ("2 -1 == 1 and -(1 + 1) < 0", true),
        ("9223372036854775807 + 1 < 0", true),
        ("not (1 + 1 == 3)", true),
        ("+span.attributes[\"path\"] == \"/pay\"", true),
        ("-span.attributes[\"ratio\"] == -0.5", true),
        ("Len(span.attributes[\"path\"]) == 4", true),
        ("Len(span.attributes[\"list\"]) * 2 == 6", true),
        ("Len(span.attributes[\"map\"]) == 1", true),
        ("Len(\"gr\u{fc}n\") == 5", true),
        ("HasPrefix(span.attributes[\"path\"], \"/p\")", true),
        ("HasPrefix(span.attributes[\"path\"], \"pay\")", false),
        ("HasSuffix(\"/pay\", span.attributes[\"path\"])", true),
        (
            "not HasSuffix(span.name, \"x\") and HasSuffix(span.name, \"\")",
            true,
        ),
        ("span.attributes[\"list\"][0] == 1", true),
        ("span.attributes[\"list\"][1][\"a\"] == \"b\"", true),
        ("span.attributes[\"list\"][2] == nil", true),
        ("span.attributes[\"missing\"][7] == nil", true),
        ("span.attributes[\"map\"][\"a\"] == \"b\"", true),
        // Decisions of the Collector's filter (contrib 0.159).
        ("IsMatch(span.attributes[\"path\"], \"pay\") == true", true),
        (
            "false == IsMatch(span.attributes[\"path\"], \"pay\")",
            false,
        ),
        ("IsString(span.attributes[\"path\"])", true),
        ("IsString(span.attributes[\"missing\"])", false),
        ("IsString(span.attributes[\"bytes\"])", false),
        (
            "IsInt(span.kind) and IsDouble(span.attributes[\"ratio\"])",
            true,
        ),
        (
            "IsMap(span.attributes[\"map\"]) and IsList(span.attributes[\"list\"])",
            true,
        ),
        (
            "IsMap(span.attributes[\"list\"]) == IsBool(span.name)",
            true,
        ),
        ("ContainsValue(span.attributes[\"list\"], 1)", true),
        (
            "ContainsValue([\"a\", span.attributes[\"path\"]], \"a\")",
            true,
        ),
        ("ContainsValue([\"b\"], \"a\")", false),
        (
            "Concat([span.attributes[\"path\"], 3, span.attributes[\"missing\"]], \"-\") == \"/pay-3-<nil>\"",
            true,
        ),
        (
            "ParseJSON(\"{\\\"a\\\": [1, {\\\"b\\\": \\\"c\\\"}]}\")[\"a\"][1][\"b\"] == \"c\"",
            true,
        ),
        ("ParseJSON(\"{\\\"a\\\": 1}\")[\"a\"] == 1", true),
        (
            "IsList(ParseJSON(\"[1]\")) and Len(String(ParseJSON(\"[1]\"))) == 3",
            true,
        ),
        ("Now() - span.start_time > Duration(\"1h\")", true),
        ("ToUpperCase(span.attributes[\"path\"]) == \"/PAY\"", true),
        (
            "Substring(span.attributes[\"path\"], 1, 3) == \"pay\"",
            true,
        ),
        ("Int(\"12\") == 12 and Double(\"0.5\") == 0.5", true),
    ] {
        let condition = format!("{condition} and span.kind != 9");
        assert_eq!(drops(&condition).unwrap(), dropped, "{condition}");
    }
    for (condition, why) in [
        (
            "span.attributes[\"path\"] + 1 > 0",
            "arithmetic needs numbers",
        ),
        (
            "span.attributes[\"missing\"] * 2 > 0",
            "arithmetic needs numbers",
        ),
        (
            "span.end_time + span.start_time > span.end_time",
            "arithmetic needs numbers",
        ),
        (
            "span.end_time * 2 > span.end_time",
            "arithmetic needs numbers",
        ),
        (
            "span.attributes[\"bytes\"] / (span.start_time_unix_nano - 7) > 0",
            "by zero",
        ),
        ("span.attributes[\"ratio\"] / 0 > 0", "by zero"),
        (
            "-span.attributes[\"path\"] == nil",
            "arithmetic needs numbers",
        ),
        (
            "-(span.end_time - span.start_time) == nil",
            "arithmetic needs numbers",
        ),
        ("Len(span.attributes[\"bytes\"]) > 0", "Len needs"),
        ("Len(span.attributes[\"missing\"]) > 0", "Len needs"),
        (
            "HasPrefix(span.attributes[\"bytes\"], \"2\")",
            "not a string",
        ),
        (
            "HasSuffix(span.attributes[\"missing\"], \"2\")",
            "not a string",
        ),
        ("span.attributes[\"list\"][3] == nil", "out of range"),
        (
            "span.attributes[\"list\"][\"a\"] == nil",
            "does not have the key",
        ),
        ("span.attributes[\"map\"][0] == nil", "out of range"),
        (
            "ContainsValue(span.attributes[\"map\"], 1)",
            "a value is not a list",
        ),
        (
            "ContainsValue(span.attributes[\"missing\"], 1)",
            "a value is not a list",
        ),
        (
            "ParseJSON(span.attributes[\"path\"]) == nil",
            "ParseJSON needs",
        ),
        (
            "ParseJSON(\"{}\")[\"a\"] == span.name",
            "does not have the key",
        ),
        ("Int(\"x\") == span.name", "cannot be converted"),
        (
            "ToLowerCase(span.attributes[\"missing\"]) == nil",
            "not a string",
        ),
        (
            "Substring(span.attributes[\"path\"], 2, 9) == nil",
            "Substring is out of range",
        ),
    ] {
        let nack = drops(condition).unwrap_err();
        assert!(nack.reason.contains(why), "{condition}: {}", nack.reason);
    }
}

#[test]
fn nested_expressions_do_not_overflow_stack() {
    let deep = |open: &str, close: &str, levels: usize| {
        let condition = format!(
            "{}span.kind{} == 1",
            open.repeat(levels),
            close.repeat(levels)
        );
        let yaml = serde_yaml::to_string(&serde_json::json!({"trace_conditions": [condition]}));
        let mut problems = Problems::default();
        config(&yaml.unwrap()).validate(&mut problems);
        problems
            .found()
            .first()
            .map(|problem| problem.message.clone())
    };
    let keys = ("span.attributes[", "]");
    for (open, close) in [("(", ")"), ("-", ""), ("-(", ")"), keys] {
        assert_eq!(deep(open, close, 20), None);
        let message = deep(open, close, 10_000).unwrap();
        assert!(message.contains("too deep"), "{message}");
    }
    let long = format!("{}1 > 0 and span.kind == 1", "1 + ".repeat(10_000));
    assert!(drops(&long).is_ok());
}

#[test]
fn unsupported_syntax_is_reported_with_position() {
    for (condition, at, part) in [
        ("span.nmae == \"a\"", 1, "nmae"),
        ("name == \"a\"", 1, "prefix it with one of"),
        ("span.name = \"a\"", 11, "=="),
        ("span.name == 'a'", 14, "double quotes"),
        ("span.name == \"a", 14, "closing quote"),
        ("span.name", 10, "comparison"),
        ("span.name == \"a\" and", 21, "expected"),
        ("(span.name == \"a\"", 18, "`)`"),
        ("span.name == \"a\")", 17, "end"),
        ("span.attributes[0] == nil", 17, "double quotes"),
        ("span.name[\"a\"] == nil", 1, "no keys"),
        ("HasPrefix(span.name)", 1, "needs the argument `prefix`"),
        ("HasSuffix(span.name, 1)", 22, "string"),
        ("Concat(span.name) == \"a\"", 8, "list in brackets"),
        ("ParseXML(span.name) == nil", 1, "not built in"),
        ("IsString(span.name) == ", 24, "expected"),
        (
            "span.end_time - -Duration(\"1s\") > span.start_time",
            33,
            "subtract",
        ),
        ("IsMatch(span.name, \"(\")", 20, "regular expression"),
        ("IsMatch(span.name, span.name)", 20, "string"),
        ("span.name + \"a\" == \"b\"", 17, "not a number"),
        ("span.kind + == 1", 13, "expected"),
        ("(span.kind + 1 == 2", 20, "`)`"),
        ("(span.kind + 1) and true", 15, "comparison"),
        (
            "span.end_time - span.start_time > Duration(5)",
            44,
            "string",
        ),
        ("span.end_time > Duration(\"5\")", 17, "no unit"),
        ("span.kind == SPAN_KIND_SREVER", 14, "SPAN_KIND_SREVER"),
        ("log.body == \"a\"", 1, "context log is not available"),
        ("span.trace_id == TraceID(0x01)", 18, "digits"),
        ("true", 1, "context"),
        ("span.flags == 99999999999999999999", 15, "64-bit"),
        ("gr\u{fc}n == 1", 3, "unexpected character"),
    ] {
        let yaml = serde_yaml::to_string(&std::collections::BTreeMap::from([(
            "trace_conditions",
            vec![condition],
        )]));
        let mut problems = Problems::default();
        config(&yaml.unwrap()).validate(&mut problems);
        let [problem] = problems.found() else {
            panic!("{condition}: {:?}", problems.found());
        };
        assert_eq!(problem.path, ["trace_conditions", "0"]);
        let place = format!("character {at} of the condition: ");
        assert!(
            problem.message.starts_with(&place) && problem.message.contains(part),
            "{condition}: {}",
            problem.message
        );
    }
}

#[test]
fn other_mistakes_are_reported_at_their_positions() {
    let mut problems = Problems::default();
    config(
        "
trace_conditions: [{context: log, conditions: ['true']}, {conditions: []}]
traces: {span: ['name = 1']}
metrics:
  metric: ['name == \"a\"']
  include: {match_type: expr, expressions: [x]}
logs:
  exclude: {match_type: strict, severity_number: {min: LOUD}}
spans:
  include: {services: [a]}
",
    )
    .validate(&mut problems);
    let found = problems.found().iter();
    let mut paths: Vec<String> = found.map(|problem| problem.path.join(".")).collect();
    paths.sort();
    assert_eq!(
        paths,
        [
            "logs.exclude.severity_number.min",
            "metrics",
            "metrics.include.expressions",
            "spans.include.match_type",
            "trace_conditions",
            "trace_conditions.0.context",
            "trace_conditions.1.conditions",
            "traces.span.0",
        ]
    );
}

#[test]
fn profiles_without_decode_memory_are_refused_temporarily() {
    let config = config("{profile_conditions: ['profile.period >= 0']}");
    let of = |budget| Filter {
        rules: Rules::new(&config, Signal::Profiles).unwrap(),
        budget,
        metrics: FilterMetrics::new(&"filter".parse().unwrap(), Signal::Profiles),
    };
    let batch = || crate::testing::named_batch("s", ["a"]);
    let budget = Budget::new(1 << 20);
    let _others = budget.acquire((1 << 20) - 2_000).unwrap();
    let nack = of(budget).process(batch()).unwrap_err();
    assert!(nack.retryable && nack.retry_after.is_some(), "{nack:?}");
    // A request that can never fit is refused permanently.
    let nack = of(Budget::new(2_000)).process(batch()).unwrap_err();
    assert!(!nack.retryable, "{nack:?}");
}

#[test]
fn schema_urls_of_profiles_are_visible() {
    let mut request = tributary_profiles::testing_requests::named("shop", 1, ["main"]);
    request.resource_profiles[0].schema_url = "r".to_owned();
    request.resource_profiles[0].scope_profiles[0].schema_url = "s".to_owned();
    let request = prost::Message::encode_to_vec(&request);
    let stays = |condition: &str| {
        let yaml = format!("{{profile_conditions: ['{condition}']}}");
        let filter = Filter {
            rules: Rules::new(&config(&yaml), Signal::Profiles).unwrap(),
            budget: Budget::new(1 << 20),
            metrics: FilterMetrics::new(&"filter".parse().unwrap(), Signal::Profiles),
        };
        let batch = crate::pipeline::batch::Batch::new(
            Signal::Profiles,
            1,
            bytes::Bytes::from(request.clone()),
        );
        filter.process(batch).unwrap().is_some()
    };
    for (condition, expected) in [
        (r#"resource.schema_url == "r""#, false),
        (r#"resource.schema_url == """#, true),
        (r#"scope.schema_url == "s""#, false),
        (r#"scope.schema_url == """#, true),
    ] {
        assert_eq!(stays(condition), expected, "{condition}");
    }
}
