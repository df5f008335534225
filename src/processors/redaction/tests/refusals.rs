//! Tests of requests that cannot be scanned, of mode `report`, and of hashing only once.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{
    Profile, ResourceProfiles, ScopeProfiles,
};
use prost::Message as _;

use super::*;
use tributary_config::Secret;
use tributary_otlp::strings::StringLocation;
use tributary_redaction::{HashFunction, Hasher};

/// A processor with its metrics.
fn counted(yaml: &str, signal: Signal) -> (Redaction, PrometheusHandle) {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let processor = metrics::with_local_recorder(&recorder, || processor(yaml, signal));
    (processor, page)
}

/// The series of a metric that are not zero, as `label value=number`, by one of their labels.
fn series(page: &PrometheusHandle, metric: &str, label: &str) -> Vec<String> {
    let page = page.render();
    let lines = page
        .lines()
        .filter(|line| line.starts_with(metric) && !line.ends_with(" 0"));
    let mut series: Vec<String> = lines
        .map(|line| {
            let (_, rest) = line.split_once(&format!("{label}=\"")).unwrap();
            let (value, rest) = rest.split_once('"').unwrap();
            format!("{value}={}", rest.rsplit(' ').next().unwrap())
        })
        .collect();
    series.sort();
    series
}

const REFUSED: &str = "tributary_processor_redaction_refused_requests";
const HITS: &str = "otelcol_processor_redaction_hits";

/// A pattern whose replacement matches again.
const EATS: &str = r"custom: [{name: eats, regex: '(\*{4}|a) .'}]";
const UNSETTLED: &str = "a b c d e f g h i j k l m n o p";

fn refused() -> Vec<(&'static str, Signal, Bytes)> {
    let broken = ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![Profile {
                    attribute_indices: vec![7],
                    original_payload: vec![1],
                    ..Profile::default()
                }],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: None,
    };
    let otlp = json!({"attributes": [{"key": "otlp", "value": {"bytesValue": "Cg=="}}]});
    vec![
        (
            "malformed",
            Signal::Logs,
            Bytes::from_static(b"\x0a\x05abc"),
        ),
        (
            "unscannable",
            Signal::Traces,
            encoded(Signal::Traces, &span(json!({"name": UNSETTLED}))),
        ),
        ("embedded", Signal::Logs, encoded(Signal::Logs, &log(otlp))),
        (
            "references",
            Signal::Profiles,
            broken.encode_to_vec().into(),
        ),
    ]
}

fn yaml(more: &str) -> String {
    let embedded = "embedded_otlp: [{key: otlp, signal: logs}]";
    format!("{{allow_all_keys: true, detectors: [email], {EATS}, {embedded}, {more}}}")
}

#[test]
fn refusals_are_counted_by_reason_and_say_no_word_of_the_text() {
    for (reason, signal, request) in refused() {
        let (processor, page) = counted(&yaml(""), signal);
        let nack = processor
            .process(Batch::new(signal, 1, request))
            .unwrap_err();
        assert!(!nack.retryable, "{reason}");
        assert!(!nack.reason.contains("b c d"), "{}", nack.reason);
        assert_eq!(
            series(&page, REFUSED, "reason"),
            [format!("{reason}=1")],
            "{}",
            nack.reason
        );
        assert!(
            page.render()
                .contains(&format!("otel_signal=\"{}\"", signal.name()))
        );
    }
}

#[test]
fn text_with_too_many_matches_is_refused() {
    let text = "x".repeat(1 << 17);
    for rules in ["custom: [{name: x, regex: x}]", "blocked_values: [x]"] {
        let rules = format!("{{allow_all_keys: true, {rules}}}");
        let set = attributes(&json!({"k": text}));
        let (processor, page) = counted(&rules, Signal::Traces);
        let request = span(json!({"attributes": set}));
        let nack = processor
            .process(batch(Signal::Traces, &request))
            .unwrap_err();
        assert!(
            nack.reason.contains("has too many matches"),
            "{}",
            nack.reason
        );
        assert_eq!(series(&page, REFUSED, "reason"), ["unscannable=1"]);
    }
}

#[test]
fn report_mode_forwards_same_bytes() {
    for (reason, signal, request) in refused() {
        let (processor, page) = counted(&yaml("mode: report"), signal);
        let output = processor
            .process(Batch::new(signal, 1, request.clone()))
            .unwrap()
            .unwrap();
        assert_eq!(
            output.wire().to_bytes().as_ptr(),
            request.as_ptr(),
            "{reason}"
        );
        // A request that is not rewritten may be inconsistent.
        let counted = (reason != "references").then(|| format!("{reason}=1"));
        assert_eq!(series(&page, REFUSED, "reason"), Vec::from_iter(counted));
    }
}

#[test]
fn report_mode_counts_hits_by_detector_and_location() {
    let rules = "{mode: report, allow_all_keys: true, detectors: [email, credit_card], blocked_values: [secret], \
                 blocked_key_patterns: [token], summary: debug}";
    let (processor, page) = counted(rules, Signal::Traces);
    let mut set = attributes(
        &json!({"a": "jane@example.com", "b": "4111111111111111", "c": "secret", "token": "x"}),
    );
    set.as_array_mut()
        .unwrap()
        .push(json!({"key": "d", "value": {"bytesValue": "amFuZUBleGFtcGxlLmNvbQ=="}}));
    let request = span(json!({
        "name": "jane@example.com and 4111111111111111", "attributes": set, "status": {"message": "jane@example.com"},
    }));
    let batch = batch(Signal::Traces, &request);
    let before = batch.wire().to_bytes();
    for round in 1..=2 {
        let output = processor.process(batch.clone()).unwrap().unwrap();
        assert_eq!(output.wire().to_bytes().as_ptr(), before.as_ptr());
        for (detector, place, count) in [
            ("email", StringLocation::SpanAttributes, 2),
            ("credit_card", StringLocation::SpanAttributes, 1),
            ("email", StringLocation::SpanNames, 1),
            ("credit_card", StringLocation::SpanNames, 1),
            ("email", StringLocation::StatusMessages, 1),
            ("credit_card", StringLocation::StatusMessages, 0),
        ] {
            let (place, count) = (place.name(), count * round);
            let page = page.render();
            let found = page.lines().find(|line| {
                line.starts_with(HITS)
                    && line.contains(&format!("detector=\"{detector}\""))
                    && line.contains(&format!("place=\"{place}\""))
            });
            assert!(
                found.unwrap().ends_with(&format!(" {count}")),
                "{detector} in {place}: {found:?}"
            );
        }
        let all = series(&page, HITS, "detector");
        for rule in ["blocked_key_patterns", "blocked_values"] {
            assert!(all.contains(&format!("{rule}={round}")), "{all:?}");
        }
    }
    // No metric contains a redacted text.
    assert!(!page.render().contains("jane"));
}

#[test]
fn value_of_blocked_key_is_hashed_once() {
    // The detector matches the replacement text.
    let rules = "
allow_all_keys: true
blocked_key_patterns: [token]
blocked_values: ['^s3cret$']
hash_function: sha1
detectors: [{name: high_entropy, action: hash}, {name: email, action: hash}]
custom: [{name: hex, regex: '[0-9a-f]{40}', action: hash}]
";
    let sha1 = Hasher::new(HashFunction::Sha1, &Secret::default()).unwrap();
    let expected = sha1.hex("jane@example.com");
    let before = json!({"token": "jane@example.com"});
    assert_eq!(on_span(rules, &before), list(&[("token", json!(expected))]));
    let record = on_record(rules, json!({"body": any(&before)}));
    assert_eq!(record["body"], any(&json!({"token": expected})));
}
