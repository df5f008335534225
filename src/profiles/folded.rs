//! Folded stacks: a line for each stack, `main;run;work 5`, the root first. Flame graph tools read and write it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::dictionary::{Function, Line, Location, SampleKey, ValueType};
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
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let bad = BadLine { line: number };
        let (stack, value) = line.rsplit_once(' ').ok_or(bad.clone())?;
        let value: i64 = value.parse().map_err(|_| bad)?;
        let total = totals.entry(stack.trim_end()).or_default();
        *total = total.saturating_add(value);
    }
    let dictionary = &mut profiles.dictionary;
    let mut samples = Samples::default();
    for (stack, value) in totals {
        let mut locations = Vec::new();
        for name in stack.rsplit(';') {
            let name = dictionary.string(name);
            let function = dictionary.function(Function {
                name,
                ..Function::default()
            });
            let lines = dictionary.lines(&[Line {
                function,
                ..Line::default()
            }]);
            locations.push(dictionary.location(Location {
                lines,
                ..Location::default()
            }));
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
    profiles.resources = vec![ResourceProfiles {
        scopes: vec![ScopeProfiles {
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
    let mut totals: BTreeMap<String, i64> = BTreeMap::new();
    for sample in of_type(profiles, kind).flat_map(|profile| profile.samples.iter()) {
        let locations = profiles.dictionary.locations(sample.key.stack).iter().rev();
        let frames = locations.flat_map(|location| {
            let mut names = frame_names(&profiles.dictionary, *location);
            names.reverse();
            names
        });
        let frames: Vec<String> = frames
            .map(|name| name.replace(';', ":").replace(['\n', '\r'], " "))
            .collect();
        let total = totals.entry(frames.join(";")).or_default();
        *total = total.saturating_add(sample.total().0);
    }
    let mut text = String::new();
    for (stack, total) in totals {
        if total != 0 {
            let _ = writeln!(text, "{stack} {total}");
        }
    }
    text
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
    fn a_line_without_a_number_is_named() {
        assert_eq!(read("a 1\nb;c\n").unwrap_err(), BadLine { line: 2 });
        assert_eq!(read("a 1.5").unwrap_err(), BadLine { line: 1 });
    }
}
