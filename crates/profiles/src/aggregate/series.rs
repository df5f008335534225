//! Lists the series in an encoded request.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use prost::Message as _;

use super::retain;
use crate::model::ResourceProfiles;
use crate::references::References;
use tributary_otlp::reader::{Field, Fields, Value};

/// Returns a hash of each series in a request. A series becomes one profile of a summary. The hashes record the last
/// occurrence of a series, where a collision is harmless. Faults in the request are ignored here, and reported when the
/// request is added.
pub fn series(request: &[u8], group_by: &[String], hashes: &RandomState) -> Vec<u64> {
    let strings: Vec<&[u8]> = messages(request, 2)
        .flat_map(|dictionary| messages(dictionary, 5))
        .collect();
    let mut references = References::new(&strings);
    let mut all = Vec::new();
    for from in messages(request, 1) {
        let mut head = ResourceProfiles::default();
        for message in messages(from, 1) {
            let _ = head.resource.get_or_insert_default().merge(message);
        }
        if let Some(resource) = &mut head.resource {
            let _ = references.resolve(&mut resource.attributes);
        }
        retain(&mut head, group_by);
        let resource = head.resource.unwrap_or_default().encode_to_vec();
        for from in messages(from, 2) {
            let mut scope = InstrumentationScope::default();
            for message in messages(from, 1) {
                let _ = scope.merge(message);
            }
            for profile in messages(from, 2) {
                let mut hasher = hashes.build_hasher();
                resource.hash(&mut hasher);
                (&scope.name, &scope.version).hash(&mut hasher);
                SeriesKind::of(profile, &strings).hash(&mut hasher);
                all.push(hasher.finish());
            }
        }
    }
    all
}

#[derive(Default, Hash)]
struct SeriesKind<'r> {
    sample_type: [&'r [u8]; 2],
    period_type: [&'r [u8]; 2],
    period: u64,
}

impl<'r> SeriesKind<'r> {
    fn of(profile: &'r [u8], strings: &[&'r [u8]]) -> Self {
        let mut kind = SeriesKind::default();
        let text = |index: u64| {
            let at = usize::try_from(index).unwrap_or(usize::MAX);
            strings.get(at).copied().unwrap_or_default()
        };
        for field in fields(profile) {
            let into = match (field.number, field.value) {
                (1, Value::Bytes(_)) => &mut kind.sample_type,
                (5, Value::Bytes(_)) => &mut kind.period_type,
                (6, Value::Varint(period)) => {
                    kind.period = period;
                    continue;
                }
                _ => continue,
            };
            for field in fields(field.value.bytes().unwrap_or_default()) {
                match (field.number, field.value, &mut *into) {
                    (1, Value::Varint(index), [kind, _]) => *kind = text(index),
                    (2, Value::Varint(index), [_, unit]) => *unit = text(index),
                    _ => {}
                }
            }
        }
        kind
    }
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::new(message).map_while(Result::ok)
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}
