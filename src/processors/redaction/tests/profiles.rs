use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::*;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use super::*;
use tributary_profiles::check;

fn any(text: &str) -> Option<AnyValue> {
    Some(AnyValue {
        value: Some(Any::StringValue(text.to_owned())),
    })
}

const MAIL: &str = "jane@example.com";

/// A profile in which `name` is the name of a function and `file` that of its file, and labels.
fn profile(strings: &[&str]) -> ExportProfilesServiceRequest {
    let mut string_table = vec![String::new()];
    string_table.extend(strings.iter().map(|text| (*text).to_owned()));
    let kind = Some(ValueType {
        type_strindex: i32::try_from(string_table.len()).unwrap(),
        unit_strindex: 0,
    });
    string_table.push("cpu".to_owned());
    let dictionary = ProfilesDictionary {
        mapping_table: vec![Mapping::default()],
        location_table: vec![
            Location::default(),
            Location {
                lines: vec![Line {
                    function_index: 1,
                    ..Line::default()
                }],
                ..Location::default()
            },
        ],
        function_table: vec![
            Function::default(),
            Function {
                name_strindex: 1,
                filename_strindex: 2,
                ..Function::default()
            },
        ],
        link_table: vec![Link::default()],
        string_table,
        attribute_table: vec![
            KeyValueAndUnit::default(),
            KeyValueAndUnit {
                key_strindex: 3,
                value: any(MAIL),
                unit_strindex: 0,
            },
        ],
        stack_table: vec![
            Stack::default(),
            Stack {
                location_indices: vec![1],
            },
        ],
    };
    let sample = Sample {
        stack_index: 1,
        attribute_indices: vec![1],
        values: vec![5],
        ..Sample::default()
    };
    let reference = KeyValue {
        key: "who".to_owned(),
        value: Some(AnyValue {
            value: Some(Any::StringValueStrindex(1)),
        }),
        ..KeyValue::default()
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![reference],
                ..Resource::default()
            }),
            scope_profiles: vec![ScopeProfiles {
                profiles: vec![Profile {
                    samples: vec![sample],
                    sample_type: kind,
                    period_type: kind,
                    ..Profile::default()
                }],
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(dictionary),
    }
}

fn run(yaml: &str, request: &ExportProfilesServiceRequest) -> (Bytes, Bytes) {
    let before = Bytes::from(request.encode_to_vec());
    let batch = Batch::new(Signal::Profiles, 1, before.clone());
    let output = processor(yaml, Signal::Profiles).process(batch);
    let output = output.unwrap().unwrap();
    assert_eq!(output.items(), 1);
    let output = output.into_wire().to_bytes();
    let decoded = ExportProfilesServiceRequest::decode(output.clone()).unwrap();
    let report = check::check(&decoded);
    assert!(report.is_clean(), "{:?}", report.findings());
    (before, output)
}

fn strings(request: &Bytes) -> Vec<String> {
    let decoded = ExportProfilesServiceRequest::decode(request.clone()).unwrap();
    decoded.dictionary.unwrap().string_table
}

fn has(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[test]
fn string_is_redacted_only_in_scanned_places() {
    // A resource's attribute refers to the name of the function, which is an identifier.
    let request = profile(&[MAIL, "/src/main.rs", "label"]);
    let (_, output) = run(DETECT, &request);
    assert!(strings(&output).contains(&MAIL.to_owned()));
    let decoded = ExportProfilesServiceRequest::decode(output).unwrap();
    let resource = decoded.resource_profiles[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes[0].value, any("[EMAIL]"));
    let label = &decoded.dictionary.as_ref().unwrap().attribute_table[1];
    assert_eq!(label.value, any("[EMAIL]"));
}

#[test]
fn unreferenced_strings_are_removed() {
    let yaml = "{allow_all_keys: true, detectors: [{name: email, action: replace}], scan: [all]}";
    let request = profile(&[MAIL, "/src/jane@example.com/main.rs", MAIL]);
    let (_, output) = run(yaml, &request);
    assert!(!has(&output, MAIL));
    let mut strings = strings(&output);
    strings.sort_unstable();
    assert_eq!(strings, ["", "/src/[EMAIL]/main.rs", "[EMAIL]", "cpu"]);
}

#[test]
fn home_directories_are_redacted_and_orphans_removed() {
    let yaml = "{allow_all_keys: true, detectors: [home_directory]}";
    let mut request = profile(&["main", "/home/jane/src/main.rs", "label"]);
    request.resource_profiles[0].resource = None;
    let (_, output) = run(yaml, &request);
    assert!(!has(&output, "jane/"));
    assert!(has(&output, "src/main.rs"));
}

#[test]
fn hit_in_unscanned_place_keeps_request_bytes() {
    let yaml = "{allow_all_keys: true, detectors: [email], scan: [mapping_files]}";
    let request = profile(&[MAIL, MAIL, "label"]);
    let before = Bytes::from(request.encode_to_vec());
    let batch = Batch::new(Signal::Profiles, 1, before.clone());
    let output = processor(yaml, Signal::Profiles).process(batch).unwrap();
    let output = output.unwrap().into_wire().to_bytes();
    assert_eq!(output.as_ptr(), before.as_ptr());
}

#[test]
fn allowed_keys_apply_to_labels() {
    let (_, output) = run("allowed_keys: [who]", &profile(&["main", "file", "label"]));
    assert!(!has(&output, MAIL));
    let decoded = ExportProfilesServiceRequest::decode(output).unwrap();
    assert_eq!(decoded.dictionary.unwrap().attribute_table.len(), 1);
    let resource = decoded.resource_profiles[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes[0].value, any("main"));
}

#[test]
fn original_file_is_never_passed_unscanned() {
    let mut request = profile(&["main", "file", "label"]);
    request.dictionary.as_mut().unwrap().attribute_table[1].value = any("x");
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.original_payload_format = "jfr".to_owned();
    profile.original_payload = MAIL.into();
    for yaml in [
        "allow_all_keys: true",
        "{allow_all_keys: true, original_payload: redact, detectors: [email]}",
    ] {
        let (_, output) = run(yaml, &request);
        assert!(!has(&output, MAIL));
        assert!(!has(&output, "jfr"));
    }
}

const REDACT_ORIGINALS: &str = "{allow_all_keys: true, original_payload: redact, \
                                detectors: [{name: email, action: replace}]}";

/// Returns a profile without private data, with the pprof file of a profile whose function is in `source`.
fn with_file(source: &str) -> ExportProfilesServiceRequest {
    let mut request = profile(&["main", source, "label"]);
    request.dictionary.as_mut().unwrap().attribute_table[1].value = any("x");
    let mut dictionary = tributary_profiles::Dictionary::new();
    let encoded = request.encode_to_vec();
    let read = tributary_profiles::ingest::ingest(
        &encoded,
        &mut dictionary,
        &mut Default::default(),
        None,
    );
    let resources = read.unwrap().resources;
    let files = tributary_profiles::pprof::write::write(
        &dictionary,
        &resources[0],
        &resources[0].scopes[0],
        &Default::default(),
    );
    let mut request = profile(&["main", "file", "label"]);
    request.dictionary.as_mut().unwrap().attribute_table[1].value = any("x");
    *original(&mut request) = files[0].clone();
    request
}

fn original(request: &mut ExportProfilesServiceRequest) -> &mut Vec<u8> {
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    profile.original_payload_format = "pprof".to_owned();
    &mut profile.original_payload
}

#[test]
fn original_pprof_file_is_redacted_once() {
    let mut request = with_file("/src/jane@example.com/main.rs");
    assert!(has(original(&mut request), MAIL));
    let (_, output) = run(REDACT_ORIGINALS, &request);
    assert!(!has(&output, MAIL));
    let mut redacted = ExportProfilesServiceRequest::decode(output).unwrap();
    assert!(has(original(&mut redacted), "/src/[EMAIL]/main.rs"));
    let (once, twice) = run(REDACT_ORIGINALS, &redacted);
    assert_eq!(once, twice);
}

#[test]
fn clean_pprof_file_is_unchanged() {
    use std::io::Write;
    let clean = with_file("/src/main.rs");
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut request = clean.clone();
        change(original(&mut request));
        run(REDACT_ORIGINALS, &request)
    };
    let (before, after) = changed(&|_| {});
    assert_eq!(before, after);
    let (before, after) = changed(&|file| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(file).unwrap();
        *file = gzip.finish().unwrap();
    });
    assert_eq!(before, after);
    // An unreferenced string, and an unknown field.
    for field in [6, 99] {
        let hide =
            |file: &mut Vec<u8>| tributary_otlp::edit::put_delimited(field, MAIL.as_bytes(), file);
        let (_, after) = changed(&hide);
        assert!(!has(&after, MAIL));
        let mut once = ExportProfilesServiceRequest::decode(after).unwrap();
        assert!(has(original(&mut once), "/src/main.rs"));
    }
}

#[test]
fn overridden_original_file_is_removed() {
    let mut request = with_file("/src/main.rs");
    let field = |number: u32, body: &[u8]| {
        let mut field = Vec::new();
        tributary_otlp::edit::put_delimited(number, body, &mut field);
        field
    };
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    let mut twice = field(ORIGINAL_PAYLOAD, MAIL.as_bytes());
    twice.extend_from_slice(&profile.encode_to_vec());
    let mut bytes = field(1, &field(2, &field(2, &twice)));
    bytes.extend_from_slice(&field(2, &request.dictionary.unwrap().encode_to_vec()));
    assert!(has(&bytes, MAIL));
    let batch = Batch::new(Signal::Profiles, 1, Bytes::from(bytes));
    let output = processor(REDACT_ORIGINALS, Signal::Profiles).process(batch);
    let output = output.unwrap().unwrap().into_wire().to_bytes();
    assert!(!has(&output, MAIL));
}

/// `Profile.original_payload`
const ORIGINAL_PAYLOAD: u32 = 10;

#[test]
fn request_with_dangling_references_is_refused() {
    let mut request = profile(&["main", "file", "label"]);
    request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].stack_index = 9;
    let batch = Batch::new(Signal::Profiles, 1, Bytes::from(request.encode_to_vec()));
    let nack = processor(DETECT, Signal::Profiles)
        .process(batch)
        .unwrap_err();
    assert!(!nack.retryable);
    assert!(!nack.reason.contains(MAIL));
}

#[test]
fn unreferenced_secret_is_removed() {
    for yaml in [
        "{allow_all_keys: true, detectors: [email]}",
        "{allow_all_keys: true, detectors: [email], scan: [mapping_files]}",
        "{allow_all_keys: true, blocked_values: [jane]}",
    ] {
        let mut request = profile(&["main", "file", "label"]);
        let tables = request.dictionary.as_mut().unwrap();
        tables.attribute_table[1].value = any("x");
        tables.string_table.push(MAIL.to_owned());
        let (_, output) = run(yaml, &request);
        assert!(!has(&output, MAIL), "{yaml}");
        assert!(has(&output, "main"));
    }
}

#[test]
fn overridden_secret_is_removed() {
    let delimited = |number: u8, inside: &[u8]| {
        let length = u8::try_from(inside.len()).unwrap();
        [&[number << 3 | 2, length][..], inside].concat()
    };
    let value = |text: &str| delimited(2, &any(text).unwrap().encode_to_vec());
    let attribute = [delimited(1, b"key"), value(MAIL), value("clean")].concat();
    let resource = delimited(1, &delimited(1, &attribute));
    let request = profile(&["main", "file", "label"]).encode_to_vec();
    let request = Bytes::from([request, delimited(1, &resource)].concat());
    assert!(has(&request, MAIL));
    let batch = Batch::new(Signal::Profiles, 1, request);
    let output = processor(DETECT, Signal::Profiles).process(batch);
    let output = output.unwrap().unwrap().into_wire().to_bytes();
    assert!(!has(&output, MAIL));
    assert!(has(&output, "clean"));
}

#[test]
fn secret_at_index_0_is_removed() {
    let mut request = profile(&["main", "file", "label"]);
    let tables = request.dictionary.as_mut().unwrap();
    tables.attribute_table[1].value = any("x");
    tables.string_table[0] = MAIL.to_owned();
    let batch = Batch::new(Signal::Profiles, 1, Bytes::from(request.encode_to_vec()));
    if let Ok(output) = processor(DETECT, Signal::Profiles).process(batch) {
        assert!(!has(&output.unwrap().into_wire().to_bytes(), MAIL));
    }
}

#[test]
fn build_ids_stay_and_other_values_are_scanned() {
    let yaml = "{allowed_keys: [], detectors: [email, credit_card, phone]}";
    for (value, stays) in [
        ("4111111111111111", true),
        ("c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00", true),
        ("Zq1_abcdefghijklmnop/Zq1_abcdefghijklmnop", true),
        (MAIL, false),
        ("jane", false),
    ] {
        let key = tributary_profiles::names::BUILD_ID_GNU;
        let mut request = profile(&["main", "file", key]);
        let tables = request.dictionary.as_mut().unwrap();
        tables.attribute_table[1].value = any(value);
        let before = Bytes::from(request.encode_to_vec());
        let batch = Batch::new(Signal::Profiles, 1, before);
        let output = processor(yaml, Signal::Profiles).process(batch).unwrap();
        let output = output.unwrap().into_wire().to_bytes();
        assert_eq!(has(&output, value), stays, "{value}");
    }
}

/// A request with a secret in strings that these decisions choose: in any role, in several, and in none.
fn planted(entropy: &[u8]) -> ExportProfilesServiceRequest {
    let mut request = tributary_profiles::testing::request(entropy);
    let tables = request.dictionary.as_mut().unwrap();
    let mut choices = entropy.iter().rev();
    let mut chosen = || choices.next().is_some_and(|byte| byte % 3 == 0);
    for text in tables.string_table.iter_mut().skip(1) {
        if chosen() {
            text.push_str(&format!(" {MAIL}"));
        }
    }
    if chosen() {
        tables.string_table.push(MAIL.to_owned());
    }
    for attribute in &mut tables.attribute_table {
        if let Some(AnyValue {
            value: Some(Any::StringValue(text)),
        }) = &mut attribute.value
            && chosen()
        {
            text.push_str(&format!(" {MAIL}"));
        }
    }
    for resource in &mut request.resource_profiles {
        for scope in &mut resource.scope_profiles {
            if let Some(scope) = &mut scope.scope
                && chosen()
            {
                scope.name = MAIL.to_owned();
            }
        }
    }
    request
}

/// Returns the sum of a request's sample values and the number of its timestamps.
fn measured(request: &ExportProfilesServiceRequest) -> (i64, usize) {
    let scopes = request
        .resource_profiles
        .iter()
        .flat_map(|r| &r.scope_profiles);
    let samples = scopes.flat_map(|s| &s.profiles).flat_map(|p| &p.samples);
    samples.fold((0, 0), |(sum, count), sample| {
        let values = sample.values.iter().sum::<i64>();
        (sum + values, count + sample.timestamps_unix_nano.len())
    })
}

proptest::proptest! {
    #[test]
    fn planted_secrets_go_and_values_stay(
        entropy in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
    ) {
        let yaml = "{allow_all_keys: true, scan: [all], detectors: [{name: email, action: replace}]}";
        let request = planted(&entropy);
        let before = Bytes::from(request.encode_to_vec());
        let items = tributary_otlp::count(Signal::Profiles, &before);
        let processor = processor(yaml, Signal::Profiles);
        let output = processor.process(Batch::new(Signal::Profiles, items, before.clone()));
        let output = output.unwrap().unwrap();
        let after = output.wire().to_bytes();
        assert!(!has(&after, MAIL));
        assert_eq!(tributary_otlp::count(Signal::Profiles, &after), output.items());
        if !has(&before, MAIL) {
            assert_eq!(before.as_ptr(), after.as_ptr());
            return Ok(());
        }
        let decoded = ExportProfilesServiceRequest::decode(after.clone()).unwrap();
        let report = check::check(&decoded);
        // The entry was missing before, too.
        let mut found = report.findings().iter();
        assert!(
            found.all(|finding| finding.rule == check::Rule::BuildIdMissing),
            "{:?}", report.findings()
        );
        assert_eq!(measured(&decoded), measured(&request));
        let again = processor.process(output).unwrap().unwrap();
        assert_eq!(again.into_wire().to_bytes().as_ptr(), after.as_ptr());
    }

    #[test]
    fn counted_hits_leave_request_unchanged(
        entropy in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
    ) {
        let yaml = "{allow_all_keys: true, scan: [all], detectors: [email], mode: report}";
        let before = Bytes::from(planted(&entropy).encode_to_vec());
        let items = tributary_otlp::count(Signal::Profiles, &before);
        let batch = Batch::new(Signal::Profiles, items, before.clone());
        let output = processor(yaml, Signal::Profiles).process(batch).unwrap().unwrap();
        assert_eq!(output.into_wire().to_bytes().as_ptr(), before.as_ptr());
    }
}

#[test]
fn samples_differing_in_private_data_are_merged() {
    let mut request = profile(&["main", "file", "label"]);
    let tables = request.dictionary.as_mut().unwrap();
    let mut other = tables.attribute_table[1].clone();
    other.value = any("john@example.com");
    tables.attribute_table.push(other);
    let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
    let mut sample = profile.samples[0].clone();
    sample.attribute_indices = vec![2];
    sample.values = vec![7];
    profile.samples.push(sample);
    let (_, output) = run(DETECT, &request);
    let decoded = ExportProfilesServiceRequest::decode(output).unwrap();
    assert_eq!(measured(&decoded), (12, 0));
}

#[test]
fn profiles_are_taken_apart_only_where_rules_find_something() {
    let mut request = profile(&["main", "main.go", "label"]);
    // A request that has to be decoded is refused for this fault; other requests pass unchanged.
    request.resource_profiles[0].scope_profiles[0].profiles[0].samples[0].stack_index = 99;
    let before = Bytes::from(request.encode_to_vec());
    for (rules, acts) in [
        (
            "allow_all_keys: true, blocked_key_patterns: [nothing]",
            false,
        ),
        (
            "allow_all_keys: true, blocked_values: [nothing], summary: debug",
            false,
        ),
        ("allow_all_keys: true, redact_all_types: true", false),
        ("allowed_keys: [who, label]", false),
        (
            "allow_all_keys: true, ignored_keys: [label], summary: info",
            false,
        ),
        (
            "allow_all_keys: true, blocked_key_patterns: ['^who$']",
            true,
        ),
        (
            "allow_all_keys: true, blocked_key_patterns: ['^label$']",
            true,
        ),
        ("allow_all_keys: true, blocked_values: ['^main$']", true),
        ("allow_all_keys: true, blocked_values: ['^jane@']", true),
        ("allowed_keys: [who]", true),
        ("allowed_keys: [label]", true),
        (
            "allow_all_keys: true, ignored_keys: [who], summary: info",
            true,
        ),
        (
            "allow_all_keys: true, allowed_values: ['^main$'], summary: info",
            true,
        ),
    ] {
        let processor = processor(&format!("{{{rules}}}"), Signal::Profiles);
        let batch = Batch::new(Signal::Profiles, 1, before.clone());
        match processor.process(batch) {
            Ok(output) => {
                assert!(!acts, "{rules}");
                let output = output.unwrap().into_wire().to_bytes();
                assert_eq!(output.as_ptr(), before.as_ptr(), "{rules}");
            }
            Err(_) => assert!(acts, "{rules}"),
        }
    }
}
