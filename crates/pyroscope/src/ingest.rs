//! The query of `/ingest`.

use crate::name::{NameError, SeriesName, parse};

/// Sample rate in Hz of a request without `sampleRate`, as in Pyroscope.
const DEFAULT_RATE: u32 = 100;
/// Longest name of an agent or format, in bytes.
const MAX_WORD: usize = 128;

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IngestFormat {
    /// pprof, alone or in a form.
    Pprof,
    /// Java Flight Recorder, alone or in a form.
    Jfr,
    /// Folded stacks with a value at the end of each line.
    Groups,
    /// Lines of a stack each, which counts 1.
    Lines,
    /// Pyroscope's prefix tree of stacks.
    Trie,
    /// Pyroscope's tree of frames.
    Tree,
    /// JSON of speedscope.
    Speedscope,
}

/// The parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingest {
    /// Service and labels.
    pub name: SeriesName,
    /// Start in nanoseconds since 1970 (UTC); the time of the request if absent.
    pub from: u64,
    /// End in nanoseconds since 1970 (UTC); the time of the request if absent.
    pub until: u64,
    /// Samples per second; 0 if the values are not samples.
    pub rate: u32,
    /// Name of the agent, such as `gospy`; empty if absent.
    pub spy: String,
    format: String,
}

/// The reason why a query is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The name is missing or malformed.
    #[error("the parameter `name` is not usable: {0}")]
    Name(#[from] NameError),
    /// A time is not a number.
    #[error(
        "the parameter `{0}` must be a time since 1970: 13 digits are milliseconds, 16 microseconds, 19 nanoseconds, \
         and fewer than 12 seconds"
    )]
    Time(&'static str),
    /// The end is before the start.
    #[error("the parameter `until` is before `from`")]
    Order,
    /// The sample rate is not a whole number.
    #[error("the parameter `sampleRate` must be a whole number of samples per second")]
    Rate,
    /// The name of the agent is too long or has control characters.
    #[error("the parameter `spyName` must have at most {MAX_WORD} printable characters")]
    Spy,
    /// The format is unknown.
    #[error(
        "unknown format `{0}`; available: pprof, jfr, folded (or groups), lines, trie, tree, speedscope"
    )]
    Format(String),
}

impl Ingest {
    /// Reads decoded parameters. `now` is the time of the request in nanoseconds since 1970. Unknown parameters are
    /// ignored, as are `units` and `aggregationType`, because the type of a profile follows from its name.
    ///
    /// # Errors
    /// See [`IngestError`].
    pub fn of(
        parameters: impl IntoIterator<Item = (String, String)>,
        now: u64,
    ) -> Result<Self, IngestError> {
        let mut name = String::new();
        let mut ingest = Ingest {
            name: SeriesName::default(),
            from: now,
            until: now,
            rate: DEFAULT_RATE,
            spy: String::new(),
            format: String::new(),
        };
        for (key, value) in parameters {
            match key.as_str() {
                _ if value.is_empty() => {}
                "name" => name = value,
                "from" => ingest.from = time(&value).ok_or(IngestError::Time("from"))?,
                "until" => ingest.until = time(&value).ok_or(IngestError::Time("until"))?,
                "sampleRate" => {
                    ingest.rate = value.parse().map_err(|_| IngestError::Rate)?;
                }
                "spyName" => ingest.spy = value,
                "format" => ingest.format = value,
                _ => {}
            }
        }
        ingest.name = parse(&name)?;
        if ingest.spy.len() > MAX_WORD || ingest.spy.contains(char::is_control) {
            return Err(IngestError::Spy);
        }
        match ingest.from > ingest.until {
            true => Err(IngestError::Order),
            false => Ok(ingest),
        }
    }

    /// Returns the format of a body with this content type. Without a format, a form has pprof, and any other body has
    /// folded stacks.
    ///
    /// # Errors
    /// The format is unknown.
    pub fn format(&self, content_type: &str) -> Result<IngestFormat, IngestError> {
        match self.format.as_str() {
            "pprof" => Ok(IngestFormat::Pprof),
            "jfr" => Ok(IngestFormat::Jfr),
            "folded" | "groups" => Ok(IngestFormat::Groups),
            "lines" => Ok(IngestFormat::Lines),
            "trie" => Ok(IngestFormat::Trie),
            "tree" => Ok(IngestFormat::Tree),
            "speedscope" => Ok(IngestFormat::Speedscope),
            "" => Ok(match content_type {
                "binary/octet-stream+trie" => IngestFormat::Trie,
                "binary/octet-stream+tree" => IngestFormat::Tree,
                "multipart/form-data" => IngestFormat::Pprof,
                _ => IngestFormat::Groups,
            }),
            other => {
                let shown = other.chars().filter(|c| !c.is_control()).take(MAX_WORD);
                Err(IngestError::Format(shown.collect()))
            }
        }
    }
}

/// Parses a time: seconds, milliseconds, microseconds or nanoseconds by the number of digits. Returns nanoseconds.
fn time(text: &str) -> Option<u64> {
    let digits = text.trim();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    let unit = match digits.len() {
        0..=11 => 1_000_000_000,
        13 => 1_000_000,
        16 => 1000,
        19 => 1,
        _ => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000_000_000;

    fn of(parameters: &[(&str, &str)]) -> Result<Ingest, IngestError> {
        let owned = parameters
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Ingest::of(owned, NOW)
    }

    #[test]
    fn times_are_told_apart_by_their_digits() {
        for (text, nanos) in [
            ("1615709120", Some(1_615_709_120_000_000_000)),
            ("1615709120123", Some(1_615_709_120_123_000_000)),
            ("1615709120123456", Some(1_615_709_120_123_456_000)),
            ("1615709120123456789", Some(1_615_709_120_123_456_789)),
            ("0", Some(0)),
            ("", None),
            ("now-10s", None),
            ("-1", None),
            ("1615709120.5", None),
            ("161570912012", None),
            ("99999999999", None),
            ("18446744073709551616", None),
        ] {
            assert_eq!(time(text), nanos, "{text}");
        }
    }

    #[test]
    fn missing_parameters_have_the_defaults_of_pyroscope() {
        let ingest = of(&[("name", "a"), ("units", "samples"), ("spyName", "")]).unwrap();
        assert_eq!((ingest.from, ingest.until, ingest.rate), (NOW, NOW, 100));
        assert_eq!(ingest.format("text/plain"), Ok(IngestFormat::Groups));
        assert_eq!(
            ingest.format("multipart/form-data"),
            Ok(IngestFormat::Pprof)
        );
        assert_eq!(
            ingest.format("binary/octet-stream+tree"),
            Ok(IngestFormat::Tree)
        );
    }

    #[test]
    fn malformed_parameters_are_named() {
        let with = |key, value| of(&[("name", "a"), (key, value)]).unwrap_err().to_string();
        assert!(of(&[]).unwrap_err().to_string().contains("`name`"));
        assert!(with("from", "yesterday").contains("`from`"));
        assert!(with("until", "1").contains("before `from`"));
        for rate in ["-1", "fast"] {
            assert!(with("sampleRate", rate).contains("`sampleRate`"));
        }
        let unknown = of(&[("name", "a"), ("format", "perf")]).unwrap();
        let unknown = unknown.format("").unwrap_err().to_string();
        assert!(unknown.starts_with("unknown format `perf`"), "{unknown}");
    }
}
