//! Requests as JSON, as Connect writes protobuf messages.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tributary_memory::Permit;

use super::{MAX_SAMPLES, MAX_SERIES, PushError, Series};
use crate::labels::MAX_LABELS;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Request {
    series: List<RawSeries, MAX_SERIES>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct RawSeries {
    labels: List<Pair, MAX_LABELS>,
    samples: List<Sample, MAX_SAMPLES>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Pair {
    name: String,
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sample {
    #[serde(rename = "rawProfile", alias = "raw_profile")]
    profile: String,
}

/// Reads a request as JSON. The permit grows by the memory of its texts and profiles.
///
/// # Errors
/// See [`PushError`].
pub fn from_json(request: &[u8], permit: &mut Permit) -> Result<Vec<Series>, PushError> {
    permit.grow(request.len().saturating_mul(2))?;
    let request: Request =
        serde_json::from_slice(request).map_err(|error| PushError::Json(shortened(error)))?;
    let mut all = Vec::with_capacity(request.series.0.len());
    for raw in request.series.0 {
        let mut series = Series::default();
        for Pair { name, value } in raw.labels.0 {
            series.label(&name, &value)?;
        }
        for Sample { profile } in raw.samples.0 {
            series.profile(decode(&profile)?.into())?;
        }
        all.push(series);
    }
    Ok(all)
}

/// Maximum size of a description in bytes. A description may quote a text of the request.
const SHOWN: usize = 256;

fn shortened(error: serde_json::Error) -> String {
    let mut text = error.to_string();
    if text.len() > SHOWN {
        text.truncate(text.floor_char_boundary(SHOWN));
        text.push_str("...");
        text.shrink_to_fit();
    }
    text
}

/// Decodes base64 of either alphabet, with or without padding, as JSON of protobuf allows.
fn decode(text: &str) -> Result<Vec<u8>, PushError> {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let alphabet = match text.contains(['-', '_']) {
        true => &URL_SAFE,
        false => &STANDARD,
    };
    let decoded = GeneralPurpose::new(alphabet, config).decode(text);
    decoded.map_err(|error| PushError::Json(format!("`rawProfile` is not base64: {error}")))
}

/// A list of at most `MOST` elements; `null` is an empty one.
struct List<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Default for List<T, MOST> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for List<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Elements(PhantomData))
    }
}

struct Elements<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Elements<T, MOST> {
    type Value = List<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} elements")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(List::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            if list.len() == MOST {
                return Err(A::Error::invalid_length(MOST + 1, &self));
            }
            list.push(element);
        }
        Ok(List(list))
    }
}

#[cfg(test)]
mod tests {
    use tributary_memory::Budget;

    use super::*;

    fn read(json: &str) -> Result<Vec<Series>, PushError> {
        let mut permit = Budget::new(1 << 20).empty_permit();
        from_json(json.as_bytes(), &mut permit)
    }

    #[test]
    fn request_is_read_with_both_names_and_alphabets() {
        let all = read(
            r#"{"series": [{"labels": [{"name": "service_name", "value": "shop"}],
                "samples": [{"rawProfile": "+/8=", "ID": "a"}, {"raw_profile": "-_8"}]}, {"labels": null}],
                "unknown": {"a": [1]}}"#,
        )
        .unwrap();
        let [first, second] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(
            first.labels,
            [("service_name".to_owned(), "shop".to_owned())]
        );
        assert_eq!(first.profiles, [&[0xfb, 0xff][..], &[0xfb, 0xff]]);
        assert_eq!(*second, Series::default());
        assert_eq!(read("{}").unwrap(), []);
    }

    #[test]
    fn error_does_not_have_the_size_of_the_request() {
        let json = format!(r#"{{"series": "{}"}}"#, "\u{e9}".repeat(10_000));
        let text = read(&json).unwrap_err().to_string();
        assert!(text.len() < 400, "{text}");
    }

    #[test]
    fn malformed_or_large_request_is_refused() {
        let many = format!("{{\"series\": [{}]}}", vec!["{}"; MAX_SERIES + 1].join(","));
        for json in [
            "",
            "1",
            r#"{"series": 1}"#,
            r#"{"series": [{"samples": [{"rawProfile": "?"}]}]}"#,
            &many,
        ] {
            assert!(matches!(read(json), Err(PushError::Json(_))), "{json}");
        }
        let mut permit = Budget::new(10).empty_permit();
        let full = from_json(b"{\"series\": []}", &mut permit);
        assert!(matches!(full, Err(PushError::NoRoom(_))));
    }
}
