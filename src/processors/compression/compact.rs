//! Merges equal resources and equal scopes of a batch, on the wire.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use crate::component::{BuildContext, Stage};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::senders::CLOSED;
use crate::pipeline::turns::on_a_turn_if_large;
use crate::pipeline::{Consumer, Idle};
use crate::processors::decoding;
use futures_util::future::BoxFuture;
use tributary_memory::Budget;
use tributary_otlp::reader::{Fields, put_varint, varint_len};
use tributary_otlp::{Requests, Signal};

/// The processor for `mode: compact`. Buffers nothing, and processes large batches off the threads that serve
/// sockets.
pub(super) struct Compact {
    next: Arc<dyn Consumer>,
    budget: Arc<Budget>,
}

pub(super) fn stage(cx: &BuildContext) -> Stage {
    let budget = cx.budget.clone();
    Stage::Buffering(Box::new(move |next| {
        let compact = Compact {
            next: next.consumer,
            budget,
        };
        (Arc::new(compact), Box::new(Idle))
    }))
}

impl Consumer for Compact {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let batch_bytes = batch.bytes();
            let room = match batch.signal() {
                Signal::Profiles => match decoding::room(batch.wire().parts(), &self.budget) {
                    Ok(room) => Some(room),
                    // Without memory, the batch is forwarded unchanged instead of refused.
                    Err(_) => return self.next.consume(batch).await,
                },
                _ => None,
            };
            let compact = move || {
                let _room = room;
                compacted(batch)
            };
            let compacted = on_a_turn_if_large(batch_bytes, compact).await;
            let compacted = compacted.ok_or_else(|| Nack::unavailable(CLOSED))?;
            self.next.consume(compacted).await
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }
}

fn compacted(batch: Batch) -> Batch {
    let items = batch.items();
    let compacted = match batch.signal() {
        Signal::Profiles => compact_profiles(batch.wire()),
        _ => compact(batch.wire()),
    };
    let Some(requests) = compacted else {
        return batch;
    };
    let several = batch.wire().parts().len() > requests.parts().len();
    let mut compacted = batch.remade(items, requests);
    if several {
        compacted.mark_joined();
    }
    compacted
}

/// Compacts each request separately.
fn compact_profiles(requests: &Requests) -> Option<Requests> {
    let mut changed = false;
    let parts = requests.parts().iter().map(|part| {
        let smaller = tributary_profiles::compacted(part);
        changed |= smaller.is_some();
        smaller.unwrap_or_else(|| part.clone())
    });
    let parts: Requests = parts.collect();
    changed.then_some(parts)
}

/// The encoded fields of a message, except its entries.
type Header<'a> = SmallVec<[&'a [u8]; 2]>;

/// Identity of a header: the fields of the resource or scope, its attributes sorted by key, and the
/// other fields of the message, separated by empty entries.
type Identity<'a> = SmallVec<[&'a [u8]; 8]>;

/// The field of `Resource` that has its attributes.
const RESOURCE_ATTRIBUTES: u32 = 1;
/// The field of `InstrumentationScope` that has its attributes.
const SCOPE_ATTRIBUTES: u32 = 3;

/// Distinct messages by header, in the order of their first occurrence.
struct Groups<'a, T> {
    /// Index into `groups`, by header.
    index: HashMap<Identity<'a>, usize, RandomState>,
    groups: Vec<(Header<'a>, T)>,
}

impl<T> Default for Groups<'_, T> {
    fn default() -> Self {
        Groups {
            index: HashMap::default(),
            groups: Vec::new(),
        }
    }
}

impl<'a, T: Default> Groups<'a, T> {
    /// Returns the group of the header, whose attributes are in the field `attributes`, and whether the group
    /// existed.
    fn group(&mut self, header: Header<'a>, attributes: u32) -> (Option<&mut T>, bool) {
        let next = self.groups.len();
        let identity = identity(&header, attributes);
        let at = *self.index.entry(identity).or_insert(next);
        if at == next {
            self.groups.push((header, T::default()));
        }
        (self.groups.get_mut(at).map(|(_, group)| group), at < next)
    }
}

/// Entries of a scope, whole fields.
type Entries<'a> = Vec<&'a [u8]>;

/// Merges the requests into one request in which no resource and no scope of a resource occurs twice. Returns `None` if
/// nothing changes.
///
/// Two resources or scopes are equal if all their fields are equal, byte by byte. The order of attributes matters only
/// among attributes with the same key.
fn compact(requests: &Requests) -> Option<Requests> {
    let mut resources: Groups<'_, Groups<'_, Entries<'_>>> = Groups::default();
    let mut others: Entries<'_> = Vec::new();
    let mut any_equal = false;
    for part in requests.parts() {
        for field in Fields::new(part) {
            let field = field.ok()?;
            let Some(resource) = field.value.bytes().filter(|_| field.number == 1) else {
                // Unknown fields apply to the whole request.
                others.push(field.raw);
                continue;
            };
            let (header, scopes) = take_apart(resource)?;
            let (group, equal) = resources.group(header, RESOURCE_ATTRIBUTES);
            any_equal |= equal;
            let group = group?;
            for scope in scopes {
                let scope = Fields::new(scope).next()?.ok()?.value.bytes()?;
                let (header, entries) = take_apart(scope)?;
                let (group, equal) = group.group(header, SCOPE_ATTRIBUTES);
                any_equal |= equal;
                group?.extend(entries);
            }
        }
    }
    any_equal.then(|| Requests::from(bytes::Bytes::from(write(&resources, &others))))
}

/// Returns the [`Identity`]. A header that cannot be parsed is compared unchanged.
fn identity<'a>(header: &[&'a [u8]], attributes: u32) -> Identity<'a> {
    let mut identity = Identity::new();
    let mut sorted: SmallVec<[(&[u8], &[u8]); 16]> = SmallVec::new();
    let mut beside: Identity<'a> = SmallVec::new();
    for raw in header {
        let field = Fields::new(raw).next().and_then(Result::ok);
        let described = field.filter(|field| field.number == 1);
        let Some(described) = described.and_then(|field| field.value.bytes()) else {
            beside.push(raw);
            continue;
        };
        for field in Fields::new(described) {
            match field {
                Ok(field) if field.number == attributes => {
                    let entry = field.value.bytes().unwrap_or_default();
                    let mut fields = Fields::new(entry).map_while(Result::ok);
                    let key = fields.find(|field| field.number == 1);
                    let key = key.and_then(|key| key.value.bytes()).unwrap_or_default();
                    sorted.push((key, field.raw));
                }
                Ok(field) => identity.push(field.raw),
                Err(_) => return header.iter().copied().collect(),
            }
        }
    }
    // The sort is stable, because the order of attributes with equal keys matters.
    sorted.sort_by_key(|(key, _)| *key);
    identity.push(&[]);
    identity.extend(sorted.into_iter().map(|(_, raw)| raw));
    identity.push(&[]);
    identity.extend(beside);
    identity
}

/// Splits a message into its header and its fields with number 2: the scopes of a resource, or the entries of a scope.
fn take_apart(message: &[u8]) -> Option<(Header<'_>, Entries<'_>)> {
    let mut header = Header::new();
    let mut entries = Vec::new();
    for field in Fields::new(message) {
        let field = field.ok()?;
        match field.number {
            2 if field.value.bytes().is_some() => entries.push(field.raw),
            _ => header.push(field.raw),
        }
    }
    Some((header, entries))
}

fn write(resources: &Groups<'_, Groups<'_, Entries<'_>>>, others: &[&[u8]]) -> Vec<u8> {
    let length = |fields: &[&[u8]]| fields.iter().map(|field| field.len()).sum::<usize>();
    let framed = |length: usize| 1 + varint_len(length as u64) + length;
    let mut output = Vec::new();
    for (header, scopes) in &resources.groups {
        let lengths: Vec<usize> = scopes
            .groups
            .iter()
            .map(|(header, entries)| length(header) + length(entries))
            .collect();
        let body = length(header) + lengths.iter().copied().map(framed).sum::<usize>();
        output.reserve(framed(body));
        output.push(1 << 3 | 2);
        put_varint(body as u64, &mut output);
        output.extend(header.iter().copied().flatten());
        for ((header, entries), length) in scopes.groups.iter().zip(lengths) {
            output.push(2 << 3 | 2);
            put_varint(length as u64, &mut output);
            for field in header.iter().chain(entries) {
                output.extend_from_slice(field);
            }
        }
    }
    for field in others {
        output.extend_from_slice(field);
    }
    output
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message as _;

    use super::*;
    use crate::pipeline::testing::Scripted;
    use crate::testing::named_batch;

    fn one(resource: &str, schema_url: &str, scope: &str, record: &str) -> ResourceLogs {
        let key = |key: &str| KeyValue {
            key: key.to_owned(),
            ..KeyValue::default()
        };
        ResourceLogs {
            resource: Some(Resource {
                attributes: vec![key(resource)],
                ..Resource::default()
            }),
            scope_logs: vec![ScopeLogs {
                scope: Some(InstrumentationScope {
                    name: scope.to_owned(),
                    ..InstrumentationScope::default()
                }),
                log_records: vec![LogRecord {
                    event_name: record.to_owned(),
                    ..LogRecord::default()
                }],
                schema_url: String::new(),
            }],
            schema_url: schema_url.to_owned(),
        }
    }

    fn encoded(resource_logs: Vec<ResourceLogs>) -> Bytes {
        let request = ExportLogsServiceRequest { resource_logs };
        request.encode_to_vec().into()
    }

    fn process(requests: impl Into<Requests>, items: usize) -> Batch {
        compacted(Batch::new(Signal::Logs, items, requests))
    }

    /// Resources with their scopes with their records.
    type Shape = Vec<(String, Vec<(String, Vec<String>)>)>;

    fn shape(batch: Batch) -> Shape {
        let request = batch.into_wire().to_bytes();
        let request = ExportLogsServiceRequest::decode(request).unwrap();
        let scope = |scope: ScopeLogs| {
            let records = scope.log_records.into_iter();
            let names = records.map(|record| record.event_name).collect();
            (scope.scope.unwrap().name, names)
        };
        let resource = |from: ResourceLogs| {
            let key = from.resource.unwrap().attributes.remove(0).key;
            (key, from.scope_logs.into_iter().map(scope).collect())
        };
        request.resource_logs.into_iter().map(resource).collect()
    }

    #[test]
    fn equal_resources_merge_and_records_keep_order() {
        let requests: Requests = [
            encoded(vec![one("a", "", "x", "1"), one("b", "", "x", "2")]),
            encoded(vec![one("a", "", "y", "3"), one("a", "", "x", "4")]),
        ]
        .into_iter()
        .collect();
        let batch = process(requests, 4);
        assert_eq!(batch.items(), 4);
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let scope = |name: &str, records: &[&str]| (name.to_owned(), words(records));
        let expected: Shape = vec![
            (
                "a".to_owned(),
                vec![scope("x", &["1", "4"]), scope("y", &["3"])],
            ),
            ("b".to_owned(), vec![scope("x", &["2"])]),
        ];
        assert_eq!(shape(batch), expected);
    }

    #[test]
    fn different_resources_are_not_copied() {
        let mut other = encoded(vec![one("a", "", "x", "3")]).to_vec();
        // An unknown field of the resource's message.
        let resource = other.split_off(2);
        let mut unknown = vec![1 << 3 | 2];
        put_varint(resource.len() as u64 + 3, &mut unknown);
        unknown.extend(resource);
        unknown.extend([15 << 3 | 2, 1, b'?']);
        let requests: Requests = [
            encoded(vec![one("a", "", "x", "1")]),
            encoded(vec![one("a", "schema", "x", "2")]),
            unknown.into(),
        ]
        .into_iter()
        .collect();
        let batch = process(requests.clone(), 3);
        assert_eq!(batch.wire().parts(), requests.parts());
    }

    #[test]
    fn unknown_fields_stay() {
        let mut request = encoded(vec![one("a", "", "x", "1"), one("a", "", "x", "2")]).to_vec();
        request.extend([15 << 3 | 2, 1, b'?']);
        let compacted = process(Bytes::from(request), 2).into_wire().to_bytes();
        assert!(compacted.ends_with(&[15 << 3 | 2, 1, b'?']));
    }

    #[test]
    fn profile_dictionary_loses_duplicates_but_no_sample() {
        let mut request = tributary_profiles::testing_requests::named("s", 1, ["a", "b"]);
        let tables = request.dictionary.as_mut().unwrap();
        tables.string_table.push("orphan".to_owned());
        let again = request.resource_profiles[0].clone();
        request.resource_profiles.push(again);
        let batch = Batch::new(Signal::Profiles, 4, Bytes::from(request.encode_to_vec()));
        let before = batch.bytes();
        let compacted = super::compacted(batch);
        assert_eq!(compacted.items(), 4);
        assert!(compacted.bytes() < before);
        let bytes = compacted.wire().to_bytes();
        assert_eq!(tributary_otlp::count(Signal::Profiles, &bytes), 4);
        assert!(!bytes.windows(6).any(|window| window == b"orphan"));
        let already = named_batch("s", ["a"]);
        let same = super::compacted(already.clone());
        assert!(same.wire().len() <= already.bytes());
    }

    #[test]
    fn attribute_order_matters_only_for_equal_keys() {
        let with = |keys: [(&str, &str); 2], record: &str| {
            let mut one = one("a", "", "x", record);
            let attribute = |(key, value): (&str, &str)| KeyValue {
                key: key.to_owned(),
                value: Some(AnyValue {
                    value: Some(Value::StringValue(value.to_owned())),
                }),
                ..KeyValue::default()
            };
            let attributes: Vec<KeyValue> = keys.into_iter().map(attribute).collect();
            one.scope_logs[0].scope.as_mut().unwrap().attributes = attributes.clone();
            one.resource.as_mut().unwrap().attributes = attributes;
            encoded(vec![one])
        };
        let resources = |first, second| {
            let requests = [with(first, "1"), with(second, "2")];
            let requests: Requests = requests.into_iter().collect();
            let shape = shape(process(requests, 2));
            shape
                .iter()
                .map(|(_, scopes)| scopes.len())
                .collect::<Vec<_>>()
        };
        let (a, b) = (("a", "1"), ("b", "2"));
        assert_eq!(resources([a, b], [b, a]), [1]);
        assert_eq!(resources([a, b], [a, ("b", "3")]).len(), 1 + 1);
        assert_eq!(resources([a, ("a", "2")], [("a", "2"), a]).len(), 2);
    }

    #[tokio::test]
    async fn profiles_without_decode_memory_pass_unchanged() {
        let next = Scripted::new([]);
        let compact = Compact {
            next: next.clone(),
            budget: Budget::new(2_000),
        };
        let batch = named_batch("s", ["a", "b"]);
        let bytes = batch.clone().into_wire().to_bytes();
        compact.consume(batch).await.unwrap();
        let taken = next.batches().remove(0).into_wire().to_bytes();
        assert_eq!(taken.as_ptr(), bytes.as_ptr());
    }
}
