//! Grouping of a request's content by topic and key.

use std::collections::HashMap;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use tributary_otlp::Signal;
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::{Field, Fields};
use tributary_otlp::view::{AnyValue, Attribute, Message, ResourceEntry, View, string_table};

/// Resources, scopes and spans are at these places of their messages.
const RESOURCE: u32 = 1;
const SCOPE: u32 = 2;
const SPAN: u32 = 2;

/// Settings that determine the topic and the key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Grouping {
    /// The resource attribute that names the topic; empty if the topic is fixed.
    pub(super) topic_attribute: String,
    /// Whether records have keys: the trace id, or a hash of the resource.
    pub(super) has_keys: bool,
}

/// Telemetry with the same topic and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// The topic that the resource names, if any.
    pub(super) topic: Option<String>,
    /// Key of the record; empty without a key.
    pub(super) key: Bytes,
    pub(super) request: Bytes,
}

impl Grouping {
    /// Whether requests must be split into groups.
    pub(super) fn is_whole(&self) -> bool {
        self.topic_attribute.is_empty() && !self.has_keys
    }

    /// Returns the groups of a valid request, in the order of their first occurrence. Data outside of resources is
    /// part of every group; for profiles, only the used entries of the dictionary are.
    pub(super) fn groups(&self, signal: Signal, request: &Bytes) -> Vec<Group> {
        if self.is_whole() {
            return vec![Group {
                topic: None,
                key: Bytes::new(),
                request: request.clone(),
            }];
        }
        let is_resource =
            |field: &Field<'_>| field.number == RESOURCE && field.value.bytes().is_some();
        let strings = match signal {
            Signal::Profiles => string_table(request),
            _ => Vec::new(),
        };
        let mut shared = Vec::new();
        let mut groups = Groups::default();
        for field in fields(request) {
            if !is_resource(&field) {
                shared.extend_from_slice(field.raw);
                continue;
            }
            let entry = field.value.bytes().unwrap_or_default();
            let attributes = attributes(entry, &strings);
            let topic = self.topic(&attributes);
            match (self.has_keys, signal) {
                (false, _) => groups.of(topic, Bytes::new()).extend_from_slice(field.raw),
                (true, Signal::Traces) => traces(entry, &topic, &mut groups),
                (true, _) => groups
                    .of(topic, key(&attributes))
                    .extend_from_slice(field.raw),
            }
        }
        let all = groups.all.into_iter();
        let finished = all.map(|(topic, key, mut request)| {
            request.extend_from_slice(&shared);
            let request = Bytes::from(request);
            let request = match signal {
                Signal::Profiles => tributary_profiles::compacted(&request).unwrap_or(request),
                _ => request,
            };
            Group {
                topic,
                key,
                request,
            }
        });
        finished.collect()
    }

    fn topic(&self, attributes: &[(&str, Vec<u8>)]) -> Option<String> {
        let named = attributes
            .iter()
            .find(|(key, _)| *key == self.topic_attribute && !self.topic_attribute.is_empty());
        let (_, value) = named?;
        let text = AnyValue::view(Message::new(value)).to_text().into_owned();
        super::is_topic(&text).then_some(text)
    }
}

/// The groups found so far: topic, key, and encoded request.
#[derive(Default)]
struct Groups {
    all: Vec<(Option<String>, Bytes, Vec<u8>)>,
    places: HashMap<(Option<String>, Bytes), usize>,
}

impl Groups {
    fn of(&mut self, topic: Option<String>, key: Bytes) -> &mut Vec<u8> {
        let next = self.all.len();
        let place = *self
            .places
            .entry((topic.clone(), key.clone()))
            .or_insert(next);
        if place == next {
            self.all.push((topic, key, Vec::new()));
        }
        &mut self.all[place].2
    }
}

/// Adds the spans of a resource to the groups of their traces. Each group has copies of the resource and scopes.
fn traces(entry: &[u8], topic: &Option<String>, groups: &mut Groups) {
    let mut order: Vec<&[u8]> = Vec::new();
    // By trace: the scopes, by their places, with their spans.
    let mut by_trace: HashMap<&[u8], Vec<(usize, Vec<u8>)>> = HashMap::new();
    let scopes: Vec<&[u8]> = messages(entry, SCOPE).collect();
    for (at, scope) in scopes.iter().enumerate() {
        for field in fields(scope).filter(|field| field.number == SPAN) {
            let span = field.value.bytes().unwrap_or_default();
            let id = messages(span, 1).last().unwrap_or_default();
            let trace = by_trace.entry(id).or_insert_with(|| {
                order.push(id);
                Vec::new()
            });
            if trace.last().is_none_or(|(scope, _)| *scope != at) {
                trace.push((at, rest_of(scope, SPAN)));
            }
            if let Some((_, body)) = trace.last_mut() {
                body.extend_from_slice(field.raw);
            }
        }
    }
    let head = rest_of(entry, SCOPE);
    for id in order {
        let mut body = head.clone();
        for (_, scope) in by_trace.remove(id).unwrap_or_default() {
            put_delimited(SCOPE, &scope, &mut body);
        }
        put_delimited(RESOURCE, &body, groups.of(topic.clone(), hexadecimal(id)));
    }
}

/// Returns the attributes of a resource: keys, and encoded values. The references of profiles to keys and strings are
/// resolved, except inside lists and maps; such references only change the key.
fn attributes<'a>(entry: &'a [u8], strings: &[&'a str]) -> Vec<(&'a str, Vec<u8>)> {
    let string = |at: i32| {
        let at = usize::try_from(at).ok()?;
        strings.get(at).copied()
    };
    let read = |attribute: Attribute<'a>| {
        let key = match attribute.key() {
            "" => string(attribute.key_strindex()).unwrap_or_default(),
            key => key,
        };
        let mut value = Vec::new();
        match attribute.value() {
            Some(AnyValue::StringIndex(at)) => {
                put_delimited(1, string(at).unwrap_or_default().as_bytes(), &mut value);
            }
            _ => value.extend(messages(attribute.message().encoded(), 2).flatten()),
        }
        (key, value)
    };
    let resource = ResourceEntry::view(Message::new(entry)).resource();
    let attributes = resource.map(|resource| resource.attributes().map(read).collect());
    attributes.unwrap_or_default()
}

/// Returns a hash of attributes that does not depend on their order.
fn key(attributes: &[(&str, Vec<u8>)]) -> Bytes {
    let mut sorted: Vec<_> = attributes.iter().collect();
    sorted.sort_unstable();
    let mut text = Vec::new();
    for (key, value) in sorted {
        put_delimited(1, key.as_bytes(), &mut text);
        put_delimited(2, value, &mut text);
    }
    Bytes::copy_from_slice(&xxh3_128(&text).to_be_bytes())
}

fn hexadecimal(id: &[u8]) -> Bytes {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| DIGITS.get(usize::from(digit)))
        .copied()
        .collect()
}

/// Returns the fields of a message except those with the given number.
fn rest_of(message: &[u8], number: u32) -> Vec<u8> {
    let rest = fields(message).filter(|field| field.number != number);
    rest.flat_map(|field| field.raw).copied().collect()
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}
