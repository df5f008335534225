use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::names::{
    BUILD_ID_GNU, BUILD_ID_GO, HAS_FILENAMES, HAS_FUNCTIONS, HAS_INLINE_FRAMES, HAS_LINE_NUMBERS,
};
use crate::testing::request;

fn attribute(key: i32, value: any_value::Value) -> proto::KeyValueAndUnit {
    proto::KeyValueAndUnit {
        key_strindex: key,
        value: Some(AnyValue { value: Some(value) }),
        unit_strindex: 0,
    }
}

fn location(mapping: i32, address: u64) -> proto::Location {
    proto::Location {
        mapping_index: mapping,
        address,
        ..proto::Location::default()
    }
}

/// Returns three mappings: one whose build id comes with the flag "no functions", one without a build id, one
/// whose build id is a reference.
fn dictionary() -> proto::ProfilesDictionary {
    let strings = [
        "",
        BUILD_ID_GNU,
        HAS_FUNCTIONS,
        "main",
        "main.c",
        "c0ffee00",
    ];
    let mapping = |attributes: &[i32]| proto::Mapping {
        memory_start: 0x1000,
        memory_limit: 0x2000,
        file_offset: 0x100,
        attribute_indices: attributes.to_vec(),
        ..proto::Mapping::default()
    };
    let line = proto::Line {
        function_index: 1,
        line: 7,
        column: 0,
    };
    proto::ProfilesDictionary {
        string_table: strings.map(str::to_owned).to_vec(),
        attribute_table: vec![
            proto::KeyValueAndUnit::default(),
            attribute(1, any_value::Value::StringValue("deadbeef".to_owned())),
            attribute(2, any_value::Value::BoolValue(false)),
            attribute(1, any_value::Value::StringValueStrindex(5)),
        ],
        mapping_table: vec![
            proto::Mapping::default(),
            mapping(&[1, 2]),
            mapping(&[2]),
            mapping(&[3]),
        ],
        function_table: vec![
            proto::Function::default(),
            proto::Function {
                name_strindex: 3,
                system_name_strindex: 3,
                filename_strindex: 4,
                start_line: 5,
            },
        ],
        location_table: vec![
            proto::Location::default(),
            location(1, 0x1030),
            location(1, 0x1010),
            proto::Location {
                lines: vec![line],
                ..location(1, 0x1020)
            },
            location(2, 0x1010),
            location(3, 0x1010),
            location(0, 0x1010),
            location(99, 0x1010),
        ],
        ..proto::ProfilesDictionary::default()
    }
}

fn encoded(dictionary: proto::ProfilesDictionary) -> Vec<u8> {
    let request = ExportProfilesServiceRequest {
        dictionary: Some(dictionary),
        ..ExportProfilesServiceRequest::default()
    };
    request.encode_to_vec()
}

type Frame = (NamedFunction<'static>, u32, u32);

const MAIN: Frame = (
    NamedFunction {
        name: "main",
        system_name: "main",
        file: "main.c",
        start_line: 5,
    },
    9,
    3,
);
const INLINED: Frame = (
    NamedFunction {
        name: "f<int>",
        system_name: "_Z1fIiEvv",
        file: "f.h",
        start_line: 1,
    },
    2,
    0,
);

fn mappings(unnamed: &UnsymbolizedLocations) -> impl Iterator<Item = &UnsymbolizedMapping> {
    unnamed.binaries.iter().flat_map(|binary| &binary.mappings)
}

fn mapping(unnamed: &UnsymbolizedLocations, at: usize) -> &UnsymbolizedMapping {
    mappings(unnamed).nth(at).unwrap()
}

fn name(
    naming: &mut RequestSymbolizer<'_>,
    mapping: &UnsymbolizedMapping,
    location: usize,
    frames: &[Frame],
) -> bool {
    let frames: Vec<_> = frames
        .iter()
        .map(|(function, line, column)| NamedLine {
            function: naming.function(function),
            line: *line,
            column: *column,
        })
        .collect();
    naming.name(mapping, location, frames)
}

#[test]
fn named_locations_and_missing_build_ids_are_skipped() {
    let request = encoded(dictionary());
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let found: Vec<_> = unnamed
        .binaries
        .iter()
        .map(|binary| {
            let build_id = binary.gnu_build_id.as_deref();
            (build_id, binary.mappings[0].locations.clone())
        })
        .collect();
    assert_eq!(
        found,
        [
            (Some("deadbeef"), vec![(0x1010, 2), (0x1030, 1)]),
            (Some("c0ffee00"), vec![(0x1010, 5)]),
        ]
    );
    assert_eq!(unnamed.without_build_id, 3);
    let first = mapping(&unnamed, 0);
    assert_eq!((first.memory_start, first.memory_limit), (0x1000, 0x2000));
    assert_eq!(first.file_offset, 0x100);
}

#[test]
fn naming_reuses_entries_and_changes_nothing_else() {
    let before = dictionary();
    let request = encoded(before.clone());
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let mut naming = RequestSymbolizer::new(&request).unwrap();
    assert!(name(&mut naming, mapping(&unnamed, 0), 1, &[INLINED, MAIN]));
    assert!(name(&mut naming, mapping(&unnamed, 0), 2, &[MAIN]));
    assert!(
        !name(&mut naming, mapping(&unnamed, 1), 5, &[]),
        "it is unknown"
    );
    let written = naming.write().unwrap();
    let written = ExportProfilesServiceRequest::decode(written).unwrap();
    let after = written.dictionary.unwrap();

    let mut expected = before;
    let strings = ["f<int>", "_Z1fIiEvv", "f.h"].map(str::to_owned);
    expected.string_table.extend(strings);
    let flags = [HAS_FILENAMES, HAS_INLINE_FRAMES, HAS_LINE_NUMBERS].map(str::to_owned);
    expected.string_table.extend(flags);
    expected.function_table.push(proto::Function {
        name_strindex: 6,
        system_name_strindex: 7,
        filename_strindex: 8,
        start_line: 1,
    });
    let line = |function_index, line, column| proto::Line {
        function_index,
        line,
        column,
    };
    expected.location_table[1].lines = vec![line(2, 2, 0), line(1, 9, 3)];
    expected.location_table[2].lines = vec![line(1, 9, 3)];
    let mut tail = after.string_table[9..].to_vec();
    tail.sort_unstable();
    assert_eq!(tail, expected.string_table[9..]);
    expected.string_table = after.string_table.clone();
    let key = |index: &i32| {
        let attribute = &after.attribute_table[*index as usize];
        let key = after.string_table[attribute.key_strindex as usize].as_str();
        (key, attribute.value.clone().unwrap().value.unwrap())
    };
    let indices = &after.mapping_table[1].attribute_indices;
    let mut attributes: Vec<_> = indices[1..].iter().map(key).collect();
    attributes.sort_by_key(|(key, _)| *key);
    let yes = any_value::Value::BoolValue(true);
    let flags = [
        HAS_FILENAMES,
        HAS_FUNCTIONS,
        HAS_INLINE_FRAMES,
        HAS_LINE_NUMBERS,
    ];
    assert_eq!(attributes, flags.map(|key| (key, yes.clone())));
    assert_eq!(indices[0], 1, "the build id stays");
    expected.mapping_table[1].attribute_indices = indices.clone();
    expected.attribute_table = after.attribute_table.clone();
    assert_eq!(after, expected);
}

#[test]
fn empty_tables_get_a_zero_entry() {
    let before = proto::ProfilesDictionary {
        location_table: dictionary().location_table[..2].to_vec(),
        mapping_table: dictionary().mapping_table[..2].to_vec(),
        string_table: dictionary().string_table,
        attribute_table: dictionary().attribute_table,
        ..proto::ProfilesDictionary::default()
    };
    let request = encoded(before);
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let mut naming = RequestSymbolizer::new(&request).unwrap();
    name(&mut naming, mapping(&unnamed, 0), 1, &[MAIN]);
    let written = naming.write().unwrap();
    let written = ExportProfilesServiceRequest::decode(written).unwrap();
    let after = written.dictionary.unwrap();
    assert_eq!(after.function_table[0], proto::Function::default());
    assert_eq!(after.location_table[1].lines[0].function_index, 1);
}

#[test]
fn dangling_index_does_not_hit_added_entries() {
    type Change = fn(&mut proto::ProfilesDictionary);
    let changes: [Change; 5] = [
        |tables| tables.mapping_table[2].filename_strindex = 6,
        |tables| tables.mapping_table[2].attribute_indices.push(4),
        |tables| tables.location_table[3].lines[0].function_index = 2,
        |tables| tables.function_table[1].filename_strindex = 6,
        |tables| tables.attribute_table[1].unit_strindex = -1,
    ];
    for change in changes {
        let mut tables = dictionary();
        change(&mut tables);
        let request = encoded(tables);
        let refused = UnsymbolizedLocations::read(&request).map(|unnamed| unnamed.unnamed());
        assert!(
            matches!(refused, Err(ProfileFault::Dangling { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn several_dictionaries_are_merged() {
    let whole = dictionary();
    let first = proto::ProfilesDictionary {
        location_table: whole.location_table[..2].to_vec(),
        string_table: whole.string_table[..3].to_vec(),
        ..proto::ProfilesDictionary::default()
    };
    let second = proto::ProfilesDictionary {
        location_table: whole.location_table[2..].to_vec(),
        string_table: whole.string_table[3..].to_vec(),
        ..whole
    };
    let request = [encoded(first), encoded(second)].concat();
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let mut naming = RequestSymbolizer::new(&request).unwrap();
    name(&mut naming, mapping(&unnamed, 0), 1, &[INLINED]);
    name(&mut naming, mapping(&unnamed, 0), 2, &[MAIN]);
    let written = naming.write().unwrap();
    let written = ExportProfilesServiceRequest::decode(written).unwrap();
    let after = written.dictionary.unwrap();
    let name = |location: usize| {
        let line = &after.location_table[location].lines[0];
        let function = &after.function_table[line.function_index as usize];
        after.string_table[function.name_strindex as usize].as_str()
    };
    assert_eq!((name(1), name(2)), ("f<int>", "main"));
}

/// Returns a request of about 16 MB with `mappings` mappings of one location each.
fn large(
    strings: Vec<String>,
    attributes: Vec<proto::KeyValueAndUnit>,
    mappings: i32,
    of_each: &[i32],
) -> Vec<u8> {
    let mapping = |_| proto::Mapping {
        attribute_indices: of_each.to_vec(),
        ..proto::Mapping::default()
    };
    encoded(proto::ProfilesDictionary {
        string_table: strings,
        attribute_table: attributes,
        mapping_table: (0..=mappings).map(mapping).collect(),
        location_table: (0..=mappings).map(|at| location(at, 0x1010)).collect(),
        ..proto::ProfilesDictionary::default()
    })
}

/// Guards against quadratic behaviour: each case took minutes or gigabytes when long content was read once
/// per reference.
#[test]
fn repeated_references_are_read_once() {
    let long = "f".repeat(8 << 20);
    let string = |text: &str| any_value::Value::StringValue(text.to_owned());
    // One mapping with a million references to a long attribute, then many mappings with one reference each.
    let strings = ["", BUILD_ID_GNU, BUILD_ID_GO].map(str::to_owned);
    let attributes = vec![
        proto::KeyValueAndUnit::default(),
        attribute(2, string(&long)),
        attribute(1, string("deadbeef")),
    ];
    let repeated = [vec![1; 1 << 20], vec![2]].concat();
    for (mappings, of_each) in [(1, &repeated[..]), (200_000, &[1, 2])] {
        let request = large(strings.to_vec(), attributes.clone(), mappings, of_each);
        let unnamed = UnsymbolizedLocations::read(&request).unwrap();
        assert_eq!(unnamed.unnamed(), mappings as usize);
        let [binary] = &unnamed.binaries[..] else {
            panic!("all say the same");
        };
        assert_eq!(binary.gnu_build_id.as_deref(), Some("deadbeef"));
        assert_eq!(binary.go_build_id, None, "it is too long to be one");
    }
    let strings = ["", BUILD_ID_GNU, &long].map(str::to_owned);
    let mut attributes = vec![attribute(2, string("")); 1 << 20];
    attributes[1] = attribute(1, string("deadbeef"));
    let all: Vec<i32> = (1..1 << 20).collect();
    let request = large(strings.to_vec(), attributes, 1, &all);
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let mut naming = RequestSymbolizer::new(&request).unwrap();
    assert!(name(&mut naming, mapping(&unnamed, 0), 1, &[MAIN]));
    assert!(naming.write().is_some());
}

#[test]
fn contradicting_attributes_do_not_multiply() {
    let strings = ["", BUILD_ID_GNU, HAS_FUNCTIONS].map(str::to_owned);
    let id = any_value::Value::StringValue("deadbeef".to_owned());
    let mut attributes = vec![attribute(2, any_value::Value::BoolValue(false)); 200_000];
    attributes[1] = attribute(1, id);
    let request = large(strings.to_vec(), attributes, 20_000, &[1, 2]);
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let mut naming = RequestSymbolizer::new(&request).unwrap();
    for mapping in mappings(&unnamed) {
        let (_, location) = mapping.locations[0];
        assert!(name(&mut naming, mapping, location, &[MAIN]));
    }
    let written = naming.write().unwrap();
    let written = ExportProfilesServiceRequest::decode(written).unwrap();
    let tables = written.dictionary.unwrap();
    for mapping in &tables.mapping_table[1..] {
        let keys = mapping.attribute_indices.iter().map(|index| {
            let attribute = &tables.attribute_table[*index as usize];
            tables.string_table[attribute.key_strindex as usize].as_str()
        });
        let keys: Vec<&str> = keys.collect();
        let expected = [BUILD_ID_GNU, HAS_FUNCTIONS, HAS_FILENAMES, HAS_LINE_NUMBERS];
        assert_eq!(keys, expected);
    }
}

#[test]
fn equal_lines_are_shared_and_growth_is_predicted() {
    let count = 10_000;
    let id = any_value::Value::StringValue("deadbeef".to_owned());
    let strings = ["", BUILD_ID_GNU].map(str::to_owned).to_vec();
    let attributes = vec![proto::KeyValueAndUnit::default(), attribute(1, id)];
    let request = large(strings, attributes, count, &[1]);
    let unnamed = UnsymbolizedLocations::read(&request).unwrap();
    let mut naming = RequestSymbolizer::new(&request).unwrap();
    for mapping in mappings(&unnamed) {
        let (_, location) = mapping.locations[0];
        name(&mut naming, mapping, location, &[INLINED, MAIN]);
    }
    assert!(naming.encoded.len() < 100);
    let added = naming.added();
    let longer = naming.write().unwrap().len() - request.len();
    // Mappings get attributes too.
    let range = longer - 12 * count as usize..longer + 200;
    assert!(range.contains(&added), "{added} {longer}");
}

proptest! {
    #[test]
    fn naming_only_adds_lines_and_table_entries(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut before = request(&bytes);
        let tables = before.dictionary.as_mut().unwrap();
        let key = i32::try_from(tables.string_table.len()).unwrap();
        tables.string_table.push(BUILD_ID_GNU.to_owned());
        let id = any_value::Value::StringValue("deadbeef".to_owned());
        let build_id = i32::try_from(tables.attribute_table.len()).unwrap();
        tables.attribute_table.push(attribute(key, id));
        for mapping in tables.mapping_table.iter_mut().skip(1) {
            mapping.attribute_indices.push(build_id);
        }
        for location in tables.location_table.iter_mut().step_by(2) {
            location.lines.clear();
        }
        let encoded = before.encode_to_vec();
        let unnamed = UnsymbolizedLocations::read(&encoded).unwrap();
        let mut naming = RequestSymbolizer::new(&encoded).unwrap();
        let mut named = Vec::new();
        for mapping in mappings(&unnamed) {
            for (_, location) in &mapping.locations {
                name(&mut naming, mapping, *location, &[INLINED, MAIN]);
                named.push(*location);
            }
        }
        let Some(written) = naming.write() else {
            prop_assert!(named.is_empty());
            return Ok(());
        };
        let written = ExportProfilesServiceRequest::decode(written).unwrap();
        prop_assert_eq!(&written.resource_profiles, &before.resource_profiles);
        let (before, after) = (before.dictionary.unwrap(), written.dictionary.unwrap());
        prop_assert_eq!(&after.stack_table, &before.stack_table);
        prop_assert!(after.string_table.starts_with(&before.string_table));
        prop_assert!(after.function_table.starts_with(&before.function_table));
        prop_assert!(after.attribute_table.starts_with(&before.attribute_table));
        for (at, (old, new)) in before.location_table.iter().zip(&after.location_table).enumerate() {
            let mut stripped = new.clone();
            if named.contains(&at) {
                let names: Vec<_> = new.lines.iter().map(|line| {
                    let function = &after.function_table[line.function_index as usize];
                    after.string_table[function.name_strindex as usize].as_str()
                }).collect();
                prop_assert_eq!(names, ["f<int>", "main"]);
                stripped.lines.clear();
            }
            prop_assert_eq!(&stripped, old);
        }
    }

    /// Corrupted input does not crash, and the output is a request if the input was one.
    #[test]
    fn damaged_requests_are_named_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..60),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut damaged = if bytes.len() < 30 {
            encoded(dictionary())
        } else {
            request(&bytes).encode_to_vec()
        };
        for (at, byte) in damage {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        let Ok(unnamed) = UnsymbolizedLocations::read(&damaged) else {
            return Ok(());
        };
        let mut naming = RequestSymbolizer::new(&damaged).unwrap();
        for mapping in mappings(&unnamed) {
            for (_, location) in &mapping.locations {
                name(&mut naming, mapping, *location, &[INLINED, MAIN]);
            }
        }
        if let Some(written) = naming.write() {
            let was_valid = ExportProfilesServiceRequest::decode(&damaged[..]).is_ok();
            let is_valid = ExportProfilesServiceRequest::decode(written).is_ok();
            prop_assert!(is_valid || !was_valid);
        }
    }
}
