//! Compares translations with those of the OpenTelemetry Collector.
//!
//! `tests/translators/cases.jsonl` has a few cases, which `go run . 6 1` in that directory wrote. With the environment
//! variable `SPANS_GO`, the path of Go, thousands of random cases are compared too.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use prost::Message as _;
use tributary_otlp::room::Unbounded;
use tributary_span_formats::zipkin::{ZipkinEncoding, render};
use tributary_span_formats::{SpanFormat, TranslateOptions, translate};

const CASES: &str = include_str!("translators/cases.jsonl");
/// Random cases of each kind.
const COUNT: &str = "3000";
/// Current time for spans without a time.
const NOW: u64 = 77;
const START_ABSENT: &str = "otel.zipkin.absentField.startTime";

#[test]
fn translations_equal_recorded_ones_of_collector() {
    assert!(CASES.lines().count() >= 50);
    CASES.lines().for_each(check);
}

#[test]
fn go_translations_of_random_spans_are_equal() {
    let Some(go) = std::env::var_os("SPANS_GO") else {
        eprintln!("SKIPPED: SPANS_GO is not set");
        return;
    };
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/translators");
    let mut child = Command::new(go)
        .args(["run", ".", COUNT, &std::process::id().to_string()])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let count = lines.map(|line| check(&line.unwrap())).count();
    assert!(child.wait().unwrap().success());
    eprintln!("{count} cases are equal");
    assert!(count >= 30_000);
}

/// Compares one case.
fn check(line: &str) {
    let case: serde_json::Value = serde_json::from_str(line).unwrap();
    let bytes = |key: &str| {
        STANDARD
            .decode(case[key].as_str().unwrap_or_default())
            .unwrap()
    };
    let (input, expected) = (bytes("input"), bytes("expected"));
    let format = match case["kind"].as_str().unwrap() {
        "ZipkinV1Json" => SpanFormat::ZipkinV1Json,
        "ZipkinV1Thrift" => SpanFormat::ZipkinV1Thrift,
        "ZipkinV2Json" => SpanFormat::ZipkinV2Json,
        "ZipkinV2Proto" => SpanFormat::ZipkinV2Proto,
        "JaegerProto" => SpanFormat::JaegerProto,
        "JaegerThrift" => SpanFormat::JaegerThrift,
        "JaegerAgentCompact" => SpanFormat::JaegerAgentCompact,
        "JaegerAgentBinary" => SpanFormat::JaegerAgentBinary,
        "render-json" => {
            let text = render(&[input], ZipkinEncoding::Json, "none", &Unbounded).unwrap();
            let value = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
            let expected = match value(&expected) {
                serde_json::Value::Null => serde_json::json!([]),
                list => list,
            };
            assert_eq!(value(&text), expected, "{line}");
            return;
        }
        "render-proto" => {
            let rendered = render(&[input], ZipkinEncoding::Proto, "none", &Unbounded).unwrap();
            assert_eq!(zipkin_json(&rendered), zipkin_json(&expected), "{line}");
            return;
        }
        unknown => panic!("{unknown}"),
    };
    let options = TranslateOptions {
        parse_string_tags: case["parse"].as_bool().unwrap(),
        now: NOW,
    };
    let translated = translate(format, &options, &input, &Unbounded).unwrap();
    let valid = tributary_otlp::validate(tributary_otlp::Signal::Traces, &translated.request);
    assert_eq!(valid, Ok(translated.spans));
    let (found, expected) = (normal(&translated.request), normal(&expected));
    assert_eq!(found, expected, "{line}");
}

/// Decodes a request, and sorts whatever has no order.
fn normal(request: &[u8]) -> ExportTraceServiceRequest {
    let mut request = ExportTraceServiceRequest::decode(request).unwrap();
    for resource in &mut request.resource_spans {
        resource.resource.get_or_insert_default();
        for attributes in resource
            .resource
            .iter_mut()
            .map(|resource| &mut resource.attributes)
        {
            sort(attributes);
        }
        for scope in &mut resource.scope_spans {
            scope.scope.get_or_insert_default();
            for span in &mut scope.spans {
                span.status.get_or_insert_default();
                let is_absent = span
                    .attributes
                    .iter()
                    .any(|attribute| attribute.key == START_ABSENT);
                // The time of the translation.
                if is_absent && span.start_time_unix_nano > 0 {
                    (span.start_time_unix_nano, span.end_time_unix_nano) = (NOW, NOW);
                }
                sort(&mut span.attributes);
                for event in &mut span.events {
                    sort(&mut event.attributes);
                }
                for link in &mut span.links {
                    sort(&mut link.attributes);
                }
            }
            scope.spans.sort_by_key(|span| span.encode_to_vec());
        }
        resource.scope_spans.retain(|scope| !scope.spans.is_empty());
        resource
            .scope_spans
            .sort_by_key(|scope| scope.encode_to_vec());
    }
    request
        .resource_spans
        .retain(|resource| !resource.scope_spans.is_empty());
    request
        .resource_spans
        .sort_by_key(|resource| resource.encode_to_vec());
    request
}

fn sort(attributes: &mut [KeyValue]) {
    attributes.sort_by(|left, right| left.key.cmp(&right.key));
    for attribute in attributes {
        // A value without a member and an empty text are different; both occur.
        if let Some(value) = &mut attribute.value
            && let Some(any_value::Value::DoubleValue(number)) = &mut value.value
            && number.is_nan()
        {
            *number = 0.0;
        }
    }
}

/// Fields of a list of Zipkin spans, sorted. Empty ids of parents have 8 bytes in the Collector, and IPv4 addresses 16.
fn zipkin_json(list: &[u8]) -> Vec<Vec<(u32, String)>> {
    use tributary_otlp::reader::{Fields, Value};
    let spans = Fields::new(list).map(|span| {
        let fields = span.unwrap().fields().map(|field| {
            let field = field.unwrap();
            let text = match (field.number, field.value) {
                (8 | 9, _) => {
                    let parts = field.fields().map(|part| {
                        let part = part.unwrap();
                        let value = match (part.number, part.value) {
                            (2, Value::Bytes(address)) => {
                                Value::Bytes(address.strip_prefix(&MAPPED).unwrap_or(address))
                            }
                            (_, value) => value,
                        };
                        format!("{} {value:?}", part.number)
                    });
                    format!("{:?}", parts.collect::<Vec<_>>())
                }
                (10, _) => {
                    let parts = field.fields().map(|part| part.unwrap());
                    let mut parts: Vec<_> = parts
                        .map(|part| (part.number, format!("{:?}", part.value)))
                        .collect();
                    parts.sort();
                    format!("{parts:?}")
                }
                (11, _) => {
                    let parts = field.fields().map(|part| part.unwrap());
                    let parts = parts.filter(|part| part.value != Value::Bytes(&[]));
                    format!(
                        "{:?}",
                        parts
                            .map(|part| (part.number, format!("{:?}", part.value)))
                            .collect::<Vec<_>>()
                    )
                }
                (_, value) => format!("{value:?}"),
            };
            (field.number, text)
        });
        let is_no_parent = |field: &(u32, String)| {
            field.0 == 2 && !field.1.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
        };
        let mut fields: Vec<_> = fields.filter(|field| !is_no_parent(field)).collect();
        fields.sort();
        fields
    });
    spans.collect()
}

/// Prefix of an IPv4 address in 16 bytes.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
