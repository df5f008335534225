//! Tests of the exact text that each verbosity prints for each signal, and of the exporter's counters.

use std::io::Write;
use std::time::Duration;

use tracing::instrument::WithSubscriber;

use super::*;
use crate::testing::{Recorded, context};
use tributary_otlp::json;

const TRACES: &str = r#"{"resourceSpans": [{
    "schemaUrl": "https://opentelemetry.io/schemas/1.30.0",
    "resource": {
        "attributes": [{"key": "service.name", "value": {"stringValue": "checkout"}}],
        "entityRefs": [{"type": "service", "idKeys": ["service.name", "service.namespace"]}]
    },
    "scopeSpans": [{
        "scope": {"name": "http", "version": "1.2", "attributes": [{"key": "a", "value": {"boolValue": true}}]},
        "spans": [{
            "traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174",
            "parentSpanId": "eee19b7ec3c1b173", "name": "GET /cart\nSpan #9", "kind": 2, "flags": 257,
            "startTimeUnixNano": "1581452772000000321", "endTimeUnixNano": "1581452772012500321",
            "attributes": [
                {"key": "http.status", "value": {"intValue": "200"}},
                {"key": "ratio", "value": {"doubleValue": 1}},
                {"key": "empty"},
                {"key": "raw", "value": {"bytesValue": "AP8="}},
                {"key": "nested", "value": {"arrayValue": {"values": [
                    {"stringValue": "a \"b\""}, {}, {"kvlistValue": {"values": [
                        {"key": "k", "value": {"intValue": 1}}, {"key": "l"}]}}]}}}
            ],
            "droppedAttributesCount": 3,
            "events": [{"name": "cache miss", "timeUnixNano": "1581452772000000421",
                "attributes": [{"key": "key", "value": {"stringValue": "cart"}}]}],
            "links": [{"traceId": "00000000000000000000000000000001", "spanId": "0000000000000002",
                "traceState": "a=b"}],
            "status": {"code": 2, "message": "timeout"}
        }, {"kind": 99, "startTimeUnixNano": "5", "endTimeUnixNano": "4"}]
    }]
}]}"#;

const METRICS: &str = r#"{"resourceMetrics": [{"scopeMetrics": [{"scope": {"name": "meter"}, "metrics": [
    {"name": "requests", "description": "Requests served.", "unit": "1", "sum": {
        "aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [{
            "asInt": "7", "startTimeUnixNano": "1581452772000000000", "timeUnixNano": "1581452773000000000",
            "attributes": [{"key": "route", "value": {"stringValue": "/"}}, {"key": "code", "value": {"intValue": 200}}],
            "exemplars": [{"asInt": 1, "traceId": "0000000000000000000000000000000a", "spanId": "000000000000000b", "timeUnixNano": "1581452772500000000",
                "filteredAttributes": [{"key": "user", "value": {"stringValue": "u"}}]}]}]}},
    {"name": "load", "gauge": {"dataPoints": [{"asDouble": 0.5}, {"flags": 1}]}},
    {"name": "latency", "unit": "s", "histogram": {"aggregationTemporality": 1, "dataPoints": [{
        "count": 3, "sum": 1.5, "min": 0.1, "max": 1, "bucketCounts": [1, 2, 0], "explicitBounds": [0.25, 2.5]}]}},
    {"name": "broken", "histogram": {"dataPoints": [{"count": 3, "bucketCounts": [1, 1, 1]}]}},
    {"name": "sizes", "exponentialHistogram": {"aggregationTemporality": 1, "dataPoints": [{
        "count": 6, "sum": 9, "scale": -1, "zeroCount": 1, "zeroThreshold": 0.5,
        "positive": {"offset": 0, "bucketCounts": [2, 0, 1]}, "negative": {"offset": -1, "bucketCounts": [1, 1]}}]}},
    {"name": "old", "summary": {"dataPoints": [{"count": 2, "sum": 3,
        "quantileValues": [{"quantile": 0.5, "value": 1}, {"quantile": 0.99, "value": "NaN"}]}]}},
    {"name": "nothing"}
]}]}]}"#;

const LOGS: &str = r#"{"resourceLogs": [{"resource": {"attributes": [
        {"key": "host.name", "value": {"stringValue": "h1"}}], "droppedAttributesCount": 1},
    "scopeLogs": [{"schemaUrl": "s", "scope": {"name": "app"}, "logRecords": [
        {"timeUnixNano": "1581452773000000789", "observedTimeUnixNano": "1581452774000000000",
         "severityNumber": 9, "severityText": "Information", "eventName": "started", "flags": 1,
         "body": {"stringValue": "ready\tto serve"}, "traceId": "5b8efff798038103d269b633813fc60c",
         "spanId": "eee19b7ec3c1b174", "attributes": [{"key": "app", "value": {"stringValue": "server"}}]},
        {"severityNumber": 18, "body": {"kvlistValue": {"values": [{"key": "m", "value": {"stringValue": "x"}}]}}},
        {"severityNumber": 77}
    ]}]}]}"#;

const PROFILES: &str = r#"{
    "resourceProfiles": [{
        "resource": {"attributes": [{"keyStrindex": 9, "value": {"stringValueStrindex": 4}}]},
        "scopeProfiles": [{"scope": {"name": "ebpf"}, "profiles": [{
            "profileId": "000102030405060708090a0b0c0d0e0f", "timeUnixNano": "1581452772000000000",
            "durationNano": "10000000000", "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
            "periodType": {"typeStrindex": 1, "unitStrindex": 2}, "period": "10000000",
            "originalPayloadFormat": "pprof", "originalPayload": "H4sI",
            "attributeIndices": [1, 7],
            "samples": [
                {"stackIndex": 1, "values": ["10000000"], "attributeIndices": [2]},
                {"stackIndex": 2, "values": ["20000000", "10000000"], "linkIndex": 1,
                 "timestampsUnixNano": ["1581452772000000007", "1581452772000000003"]},
                {"stackIndex": 9, "timestampsUnixNano": ["1581452772000000009"], "linkIndex": -4},
                {"values": [1]}, {"values": [1]}, {"values": [1]}, {"values": [1]}, {"values": [1]},
                {"values": [1]}, {"values": [1]}, {"values": [1]}, {"values": [1]}
            ]}, {"profileId": "", "sampleType": {"typeStrindex": 77}}]}]
    }],
    "dictionary": {
        "stringTable": ["", "cpu", "nanoseconds", "main", "checkout", "main.go", "libc.so.6", "thread.id", "runtime.mcall", "service.name", "ms", "_ZN3fooE"],
        "attributeTable": [{}, {"keyStrindex": 7, "value": {"intValue": 42}, "unitStrindex": 10},
            {"keyStrindex": 99, "value": {"stringValueStrindex": 98}}],
        "linkTable": [{}, {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}],
        "mappingTable": [{}, {"filenameStrindex": 6}, {"filenameStrindex": 55}],
        "functionTable": [{}, {"nameStrindex": 3, "filenameStrindex": 5}, {"nameStrindex": 8},
            {"nameStrindex": 44, "filenameStrindex": 45}, {"systemNameStrindex": 11}],
        "locationTable": [{},
            {"lines": [{"functionIndex": 2}, {"functionIndex": 1, "line": 7, "column": 3}]},
            {"address": "4096", "mappingIndex": 1},
            {"lines": [{"functionIndex": 12}, {"functionIndex": 3}, {"functionIndex": 4, "line": 1}, {}], "address": 255, "mappingIndex": 2},
            {"mappingIndex": 13}],
        "stackTable": [{}, {"locationIndices": [2, 1]}, {"locationIndices": [3, 4, 14, -1]}]
    }
}"#;

/// Returns a request with a valid dictionary, because the Collector refuses other requests.
const GOOD_PROFILES: &str = r#"{"resourceProfiles": [{
        "schemaUrl": "https://opentelemetry.io/schemas/1.30.0",
        "resource": {"attributes": [{"keyStrindex": 7, "value": {"stringValueStrindex": 4}}]},
        "scopeProfiles": [{"scope": {"name": "ebpf"}, "profiles": [{
            "profileId": "000102030405060708090a0b0c0d0e0f", "timeUnixNano": "1581452772000000000",
            "durationNano": "10000000000", "sampleType": {"typeStrindex": 1, "unitStrindex": 2},
            "droppedAttributesCount": 2,
            "samples": [
                {"stackIndex": 1, "values": ["10000000"], "attributeIndices": [1, 2]},
                {"stackIndex": 1, "values": ["20000000", "10000000"], "linkIndex": 1},
                {"timestampsUnixNano": ["1581452772000000009"]}
            ]}, {}]}]
    }],
    "dictionary": {
        "stringTable": ["", "cpu", "nanoseconds", "main", "checkout", "main.go", "thread.id", "service.name"],
        "attributeTable": [{}, {"keyStrindex": 6, "value": {"intValue": 42}, "unitStrindex": 2}, {"keyStrindex": 3, "value": {"stringValue": "x"}}],
        "linkTable": [{}, {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}],
        "mappingTable": [{}, {"memoryStart": "4096", "memoryLimit": "8192", "fileOffset": "1", "filenameStrindex": 5, "attributeIndices": [1]}],
        "functionTable": [{}, {"nameStrindex": 3, "systemNameStrindex": 4, "filenameStrindex": 5, "startLine": "7"}],
        "locationTable": [{}, {"mappingIndex": 1, "address": "4097", "lines": [{"functionIndex": 1, "line": "9", "column": "3"}, {}], "attributeIndices": [1, 2]}],
        "stackTable": [{}, {"locationIndices": [1]}]
    }
}"#;

fn request(signal: Signal) -> &'static str {
    match signal {
        Signal::Traces => TRACES,
        Signal::Metrics => METRICS,
        Signal::Logs => LOGS,
        Signal::Profiles => PROFILES,
    }
}

fn decoded(signal: Signal) -> Decoded {
    let request = json::to_wire(signal, request(signal).as_bytes()).unwrap();
    Decoded::decode(signal, &request).unwrap()
}

fn batch(signal: Signal) -> Batch {
    let request = json::to_wire(signal, request(signal).as_bytes()).unwrap();
    Batch::new(signal, 3, bytes::Bytes::from(request))
}

#[test]
fn each_verbosity_prints_each_signal() {
    use Verbosity::{Detailed, Normal, Resolved};
    for (signal, verbosity, expected) in [
        (
            Signal::Traces,
            Normal,
            include_str!("golden/traces_normal.txt"),
        ),
        (
            Signal::Metrics,
            Normal,
            include_str!("golden/metrics_normal.txt"),
        ),
        (Signal::Logs, Normal, include_str!("golden/logs_normal.txt")),
        (
            Signal::Profiles,
            Normal,
            include_str!("golden/profiles_normal.txt"),
        ),
        (
            Signal::Traces,
            Detailed,
            include_str!("golden/traces_detailed.txt"),
        ),
        (
            Signal::Metrics,
            Detailed,
            include_str!("golden/metrics_detailed.txt"),
        ),
        (
            Signal::Logs,
            Detailed,
            include_str!("golden/logs_detailed.txt"),
        ),
        (
            Signal::Profiles,
            Resolved,
            include_str!("golden/profiles_resolved.txt"),
        ),
    ] {
        let printed = rendered(&decoded(signal), verbosity);
        for (at, (printed, expected)) in printed.lines().zip(expected.lines()).enumerate() {
            assert_eq!(printed, expected, "{signal} {verbosity:?} line {}", at + 1);
        }
        assert_eq!(printed, expected, "{signal} {verbosity:?}");
    }
    assert_eq!(rendered(&decoded(Signal::Traces), Verbosity::Basic), "");
}

/// Compares with the text that the Collector (0.159) printed for the same request over OTLP.
#[test]
fn detailed_profiles_are_the_collectors_tables() {
    let request = json::to_wire(Signal::Profiles, GOOD_PROFILES.as_bytes()).unwrap();
    let decoded = Decoded::decode(Signal::Profiles, &request).unwrap();
    let printed = rendered(&decoded, Verbosity::Detailed);
    assert_eq!(printed, include_str!("golden/profiles_detailed.txt"));
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn text_of_small_request_with_many_frames_is_bounded() {
    use opentelemetry_proto::tonic::profiles::v1development as proto;
    let dictionary = proto::ProfilesDictionary {
        string_table: vec![String::new(), "f".repeat(100_000)],
        function_table: vec![proto::Function {
            name_strindex: 1,
            ..proto::Function::default()
        }],
        location_table: vec![proto::Location {
            lines: vec![proto::Line::default(); 1000],
            ..proto::Location::default()
        }],
        stack_table: vec![proto::Stack {
            location_indices: vec![0; 10_000],
        }],
        ..proto::ProfilesDictionary::default()
    };
    let profile = proto::Profile {
        samples: vec![proto::Sample::default()],
        ..proto::Profile::default()
    };
    let request = proto::ProfilesData {
        dictionary: Some(dictionary),
        resource_profiles: vec![proto::ResourceProfiles {
            scope_profiles: vec![proto::ScopeProfiles {
                profiles: vec![profile],
                ..proto::ScopeProfiles::default()
            }],
            ..proto::ResourceProfiles::default()
        }],
    };
    let encoded = prost::Message::encode_to_vec(&request);
    let request = prost::Message::decode(encoded.as_slice()).unwrap();
    let text = rendered(&Decoded::Profiles(request), Verbosity::Resolved);
    assert!(text.len() < MAX_TEXT + 200_000, "{}", text.len());
    assert!(text.ends_with("... (the text is cut at 64MiB)\n"));
}

#[tokio::test]
async fn batch_without_decode_memory_is_counted_not_printed() {
    let batch = |spans: usize| {
        let scope = [0x12, 0].repeat(spans);
        let mut inner = Vec::new();
        tributary_otlp::edit::put_delimited(2, &scope, &mut inner);
        let mut request = Vec::new();
        tributary_otlp::edit::put_delimited(1, &inner, &mut request);
        Batch::new(Signal::Traces, spans, bytes::Bytes::from(request))
    };
    let config = Config {
        verbosity: Verbosity::Normal,
        ..Config::default()
    };
    // Decoded, the request would take three GiB.
    let (log, _) = logged(config, &[batch(10), batch(3_000_000)]).await;
    assert!(log.contains("spans=3000000"), "{log}");
    assert_eq!(
        log.matches("decoding needs more than the memory budget")
            .count(),
        1
    );
    assert_eq!(log.matches("ResourceSpans #0").count(), 1);
}

/// Returns the log output and the metrics of an exporter that has received `batches`.
async fn logged(config: Config, batches: &[Batch]) -> (String, Recorded) {
    let captured = Captured::default();
    let writer = captured.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    let recorded = Recorded::new();
    let exporter = recorded.within(|| config.build(&context("debug/a"), &Signal::ALL).unwrap());
    async {
        for batch in batches {
            let consumer = exporter.inputs.get(batch.signal()).unwrap();
            consumer.consume(batch.clone()).await.unwrap();
        }
    }
    .with_subscriber(subscriber)
    .await;
    let text = captured.0.lock().clone();
    (String::from_utf8(text).unwrap(), recorded)
}

#[tokio::test]
async fn basic_is_one_line_per_batch_with_the_fields_of_the_collector() {
    let batches = Signal::ALL.map(batch);
    let (text, recorded) = logged(Config::default(), &batches).await;
    let line = |signal: &str, message: &str, counts: &str| {
        format!(
            " INFO {message} otelcol.component.id=debug/a otelcol.component.kind=\"exporter\" \
             otelcol.signal={signal} {counts}"
        )
    };
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [
            line("traces", "Traces", "resource spans=1 spans=2"),
            line(
                "metrics",
                "Metrics",
                "resource metrics=1 metrics=7 data points=7"
            ),
            line("logs", "Logs", "resource logs=1 log records=3"),
            line(
                "profiles",
                "Profiles",
                "resource profiles=1 sample records=12"
            ),
        ]
    );
    for signal in Signal::ALL {
        assert_eq!(recorded.items("received", signal), 3);
        assert_eq!(recorded.items("delivered", signal), 3);
    }
}

#[tokio::test]
async fn detailed_is_one_more_message_per_batch() {
    let config = Config {
        verbosity: Verbosity::Detailed,
        ..Config::default()
    };
    let (text, _) = logged(config, &[batch(Signal::Logs)]).await;
    let (counts, rest) = text.split_once('\n').unwrap();
    assert!(counts.contains("Logs"), "{counts}");
    let (message, _) = rest.split_once(" otelcol.component.id").unwrap();
    let expected = include_str!("golden/logs_detailed.txt");
    assert_eq!(message, format!(" INFO {expected}"));
}

#[tokio::test(start_paused = true)]
async fn sampling_limits_output_but_not_delivery() {
    let config = Config {
        sampling_initial: 1,
        sampling_thereafter: 3,
        ..Config::default()
    };
    let batches = vec![batch(Signal::Logs); 8];
    let (text, recorded) = logged(config, &batches).await;
    assert_eq!(text.lines().count(), 3);
    assert_eq!(recorded.items("received", Signal::Logs), 24);
    assert_eq!(recorded.items("delivered", Signal::Logs), 24);
}

#[tokio::test(start_paused = true)]
async fn sampling_restarts_every_second() {
    let config = Config {
        sampling_initial: 1,
        sampling_thereafter: 0,
        use_internal_logger: false,
        ..Config::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("out.txt");
    let config = Config {
        output_paths: vec![path.to_str().unwrap().to_owned()],
        ..config
    };
    let exporter = config.build(&context("debug"), &[Signal::Logs]).unwrap();
    let consumer = exporter.inputs.get(Signal::Logs).unwrap();
    for _ in 0..2 {
        for _ in 0..3 {
            consumer.consume(batch(Signal::Logs)).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let text = std::fs::read_to_string(path).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[tokio::test]
async fn text_without_log_is_written_to_each_output_path() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["a.txt", "b.txt"].map(|name| directory.path().join(name));
    std::fs::write(&paths[0], "before\n").unwrap();
    let config = Config {
        verbosity: Verbosity::Normal,
        use_internal_logger: false,
        output_paths: paths
            .iter()
            .map(|path| path.to_str().unwrap().to_owned())
            .collect(),
        ..Config::default()
    };
    let (log, _) = logged(config, &[batch(Signal::Metrics)]).await;
    assert_eq!(log, "");
    let [first, second] = paths.map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(first, format!("before\n{second}"));
    let (head, rest) = second.split_once('\n').unwrap();
    let (time, head) = head.split_once('\t').unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z'), "{time}");
    assert_eq!(
        head,
        "info\tMetrics\t{\"resource metrics\": 1, \"metrics\": 7, \"data points\": 7}"
    );
    assert_eq!(rest, include_str!("golden/metrics_normal.txt"));
}

#[test]
fn unusable_output_path_is_named() {
    let config = Config {
        use_internal_logger: false,
        output_paths: vec!["/does/not/exist".to_owned()],
        ..Config::default()
    };
    let error = config.build(&context("debug"), &[]).err().unwrap();
    assert!(
        error.0.starts_with("cannot open \"/does/not/exist\": "),
        "{error}"
    );
}

#[tokio::test]
async fn write_error_counts_as_dropped() {
    let config = Config {
        use_internal_logger: false,
        output_paths: vec!["/dev/full".to_owned()],
        ..Config::default()
    };
    let (log, recorded) = logged(config, &[batch(Signal::Logs)]).await;
    assert!(
        log.contains("Cannot write the debug output; check `output_paths`")
            && log.contains("/dev/full"),
        "{log}"
    );
    assert_eq!(recorded.items("received", Signal::Logs), 3);
    assert_eq!(recorded.items("delivered", Signal::Logs), 0);
    assert_eq!(recorded.items("dropped", Signal::Logs), 3);
}

#[tokio::test]
async fn invalid_request_bytes_are_refused() {
    let recorded = Recorded::new();
    let config = Config {
        verbosity: Verbosity::Normal,
        ..Config::default()
    };
    let exporter = recorded
        .within(|| config.build(&context("debug"), &[Signal::Logs]))
        .unwrap();
    let broken = Batch::new(Signal::Logs, 1, bytes::Bytes::from_static(b"\x0a\x05"));
    let consumer = exporter.inputs.get(Signal::Logs).unwrap();
    let nack = consumer.consume(broken).await.unwrap_err();
    assert!(!nack.retryable);
    assert_eq!(recorded.items("refused", Signal::Logs), 1);
}

fn parse(yaml: &str) -> (Config, Vec<String>) {
    let config: Config = serde_yaml::from_str(yaml).unwrap();
    let mut problems = Problems::default();
    config.validate(&mut problems);
    let found = problems.found().iter();
    let found = found.map(|problem| {
        let kind = if problem.warning { "warning" } else { "error" };
        format!("{kind}: {}: {}", problem.path.join("."), problem.message)
    });
    (config, found.collect())
}

#[test]
fn configuration_of_the_collector_is_accepted() {
    let (config, problems) =
        parse("{verbosity: detailed, sampling_initial: 5, sampling_thereafter: 200}");
    assert_eq!(config.effective_verbosity(), Verbosity::Detailed);
    assert_eq!(
        (config.sampling_initial, config.sampling_thereafter),
        (5, 200)
    );
    assert_eq!(problems, Vec::<String>::new());
    assert!(serde_yaml::from_str::<Config>("{verbose: detailed}").is_err());
    assert!(serde_yaml::from_str::<Config>("{verbosity: none}").is_err());
}

#[test]
fn loglevel_works_with_notice() {
    for (level, verbosity, name) in [
        ("debug", Verbosity::Detailed, "detailed"),
        ("info", Verbosity::Normal, "normal"),
        ("warn", Verbosity::Basic, "basic"),
        ("error", Verbosity::Basic, "basic"),
    ] {
        let (config, problems) = parse(&format!("loglevel: {level}"));
        assert_eq!(config.effective_verbosity(), verbosity);
        assert_eq!(
            problems,
            [format!(
                "warning: loglevel: `loglevel` is the old name of `verbosity`; write `verbosity: {name}`"
            )]
        );
    }
}

#[test]
fn options_without_effect_cause_warnings() {
    let (_, problems) = parse("output_paths: [stderr]");
    assert_eq!(
        problems,
        [
            "warning: output_paths: has no effect with `use_internal_logger: true`: set that to false, or remove this key"
        ]
    );
    let (_, problems) = parse("{use_internal_logger: false, output_paths: []}");
    assert_eq!(
        problems,
        ["error: output_paths: must not be empty: list `stdout`, `stderr` or a file"]
    );
    let (_, problems) = parse("{use_internal_logger: false, output_paths: [stdout, \"\"]}");
    assert_eq!(problems, ["error: output_paths.1: must not be empty"]);
}

#[test]
fn older_exporter_name_is_accepted() {
    let entry = crate::component::find(crate::exporters::REGISTRY, "logging").unwrap();
    assert_eq!(entry.name, "debug");
    assert!(Signal::ALL.into_iter().all(|signal| entry.supports(signal)));
}
