//! Detects layouts of profiles before OTLP 1.10. Earlier versions number the fields differently, so reading them as
//! 1.10 would give wrong data.

use tributary_otlp::reader::{Field, Fields, Value};

/// The version of a message is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the profiles have the layout of OTLP {version}, which is not supported: {evidence}. Update the sender to OTLP \
     1.10 or later"
)]
pub struct OldLayout {
    /// Versions that the message may have: `1.9 or earlier`, `1.8 or earlier`, `1.7 or earlier`.
    pub version: &'static str,
    /// Content that reveals the version.
    pub evidence: &'static str,
}

const V1_9: &str = "1.9 or earlier";
const V1_8: &str = "1.8 or earlier";
const V1_7: &str = "1.7 or earlier";

/// Number of entries of each kind that are examined; a sender uses one layout for all.
const MAX_EXAMINED: usize = 64;

/// Searches an encoded request or `ProfilesData` for content that OTLP 1.10 cannot have but an older version has.
///
/// # Errors
/// Fails if the message has content of an old layout. A message without an error may still be an old message that
/// resembles 1.10, or no message at all; later stages detect both.
pub fn check(request: &[u8]) -> Result<(), OldLayout> {
    // Tables first, because they reveal more.
    for dictionary in nested(request, 2) {
        tables(dictionary)?;
    }
    for resource in nested(request, 1) {
        for scope in nested(resource, 2) {
            for body in nested(scope, 2).take(MAX_EXAMINED) {
                profile(body)?;
            }
        }
    }
    Ok(())
}

/// Number of samples of a valid request that are examined.
const FIRST_SAMPLES: usize = 8;

/// Searches a request that is valid as OTLP 1.10 for an old layout, at constant cost: examines only the first
/// samples of the first profile with samples.
///
/// Every other difference between the versions makes a request invalid, and [`check`] detects it. The remaining
/// difference is values in the field of attributes, in samples without attributes. A single such sample may be a
/// mistake of a 1.10 sender. If all examined samples have such values, the layout is old.
///
/// # Errors
/// Fails if the layout is old.
pub fn check_first_samples(request: &[u8]) -> Result<(), OldLayout> {
    let profiles = nested(request, 1)
        .flat_map(|resource| nested(resource, 2))
        .flat_map(|scope| nested(scope, 2))
        .take(FIRST_SAMPLES);
    for profile in profiles {
        let mut samples = nested(profile, 2).take(FIRST_SAMPLES).peekable();
        if samples.peek().is_some() {
            return match samples.all(values_for_attributes) {
                true => Err(VALUES_FOR_ATTRIBUTES),
                false => Ok(()),
            };
        }
    }
    Ok(())
}

/// Searches a JSON request for an old layout. The JSON reader ignores unknown names, and `sample` was renamed to
/// `samples` in 1.9, so all samples would be lost.
///
/// # Errors
/// Fails if the layout is old.
pub fn check_json(request: &[u8]) -> Result<(), OldLayout> {
    let name = br#""sample""#;
    let mut found = memchr::memmem::find_iter(request, name);
    let old = found.any(|at| {
        // Quotes inside a string value would be escaped, and a string value that equals the name is not followed by a
        // colon.
        let after = request.get(at + name.len()..).unwrap_or_default();
        after.trim_ascii_start().first() == Some(&b':')
    });
    match old {
        true => Err(OldLayout {
            version: V1_8,
            evidence: "the samples are in the field `sample`",
        }),
        false => Ok(()),
    }
}

fn tables(dictionary: &[u8]) -> Result<(), OldLayout> {
    for entry in nested(dictionary, 6).take(MAX_EXAMINED) {
        refuse(entry, V1_7, "an attribute's key is a string", |field| {
            field.number == 1 && is_bytes(field)
        })?;
    }
    Ok(())
}

// Checks only fields of 1.10 with types that 1.10 does not allow, because an unknown number may belong to a later
// version.
fn profile(profile: &[u8]) -> Result<(), OldLayout> {
    let early = "the profile's time, duration and period have the field numbers of the layout without a dictionary";
    refuse(profile, V1_7, early, |field| match field.number {
        3 => !matches!(field.value, Value::Fixed64(_)),
        4 | 6 => is_bytes(field),
        5 => is_varint(field),
        _ => false,
    })?;
    let early =
        "the profile's fields have the numbers from before `comment_strindices` was removed";
    refuse(profile, V1_8, early, |field| match field.number {
        8 => is_bytes(field),
        9 => is_varint(field),
        _ => false,
    })?;
    for sample in nested(profile, 2).take(MAX_EXAMINED) {
        refuse(
            sample,
            V1_9,
            "a sample has a list instead of a link",
            |field| field.number == 3 && is_bytes(field),
        )?;
        refuse(
            sample,
            V1_7,
            "a sample has a number instead of timestamps",
            |field| field.number == 5 && is_varint(field),
        )?;
        if values_for_attributes(sample) {
            return Err(VALUES_FOR_ATTRIBUTES);
        }
    }
    Ok(())
}

const VALUES_FOR_ATTRIBUTES: OldLayout = OldLayout {
    version: V1_9,
    evidence: "a sample has no values, and attributes with the former field number",
};

fn values_for_attributes(sample: &[u8]) -> bool {
    has(sample, 2) && !has(sample, 4) && !has(sample, 5)
}

fn refuse(
    message: &[u8],
    version: &'static str,
    evidence: &'static str,
    old: impl Fn(&Field<'_>) -> bool,
) -> Result<(), OldLayout> {
    if fields(message).any(|field| old(&field)) {
        return Err(OldLayout { version, evidence });
    }
    Ok(())
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

fn nested(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

fn has(message: &[u8], number: u32) -> bool {
    fields(message).any(|field| field.number == number)
}

fn is_bytes(field: &Field<'_>) -> bool {
    field.value.bytes().is_some()
}

fn is_varint(field: &Field<'_>) -> bool {
    matches!(field.value, Value::Varint(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_otlp::reader::put_varint;

    enum Part {
        Number(u64),
        Fixed(u64),
        Bytes(Vec<u8>),
    }
    use Part::{Bytes, Fixed, Number};

    fn encode(parts: Vec<(u32, Part)>) -> Vec<u8> {
        let mut output = Vec::new();
        for (field, part) in parts {
            let mut tag = |wire: u32| put_varint(u64::from(field << 3 | wire), &mut output);
            match part {
                Number(number) => {
                    tag(0);
                    put_varint(number, &mut output);
                }
                Fixed(number) => {
                    tag(1);
                    output.extend_from_slice(&number.to_le_bytes());
                }
                Bytes(bytes) => {
                    tag(2);
                    put_varint(bytes.len() as u64, &mut output);
                    output.extend_from_slice(&bytes);
                }
            }
        }
        output
    }

    fn request(profile: Vec<(u32, Part)>, dictionary: Vec<(u32, Part)>) -> Vec<u8> {
        let scope = encode(vec![(2, Bytes(encode(profile)))]);
        let resource = encode(vec![(2, Bytes(scope))]);
        encode(vec![(1, Bytes(resource)), (2, Bytes(encode(dictionary)))])
    }

    #[test]
    fn layouts_before_1_10_are_recognised_by_their_version() {
        let sample = |parts| (2, Bytes(encode(parts)));
        let cases = [
            // Location indices, time, duration, period type, as in 1.7.
            (vec![(3, Bytes(vec![1, 2]))], V1_7),
            (vec![(4, Number(5)), (5, Number(6))], V1_7),
            (vec![(6, Bytes(vec![]))], V1_7),
            // Profile id and number of dropped attributes, as in 1.8.
            (vec![(3, Fixed(1)), (8, Bytes(vec![7; 16]))], V1_8),
            (vec![(9, Number(1))], V1_8),
            // Samples up to 1.9: stack, values, attributes, link, timestamps.
            (
                vec![sample(vec![(1, Number(1)), (2, Bytes(vec![5]))])],
                V1_9,
            ),
            (
                vec![sample(vec![(2, Bytes(vec![5])), (3, Bytes(vec![1]))])],
                V1_9,
            ),
        ];
        for (profile, version) in cases {
            let old = check(&request(profile, vec![])).unwrap_err();
            assert_eq!(old.version, version);
            assert!(old.to_string().contains("Update the sender"));
        }
        let attribute = encode(vec![(1, Bytes(b"key".to_vec()))]);
        let old = check(&request(vec![], vec![(6, Bytes(attribute))]));
        assert_eq!(old.unwrap_err().version, V1_7);
    }

    #[test]
    fn current_and_later_layouts_pass() {
        let sample = encode(vec![
            (1, Number(1)),
            (2, Bytes(vec![1])),
            (3, Number(1)),
            (4, Bytes(vec![1])),
            (9, Number(1)),
        ]);
        let profile = vec![
            (2, Bytes(sample)),
            (3, Fixed(1)),
            (4, Number(1)),
            (5, Bytes(vec![])),
            (6, Number(1)),
            (7, Bytes(vec![7; 16])),
            (8, Number(1)),
            (12, Bytes(vec![])),
            (20, Number(1)),
        ];
        assert_eq!(check(&request(profile, vec![])), Ok(()));
        assert_eq!(check(b""), Ok(()));
        assert_eq!(check(b"\xff\xff"), Ok(()), "no message at all");
    }

    #[test]
    fn first_samples_decide_the_layout() {
        let values = || (2, Bytes(encode(vec![(1, Number(1)), (2, Bytes(vec![5]))])));
        let current = || (2, Bytes(encode(vec![(1, Number(1)), (4, Bytes(vec![5]))])));
        let of = |samples| check_first_samples(&request(samples, vec![]));
        assert_eq!(of(vec![values(), values()]).unwrap_err().version, V1_9);
        assert_eq!(of(vec![values(), current()]), Ok(()));
        assert_eq!(of(vec![]), Ok(()));
        assert_eq!(check_first_samples(b""), Ok(()));
    }

    #[test]
    fn old_json_layout_is_detected_by_sample_field_name() {
        let of = |text: &str| check_json(text.as_bytes());
        assert_eq!(
            of(r#"{"profiles":[{"sample" : []}]}"#).unwrap_err().version,
            V1_8
        );
        assert_eq!(of(r#"{"profiles":[{"samples":[]}]}"#), Ok(()));
        assert_eq!(of(r#"{"stringTable":["","sample"]}"#), Ok(()));
        assert_eq!(of(r#"{"stringTable":["\"sample\":"]}"#), Ok(()));
    }
}
