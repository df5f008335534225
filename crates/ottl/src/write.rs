//! Writes values to fields of encoded parts.
//!
//! A write copies the part once, with the changed field; all other fields keep their bytes, known or not. The result
//! is `None` if the part has the value already.

mod messages;
mod nested;
mod places;
mod profile;

use std::borrow::Cow;

use self::messages::{has_field, inside, set_entry, with_field};
pub(crate) use self::nested::set_at;
use self::places::{Encoding, Place, place};
use super::eval::{Step, member};
use super::path::{Context, Field, Path};
use super::target::{EvaluationTarget, ProfileFields};
use super::value::{DEEPEST, Undecided, Value, check_depth, put_value};
use tributary_otlp::edit::put_delimited;
use tributary_otlp::view::{AnyValue, Attributes, LogRecord, Message, Resource, Span, View as _};

/// A changed part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartChange {
    /// The current part of a context, in encoded form: a span, a metric, the entry of a resource.
    Part(Context, Vec<u8>),
    /// The current profile.
    Profile(Box<ProfileFields>),
    /// The cache of the statements.
    Cache(Vec<u8>),
}

/// Effects of a statement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effect {
    /// The part that changes.
    pub change: Option<PartChange>,
    /// Encoded metrics that the statement adds to the current scope.
    pub added: Vec<Vec<u8>>,
}

impl Effect {
    /// Whether the statement changes nothing.
    pub fn is_empty(&self) -> bool {
        self.change.is_none() && self.added.is_empty()
    }
}

impl From<Option<PartChange>> for Effect {
    fn from(change: Option<PartChange>) -> Self {
        Effect {
            change,
            added: Vec::new(),
        }
    }
}

/// Returns the encoded part of a context.
fn part<'a>(context: Context, here: &EvaluationTarget<'a>) -> &'a [u8] {
    let part = match context {
        Context::Resource => here.resource,
        Context::Scope => here.scope,
        Context::Span | Context::Metric | Context::Log | Context::Profile => here.item,
        Context::SpanEvent | Context::DataPoint => here.inner,
    };
    part.encoded()
}

/// Writes a value to a path.
///
/// # Errors
///
/// The path does not accept the type of the value, or its keys do not fit the current value.
pub(crate) fn write<'v>(
    path: &Path,
    here: &EvaluationTarget<'v>,
    value: &Value<'_>,
) -> Result<Option<PartChange>, Undecided> {
    if path.field == Field::Cache {
        let cache = here.cache.encoded();
        let changed = write_map(1, cache, path, here, value)?;
        return Ok((changed != cache).then_some(PartChange::Cache(changed)));
    }
    if path.context == Context::Profile {
        let Some(before) = here.profile else {
            return Ok(None);
        };
        let mut after = before.clone();
        profile::write(&mut after, path, here, value)?;
        return Ok((after != *before).then(|| PartChange::Profile(Box::new(after))));
    }
    let before = part(path.context, here);
    let Some(place) = place(path.context, path.field, here)? else {
        return Ok(None);
    };
    if place.encoding == Encoding::Map && has_entry(before, &place, path, here, value)? {
        return Ok(None);
    }
    let after = match place.encoding {
        Encoding::Map => inside(before, place.inside, |message| {
            write_map(place.number, message, path, here, value)
        })?,
        Encoding::Value => {
            if path.field == Field::BodyText && !matches!(value, Value::Text(_)) {
                return Err(Undecided::WrongType);
            }
            let body = body(before, path, here, value)?;
            let mut field = Vec::new();
            put_delimited(place.number, &body, &mut field);
            if has_field(before, &[place.number], &field) {
                return Ok(None);
            }
            with_field(before, &[place.number], &field)
        }
        _ => {
            let value = match path.field {
                Field::TraceState if !path.keys.is_empty() => state(before, path, here, value)?,
                _ => None,
            }
            .map_or(Cow::Borrowed(value), Cow::Owned);
            let field = place.encoded(path, &value)?;
            if has_field(message_of(before, &place), place.replaces(), &field) {
                return Ok(None);
            }
            inside(before, place.inside, |message| {
                Ok(with_field(message, place.replaces(), &field))
            })?
        }
    };
    Ok((after != before).then_some(PartChange::Part(path.context, after)))
}

/// Returns the message that a place is in.
fn message_of<'m>(part: &'m [u8], place: &Place) -> &'m [u8] {
    match place.inside {
        Some(number) => messages::field(part, number).unwrap_or_default(),
        None => part,
    }
}

/// Whether the entry of a map at a path with one key has the value already. A statement may repeat a write to a large
/// resource for each of its items, so this must not copy the part.
fn has_entry(
    part: &[u8],
    place: &Place,
    path: &Path,
    here: &EvaluationTarget<'_>,
    value: &Value<'_>,
) -> Result<bool, Undecided> {
    let [key] = path.keys.as_slice() else {
        return Ok(false);
    };
    let Step::Name(key) = key.step(here)? else {
        return Ok(false);
    };
    let Some(current) = messages::entry(message_of(part, place), place.number, &key) else {
        return Ok(false);
    };
    let mut encoded = Vec::new();
    put_value(value, &mut encoded)?;
    Ok(current == encoded)
}

/// Writes a map, or a value inside a map, that is a repeated field of a message.
fn write_map(
    number: u32,
    message: &[u8],
    path: &Path,
    here: &EvaluationTarget<'_>,
    value: &Value<'_>,
) -> Result<Vec<u8>, Undecided> {
    let Some((first, rest)) = path.keys.split_first() else {
        let mut field = Vec::new();
        match value {
            Value::Nil => {}
            Value::Encoded(AnyValue::Map(entries)) => {
                // The entries of the map itself are no deeper than one value.
                check_depth(&AnyValue::Map(entries.clone()), DEEPEST)?;
                for entry in entries.clone() {
                    put_delimited(number, entry.message().encoded(), &mut field);
                }
            }
            Value::Map(entries) => {
                for (key, value) in entries {
                    let mut encoded = Vec::new();
                    put_value(value, &mut encoded)?;
                    put_entry(number, key, &encoded, &mut field);
                }
            }
            _ => return Err(Undecided::WrongType),
        }
        return Ok(with_field(message, &[number], &field));
    };
    let Step::Name(key) = first.step(here)? else {
        return Err(Undecided::NoPosition);
    };
    if rest.is_empty() {
        let mut encoded = Vec::new();
        put_value(value, &mut encoded)?;
        return Ok(set_entry(message, number, &key, &encoded));
    }
    let current = messages::entry(message, number, &key);
    let steps = rest.iter().map(|key| key.step(here));
    let steps: Vec<Step<'_>> = steps.collect::<Result<_, _>>()?;
    let encoded = set_at(current.unwrap_or_default(), &steps, value)?;
    Ok(set_entry(message, number, &key, &encoded))
}

/// Appends an entry of a map as a field.
pub(crate) fn put_entry(number: u32, key: &str, value: &[u8], output: &mut Vec<u8>) {
    let mut entry = Vec::with_capacity(key.len() + value.len() + 8);
    put_delimited(1, key.as_bytes(), &mut entry);
    put_delimited(2, value, &mut entry);
    put_delimited(number, &entry, output);
}

/// Returns the new body of a log record, as an encoded `AnyValue`.
fn body(
    record: &[u8],
    path: &Path,
    here: &EvaluationTarget<'_>,
    value: &Value<'_>,
) -> Result<Vec<u8>, Undecided> {
    if path.keys.is_empty() {
        let mut encoded = Vec::new();
        put_value(value, &mut encoded)?;
        return Ok(encoded);
    }
    let current = LogRecord::view(Message::new(record)).body();
    match current {
        Some(AnyValue::Map(_) | AnyValue::Array(_)) => {}
        _ => return Err(Undecided::NoKeys),
    }
    let steps = path.keys.iter().map(|key| key.step(here));
    let steps: Vec<Step<'_>> = steps.collect::<Result<_, _>>()?;
    set_at(
        messages::field(record, 5).unwrap_or_default(),
        &steps,
        value,
    )
}

/// Returns the trace state with a changed member, which becomes the first (W3C Trace Context, section 3.5).
fn state<'v>(
    span: &[u8],
    path: &Path,
    here: &EvaluationTarget<'_>,
    value: &Value<'_>,
) -> Result<Option<Value<'v>>, Undecided> {
    let (Some(Step::Name(name)), Value::Text(text)) = (
        path.keys.first().map(|key| key.step(here)).transpose()?,
        value,
    ) else {
        return Err(Undecided::WrongType);
    };
    let before = Span::view(Message::new(span)).trace_state();
    let others = before
        .split(',')
        .map(str::trim)
        .filter(|other| !other.is_empty() && member(other, &name).is_none());
    let members = std::iter::once(format!("{name}={text}")).chain(others.map(str::to_owned));
    let members: Vec<String> = members.collect();
    Ok(Some(Value::owned_text(members.join(","))))
}

/// An entry of a map, as an encoded `KeyValue`.
#[derive(Debug, Clone)]
pub(crate) struct MapEntry<'v> {
    pub(crate) key: Cow<'v, str>,
    pub(crate) encoded: Cow<'v, [u8]>,
}

impl<'v> MapEntry<'v> {
    /// Creates an entry from an encoded value.
    pub(crate) fn new(key: Cow<'v, str>, value: &[u8]) -> Self {
        let mut encoded = Vec::with_capacity(key.len() + value.len() + 8);
        put_delimited(1, key.as_bytes(), &mut encoded);
        put_delimited(2, value, &mut encoded);
        MapEntry {
            key,
            encoded: Cow::Owned(encoded),
        }
    }

    /// Returns the encoded value.
    pub(crate) fn value(&self) -> &[u8] {
        messages::field(&self.encoded, 2).unwrap_or_default()
    }

    /// Returns the text, if the value is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match AnyValue::view(Message::new(self.value())) {
            AnyValue::String(text) => Some(text),
            _ => None,
        }
    }
}

/// Returns the entries of a map.
pub(crate) fn entries(map: Attributes<'_>) -> Vec<MapEntry<'_>> {
    map.map(|entry| MapEntry {
        key: Cow::Borrowed(entry.key()),
        encoded: Cow::Borrowed(entry.message().encoded()),
    })
    .collect()
}

/// Writes entries to a path of a map.
pub(crate) fn write_entries(
    path: &Path,
    here: &EvaluationTarget<'_>,
    entries: &[MapEntry<'_>],
) -> Result<Option<PartChange>, Undecided> {
    let mut list = Vec::new();
    for entry in entries {
        put_delimited(1, &entry.encoded, &mut list);
    }
    // A resource has its attributes in the field that a list of entries has, too.
    let map = Resource::view(Message::new(&list)).attributes();
    write(path, here, &Value::Encoded(AnyValue::Map(map)))
}
