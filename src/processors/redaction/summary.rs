//! Summary attributes that list the actions on a set of attributes, under the Collector's names.

use prost::Message as _;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};

use super::config::SummaryDetail;
use tributary_otlp::strings::Amendment;

/// Kinds of changes, in the order in which their attributes are written. For each kind, the attribute with the names,
/// if any, precedes the attribute with the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Redacted,
    Masked,
    Allowed,
    Ignored,
    BodyRedacted,
    BodyMasked,
    BodyAllowed,
    BodyIgnored,
}

const DEEDS: [(Option<&str>, &str); 8] = [
    (Some("redaction.redacted.keys"), "redaction.redacted.count"),
    (Some("redaction.masked.keys"), "redaction.masked.count"),
    (Some("redaction.allowed.keys"), "redaction.allowed.count"),
    (None, "redaction.ignored.count"),
    (
        Some("redaction.body.redacted.keys"),
        "redaction.body.redacted.count",
    ),
    (
        Some("redaction.body.masked.keys"),
        "redaction.body.masked.count",
    ),
    (
        Some("redaction.body.allowed.keys"),
        "redaction.body.allowed.count",
    ),
    (None, "redaction.body.ignored.count"),
];

pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    DEEDS
        .iter()
        .flat_map(|(names, count)| names.iter().copied().chain([*count]))
}

/// Changes made to an attribute set so far.
#[derive(Default)]
pub(super) struct Summary {
    deeds: [Names; DEEDS.len()],
    /// The existing summary of an earlier processor in the set.
    found: Vec<Found>,
}

#[derive(Default, Clone)]
struct Names {
    count: i64,
    names: Vec<String>,
    /// Total length of the names, in bytes.
    bytes: usize,
}

/// Maximum total length of the names in a summary's attribute, in bytes. Further names are only counted.
const NAMES: usize = 64 << 10;

struct Found {
    key: String,
    place: (usize, usize),
    value: Option<Value>,
    /// Whether the summary must be written even if it has no new entries.
    changed: bool,
}

impl Summary {
    /// Records a change of the attribute, or part of a body, with this name.
    pub(super) fn add(&mut self, deed: Deed, name: &str, verbosity: SummaryDetail) {
        let Some(entry) = self.deeds.get_mut(deed as usize) else {
            return;
        };
        entry.count += 1;
        if verbosity == SummaryDetail::Debug && entry.bytes + name.len() <= NAMES {
            entry.bytes += name.len();
            entry.names.push(name.to_owned());
        }
    }

    /// Adds an attribute of an existing summary, with its remaining value.
    pub(super) fn found(
        &mut self,
        key: &str,
        place: (usize, usize),
        value: Option<Value>,
        changed: bool,
    ) {
        self.found.push(Found {
            key: key.to_owned(),
            place,
            value,
            changed,
        });
    }

    /// Returns the attributes to write, in the order of [`Deed`]. Names are sorted; existing names are kept.
    pub(super) fn amendments(self, verbosity: SummaryDetail) -> Vec<Amendment> {
        let Summary { deeds, mut found } = self;
        let mut amendments = Vec::new();
        for (done, (names, count)) in deeds.into_iter().zip(DEEDS) {
            if done.count == 0 || verbosity == SummaryDetail::Silent {
                continue;
            }
            if let Some(key) = names
                && verbosity == SummaryDetail::Debug
            {
                let earlier = take(&mut found, key);
                let mut all = done.names;
                if let Some(Value::StringValue(text)) = earlier.as_ref().and_then(Found::value)
                    && !text.is_empty()
                {
                    all.extend(text.split(',').map(str::to_owned));
                }
                all.sort_unstable();
                let value = Value::StringValue(all.join(","));
                amendments.push(amendment(key, earlier, Some(value)));
            }
            let earlier = take(&mut found, count);
            let before = match earlier.as_ref().and_then(Found::value) {
                Some(Value::IntValue(before)) => *before,
                _ => 0,
            };
            let value = Value::IntValue(before.saturating_add(done.count));
            amendments.push(amendment(count, earlier, Some(value)));
        }
        for mut rest in found.into_iter().filter(|found| found.changed) {
            let key = std::mem::take(&mut rest.key);
            let value = rest.value.take();
            amendments.push(amendment(&key, Some(rest), value));
        }
        amendments
    }
}

impl Found {
    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }
}

fn take(found: &mut Vec<Found>, key: &str) -> Option<Found> {
    let at = found.iter().position(|found| found.key == key)?;
    Some(found.remove(at))
}

fn amendment(key: &str, earlier: Option<Found>, value: Option<Value>) -> Amendment {
    let attribute = KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value }),
        ..KeyValue::default()
    };
    Amendment {
        place: earlier.map(|found| found.place.0..found.place.1),
        attribute: attribute.encode_to_vec(),
    }
}
