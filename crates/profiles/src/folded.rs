//! Folded stacks: a line for each stack, `main;run;work 5`, the root first. Flame graph tools read and write it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::dictionary::{Dictionary, SampleKey, ValueType};
use super::id::{LocationId, StackId};
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::top::{frame_names, of_type};

/// A line that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no folded stack: it must end with a space and a whole number")]
pub struct BadLine {
    /// Which one, from 1.
    pub line: usize,
}

/// Reads folded stacks as one profile that counts samples. Equal stacks are added up.
///
/// # Errors
/// A line is no folded stack. Empty ones are left out.
pub fn read(text: &str) -> Result<Profiles, BadLine> {
    let mut profiles = Profiles::default();
    let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_end();
        if line.is_empty() {
            continue;
        }
        let bad = BadLine { line: number };
        let (stack, value) = line.rsplit_once(' ').ok_or(bad.clone())?;
        let value: i64 = value.parse().map_err(|_| bad)?;
        // Nothing before the number is a stack without frames.
        let total = totals.entry(stack.trim()).or_default();
        *total = total.saturating_add(value);
    }
    let dictionary = &mut profiles.dictionary;
    let mut samples = Samples::default();
    for (stack, value) in totals {
        let mut locations = Vec::new();
        let frames = stack.rsplit(';').filter(|_| !stack.is_empty());
        for name in frames {
            locations.push(dictionary.named_location(name));
        }
        let stack = dictionary.stack(&locations);
        let key = SampleKey {
            stack,
            ..SampleKey::default()
        };
        samples.push(key, &[value], &[]);
    }
    let sample_type = ValueType {
        kind: dictionary.string("samples"),
        unit: dictionary.string("count"),
    };
    let header = Header {
        sample_type,
        period_type: sample_type,
        period: 1,
        ..Header::default()
    };
    // Resource and scope are empty rather than absent: there are readers that fail on absent ones.
    profiles.resources = vec![ResourceProfiles {
        resource: Some(Resource::default()),
        scopes: vec![ScopeProfiles {
            scope: Some(InstrumentationScope::default()),
            profiles: vec![Profile { header, samples }],
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }];
    Ok(profiles)
}

/// All profiles of a sample type as folded stacks, in alphabetical order. Semicolons and line breaks in names become
/// colons and spaces.
pub fn write(profiles: &Profiles, kind: ValueType) -> String {
    // By stack first: text is made once for each stack and each location, not for each sample.
    let mut by_stack: HashMap<StackId, i64, RandomState> = HashMap::default();
    for sample in of_type(profiles, kind).flat_map(|profile| profile.samples.iter()) {
        let total = by_stack.entry(sample.key.stack).or_default();
        *total = total.saturating_add(sample.total().0);
    }
    let mut frames: HashMap<LocationId, String, RandomState> = HashMap::default();
    // Stacks that differ only in what folded stacks do not say are one.
    let mut totals: BTreeMap<String, i64> = BTreeMap::new();
    for (stack, value) in by_stack {
        let mut text = String::new();
        for location in profiles.dictionary.locations(stack).iter().rev() {
            let frames = frames
                .entry(*location)
                .or_insert_with(|| frames_of(&profiles.dictionary, *location));
            if !text.is_empty() {
                text.push(';');
            }
            text.push_str(frames);
        }
        let total = totals.entry(text).or_default();
        *total = total.saturating_add(value);
    }
    let mut text = String::new();
    for (stack, total) in totals {
        if total != 0 {
            let _ = writeln!(text, "{stack} {total}");
        }
    }
    text
}

/// The frames of a location as folded stacks have them: what called the others first.
fn frames_of(dictionary: &Dictionary, location: LocationId) -> String {
    let names = frame_names(dictionary, location).into_iter().rev();
    let names = names.map(|name| name.replace(';', ":").replace(['\n', '\r'], " "));
    names.collect::<Vec<_>>().join(";")
}

#[cfg(test)]
mod tests {
    use super::super::top::sample_type;
    use super::*;

    #[test]
    fn folded_stacks_come_back_with_equal_ones_added_up() {
        let profiles = read("main;b 2\n\nmain;a with space 1\r\nmain;b 3\n").unwrap();
        let kind = sample_type(&profiles, None).unwrap();
        assert_eq!(write(&profiles, kind), "main;a with space 1\nmain;b 5\n");
    }

    #[test]
    fn what_has_no_frames_is_a_number_behind_a_space() {
        let profiles = read(" 7\n  main 1\n").unwrap();
        let kind = sample_type(&profiles, None).unwrap();
        assert_eq!(write(&profiles, kind), " 7\nmain 1\n");
    }

    #[test]
    fn a_line_without_a_number_is_named() {
        assert_eq!(read("a 1\nb;c\n").unwrap_err(), BadLine { line: 2 });
        assert_eq!(read("a 1.5").unwrap_err(), BadLine { line: 1 });
    }
}
