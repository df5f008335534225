//! Labels with trace and span ids.

use std::str::FromStr;

use crate::entry::Link;

/// Labels that hold the trace id and the span id of a sample.
///
/// A sample with one valid label for each gets a link instead of the two labels. In the other direction, a link
/// becomes labels with the first key of each list. The default matches the Go libraries of Grafana and
/// OpenTelemetry: `trace_id` and `span_id`, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkLabels {
    /// Labels with the trace id, in order of preference.
    pub trace: Vec<IdLabel>,
    /// Labels with the span id, in order of preference.
    pub span: Vec<IdLabel>,
}

/// A label that holds a trace id or a span id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdLabel {
    /// Key of the label.
    pub key: String,
    /// Format of the value.
    pub format: IdFormat,
}

/// Format of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdFormat {
    /// Hexadecimal digits in lower case: 32 for a trace, 16 for a span.
    Hex,
    /// A decimal number of 64 bits, as written by Datadog's libraries; for a trace id, the lower half.
    Decimal,
}

/// The reason why a text does not describe a label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The format is unknown.
    #[error("unknown format `{0}`; use hex or decimal")]
    Format(String),
    /// The key is missing.
    #[error("the key of the label is empty")]
    Empty,
}

impl FromStr for IdLabel {
    type Err = LabelError;

    /// Parses `KEY`, `KEY=hex` or `KEY=decimal`.
    fn from_str(text: &str) -> Result<Self, LabelError> {
        let (key, format) = match text.rsplit_once('=') {
            None => (text, IdFormat::Hex),
            Some((key, "hex")) => (key, IdFormat::Hex),
            Some((key, "decimal")) => (key, IdFormat::Decimal),
            Some((_, format)) => return Err(LabelError::Format(format.to_owned())),
        };
        if key.is_empty() {
            return Err(LabelError::Empty);
        }
        Ok(IdLabel {
            key: key.to_owned(),
            format,
        })
    }
}

impl Default for LinkLabels {
    fn default() -> Self {
        let label = |key: &str| IdLabel {
            key: key.to_owned(),
            format: IdFormat::Hex,
        };
        LinkLabels {
            trace: vec![label("trace_id")],
            span: vec![label("span_id")],
        }
    }
}

impl LinkLabels {
    /// Disables the conversion between labels and links.
    pub fn none() -> Self {
        LinkLabels {
            trace: Vec::new(),
            span: Vec::new(),
        }
    }

    pub(super) fn of(&self, link: Link) -> impl Iterator<Item = (&str, String)> {
        let trace = self.trace.first().map(|label| {
            let text = label.format.write(link.trace_id);
            (label.key.as_str(), text)
        });
        let span = self.span.first().map(|label| {
            let text = label.format.write(link.span_id);
            (label.key.as_str(), text)
        });
        trace.into_iter().chain(span)
    }
}

impl IdFormat {
    /// Parses an id, if formatting the id yields the same text.
    pub(super) fn read<const N: usize>(self, text: &str) -> Option<[u8; N]> {
        let mut id = [0; N];
        match self {
            IdFormat::Hex => {
                let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
                    return None;
                };
                if pairs.len() != N {
                    return None;
                }
                for (byte, [high, low]) in id.iter_mut().zip(pairs) {
                    *byte = digit(*high)? << 4 | digit(*low)?;
                }
            }
            IdFormat::Decimal => {
                let number: u64 = text.parse().ok()?;
                if number.to_string() != text {
                    return None;
                }
                *id.last_chunk_mut()? = number.to_be_bytes();
            }
        }
        (id != [0; N]).then_some(id)
    }

    fn write<const N: usize>(self, id: [u8; N]) -> String {
        match self {
            IdFormat::Hex => hex(&id),
            IdFormat::Decimal => {
                let low = id.last_chunk().copied().unwrap_or_default();
                u64::from_be_bytes(low).to_string()
            }
        }
    }
}

/// Formats bytes as lower case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or_default();
    let pairs = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    pairs.map(digit).collect()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_label_needs_key_and_format() {
        let of = |text: &str| {
            text.parse::<IdLabel>()
                .map(|label| (label.key, label.format))
        };
        assert_eq!(of("trace_id"), Ok(("trace_id".into(), IdFormat::Hex)));
        assert_eq!(of("a b=hex"), Ok(("a b".into(), IdFormat::Hex)));
        assert_eq!(
            of("span id=decimal"),
            Ok(("span id".into(), IdFormat::Decimal))
        );
        assert_eq!(of("a=octal"), Err(LabelError::Format("octal".into())));
        assert_eq!(of("=hex"), Err(LabelError::Empty));
    }

    #[test]
    fn id_must_round_trip() {
        let hex = IdFormat::Hex;
        assert_eq!(
            hex.read("00000000000000ff"),
            Some([0, 0, 0, 0, 0, 0, 0, 255])
        );
        assert_eq!(hex.read::<8>("00000000000000FF"), None);
        assert_eq!(hex.read::<8>("0000000000000000"), None);
        assert_eq!(hex.read::<8>("ff"), None);
        assert_eq!(hex.read::<8>("00000000000000f\u{e9}"), None);
        assert_eq!(hex.write([0x0a; 8]), "0a0a0a0a0a0a0a0a");
        let decimal = IdFormat::Decimal;
        assert_eq!(decimal.read("258"), Some([0, 0, 0, 0, 0, 0, 1, 2]));
        let trace: [u8; 16] = decimal.read("18446744073709551615").unwrap();
        assert_eq!(decimal.write(trace), "18446744073709551615");
        for text in ["18446744073709551616", "-1", "+1", "01", "0", ""] {
            assert_eq!(decimal.read::<8>(text), None, "{text}");
        }
    }
}
