//! Generated requests for tests. A small vocabulary gives many equal entries, duplicates and orphans, but no errors.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue,
};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Decisions read from bytes, so that proptest can shrink them. When the bytes are used up, every decision is 0.
struct Entropy<'e>(&'e [u8]);

impl Entropy<'_> {
    fn below(&mut self, bound: usize) -> usize {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                usize::from(*first) % bound
            }
            [] => 0,
        }
    }

    fn index(&mut self, len: usize) -> i32 {
        i32::try_from(self.below(len)).unwrap()
    }

    /// Returns an index other than 0, if the table has one.
    fn some(&mut self, len: usize) -> i32 {
        i32::try_from(1 + self.below(len - 1)).unwrap()
    }
}

const WORDS: [&str; 7] = ["main", "alloc", "run", "a.go", "b.go", "cpu", "bytes"];

/// Returns a valid request made by these decisions.
pub fn request(bytes: &[u8]) -> ExportProfilesServiceRequest {
    let entropy = &mut Entropy(bytes);
    let tables = dictionary(entropy);
    let resources = 1 + entropy.below(2);
    let resource_profiles = (0..resources).map(|_| resource(entropy, &tables)).collect();
    ExportProfilesServiceRequest {
        resource_profiles,
        dictionary: Some(tables),
    }
}

fn dictionary(entropy: &mut Entropy<'_>) -> proto::ProfilesDictionary {
    let mut tables = proto::ProfilesDictionary::default();
    tables.string_table.push(String::new());
    for _ in 0..6 + entropy.below(8) {
        let word = WORDS[entropy.below(WORDS.len())];
        tables.string_table.push(word.to_owned());
    }
    let strings = tables.string_table.len();
    tables.attribute_table.push(Default::default());
    for _ in 0..2 + entropy.below(5) {
        let value = value(entropy, strings);
        tables.attribute_table.push(proto::KeyValueAndUnit {
            key_strindex: entropy.some(strings),
            value: Some(AnyValue { value: Some(value) }),
            unit_strindex: entropy.index(strings),
        });
    }
    tables.mapping_table.push(Default::default());
    for _ in 0..1 + entropy.below(3) {
        let memory_start = 0x10000 * (1 + entropy.below(4) as u64);
        let mapping = proto::Mapping {
            memory_start,
            memory_limit: memory_start + 0x1000 * (1 + entropy.below(2) as u64),
            file_offset: 0x1000 * entropy.below(2) as u64,
            filename_strindex: entropy.some(strings),
            attribute_indices: attributes(entropy, &tables),
        };
        tables.mapping_table.push(mapping);
    }
    tables.function_table.push(Default::default());
    for _ in 0..1 + entropy.below(6) {
        tables.function_table.push(proto::Function {
            name_strindex: entropy.some(strings),
            system_name_strindex: entropy.index(strings),
            filename_strindex: entropy.index(strings),
            start_line: entropy.below(3) as i64,
        });
    }
    tables.location_table.push(Default::default());
    for _ in 0..1 + entropy.below(8) {
        let mapping_index = entropy.index(tables.mapping_table.len());
        let start = tables.mapping_table[mapping_index as usize].memory_start;
        let lines = (0..entropy.below(3)).map(|_| proto::Line {
            function_index: entropy.some(tables.function_table.len()),
            line: entropy.below(3) as i64,
            column: entropy.below(2) as i64,
        });
        let location = proto::Location {
            mapping_index,
            lines: lines.collect(),
            address: start + 1 + entropy.below(4) as u64,
            attribute_indices: attributes(entropy, &tables),
        };
        tables.location_table.push(location);
    }
    tables.link_table.push(match entropy.below(2) {
        0 => Default::default(),
        _ => proto::Link {
            trace_id: vec![0; 16],
            span_id: vec![0; 8],
        },
    });
    for _ in 0..entropy.below(3) {
        tables.link_table.push(proto::Link {
            trace_id: vec![1 + entropy.below(2) as u8; 16],
            span_id: vec![1 + entropy.below(2) as u8; 8],
        });
    }
    tables.stack_table.push(Default::default());
    for _ in 0..1 + entropy.below(6) {
        let depth = 1 + entropy.below(6);
        let location_indices = (0..depth).map(|_| entropy.some(tables.location_table.len()));
        let location_indices = location_indices.collect();
        tables.stack_table.push(proto::Stack { location_indices });
    }
    tables
}

fn value(entropy: &mut Entropy<'_>, strings: usize) -> Value {
    match entropy.below(5) {
        0 => Value::StringValue(WORDS[entropy.below(WORDS.len())].to_owned()),
        1 => Value::StringValueStrindex(entropy.index(strings)),
        2 => Value::IntValue(entropy.below(3) as i64),
        3 => Value::BoolValue(entropy.below(2) == 1),
        _ => Value::ArrayValue(ArrayValue {
            values: vec![
                AnyValue {
                    value: Some(Value::StringValueStrindex(entropy.index(strings))),
                },
                AnyValue::default(),
            ],
        }),
    }
}

fn attributes(entropy: &mut Entropy<'_>, tables: &proto::ProfilesDictionary) -> Vec<i32> {
    let mut list: Vec<i32> = Vec::new();
    let key = |index: i32| {
        let key = tables.attribute_table[index as usize].key_strindex;
        &tables.string_table[key as usize]
    };
    for _ in 0..entropy.below(4) {
        let index = entropy.some(tables.attribute_table.len());
        if list.iter().all(|other| key(*other) != key(index)) {
            list.push(index);
        }
    }
    list
}

fn resource(
    entropy: &mut Entropy<'_>,
    tables: &proto::ProfilesDictionary,
) -> proto::ResourceProfiles {
    let strings = tables.string_table.len();
    let by_reference = entropy.below(2) == 1;
    let attribute = KeyValue {
        key: if by_reference { "" } else { "main" }.to_owned(),
        key_strindex: if by_reference {
            entropy.some(strings)
        } else {
            0
        },
        value: Some(AnyValue {
            value: Some(value(entropy, strings)),
        }),
    };
    let scopes = 1 + entropy.below(2);
    proto::ResourceProfiles {
        resource: Some(Resource {
            attributes: vec![attribute],
            ..Default::default()
        }),
        scope_profiles: (0..scopes).map(|_| scope(entropy, tables)).collect(),
        schema_url: String::new(),
    }
}

fn scope(entropy: &mut Entropy<'_>, tables: &proto::ProfilesDictionary) -> proto::ScopeProfiles {
    let profiles = 1 + entropy.below(3);
    proto::ScopeProfiles {
        scope: Some(InstrumentationScope {
            name: WORDS[entropy.below(2)].to_owned(),
            ..Default::default()
        }),
        profiles: (0..profiles).map(|_| profile(entropy, tables)).collect(),
        schema_url: String::new(),
    }
}

fn profile(entropy: &mut Entropy<'_>, tables: &proto::ProfilesDictionary) -> proto::Profile {
    let strings = tables.string_table.len();
    let shape = entropy.below(3);
    let sample_type = Some(proto::ValueType {
        type_strindex: entropy.some(strings),
        unit_strindex: entropy.some(strings),
    });
    let samples = (0..1 + entropy.below(8)).map(|_| {
        let count = match shape {
            0 => 1,
            _ => 1 + entropy.below(3),
        };
        proto::Sample {
            stack_index: entropy.index(tables.stack_table.len()),
            attribute_indices: attributes(entropy, tables),
            link_index: entropy.index(tables.link_table.len()),
            values: (0..if shape == 1 { 0 } else { count })
                .map(|_| entropy.below(9) as i64 - 2)
                .collect(),
            timestamps_unix_nano: (0..if shape == 0 { 0 } else { count })
                .map(|_| 1000 + entropy.below(100) as u64)
                .collect(),
        }
    });
    proto::Profile {
        sample_type,
        samples: samples.collect(),
        time_unix_nano: 1000,
        duration_nano: 100,
        period_type: sample_type,
        period: entropy.below(2) as i64,
        profile_id: match entropy.below(3) {
            0 => vec![7; 16],
            _ => Vec::new(),
        },
        attribute_indices: attributes(entropy, tables),
        ..Default::default()
    }
}
