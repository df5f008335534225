use std::collections::BTreeSet;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::*;
use crate::names;
use crate::references;

type Request = ExportProfilesServiceRequest;

fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn text(text: &str) -> AnyValue {
    any(Value::StringValue(text.to_owned()))
}

fn attribute(key_strindex: i32, value: AnyValue) -> proto::KeyValueAndUnit {
    proto::KeyValueAndUnit {
        key_strindex,
        value: Some(value),
        unit_strindex: 0,
    }
}

fn key_value(key: &str, value: AnyValue) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(value),
        key_strindex: 0,
    }
}

/// Returns a request that satisfies every rule and contains every kind of content.
fn good() -> Request {
    let strings = [
        "",
        "cpu",
        "nanoseconds",
        "main",
        "/bin/main",
        names::BUILD_ID_GNU,
        "thread",
        "host",
        "db-1",
        "worker",
    ];
    let dictionary = proto::ProfilesDictionary {
        string_table: strings.map(str::to_owned).to_vec(),
        attribute_table: vec![
            proto::KeyValueAndUnit::default(),
            attribute(5, text("0123456789abcdef")),
            attribute(6, any(Value::StringValueStrindex(9))),
        ],
        mapping_table: vec![
            proto::Mapping::default(),
            proto::Mapping {
                memory_start: 0x1000,
                memory_limit: 0x2000,
                file_offset: 0,
                filename_strindex: 4,
                attribute_indices: vec![1],
            },
        ],
        function_table: vec![
            proto::Function::default(),
            proto::Function {
                name_strindex: 3,
                ..Default::default()
            },
        ],
        location_table: vec![
            proto::Location::default(),
            proto::Location {
                mapping_index: 1,
                address: 0x1234,
                lines: vec![proto::Line {
                    function_index: 1,
                    line: 7,
                    column: 0,
                }],
                attribute_indices: vec![],
            },
        ],
        link_table: vec![
            proto::Link::default(),
            proto::Link {
                trace_id: vec![1; 16],
                span_id: vec![2; 8],
            },
        ],
        stack_table: vec![
            proto::Stack::default(),
            proto::Stack {
                location_indices: vec![1],
            },
        ],
    };
    let kind = Some(proto::ValueType {
        type_strindex: 1,
        unit_strindex: 2,
    });
    let sample = |attribute_indices, link_index| proto::Sample {
        stack_index: 1,
        attribute_indices,
        link_index,
        values: vec![5],
        timestamps_unix_nano: vec![],
    };
    let profile = proto::Profile {
        sample_type: kind,
        samples: vec![sample(vec![2], 1), sample(vec![], 0)],
        time_unix_nano: 100,
        duration_nano: 50,
        period_type: kind,
        period: 10,
        profile_id: vec![3; 16],
        original_payload_format: "pprof".to_owned(),
        original_payload: vec![1],
        ..Default::default()
    };
    Request {
        dictionary: Some(dictionary),
        resource_profiles: vec![proto::ResourceProfiles {
            resource: Some(Resource {
                attributes: vec![KeyValue {
                    key_strindex: 7,
                    value: Some(any(Value::StringValueStrindex(8))),
                    key: String::new(),
                }],
                ..Default::default()
            }),
            scope_profiles: vec![proto::ScopeProfiles {
                scope: Some(InstrumentationScope {
                    name: "test".to_owned(),
                    attributes: vec![key_value(names::DEFAULT_SAMPLE_TYPE, text("cpu"))],
                    ..Default::default()
                }),
                profiles: vec![profile],
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
}

fn tables(request: &mut Request) -> &mut proto::ProfilesDictionary {
    request.dictionary.as_mut().unwrap()
}

fn resource(request: &mut Request) -> &mut Vec<KeyValue> {
    let resource = request.resource_profiles[0].resource.as_mut().unwrap();
    &mut resource.attributes
}

fn profile(request: &mut Request) -> &mut proto::Profile {
    &mut request.resource_profiles[0].scope_profiles[0].profiles[0]
}

fn sample(request: &mut Request) -> &mut proto::Sample {
    &mut profile(request).samples[0]
}

const PROFILE: &str = "resource_profiles[0].scope_profiles[0].profiles[0]";

/// A rule, the path of its violation (`P` stands for the profile), and the change that violates it.
type Defect = (Rule, &'static str, fn(&mut Request));

#[rustfmt::skip]
const DEFECTS: &[Defect] = &[
    (Rule::ZeroValue, "dictionary.string_table[0]", |r| tables(r).string_table[0] = "x".to_owned()),
    (Rule::ZeroValue, "dictionary.attribute_table[0]", |r| tables(r).attribute_table[0].unit_strindex = 2),
    (Rule::ZeroValue, "dictionary.mapping_table[0]", |r| tables(r).mapping_table[0].file_offset = 1),
    (Rule::ZeroValue, "dictionary.function_table[0]", |r| tables(r).function_table[0].start_line = 1),
    (Rule::ZeroValue, "dictionary.location_table[0]", |r| tables(r).location_table[0].address = 1),
    (Rule::ZeroValue, "dictionary.link_table[0]", |r| tables(r).link_table[0].span_id = vec![1; 8]),
    (Rule::ZeroValue, "dictionary.stack_table[0]", |r| tables(r).stack_table[0].location_indices.push(1)),
    (Rule::ZeroValue, "dictionary.link_table", |r| tables(r).link_table.clear()),
    (Rule::ZeroValue, "dictionary.stack_table", |r| r.dictionary = None),
    (Rule::IndexOutOfRange, "dictionary.attribute_table[2].key_strindex", |r| tables(r).attribute_table[2].key_strindex = 99),
    (Rule::IndexOutOfRange, "dictionary.attribute_table[2].unit_strindex", |r| tables(r).attribute_table[2].unit_strindex = -1),
    (Rule::IndexOutOfRange, "dictionary.attribute_table[2].value.string_value_strindex", |r| tables(r).attribute_table[2].value = Some(any(Value::StringValueStrindex(99)))),
    (Rule::IndexOutOfRange, "dictionary.mapping_table[1].filename_strindex", |r| tables(r).mapping_table[1].filename_strindex = 99),
    (Rule::IndexOutOfRange, "dictionary.mapping_table[1].attribute_indices[1]", |r| tables(r).mapping_table[1].attribute_indices.push(99)),
    (Rule::IndexOutOfRange, "dictionary.function_table[1].system_name_strindex", |r| tables(r).function_table[1].system_name_strindex = 99),
    (Rule::IndexOutOfRange, "dictionary.location_table[1].mapping_index", |r| tables(r).location_table[1].mapping_index = 9),
    (Rule::IndexOutOfRange, "dictionary.location_table[1].attribute_indices[0]", |r| tables(r).location_table[1].attribute_indices.push(i32::MIN)),
    (Rule::IndexOutOfRange, "dictionary.location_table[1].lines[0].function_index", |r| tables(r).location_table[1].lines[0].function_index = 9),
    (Rule::IndexOutOfRange, "dictionary.stack_table[1].location_indices[1]", |r| tables(r).stack_table[1].location_indices.push(i32::MAX)),
    (Rule::IndexOutOfRange, "P.samples[0].stack_index", |r| sample(r).stack_index = 9),
    (Rule::IndexOutOfRange, "P.samples[0].link_index", |r| sample(r).link_index = 9),
    (Rule::IndexOutOfRange, "P.samples[0].attribute_indices[1]", |r| sample(r).attribute_indices.push(9)),
    (Rule::IndexOutOfRange, "P.attribute_indices[0]", |r| profile(r).attribute_indices.push(9)),
    (Rule::IndexOutOfRange, "P.sample_type.unit_strindex", |r| profile(r).sample_type.as_mut().unwrap().unit_strindex = 99),
    (Rule::IndexOutOfRange, "P.period_type.type_strindex", |r| profile(r).period_type.as_mut().unwrap().type_strindex = 99),
    (Rule::IndexOutOfRange, "resource_profiles[0].resource.attributes[0].key_strindex", |r| resource(r)[0].key_strindex = 99),
    (Rule::IndexOutOfRange, "resource_profiles[0].resource.attributes[0].value.string_value_strindex", |r| resource(r)[0].value = Some(any(Value::StringValueStrindex(99)))),
    (Rule::DuplicateKey, "P.samples[0].attribute_indices[1]", |r| {
        tables(r).attribute_table.push(attribute(6, text("other")));
        sample(r).attribute_indices.push(3);
    }),
    (Rule::DuplicateKeyValue, "resource_profiles[0].resource.attributes[1]", |r| resource(r).push(key_value("host", text("other")))),
    (Rule::DuplicateKeyValue, "resource_profiles[0].resource.attributes[0].value.kvlist_value.values[1]", |r| {
        let values = vec![key_value("a", text("1")), key_value("a", text("2"))];
        resource(r)[0].value = Some(any(Value::KvlistValue(KeyValueList { values })));
    }),
    (Rule::EmptyKey, "dictionary.attribute_table[2].key_strindex", |r| tables(r).attribute_table[2].key_strindex = 0),
    (Rule::EmptyKey, "resource_profiles[0].resource.attributes[0]", |r| resource(r)[0].key_strindex = 0),
    (Rule::KeyAndReference, "resource_profiles[0].resource.attributes[0]", |r| resource(r)[0].key = "host".to_owned()),
    (Rule::Expansion, "dictionary.attribute_table[4]", |r| {
        tables(r).string_table[9] = "x".repeat(references::LIMIT / 2);
        for _ in 0..2 {
            tables(r).attribute_table.push(attribute(6, any(Value::StringValueStrindex(9))));
        }
    }),
    (Rule::NoObservations, "P.samples[0]", |r| sample(r).values.clear()),
    (Rule::UnequalObservations, "P.samples[0]", |r| sample(r).timestamps_unix_nano = vec![100, 101]),
    (Rule::ProfileId, "P.profile_id", |r| profile(r).profile_id.push(3)),
    (Rule::ProfileId, "P.profile_id", |r| profile(r).profile_id.fill(0)),
    (Rule::OriginalPayload, "P", |r| profile(r).original_payload.clear()),
    (Rule::OriginalPayload, "P", |r| profile(r).original_payload_format.clear()),
    (Rule::NamelessFunction, "dictionary.function_table[1]", |r| tables(r).function_table[1].name_strindex = 0),
    (Rule::NegativeNumber, "dictionary.function_table[1].start_line", |r| tables(r).function_table[1].start_line = -1),
    (Rule::NegativeNumber, "dictionary.location_table[1].lines[0].line", |r| tables(r).location_table[1].lines[0].line = -1),
    (Rule::NegativeNumber, "dictionary.location_table[1].lines[0].column", |r| tables(r).location_table[1].lines[0].column = -1),
    (Rule::NegativeNumber, "P.period", |r| profile(r).period = -1),
    (Rule::MappingRange, "dictionary.mapping_table[1]", |r| tables(r).mapping_table[1].memory_limit = 0x1000),
    (Rule::MappingRange, "dictionary.mapping_table[1]", |r| tables(r).mapping_table[1].memory_limit = 0),
    (Rule::LinkLength, "dictionary.link_table[1].trace_id", |r| tables(r).link_table[1].trace_id.truncate(8)),
    (Rule::LinkLength, "dictionary.link_table[1].span_id", |r| tables(r).link_table[1].span_id.clear()),
    (Rule::ZeroLinkId, "dictionary.link_table[1].trace_id", |r| tables(r).link_table[1].trace_id.fill(0)),
    (Rule::ScopeOnly, "dictionary.attribute_table[2]", |r| tables(r).string_table[6] = names::DEFAULT_SAMPLE_TYPE.to_owned()),
    (Rule::ScopeOnly, "resource_profiles[0].resource.attributes[0]", |r| tables(r).string_table[7] = names::SAMPLE_TYPE_ORDER.to_owned()),
    (Rule::AttributeType, "dictionary.attribute_table[1]", |r| tables(r).attribute_table[1].value = Some(any(Value::IntValue(1)))),
    (Rule::AttributeType, "dictionary.attribute_table[2]", |r| tables(r).string_table[6] = names::IS_FOLDED.to_owned()),
    (Rule::AttributeType, "dictionary.attribute_table[2]", |r| tables(r).string_table[6] = names::COMMENT.to_owned()),
    (Rule::BuildIdMissing, "dictionary.mapping_table[1]", |r| tables(r).mapping_table[1].attribute_indices.clear()),
    (Rule::BuildIdFormat, "dictionary.attribute_table[1]", |r| tables(r).attribute_table[1].value = Some(text("ABC"))),
    (Rule::BuildIdFormat, "dictionary.attribute_table[1]", |r| tables(r).string_table[5] = names::BUILD_ID_HTLHASH.to_owned()),
    (Rule::AddressOutsideMapping, "dictionary.location_table[1].address", |r| tables(r).location_table[1].address = 0x2001),
    (Rule::TimestampOutsideProfile, "P.samples[0].timestamps_unix_nano[0]", |r| sample(r).timestamps_unix_nano.push(150)),
    (Rule::TimestampOutsideProfile, "P.samples[0].timestamps_unix_nano[0]", |r| sample(r).timestamps_unix_nano.push(99)),
    (Rule::TimeOverflow, "P.duration_nano", |r| profile(r).duration_nano = u64::MAX),
    (Rule::SampleShape, "P.samples[1]", |r| sample(r).timestamps_unix_nano.push(100)),
    (Rule::SampleShape, "P.samples[0].values", |r| sample(r).values.push(1)),
    (Rule::DuplicateSample, "P.samples[2]", |r| {
        let again = sample(r).clone();
        profile(r).samples.push(again);
    }),
    (Rule::DuplicateEntry, "dictionary.string_table[10]", |r| tables(r).string_table.push("cpu".to_owned())),
    (Rule::DuplicateEntry, "dictionary.string_table[10]", |r| tables(r).string_table.push(String::new())),
    (Rule::DuplicateEntry, "dictionary.attribute_table[3]", |r| tables(r).attribute_table.push(attribute(6, text("worker")))),
    (Rule::DuplicateEntry, "dictionary.function_table[2]", |r| {
        tables(r).string_table.push("main".to_owned());
        tables(r).function_table.push(proto::Function { name_strindex: 10, ..Default::default() });
    }),
    (Rule::DuplicateEntry, "dictionary.link_table[2]", |r| {
        let again = tables(r).link_table[1].clone();
        tables(r).link_table.push(again);
    }),
    (Rule::DuplicateEntry, "dictionary.stack_table[2]", |r| {
        let again = tables(r).location_table[1].clone();
        tables(r).location_table.push(again);
        tables(r).stack_table.push(proto::Stack { location_indices: vec![2] });
    }),
    (Rule::Orphan, "dictionary.string_table[10]", |r| tables(r).string_table.push("unused".to_owned())),
    (Rule::Orphan, "dictionary.link_table[1]", |r| sample(r).link_index = 0),
    // Only an unreferenced stack refers to the location.
    (Rule::Orphan, "dictionary.location_table[1]", |r| profile(r).samples.iter_mut().for_each(|s| s.stack_index = 0)),
    (Rule::Orphan, "dictionary.string_table[4]", |r| profile(r).samples.iter_mut().for_each(|s| s.stack_index = 0)),
    (Rule::NullInList, "dictionary.stack_table[1].location_indices[1]", |r| tables(r).stack_table[1].location_indices.push(0)),
    (Rule::NullInList, "dictionary.location_table[1].lines[0].function_index", |r| tables(r).location_table[1].lines[0].function_index = 0),
    (Rule::NullInList, "P.samples[1].attribute_indices[0]", |r| profile(r).samples[1].attribute_indices.push(0)),
    (Rule::Empty, "resource_profiles", |r| r.resource_profiles.clear()),
    (Rule::Empty, "resource_profiles[0].scope_profiles", |r| r.resource_profiles[0].scope_profiles.clear()),
    (Rule::Empty, "resource_profiles[0].scope_profiles[0].profiles", |r| r.resource_profiles[0].scope_profiles[0].profiles.clear()),
    (Rule::Empty, "P.samples", |r| profile(r).samples.clear()),
    (Rule::SampleTypeMissing, "P.sample_type", |r| profile(r).sample_type = None),
    (Rule::PeriodTypeMissing, "P.period_type", |r| profile(r).period_type = None),
];

#[test]
fn valid_request_breaks_no_rule() {
    let mut request = good();
    assert_eq!(check(&request).findings(), []);
    tables(&mut request).link_table[0] = proto::Link {
        trace_id: vec![0; 16],
        span_id: vec![0; 8],
    };
    assert!(check(&request).is_clean());
    // Some senders write an empty value, which counts as no value.
    tables(&mut request).attribute_table[0].value = Some(AnyValue::default());
    assert!(check(&request).is_clean());
}

#[test]
fn line_of_unknown_code_needs_no_function() {
    for (mapping, address, good_so) in [(0, 0, true), (0, u64::MAX, true), (1, u64::MAX, false)] {
        let mut request = good();
        let location = proto::Location {
            mapping_index: mapping,
            address,
            lines: vec![proto::Line::default()],
            ..proto::Location::default()
        };
        let at = i32::try_from(tables(&mut request).location_table.len()).unwrap();
        tables(&mut request).location_table.push(location);
        tables(&mut request).stack_table[1]
            .location_indices
            .push(at);
        let report = check(&request);
        let found = report.findings().iter();
        let lines = found.filter(|found| found.rule == Rule::NullInList);
        assert_eq!(lines.count() == 0, good_so, "{mapping} {address:#x}");
    }
}

#[test]
fn each_defect_is_found_at_its_position() {
    for (rule, path, plant) in DEFECTS {
        let mut request = good();
        plant(&mut request);
        let report = check(&request);
        let path = path.replacen('P', PROFILE, usize::from(path.starts_with('P')));
        let found = |found: &Finding| found.rule == *rule && found.path == path;
        assert!(
            report.findings().iter().any(found),
            "{} at {path} is not in {:#?}",
            rule.name(),
            report.findings()
        );
        assert!(report.count(rule.severity()) > 0);
    }
}

#[test]
fn every_rule_has_a_defect_and_a_unique_name() {
    let planted: BTreeSet<Rule> = DEFECTS.iter().map(|(rule, _, _)| *rule).collect();
    assert_eq!(planted, Rule::ALL.iter().copied().collect());
    let names: BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(names.len(), Rule::ALL.len());
}

#[test]
fn repeated_findings_are_counted_and_bounded() {
    let mut request = good();
    let many = vec![sample(&mut request).clone(); 1000];
    profile(&mut request).samples = many;
    let report = check(&request);
    assert_eq!(report.counts()[&Rule::DuplicateSample], 999);
    let quoted = report.findings().iter();
    let quoted = quoted.filter(|found| found.rule == Rule::DuplicateSample);
    assert_eq!(quoted.count(), FINDINGS_PER_RULE);
}

#[test]
fn finding_prints_path_detail_and_rule() {
    let mut request = good();
    tables(&mut request).location_table[1].mapping_index = 9;
    let findings = check(&request).findings().to_vec();
    assert_eq!(
        findings[0].to_string(),
        "dictionary.location_table[1].mapping_index: is 9, but mapping_table has 2 entries \
         [index-out-of-range]"
    );
}
