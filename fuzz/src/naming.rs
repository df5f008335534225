//! The target for names that are written into profiles.

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
use opentelemetry_proto::tonic::profiles::v1development as proto;
use prost::Message as _;
use tributary_profiles::check::{Rule, Severity, check};
use tributary_profiles::names::BUILD_ID_GNU;
use tributary_profiles::naming::{NamedFunction, NamedLine, RequestSymbolizer, UnsymbolizedLocations};

use crate::generator::Entropy;
use crate::profiles::{damaged, sums};
use crate::samples;

/// Names of frames; some of them also occur in the requests.
const FUNCTIONS: [&str; 5] = ["main", "_ZN3runE", "", "alloc", "a.go"];
const FILES: [&str; 4] = ["a.go", "", "/src/main.c", "main"];

/// Locations have the names that were asked for and what they had before; everything else is as it was, tables have only
/// become longer, and no rule is broken that was not broken before.
pub fn naming(input: &[u8]) {
    let (decisions, material) = input.split_at(input.len().min(48));
    let mut entropy = Entropy(decisions);
    let flipped = entropy.below(4);
    let valid = without_lines(samples::request(material), &mut entropy);
    let request = damaged(valid.encode_to_vec(), flipped, &mut entropy);
    let Ok(unnamed) = UnsymbolizedLocations::read(&request) else {
        assert_ne!(flipped, 0, "it is a request");
        return;
    };
    let mut naming = RequestSymbolizer::new(&request).expect("it was read");
    let mut named = Vec::new();
    for mapping in unnamed.binaries.iter().flat_map(|binary| &binary.mappings) {
        for (_, location) in &mapping.locations {
            let frames: Vec<_> = (0..entropy.below(4)).map(|_| frame(&mut entropy)).collect();
            let asked: Vec<_> = frames
                .iter()
                .filter(|frame| !frame.function.name.is_empty() || !frame.function.file.is_empty())
                .copied()
                .collect();
            let lines: Vec<_> = frames
                .iter()
                .map(|frame| NamedLine {
                    function: naming.function(&frame.function),
                    line: frame.line,
                    column: frame.column,
                })
                .collect();
            assert_eq!(naming.name(mapping, *location, lines), !asked.is_empty());
            if !asked.is_empty() {
                named.push((*location, asked));
            }
        }
    }
    let written = naming.write();
    assert_eq!(written.is_none(), named.is_empty());
    let (Some(written), Ok(before)) = (
        written,
        ExportProfilesServiceRequest::decode(request.as_slice()),
    ) else {
        return;
    };
    let after = ExportProfilesServiceRequest::decode(written).expect("it was a request");
    assert_eq!(after.resource_profiles, before.resource_profiles);
    let broken = check(&before);
    for rule in check(&after).counts().keys() {
        // A location that gets lines may be what another one was, and what a mapping said of its locations may no longer
        // be referred to: no index may change, so both stay.
        let stays = matches!(rule, Rule::DuplicateEntry | Rule::Orphan);
        let harmful = rule.is_structural() || rule.severity() == Severity::Error;
        // Indices of samples are not checked: an index beyond the table may point to an added
        // entry.
        let led_nowhere = broken.counts().contains_key(&Rule::IndexOutOfRange);
        let excused = stays || led_nowhere || broken.counts().contains_key(rule);
        assert!(excused || !harmful, "{rule:?}");
    }
    if broken
        .counts()
        .keys()
        .all(|rule| rule.severity() != Severity::Error)
    {
        assert_eq!(sums(&after), sums(&before));
    }
    let old = before.dictionary.unwrap_or_default();
    let new = after.dictionary.expect("it has names");
    same(&old, &new, &named);
}

/// Returns a request whose mappings have a build id and whose locations partly lack lines.
fn without_lines(
    mut request: ExportProfilesServiceRequest,
    entropy: &mut Entropy<'_>,
) -> ExportProfilesServiceRequest {
    let tables = request.dictionary.get_or_insert_default();
    let key = tables.string_table.len() as i32;
    tables.string_table.push(BUILD_ID_GNU.to_owned());
    let build_id = tables.attribute_table.len() as i32;
    tables.attribute_table.push(proto::KeyValueAndUnit {
        key_strindex: key,
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue("deadbeef".to_owned())),
        }),
        unit_strindex: 0,
    });
    for mapping in tables.mapping_table.iter_mut().skip(1) {
        mapping.attribute_indices.push(build_id);
    }
    for location in tables.location_table.iter_mut().skip(1) {
        if entropy.below(3) != 0 {
            location.lines.clear();
        }
    }
    request
}

/// A function, and where in it.
#[derive(Clone, Copy)]
struct Frame {
    function: NamedFunction<'static>,
    line: u32,
    column: u32,
}

fn frame(entropy: &mut Entropy<'_>) -> Frame {
    let mut one = |of: &[&'static str]| of[usize::from(entropy.byte()) % of.len()];
    let (name, system_name, file) = (one(&FUNCTIONS), one(&FUNCTIONS), one(&FILES));
    Frame {
        line: u32::from(entropy.byte()) << entropy.below(25),
        column: entropy.below(3).into(),
        function: NamedFunction {
            name,
            system_name,
            file,
            start_line: entropy.below(3).into(),
        },
    }
}

/// The tables are as they were, with more at their ends, but for the locations that were named, and the attributes of
/// mappings.
fn same(
    old: &proto::ProfilesDictionary,
    new: &proto::ProfilesDictionary,
    named: &[(usize, Vec<Frame>)],
) {
    assert!(new.string_table.starts_with(&old.string_table));
    assert!(new.function_table.starts_with(&old.function_table));
    assert!(new.attribute_table.starts_with(&old.attribute_table));
    assert_eq!(new.stack_table, old.stack_table);
    assert_eq!(new.link_table, old.link_table);
    assert_eq!(new.mapping_table.len(), old.mapping_table.len());
    for (old, new) in old.mapping_table.iter().zip(&new.mapping_table) {
        let mut new = new.clone();
        new.attribute_indices.clone_from(&old.attribute_indices);
        assert_eq!(&new, old);
    }
    let mut locations = new.location_table.clone();
    for (location, frames) in named {
        let lines = std::mem::take(&mut locations[*location].lines);
        assert_eq!(lines.len(), frames.len());
        for (line, frame) in lines.iter().zip(frames) {
            says(line, frame, new);
        }
    }
    assert_eq!(locations, old.location_table);
}

/// A line is that of the frame. The table may have the function and its strings more than once.
fn says(line: &proto::Line, frame: &Frame, tables: &proto::ProfilesDictionary) {
    assert_eq!(line.line, i64::from(frame.line));
    assert_eq!(line.column, i64::from(frame.column));
    let function = &tables.function_table[line.function_index as usize];
    let text = |index: i32| tables.string_table[index as usize].as_str();
    assert_eq!(text(function.name_strindex), frame.function.name);
    assert_eq!(
        text(function.system_name_strindex),
        frame.function.system_name
    );
    assert_eq!(text(function.filename_strindex), frame.function.file);
    assert_eq!(function.start_line, i64::from(frame.function.start_line));
}
