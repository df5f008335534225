//! Parameters of a request, and the query that they describe.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::Asked;
use super::error::ApiError;
use crate::serving::query::decode;
use tributary_profile_store::query::SpanSelection;
use tributary_profile_store::series::{PROFILE_TYPE, TYPE};
use tributary_profile_store::{ProfileStore, Query, QueryLimits, Selector, Zoom};

/// Names of all parameters, so that a mistyped one is an error and not without effect.
const NAMES: [&str; 23] = [
    "store",
    "query",
    "from",
    "until",
    "type",
    "trace_id",
    "span_id",
    "before_query",
    "before_from",
    "before_until",
    "normalize",
    "step",
    "by",
    "max_frames",
    "zoom",
    "skip",
    "sort",
    "limit",
    "function",
    "format",
    "as",
    "width",
    "title",
];
const NANOS_PER_MILLI: u64 = 1_000_000;
/// Length of the range if no beginning is given.
const DEFAULT_RANGE: Duration = Duration::from_secs(3600);
/// Maximum length of a query string, in bytes: a path of functions with long names fits.
const MAX_QUERY_LENGTH: usize = 64 << 10;

/// Parameters by name, each at most once.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Parses a query string (`application/x-www-form-urlencoded`).
    pub(super) fn parse(text: Option<&str>) -> Result<Self, ApiError> {
        let text = text.unwrap_or_default();
        if text.len() > MAX_QUERY_LENGTH {
            return Err(ApiError::bad(format!(
                "the parameters have more than {MAX_QUERY_LENGTH} bytes"
            )));
        }
        let mut params: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let wrong = || ApiError::bad(format!("`{pair}` is not percent-encoded UTF-8"));
            let (name, value) = (
                decode(name).ok_or_else(wrong)?,
                decode(value).ok_or_else(wrong)?,
            );
            if !NAMES.contains(&name.as_str()) {
                let names = NAMES.join(", ");
                return Err(ApiError::bad(format!(
                    "unknown parameter `{name}`; known: {names}"
                )));
            }
            if params.iter().any(|(known, _)| *known == name) {
                return Err(ApiError::bad(format!(
                    "the parameter `{name}` is given twice"
                )));
            }
            params.push((name, value));
        }
        Ok(Params(params))
    }

    /// Returns the value of a parameter; `None` for an empty one.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// Returns the value of a parameter, which may be empty.
    pub(super) fn given(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a number within bounds.
    pub(super) fn number(
        &self,
        name: &str,
        default: usize,
        bounds: Range<usize>,
    ) -> Result<usize, ApiError> {
        let Some(text) = self.get(name) else {
            return Ok(default);
        };
        let number = text.parse().ok().filter(|number| bounds.contains(number));
        number.ok_or_else(|| {
            let (least, most) = (bounds.start, bounds.end - 1);
            ApiError::bad(format!(
                "`{name}` must be a number from {least} to {most}, and is `{text}`"
            ))
        })
    }

    /// Returns one of several words; the first one is the default.
    pub(super) fn word(
        &self,
        name: &str,
        words: &[&'static str],
    ) -> Result<&'static str, ApiError> {
        let first = words.first().copied().unwrap_or_default();
        let text = self.get(name).unwrap_or(first);
        let found = words.iter().find(|word| **word == text);
        found.copied().ok_or_else(|| {
            let all = words.join(", ");
            ApiError::bad(format!("`{name}` must be one of {all}, and is `{text}`"))
        })
    }

    /// Returns the address of a part of a tree.
    pub(super) fn zoom(&self) -> Result<Zoom, ApiError> {
        let path = match self.get("zoom") {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                ApiError::bad(format!(
                    "`zoom` must be a JSON array of function names from the root on, such as \
                     [\"main\",\"run\"]: {error}"
                ))
            })?,
        };
        let skip = self.number("skip", 0, 0..usize::MAX)?;
        Ok(Zoom { path, skip })
    }

    /// Whether the request compares two selections.
    pub(super) fn compares(&self) -> bool {
        let names = ["before_query", "before_from", "before_until"];
        names.iter().any(|name| self.given(name).is_some())
    }
}

/// The selection of a request, or the selection to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Selected,
    Before,
}

impl Asked {
    /// Returns the store that a request names, or else the first one.
    pub(super) fn store(&self, params: &Params) -> Result<Arc<ProfileStore>, ApiError> {
        let Some(id) = params.get("store") else {
            return self.first_store();
        };
        self.stores.get(id).ok_or_else(|| {
            let ids: Vec<String> = self.stores.all().into_iter().map(|(id, _)| id).collect();
            ApiError::not_found(format!(
                "there is no profile store `{id}`; available: {}",
                ids.join(", ")
            ))
        })
    }

    pub(super) fn first_store(&self) -> Result<Arc<ProfileStore>, ApiError> {
        let first = self.stores.all().into_iter().next();
        first.map(|(_, store)| store).ok_or_else(|| {
            ApiError::not_found(
                "there is no profile store: add the exporter `profile_store` to a profiles pipeline",
            )
        })
    }

    pub(super) fn query(&self, params: &Params, side: Side) -> Result<Query, ApiError> {
        let of_side = |name: &'static str, before: &'static str| {
            let given = (side == Side::Before).then(|| params.given(before));
            given.flatten().or_else(|| params.given(name))
        };
        let mut selector: Selector = of_side("query", "before_query")
            .unwrap_or_default()
            .parse()?;
        if let Some(kind) = params.get("type") {
            // An id has colons; a name such as `cpu` has none.
            let label = if kind.contains(':') {
                PROFILE_TYPE
            } else {
                TYPE
            };
            selector = selector.and_equal(label, kind);
        }
        let spans = match (params.get("trace_id"), params.get("span_id")) {
            (None, None) => None,
            (Some(id), None) => {
                Some(SpanSelection::Trace(hex(id).ok_or_else(|| {
                    ApiError::bad("`trace_id` must have 32 hexadecimal digits")
                })?))
            }
            (None, Some(id)) => {
                let id = hex(id)
                    .ok_or_else(|| ApiError::bad("`span_id` must have 16 hexadecimal digits"))?;
                Some(SpanSelection::Ids([id].into()))
            }
            (Some(_), Some(_)) => {
                return Err(ApiError::bad(
                    "`trace_id` and `span_id` cannot be combined: remove one of the two",
                ));
            }
        };
        let range = range(
            of_side("from", "before_from").filter(|text| !text.is_empty()),
            of_side("until", "before_until").filter(|text| !text.is_empty()),
        )?;
        Ok(Query {
            selector,
            range,
            spans,
            limits: self.limits(),
        })
    }

    /// Returns the limits of a query: the time that is left, and all memory that the store has for queries.
    pub(super) fn limits(&self) -> QueryLimits {
        QueryLimits {
            bytes: u64::MAX,
            time: self.deadline.saturating_duration_since(Instant::now()),
        }
    }
}

/// Returns the range between two times, in nanoseconds since 1970.
fn range(from: Option<&str>, until: Option<&str>) -> Result<Range<u64>, ApiError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let until = until.map_or(Ok(now), |text| time("until", text, now))?;
    let from = match from {
        Some(text) => time("from", text, now)?,
        None => until.saturating_sub(DEFAULT_RANGE),
    };
    if from >= until {
        return Err(ApiError::bad("`from` must be before `until`"));
    }
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(nanos(from)..nanos(until))
}

/// Parses milliseconds since 1970, or a time relative to now.
fn time(name: &str, text: &str, now: Duration) -> Result<Duration, ApiError> {
    let wrong = || {
        ApiError::bad(format!(
            "`{name}` must be milliseconds since 1970, or relative such as `now` or `now-15m`, and is `{text}`"
        ))
    };
    match text.strip_prefix("now") {
        None => text.parse().map(Duration::from_millis).map_err(|_| wrong()),
        Some("") => Ok(now),
        Some(rest) => {
            let back = rest
                .strip_prefix('-')
                .and_then(duration)
                .ok_or_else(wrong)?;
            Ok(now.saturating_sub(back))
        }
    }
}

/// Parses a duration such as `15s`, `90m`, `1h30m` or `7d`; a bare number is milliseconds.
pub(super) fn duration(text: &str) -> Option<Duration> {
    if let Ok(millis) = text.parse() {
        return Some(Duration::from_millis(millis));
    }
    if let Some(days) = text.strip_suffix('d') {
        let days: u32 = days.parse().ok()?;
        return Duration::from_secs(24 * 3600).checked_mul(days);
    }
    let parsed: tributary_config::units::Duration = text.parse().ok()?;
    Some(*parsed)
}

/// Returns nanoseconds as milliseconds.
pub(super) fn millis(nanos: u64) -> u64 {
    nanos / NANOS_PER_MILLI
}

/// Parses bytes in hexadecimal digits.
pub(super) fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_milliseconds_or_relative() {
        let now = Duration::from_secs(1_000_000);
        let seconds = |text| time("from", text, now).map(|time| time.as_secs());
        for (text, expected) in [
            ("now", 1_000_000),
            ("now-15s", 999_985),
            ("now-1h30m", 994_600),
            ("now-7d", 395_200),
            ("now-90d", 0),
            ("5000", 5),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["now+1h", "now-", "now-1y", "now-d", "-5", "1.5", "noon"] {
            let error = seconds(text).unwrap_err();
            assert!(error.message.contains(text), "{text}");
        }
    }

    #[test]
    fn identifiers_have_all_their_digits() {
        assert_eq!(hex("00ffA0"), Some([0, 255, 160]));
        for wrong in ["00ff", "00ffA0b1", "00ffzz", "+0+0+0", "\u{e9}\u{e9}\u{e9}"] {
            assert_eq!(hex::<3>(wrong), None, "{wrong}");
        }
    }
}
