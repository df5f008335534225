use super::*;

const RULES: &str =
    "allow_all_keys: true, detectors: [{name: email, action: replace}, credit_card]";

fn with(rules: &str) -> String {
    format!(
        "{{{rules}, embedded_otlp: [{{signal: traces}}, {{key: otlp, signal: traces}}, \
         {{key: logs, signal: logs}}, {{key: profiles, signal: profiles}}]}}"
    )
}

fn bytes(value: &[u8]) -> Value {
    use base64::Engine as _;
    json!({"bytesValue": base64::engine::general_purpose::STANDARD.encode(value)})
}

fn span_named(name: &str) -> Vec<u8> {
    encoded(Signal::Traces, &span(json!({"name": name}))).to_vec()
}

/// Length of the longest name whose length byte is an ASCII digit, followed directly by a card number.
fn card_behind_a_length() -> Vec<u8> {
    span_named(&format!("4111111111111111 {}", "x".repeat(0x34 - 17)))
}

#[test]
fn request_in_attribute_value_is_redacted() {
    let yaml = with(RULES);
    for (before, after) in [
        (
            card_behind_a_length(),
            span_named(&format!("**** {}", "x".repeat(0x34 - 17))),
        ),
        (span_named("of jane@example.com"), span_named("of [EMAIL]")),
        (span_named("nothing"), span_named("nothing")),
        (Vec::new(), Vec::new()),
    ] {
        let record = on_record(&yaml, json!({"body": bytes(&before)}));
        assert_eq!(record["body"], bytes(&after), "as a body");
        let list = json!({"arrayValue": {"values": [bytes(&before), bytes(&before)]}});
        let set = json!([
            {"key": "otlp", "value": bytes(&before)},
            {"key": "other", "value": {"kvlistValue": {"values": [{"key": "otlp", "value": list}]}}},
        ]);
        let record = on_record(&yaml, json!({"attributes": set}));
        let expected = set.to_string().replace(
            bytes(&before)["bytesValue"].as_str().unwrap(),
            bytes(&after)["bytesValue"].as_str().unwrap(),
        );
        assert_eq!(record["attributes"].to_string(), expected, "in attributes");
    }
}

#[test]
fn unlisted_bytes_are_scanned_as_text() {
    // The byte before the number looks like another digit.
    let request = card_behind_a_length();
    let set = json!([{"key": "unlisted", "value": bytes(&request)}]);
    let record = on_record(&with(RULES), json!({"attributes": set}));
    assert_eq!(record["attributes"], set);
}

#[test]
fn listed_value_without_valid_request_is_refused() {
    let whole = span_named("of jane@example.com");
    for damaged in [
        &whole[..whole.len() - 1],
        b"jane@example.com",
        b"\x0a\x05abc",
        b"\xff",
        &encoded(
            Signal::Logs,
            &log(json!({"severityNumber": 9, "timeUnixNano": "7"})),
        ),
    ] {
        for rules in [RULES, "allow_all_keys: true, blocked_values: [secret]"] {
            for record in [
                json!({"body": bytes(damaged)}),
                json!({"attributes": [{"key": "otlp", "value": bytes(damaged)}]}),
                json!({"body": {"kvlistValue": {"values": [{"key": "otlp", "value": bytes(damaged)}]}}}),
            ] {
                let nack = processor(&with(rules), Signal::Logs)
                    .process(batch(Signal::Logs, &log(record)))
                    .unwrap_err();
                assert!(!nack.retryable);
                assert!(nack.reason.contains("embedded_otlp"), "{}", nack.reason);
                assert!(!nack.reason.contains("jane"), "{}", nack.reason);
            }
        }
    }
}

#[test]
fn rules_apply_to_embedded_requests_with_summary() {
    let yaml = with("allow_all_keys: true, blocked_values: [secret], summary: debug");
    let inner = |name: &str| {
        let set = attributes(&json!({"a": name}));
        encoded(Signal::Traces, &span(json!({"attributes": set}))).to_vec()
    };
    let set = json!([{"key": "otlp", "value": bytes(&inner("a secret"))}]);
    let record = on_record(&yaml, json!({"attributes": set}));
    let text = record["attributes"].to_string();
    assert!(text.contains("redaction.masked.keys"), "{text}");
    let fresh = record["attributes"][0]["value"]["bytesValue"]
        .as_str()
        .unwrap();
    use base64::Engine as _;
    let fresh = base64::engine::general_purpose::STANDARD
        .decode(fresh)
        .unwrap();
    assert!(!fresh.windows(6).any(|part| part == b"secret"));
    assert!(tributary_otlp::validate(Signal::Traces, &fresh).is_ok());
}

#[test]
fn embedded_requests_nest_to_limit() {
    let nested = |levels: usize| {
        let mut request = encoded(
            Signal::Logs,
            &log(json!({"severityText": "jane@example.com"})),
        );
        for _ in 0..levels {
            let set = json!([{"key": "logs", "value": bytes(&request)}]);
            request = encoded(Signal::Logs, &log(json!({"attributes": set})));
        }
        let items = tributary_otlp::validate(Signal::Logs, &request).unwrap();
        processor(&with(RULES), Signal::Logs).process(Batch::new(Signal::Logs, items, request))
    };
    for levels in 0..=4 {
        let output = nested(levels).unwrap().unwrap().into_wire().to_bytes();
        assert!(!output.windows(4).any(|part| part == b"jane"), "{levels}");
        assert!(output.windows(7).any(|part| part == b"[EMAIL]"), "{levels}");
    }
    for levels in [5, 200] {
        let nack = nested(levels).unwrap_err();
        assert!(nack.reason.contains("4 levels"), "{}", nack.reason);
    }
}

#[test]
fn profiles_in_values_and_values_in_profiles() {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use prost::Message as _;
    let name = "jane@example.com";
    let profile = |key: &str, value: &[u8]| {
        json!({"resourceProfiles": [{
            "resource": {"attributes": [{"key": key, "value": bytes(value)}]},
            "scopeProfiles": [{"scope": {"name": name}, "profiles": []}],
        }]})
    };
    let request = encoded(Signal::Profiles, &profile("otlp", &span_named(name)));
    let output = processor(&with(RULES), Signal::Profiles)
        .process(Batch::new(Signal::Profiles, 0, request.clone()))
        .unwrap();
    // The name of the scope, and that of the span in the value.
    let replaced = |bytes: &[u8]| {
        assert!(!bytes.windows(4).any(|part| part == b"jane"));
        let found = bytes.windows(7).filter(|part| *part == b"[EMAIL]");
        assert_eq!(found.count(), 2);
        assert!(ExportProfilesServiceRequest::decode(bytes).is_ok());
    };
    replaced(&output.unwrap().into_wire().to_bytes());
    let set = json!([{"key": "profiles", "value": bytes(&request)}]);
    let record = on_record(&with(RULES), json!({"attributes": set}));
    use base64::Engine as _;
    let fresh = record["attributes"][0]["value"]["bytesValue"]
        .as_str()
        .unwrap();
    let fresh = base64::engine::general_purpose::STANDARD
        .decode(fresh)
        .unwrap();
    replaced(&fresh);
}

#[test]
fn duplicate_listed_key_is_an_error() {
    let mut problems = Problems::default();
    config("{allow_all_keys: true, embedded_otlp: [{key: a, signal: logs}, {signal: logs}, {key: a, signal: traces}]}")
        .validate(&mut problems);
    let found: Vec<String> = problems
        .found()
        .iter()
        .map(|found| found.path.join("."))
        .collect();
    assert_eq!(found, ["embedded_otlp.2.key"]);
    assert!(serde_yaml::from_str::<Config>("embedded_otlp: [{key: a}]").is_err());
}
