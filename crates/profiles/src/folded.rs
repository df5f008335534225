//! Folded stacks: a line for each stack, `main;run;work 5`, the root first. Flame graph tools read and write the
//! format.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::dictionary::Dictionary;
use super::id::{LocationId, StackId};
use super::model::{Header, Profile, Profiles, ResourceProfiles, Samples, ScopeProfiles};
use super::top::{frame_names, of_type};
use crate::entry::{SampleKey, ValueType};

/// The reason why text cannot be read as folded stacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoldedError {
    /// A line does not end with a number.
    #[error("line {line} is not a folded stack: a line must end with a space and a whole number")]
    NoNumber {
        /// Line number, from 1.
        line: usize,
    },
    /// A line ends with a fraction.
    #[error(
        "line {line} ends with `{number}`, which is not a whole number; multiply all values by a power of ten"
    )]
    NotWhole {
        /// Line number, from 1.
        line: usize,
        /// Number at the end of the line, or its beginning.
        number: String,
    },
    /// A line ends with a number of more than 64 bits.
    #[error("line {line} ends with `{number}`, which exceeds 64 bits")]
    TooLarge {
        /// Line number, from 1.
        line: usize,
        /// Number at the end of the line, or its beginning.
        number: String,
    },
    /// Every line has two numbers, as written by difffolded.pl.
    #[error(
        "every line ends with two numbers, as written by difffolded.pl; compare the two original files with \
         `collector profiles diff`"
    )]
    TwoNumbers,
}

/// Reads folded stacks as one profile that counts samples, adding up equal stacks. Spaces or tabs separate a stack
/// from its number. A byte order mark, empty lines, and comments (lines that begin with `#` and a space) are
/// ignored.
///
/// # Errors
/// Fails if a line is not a folded stack, or every line has two numbers.
pub fn read(text: &str) -> Result<Profiles, FoldedError> {
    totals(text).map(from_stacks)
}

/// Returns one profile that counts samples, with these stacks and values.
pub fn from_stacks<'s>(stacks: impl IntoIterator<Item = (&'s str, i64)>) -> Profiles {
    let mut profiles = Profiles::default();
    let dictionary = &mut profiles.dictionary;
    let mut samples = Samples::default();
    for (stack, value) in stacks {
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
    // Empty instead of absent, because some readers fail on an absent resource or scope.
    profiles.resources = vec![ResourceProfiles {
        resource: Some(Resource::default()),
        scopes: vec![ScopeProfiles {
            scope: Some(InstrumentationScope::default()),
            profiles: vec![Profile { header, samples }],
            ..ScopeProfiles::default()
        }],
        ..ResourceProfiles::default()
    }];
    profiles
}

/// Returns the sum of each stack, as text: see [`read`].
///
/// # Errors
/// Fails if a line is not a folded stack, or every line has two numbers.
pub fn totals(text: &str) -> Result<BTreeMap<&str, i64>, FoldedError> {
    let mut totals: BTreeMap<&str, i64> = BTreeMap::new();
    let (mut stacks, mut with_two_numbers) = (0_u64, 0_u64);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim_end();
        if line.is_empty() || line == "#" || line.starts_with("# ") || line.starts_with("#\t") {
            continue;
        }
        let (stack, value) = stack_and_value(line, number)?;
        stacks += 1;
        with_two_numbers += u64::from(ends_with_number(stack));
        // An empty text before the number is a stack without frames.
        let total = totals.entry(stack).or_default();
        *total = total.saturating_add(value);
    }
    // A frame name may end with a number, as in `worker 7`, but hardly the last frame of every stack.
    if stacks > 1 && with_two_numbers == stacks {
        return Err(FoldedError::TwoNumbers);
    }
    Ok(totals)
}

/// Maximum size of a number in an error, in bytes.
const SHOWN: usize = 64;

fn stack_and_value(line: &str, number: usize) -> Result<(&str, i64), FoldedError> {
    let no_number = FoldedError::NoNumber { line: number };
    let (stack, value) = line.rsplit_once([' ', '\t']).ok_or(no_number.clone())?;
    let text = value.get(..value.floor_char_boundary(SHOWN));
    let text = text.unwrap_or_default().to_owned();
    match value.parse() {
        Ok(value) => Ok((stack.trim(), value)),
        Err(_) if is_whole(value) => Err(FoldedError::TooLarge {
            line: number,
            number: text,
        }),
        Err(_) if is_number(value) => Err(FoldedError::NotWhole {
            line: number,
            number: text,
        }),
        Err(_) => Err(no_number),
    }
}

fn ends_with_number(stack: &str) -> bool {
    let last = stack.rsplit_once([' ', '\t']);
    last.is_some_and(|(_, last)| is_number(last))
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns true for decimal numbers. Rust also parses `nan`, `inf` and `infinity`, which are names of frames here.
fn is_number(text: &str) -> bool {
    text.contains(|character: char| character.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// Returns true if the first line is a folded stack of two frames or more. An error message such as `error 404`
/// has no `;`.
pub fn begins_like(text: &[u8]) -> bool {
    const LONGEST: usize = 64 << 10;
    let start = text.get(..LONGEST).unwrap_or(text);
    let line = start.trim_ascii_start().split(|byte| *byte == b'\n').next();
    let line = line.and_then(|line| str::from_utf8(line).ok());
    line.is_some_and(|line| {
        let printable = !line.contains(|character: char| {
            character.is_control() && character != '\t' && character != '\r'
        });
        printable && line.contains(';') && ends_with_number(line.trim_end())
    })
}

/// Writes all profiles of a sample type as folded stacks, in alphabetical order. Semicolons in names become colons,
/// line breaks become spaces.
pub fn write(profiles: &Profiles, kind: ValueType) -> String {
    // Sums by stack first, so that the text is made once per stack and location instead of once per sample.
    let mut by_stack: HashMap<StackId, i64, RandomState> = HashMap::default();
    for sample in of_type(profiles, kind).flat_map(|profile| profile.samples.iter()) {
        let total = by_stack.entry(sample.key.stack).or_default();
        *total = total.saturating_add(sample.total().0);
    }
    let mut frames: HashMap<LocationId, String, RandomState> = HashMap::default();
    // Stacks become equal if they differ only in content that folded stacks cannot represent.
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

/// Returns the frames of a location as folded text, outermost first.
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
    fn folded_stacks_round_trip_with_equal_stacks_added() {
        let profiles = read("main;b 2\n\nmain;a with space 1\r\nmain;b 3\n").unwrap();
        let kind = sample_type(&profiles, None).unwrap();
        assert_eq!(write(&profiles, kind), "main;a with space 1\nmain;b 5\n");
    }

    #[test]
    fn stack_without_frames_is_a_bare_number() {
        let profiles = read(" 7\n  main 1\n").unwrap();
        let kind = sample_type(&profiles, None).unwrap();
        assert_eq!(write(&profiles, kind), " 7\nmain 1\n");
    }

    #[test]
    fn line_without_integer_is_named_in_error() {
        assert_eq!(
            read("a 1\nb;c\n").unwrap_err(),
            FoldedError::NoNumber { line: 2 }
        );
        let number = |text: &str| text.to_owned();
        assert_eq!(
            read("a 1.5").unwrap_err(),
            FoldedError::NotWhole {
                line: 1,
                number: number("1.5")
            }
        );
        assert_eq!(
            read("a 99999999999999999999").unwrap_err(),
            FoldedError::TooLarge {
                line: 1,
                number: number("99999999999999999999")
            }
        );
    }

    #[test]
    fn long_number_is_cut_off_in_error() {
        for text in ["1".repeat(10_000), format!("1.{}", "1".repeat(10_000))] {
            let error = read(&format!("a {text}")).unwrap_err().to_string();
            assert!(error.len() < 256, "{error}");
        }
    }

    fn read_and_written(text: &str) -> String {
        let profiles = read(text).unwrap();
        let kind = sample_type(&profiles, None).unwrap();
        write(&profiles, kind)
    }

    #[test]
    fn bom_tabs_and_comments_are_not_part_of_stacks() {
        let text = "\u{feff}# made by 7\nmain;a\t1\n#\nmain;b \t 2\r\n#fragment;c 3\n";
        assert_eq!(
            read_and_written(text),
            "#fragment;c 3\nmain;a 1\nmain;b 2\n"
        );
    }

    #[test]
    fn two_numbers_in_every_line_are_refused() {
        let two = "main;a 1 2\nmain;b 3 4\n";
        assert_eq!(read(two).unwrap_err(), FoldedError::TwoNumbers);
        let with_fraction = read("a 1.5 2\nb 1 2\n");
        assert_eq!(with_fraction.unwrap_err(), FoldedError::TwoNumbers);
        // Threads often have such names.
        let names = "main;worker 7 2\nmain;b 3\n";
        assert_eq!(read_and_written(names), "main;b 3\nmain;worker 7 2\n");
    }
}
