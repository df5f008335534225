//! Sampling log records: by trace id or an attribute, and by the attributes with earlier sampling decisions.

use super::carrier::{Carrier, Decision, Item, Policy, Sampler};
use super::spans;
use super::threshold::{Randomness, Threshold};
use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::Field;
use tributary_otlp::view::{AnyValue, Attribute, Message, View as _};

const THRESHOLD: &str = "sampling.threshold";
const RANDOMNESS: &str = "sampling.randomness";
/// The field of a log record's attributes.
const ATTRIBUTES: u32 = 6;

/// Sampler settings for logs.
#[derive(Debug, Clone)]
pub(super) struct Logs {
    pub(super) sampler: Sampler,
    pub(super) fail_closed: bool,
    pub(super) by_trace_id: bool,
    /// The attribute to hash, in hash mode, for records without a trace id.
    pub(super) attribute: Option<String>,
    /// The attribute with a percentage that replaces the configured one.
    pub(super) priority: Option<String>,
    pub(super) precision: u32,
}

/// The first attribute of a record with some key.
#[derive(Clone)]
struct Found<'a> {
    field: Field<'a>,
    value: AnyValue<'a>,
}

impl<'a> Found<'a> {
    /// Returns the value if it is a nonempty text.
    fn text(&self) -> Option<&'a str> {
        match self.value {
            AnyValue::String("") => None,
            AnyValue::String(text) => Some(text),
            _ => None,
        }
    }
}

impl Logs {
    /// Decides about a record, and writes the decision into a sampled record.
    pub(super) fn sample<'a>(&self, record: &Field<'a>, editor: &mut Editor<'a>) -> Decision {
        let mut trace_id: &[u8] = &[];
        let [mut threshold, mut randomness, mut hashed, mut priority] = [const { None }; 4];
        for field in record.fields().map_while(Result::ok) {
            let Some(bytes) = field.value.bytes() else {
                continue;
            };
            match field.number {
                9 => trace_id = bytes,
                ATTRIBUTES => {
                    let attribute = Attribute::view(Message::new(bytes));
                    let key = attribute.key();
                    let found = || Found {
                        field,
                        value: attribute.value().unwrap_or(AnyValue::Empty),
                    };
                    for (wanted, place) in [
                        (Some(THRESHOLD), &mut threshold),
                        (Some(RANDOMNESS), &mut randomness),
                        (self.attribute.as_deref(), &mut hashed),
                        (self.priority.as_deref(), &mut priority),
                    ] {
                        if wanted == Some(key) && place.is_none() {
                            *place = Some(found());
                        }
                    }
                }
                _ => {}
            }
        }
        let before = read(threshold.as_ref(), randomness.as_ref());
        let item = self.item(trace_id, hashed.as_ref(), before);
        let prioritize = || {
            priority
                .as_ref()
                .and_then(|found| self.prioritized(&found.value))
        };
        let decision = self.sampler.decide(item, self.fail_closed, prioritize);
        if let (true, Some(after)) = (decision.sampled, decision.carrier) {
            let said = |found: &Option<Found<'a>>| found.as_ref().and_then(Found::text);
            // An equivalent text, such as `c00` for `c`, stays unchanged.
            let says_so = after.threshold == said(&threshold).and_then(Threshold::parse);
            let text =
                (!says_so).then(|| after.threshold.map_or_else(String::new, Threshold::text));
            let texts = [
                (THRESHOLD, threshold, text),
                (
                    RANDOMNESS,
                    randomness,
                    after.randomness.map(Randomness::text),
                ),
            ];
            write(texts, record, editor);
        }
        decision
    }

    fn item(&self, trace_id: &[u8], hashed: Option<&Found<'_>>, before: Option<Carrier>) -> Item {
        let Sampler::Hash { seed, .. } = self.sampler else {
            return spans::item(self.sampler, trace_id, before);
        };
        let looked_at = if self.by_trace_id { trace_id } else { &[] };
        let item = spans::item(self.sampler, looked_at, before);
        if item.randomness.is_some() {
            return item;
        }
        let randomness = hashed.and_then(|found| match &found.value {
            AnyValue::Bytes(bytes) => hash(bytes, seed),
            value => hash(value.to_text().as_bytes(), seed),
        });
        let item = Item {
            randomness,
            policy: randomness.map_or(Policy::Missing, |_| Policy::Attribute),
            carrier: before,
            is_unusable: before.is_none(),
            is_independent: false,
        };
        let mut item = spans::with_hash(self.sampler, item);
        if let (None, Some(carrier)) = (randomness, &mut item.carrier) {
            // Unlike a span, a record does not get a randomness that it did not have.
            carrier.randomness = None;
        }
        item
    }

    /// Returns the percentage of the record. (For spans, priorities have another meaning.)
    fn prioritized(&self, priority: &AnyValue<'_>) -> Option<Threshold> {
        let percentage = match priority {
            AnyValue::Double(number) => *number,
            AnyValue::Int(number) => *number as f64,
            _ => return None,
        };
        Threshold::of_probability(percentage / 100.0, self.precision)
    }
}

/// Hashes bytes to a randomness. Returns `None` for empty bytes, because all items without the value would hash alike.
fn hash(bytes: &[u8], seed: u32) -> Option<Randomness> {
    (!bytes.is_empty()).then(|| Randomness::of_hash(bytes, seed))
}

/// Reads the sampling information of a record; returns `None` if it cannot be read.
fn read(threshold: Option<&Found<'_>>, randomness: Option<&Found<'_>>) -> Option<Carrier> {
    let threshold = threshold.and_then(Found::text).map(Threshold::parse);
    let randomness = randomness.and_then(Found::text).map(Randomness::parse);
    Some(Carrier {
        threshold: threshold.map_or(Some(None), |parsed| parsed.map(Some))?,
        randomness: randomness.map_or(Some(None), |parsed| parsed.map(Some))?,
    })
}

/// Sets the attributes in place, or appends them; an empty text removes the attribute.
fn write<'a>(
    texts: [(&str, Option<Found<'a>>, Option<String>); 2],
    record: &Field<'a>,
    editor: &mut Editor<'a>,
) {
    let mut texts = texts;
    let place = |found: &Option<Found<'a>>| {
        found
            .as_ref()
            .map_or(usize::MAX, |found| found.field.offset)
    };
    texts.sort_by_key(|(_, found, _)| place(found));
    for (key, found, text) in texts {
        let Some(text) = text else {
            continue;
        };
        let put = |output: &mut Vec<u8>| {
            let mut value = Vec::new();
            put_delimited(1, text.as_bytes(), &mut value);
            let mut attribute = Vec::new();
            put_delimited(1, key.as_bytes(), &mut attribute);
            put_delimited(2, &value, &mut attribute);
            put_delimited(ATTRIBUTES, &attribute, output);
        };
        match found {
            None if text.is_empty() => {}
            Some(found) if text.is_empty() => editor.delete(&found.field),
            Some(found) if found.text() == Some(&text) => {}
            Some(found) => editor.replace(&found.field, put),
            None => editor.append(record, put),
        }
    }
}
