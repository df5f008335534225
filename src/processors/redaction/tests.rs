use serde_json::{Value, json};

use super::*;
use crate::component::Host;
use tributary_config::{Problems, Validate};
use tributary_otlp::json::{from_wire, to_wire};

fn config(yaml: &str) -> Config {
    serde_yaml::from_str(yaml).unwrap()
}

fn processor(yaml: &str, signal: Signal) -> Redaction {
    let cx = Host::for_tests().context(&"redaction".parse().unwrap());
    Redaction::new(&config(yaml), &cx, signal).unwrap()
}

fn encoded(signal: Signal, request: &Value) -> Bytes {
    to_wire(signal, request.to_string().as_bytes())
        .unwrap()
        .into()
}

fn batch(signal: Signal, request: &Value) -> Batch {
    let request = encoded(signal, request);
    let items = tributary_otlp::validate(signal, &request).unwrap();
    Batch::new(signal, items, request)
}

/// Returns the processor's output for a request in OTLP/JSON.
fn redacted(yaml: &str, signal: Signal, request: &Value) -> Value {
    let output = processor(yaml, signal).process(batch(signal, request));
    let output = output.unwrap().unwrap().into_wire().to_bytes();
    assert!(tributary_otlp::validate(signal, &output).is_ok());
    serde_json::from_slice(&from_wire(signal, &output).unwrap()).unwrap()
}

/// Attributes in OTLP/JSON.
fn attributes(attributes: &Value) -> Value {
    let entries = attributes.as_object().unwrap().iter();
    entries
        .map(|(key, value)| json!({"key": key, "value": any(value)}))
        .collect()
}

fn any(value: &Value) -> Value {
    match value {
        Value::Null => json!({}),
        Value::String(text) => json!({"stringValue": text}),
        Value::Bool(flag) => json!({"boolValue": flag}),
        Value::Number(number) if number.is_i64() => json!({"intValue": number.to_string()}),
        Value::Number(number) => json!({"doubleValue": number}),
        Value::Array(values) => {
            let values: Vec<Value> = values.iter().map(any).collect();
            json!({"arrayValue": {"values": values}})
        }
        map => json!({"kvlistValue": {"values": attributes(map)}}),
    }
}

fn span(span: Value) -> Value {
    json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
}

fn log(record: Value) -> Value {
    json!({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
}

/// Returns the redacted attributes of a span, in order.
fn on_span(yaml: &str, before: &Value) -> Value {
    let request = span(json!({"attributes": attributes(before)}));
    let output = redacted(yaml, Signal::Traces, &request);
    output["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["attributes"].clone()
}

/// Returns a redacted log record.
fn on_record(yaml: &str, record: Value) -> Value {
    let output = redacted(yaml, Signal::Logs, &log(record));
    output["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0].clone()
}

fn list(entries: &[(&str, Value)]) -> Value {
    let entries = entries.iter();
    entries
        .map(|(key, value)| json!({"key": key, "value": any(value)}))
        .collect()
}

/// The example of the Collector's documentation.
const EXAMPLE: &str = r#"
allow_all_keys: false
allowed_keys: [description, group, id, name, note]
ignored_keys: [safe_attribute]
blocked_key_patterns: [".*token.*", ".*api_key.*"]
blocked_values:
  - "4[0-9]{12}(?:[0-9]{3})?"
  - "(5[1-5][0-9]{14})"
allowed_values: [".+@mycompany.com"]
summary: debug
"#;

#[test]
fn empty_allowed_keys_remove_every_attribute() {
    assert_eq!(on_span("{}", &json!({"a": 1, "b": "x"})), Value::Null);
    assert_eq!(
        on_span("summary: info", &json!({"a": 1, "b": "x"})),
        list(&[("redaction.redacted.count", json!(2))])
    );
}

#[test]
fn example_of_the_collector_has_same_output() {
    let before = json!({
        "description": "card 4111111111111111, master 5500000000000004",
        "group": "x",
        "id": 5,
        "name": "4111111111111111 of jane@mycompany.com",
        "safe_attribute": "4111111111111111",
        "other": "y",
        "note": "nothing",
    });
    assert_eq!(
        on_span(EXAMPLE, &before),
        list(&[
            ("description", json!("card ****, master ****")),
            ("group", json!("x")),
            ("id", json!(5)),
            ("name", json!("4111111111111111 of jane@mycompany.com")),
            ("safe_attribute", json!("4111111111111111")),
            ("note", json!("nothing")),
            ("redaction.redacted.keys", json!("other")),
            ("redaction.redacted.count", json!(1)),
            ("redaction.masked.keys", json!("description")),
            ("redaction.masked.count", json!(1)),
            ("redaction.allowed.keys", json!("name")),
            ("redaction.allowed.count", json!(1)),
            ("redaction.ignored.count", json!(1)),
        ])
    );
}

#[test]
fn blocked_key_stays_and_its_whole_value_is_masked() {
    let yaml = "{allow_all_keys: true, blocked_key_patterns: [token], summary: debug}";
    let before = json!({"my_token": "a\nb", "token_count": 7, "x": "y"});
    assert_eq!(
        on_span(yaml, &before),
        list(&[
            ("my_token", json!("****\n****")),
            ("token_count", json!("****")),
            ("x", json!("y")),
            ("redaction.masked.keys", json!("my_token,token_count")),
            ("redaction.masked.count", json!(2)),
        ])
    );
}

#[test]
fn matches_are_replaced_by_hashes() {
    let with = |extra: &str| format!("{{allow_all_keys: true, blocked_values: [abc], {extra}}}");
    let before = json!({"a": "x abc y"});
    let md5 = on_span(&with("hash_function: md5"), &before);
    assert_eq!(
        md5,
        list(&[("a", json!("x 900150983cd24fb0d6963f7d28e17f72 y"))])
    );
    let sha1 = on_span(&with("hash_function: sha1"), &before);
    assert_eq!(
        sha1,
        list(&[("a", json!("x a9993e364706816aba3e25717850c26c9cd0d89d y"))])
    );
}

#[test]
fn patterns_are_applied_in_the_order_of_the_configuration() {
    let yaml = "{allow_all_keys: true, blocked_values: ['ab', '[*]{4}c', 'c']}";
    let output = on_span(yaml, &json!({"a": "abc c"}));
    assert_eq!(output, list(&[("a", json!("**** ****"))]));
}

#[test]
fn other_types_are_looked_at_on_request_and_become_strings() {
    let before = json!({"card": 4111111111111111_i64, "list": ["a", 4111111111111111_i64]});
    let yaml = "{allow_all_keys: true, blocked_values: ['4[0-9]{15}']}";
    assert_eq!(
        on_span(yaml, &before),
        list(&[
            ("card", json!(4111111111111111_i64)),
            ("list", json!(["a", 4111111111111111_i64])),
        ])
    );
    let yaml = "{allow_all_keys: true, redact_all_types: true, blocked_values: ['4[0-9]{15}']}";
    assert_eq!(
        on_span(yaml, &before),
        list(&[("card", json!("****")), ("list", json!(r#"["a",****]"#))])
    );
}

#[test]
fn summaries_of_several_processors_add_up() {
    let yaml = "{allow_all_keys: true, blocked_values: [secret], summary: debug}";
    let before = json!({
        "b": "secret",
        "redaction.masked.count": 2,
        "redaction.masked.keys": "a,c",
    });
    assert_eq!(
        on_span(yaml, &before),
        list(&[
            ("b", json!("****")),
            ("redaction.masked.count", json!(3)),
            ("redaction.masked.keys", json!("a,b,c")),
        ])
    );
}

#[test]
fn log_bodies_are_looked_at_by_path() {
    let yaml = "
allowed_keys: [user, mail, list, n]
ignored_keys: [keep]
blocked_key_patterns: ['^mail$']
blocked_values: [secret]
summary: debug
";
    let body = json!({
        "keep": "secret",
        "list": ["secret", 1],
        "user": {"mail": "x", "n": "a secret", "other": 1},
        "zip": 1,
    });
    let record = on_record(yaml, json!({"body": any(&body)}));
    let after = json!({
        "keep": "secret",
        "list": ["****", 1],
        "user": {"mail": "****", "n": "a ****"},
    });
    assert_eq!(record["body"], any(&after));
    assert_eq!(
        record["attributes"],
        list(&[
            ("redaction.body.redacted.keys", json!("user.other,zip")),
            ("redaction.body.redacted.count", json!(2)),
            (
                "redaction.body.masked.keys",
                json!("list.[0],user.mail,user.n")
            ),
            ("redaction.body.masked.count", json!(3)),
            ("redaction.body.ignored.count", json!(1)),
        ])
    );
    let record = on_record(yaml, json!({"body": {"stringValue": "a secret"}}));
    assert_eq!(record["body"], any(&json!("a ****")));
    assert_eq!(
        record["attributes"],
        list(&[
            ("redaction.body.masked.keys", json!("body")),
            ("redaction.body.masked.count", json!(1)),
        ])
    );
}

fn everywhere(text: &str) -> Value {
    let set = attributes(&json!({"k": text, "nested": {"list": [text, {"x": text}]}}));
    json!({"resourceSpans": [{
        "resource": {"attributes": set},
        "schemaUrl": text,
        "scopeSpans": [{
            "scope": {"name": text, "version": text, "attributes": set},
            "spans": [{
                "name": text,
                "traceState": text,
                "attributes": set,
                "events": [{"name": text, "attributes": set}],
                "links": [{"traceState": text, "attributes": set}],
                "status": {"message": text},
            }],
        }],
    }]})
}

const DETECT: &str = "{allow_all_keys: true, detectors: [{name: email, action: replace}]}";

#[test]
fn detectors_look_everywhere_but_at_schema_urls_and_keys() {
    let mut expected = everywhere("[EMAIL]");
    expected["resourceSpans"][0]["schemaUrl"] = json!("jane@example.com");
    assert_eq!(
        redacted(DETECT, Signal::Traces, &everywhere("jane@example.com")),
        expected
    );
}

#[test]
fn text_without_hits_is_unchanged() {
    for yaml in [
        DETECT,
        "{allow_all_keys: true, blocked_values: [secret], summary: debug}",
    ] {
        let processor = processor(yaml, Signal::Traces);
        let batch = batch(Signal::Traces, &everywhere("nothing to see"));
        let before = batch.wire().to_bytes();
        let after = processor.process(batch).unwrap().unwrap();
        assert_eq!(after.into_wire().to_bytes().as_ptr(), before.as_ptr());
    }
}

#[test]
fn collector_keys_apply_to_same_places_unless_scan_is_set() {
    let rules = "allow_all_keys: true, blocked_values: [secret]";
    let names = |yaml: &str| {
        let output = redacted(yaml, Signal::Traces, &everywhere("secret"));
        output["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"].clone()
    };
    assert_eq!(names(&format!("{{{rules}}}")), "secret");
    assert_eq!(names(&format!("{{{rules}, scan: [default]}}")), "****");
    assert_eq!(names(&format!("{{{rules}, scan: [log_bodies]}}")), "secret");
}

#[test]
fn dropped_value_removes_its_attribute() {
    let yaml = "{allow_all_keys: true, detectors: [{name: email, action: drop}]}";
    let before = json!({"a": "x", "b": "jane@example.com", "c": ["jane@example.com", 1]});
    assert_eq!(
        on_span(yaml, &before),
        list(&[("a", json!("x")), ("c", json!([1]))])
    );
}

#[test]
fn sanitizers_act_on_configured_attributes_and_span_names() {
    let yaml = "
allow_all_keys: true
url_sanitizer: {enabled: true, attributes: [http.url]}
db_sanitizer:
  sql: {enabled: true, attributes: [db.statement]}
";
    let before = json!({
        "db.statement": "SELECT 1 FROM a WHERE b = 'x'",
        "db.system": "MySQL",
        "http.url": "/users/123/profile",
        "other": "/users/123/profile",
    });
    let request = span(json!({
        "kind": 2, "name": "/users/123/profile", "attributes": attributes(&before),
    }));
    let output = redacted(yaml, Signal::Traces, &request);
    let span = &output["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["name"], "/users/*/profile");
    assert_eq!(
        span["attributes"],
        list(&[
            ("db.statement", json!("SELECT ? FROM a WHERE b = ?")),
            ("db.system", json!("MySQL")),
            ("http.url", json!("/users/*/profile")),
            ("other", json!("/users/123/profile")),
        ])
    );
}

#[test]
fn report_mode_changes_nothing() {
    let yaml = "{mode: report, detectors: [email], unknown_fields: drop, summary: debug}";
    let request = everywhere("jane@example.com");
    assert_eq!(redacted(yaml, Signal::Traces, &request), request);
}

#[test]
fn utf8_bytes_are_scanned_as_text() {
    // 0xff, jane@example.com, 0xff.
    let body = json!({"bytesValue": "/2phbmVAZXhhbXBsZS5jb23/"});
    let record = on_record(DETECT, json!({"body": body}));
    assert_eq!(record["body"], json!({"bytesValue": "/1tFTUFJTF3/"}));
}

#[test]
fn unreadable_request_is_refused_without_its_content() {
    // The name of a span, which is not UTF-8.
    let mut request = b"\x2a\x07sesame\xff".to_vec();
    for tag in [0x12, 0x12, 0x0a] {
        let length = u8::try_from(request.len()).unwrap();
        request.splice(0..0, [tag, length]);
    }
    let batch = Batch::new(Signal::Traces, 1, Bytes::from(request));
    let nack = processor(DETECT, Signal::Traces)
        .process(batch)
        .unwrap_err();
    assert!(!nack.retryable);
    assert!(nack.reason.contains("not UTF-8"), "{}", nack.reason);
    assert!(!nack.reason.contains("sesame"), "{}", nack.reason);
}

#[test]
fn mistakes_are_reported_at_their_place() {
    let problems = |yaml: &str| -> Vec<String> {
        let mut problems = Problems::default();
        config(yaml).validate(&mut problems);
        let found = problems.found().iter();
        found.map(|problem| problem.path.join(".")).collect()
    };
    assert!(problems("allow_all_keys: true").is_empty());
    assert_eq!(problems("{}"), ["allow_all_keys"]);
    assert_eq!(
        problems(
            "
allow_all_keys: true
blocked_values: ['x', '(']
ignored_key_patterns: ['(']
hash_function: hmac-sha256
hmac_key: short
scan: []
"
        ),
        [
            "ignored_key_patterns.0",
            "blocked_values.1",
            "hmac_key",
            "scan"
        ]
    );
    assert!(serde_yaml::from_str::<Config>("scan: [span_atributes]").is_err());
    assert!(serde_yaml::from_str::<Config>("blocked_value: [x]").is_err());
    // As the Collector writes its default.
    assert!(serde_yaml::from_str::<Config>("summary: ''").is_ok());
    assert_eq!(config("hash_function: ''").hash_function, None);
    assert!(serde_yaml::from_str::<Config>("hash_function: md4").is_err());
}

const WITH_KEYS: &str = "
allow_all_keys: true
blocked_key_patterns: [token]
blocked_values: [secret]
detectors: [{name: email, action: replace}]
scan: [all]
summary: debug
";

#[test]
fn keys_are_checked_regardless_of_values() {
    let set = json!({
        "a jane@example.com": "secret",
        "b jane@example.com": "jane@example.com",
        "c jane@example.com token": "x",
        "d jane@example.com": "x",
        "e jane@example.com": {"jane@example.com": ["x"]},
    });
    let output = on_span(WITH_KEYS, &set);
    assert!(!output.to_string().contains("jane"), "{output}");
    assert!(output.to_string().contains("a [EMAIL]"), "{output}");
    let record = on_record(WITH_KEYS, json!({"body": any(&set)}));
    assert!(!record.to_string().contains("jane"), "{record}");
}

#[test]
fn allowed_value_stays_and_its_key_is_checked() {
    let yaml = "{allow_all_keys: true, redact_all_types: true, allowed_values: ['^ok@example.com$', '^1$'], \
                detectors: [{name: email, action: replace}], scan: [all]}";
    let set = json!({"a jane@example.com": "ok@example.com", "b jane@example.com": 1});
    let expected = [
        ("a [EMAIL]", json!("ok@example.com")),
        ("b [EMAIL]", json!(1)),
    ];
    assert_eq!(on_span(yaml, &set), list(&expected));
}

#[test]
fn summary_names_no_private_key() {
    let before = json!({"jane@example.com": 1, "john@example.com": 2, "ok": "jane@example.com"});
    for yaml in [
        "{allowed_keys: [ok], detectors: [email], summary: debug}",
        "{allow_all_keys: true, blocked_key_patterns: [jo], detectors: [email], summary: debug}",
    ] {
        let output = on_span(yaml, &before);
        for attribute in output.as_array().unwrap() {
            assert!(!attribute["value"].to_string().contains('@'), "{output}");
        }
    }
}

#[test]
fn summary_is_at_most_as_long_as_body() {
    let yaml = "{allow_all_keys: true, blocked_values: [secret], summary: debug}";
    let list: Vec<&str> = std::iter::repeat_n("secret", 20_000).collect();
    let body = json!({"k".repeat(100_000): list, "short": list});
    let record = on_record(yaml, json!({"body": any(&body)}));
    let attributes = record["attributes"].to_string();
    assert!(attributes.len() < 100_000, "{}", attributes.len());
    assert!(attributes.contains("\"40000\""), "all are counted");
}

/// The only span of a request, which has this attribute, in bytes.
fn span_with(attribute: &[u8]) -> Bytes {
    let mut request = attribute.to_vec();
    for tag in [0x4a, 0x12, 0x12, 0x0a] {
        let length = u8::try_from(request.len()).unwrap();
        assert!(length < 0x80);
        request.splice(0..0, [tag, length]);
    }
    Bytes::from(request)
}

#[test]
fn rules_cover_overridden_fields() {
    let yaml = "{allow_all_keys: true, blocked_values: [secret]}";
    let key = b"\x0a\x01k";
    let secret = b"\x0a\x06secret";
    let value = |fields: &[&[u8]]| {
        let fields = fields.concat();
        [&[0x12, u8::try_from(fields.len()).unwrap()], &*fields].concat()
    };
    let cases = [
        // An empty value follows, so the reader sees the earlier value.
        [&key[..], &value(&[secret]), &value(&[])].concat(),
        // A number after it.
        [&key[..], &value(&[secret, b"\x18\x05"])].concat(),
        [&key[..], &value(&[secret]), &value(&[b"\x18\x05"])].concat(),
        [&key[..], &value(&[b"\x18\x05", secret])].concat(),
        // Another string after it.
        [&key[..], &value(&[secret, b"\x0a\x01x"])].concat(),
        // A second key.
        [&key[..], &value(&[secret]), key].concat(),
    ];
    for (at, attribute) in cases.iter().enumerate() {
        let request = span_with(attribute);
        let batch = Batch::new(Signal::Traces, 1, request);
        let output = processor(yaml, Signal::Traces).process(batch);
        let output = output.unwrap().unwrap().into_wire().to_bytes();
        assert!(tributary_otlp::validate(Signal::Traces, &output).is_ok());
        let mut parts = output.windows(6);
        assert!(!parts.any(|part| part == b"secret"), "case {at}");
    }
}

/// A field of bytes.
fn field(tag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[tag, u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

#[test]
fn allowed_value_does_not_keep_overridden_data() {
    let yaml = "{allow_all_keys: true, redact_all_types: true, blocked_values: [secret], \
                allowed_values: ['^ok$', '^.\"ok\".$']}";
    let key = field(0x0a, b"k");
    let (secret, ok) = (field(0x0a, b"secret"), field(0x0a, b"ok"));
    let both = [&secret[..], &ok].concat();
    let list = |value: &[u8]| field(0x2a, &field(0x0a, value));
    let cases = [
        // Two strings in one value, two values, and two strings in the only element of a list.
        [&key[..], &field(0x12, &both)].concat(),
        [&key[..], &field(0x12, &secret), &field(0x12, &ok)].concat(),
        [&key[..], &field(0x12, &list(&both))].concat(),
        // A list that another list overrides.
        [&key[..], &field(0x12, &[&list(&secret)[..], &ok].concat())].concat(),
    ];
    for (at, attribute) in cases.iter().enumerate() {
        let batch = Batch::new(Signal::Traces, 1, span_with(attribute));
        let output = processor(yaml, Signal::Traces).process(batch);
        let output = output.unwrap().unwrap().into_wire().to_bytes();
        assert!(tributary_otlp::validate(Signal::Traces, &output).is_ok());
        assert!(
            !output.windows(6).any(|part| part == b"secret"),
            "case {at}"
        );
        assert!(output.windows(2).any(|part| part == b"ok"), "case {at}");
    }
}

#[test]
fn foreign_value_under_summary_key_is_scanned() {
    let yaml =
        "{allow_all_keys: true, detectors: [{name: email, action: replace}], summary: debug}";
    let mail = "jane@example.com";
    let list = json!({"redaction.masked.keys": [mail, {"a": mail}], "redaction.masked.count": {"b": mail}});
    let output = on_span(yaml, &list).to_string();
    assert!(
        !output.contains("jane") && output.contains("[EMAIL]"),
        "{output}"
    );
    // Two strings, of which a reader uses the second.
    let key = field(0x0a, b"redaction.masked.keys");
    let both = [field(0x0a, mail.as_bytes()), field(0x0a, b"a")].concat();
    let batch = Batch::new(
        Signal::Traces,
        1,
        span_with(&[key, field(0x12, &both)].concat()),
    );
    let output = processor(yaml, Signal::Traces).process(batch);
    let output = output.unwrap().unwrap().into_wire().to_bytes();
    assert!(!output.windows(4).any(|part| part == b"jane"));
}

mod embedded;
mod profiles;
mod refusals;
