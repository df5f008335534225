//! Merges encoded requests into larger requests, or rewrites them in fewer bytes. Samples stay unchanged.
//!
//! Batching uses this operation. Values are not added and violations are not repaired, so the output has exactly the
//! content of the input. A request without this guarantee stays unchanged.

use bytes::Bytes;

use super::compact::Compactor;
use super::ingest::ingest;
use super::layout;
use super::model::Profiles;
use super::reindex::CopiedEntries;
use tributary_otlp::reader::{Fields, Value};

/// A request merged from several requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Merged request.
    pub request: Bytes,
    /// Positions of the merged requests in the input.
    pub parts: Vec<usize>,
}

/// Merges several requests into one, with one dictionary and each resource and scope once.
///
/// Returns more than one request if the merged request would exceed `most` bytes. Requests that cannot be read without
/// loss stay unchanged and separate, for example because they have another version of the protocol.
pub fn join(parts: &[Bytes], most: usize) -> Vec<Joined> {
    let mut joined = Vec::new();
    let all = (0..parts.len()).collect();
    let mut todo: Vec<Vec<usize>> = vec![all];
    while let Some(mut group) = todo.pop() {
        let mut compactor = Compactor::keeping_samples();
        group.retain(|at| {
            let Some(part) = parts.get(*at) else {
                return false;
            };
            let taken = add(&mut compactor, part);
            if !taken {
                joined.push(alone(part, *at));
            }
            taken
        });
        match group.as_slice() {
            [] => {}
            [at] => joined.extend(parts.get(*at).map(|part| alone(part, *at))),
            _ => {
                let request = compactor.finish().encode();
                if request.len() <= most {
                    joined.push(Joined {
                        request,
                        parts: group,
                    });
                } else {
                    // Rare: the merged request exceeds the sum of the separate requests.
                    todo.push(group.split_off(group.len() / 2));
                    todo.push(group);
                }
            }
        }
    }
    joined
}

/// Rewrites a request with unique dictionary entries, without unreferenced entries, and with each resource and scope
/// once. Samples stay unchanged. Returns `None` if the result is not smaller, or if the request cannot be read without
/// loss.
pub fn compacted(request: &Bytes) -> Option<Bytes> {
    drop_unreferenced(request).filter(|compacted| compacted.len() < request.len())
}

/// Like [`compacted`], but also returns a larger result, so unreferenced entries are always removed. `None` if the
/// request cannot be read without loss.
pub fn drop_unreferenced(request: &[u8]) -> Option<Bytes> {
    let mut compactor = Compactor::keeping_samples();
    if !add(&mut compactor, request) {
        return None;
    }
    Some(compactor.finish().encode())
}

fn alone(part: &Bytes, at: usize) -> Joined {
    Joined {
        request: part.clone(),
        parts: vec![at],
    }
}

/// Adds a request if the addition loses no content. A request with unknown fields is refused, because unknown fields
/// are not written. An encoding longer than necessary may look like an unknown field.
fn add(compactor: &mut Compactor, request: &[u8]) -> bool {
    if layout::check(request).is_err() {
        return false;
    }
    match compactor.ingest(request) {
        Ok(ingested) if !ingested.unknown && ingested.unobserved == 0 => {
            compactor.add_ingested(ingested);
            true
        }
        _ => false,
    }
}

/// Reads the profiles of a request if no known field is lost.
pub(super) fn profiles(request: &[u8]) -> Option<Profiles> {
    layout::check(request).ok()?;
    let mut profiles = Profiles::default();
    let mut memo = CopiedEntries::default();
    let ingested = ingest(request, &mut profiles.dictionary, &mut memo, None).ok()?;
    // A sample without observations violates a rule. Reading drops the sample, although its item was counted.
    if ingested.unobserved > 0 {
        return None;
    }
    profiles.resources = ingested.resources;
    Some(profiles)
}

/// Whether all samples of a request can be read: the version is known, and each sample has observations. A sample
/// without observations would be dropped, although its item was counted. Indices are checked later, when the request is
/// read.
pub fn is_readable(request: &[u8]) -> bool {
    let messages = |message, number: u32| {
        let fields = Fields::new(message).map_while(Result::ok);
        fields
            .filter(move |field| field.number == number)
            .filter_map(|field| field.value.bytes())
    };
    let mut samples = messages(request, 1)
        .flat_map(|resource| messages(resource, 2))
        .flat_map(|scope| messages(scope, 2))
        .flat_map(|profile| messages(profile, 2));
    let observed = |sample| {
        let mut fields = Fields::new(sample).map_while(Result::ok);
        fields.any(|field| match field.value {
            Value::Bytes(packed) => matches!(field.number, 4 | 5) && !packed.is_empty(),
            _ => matches!(field.number, 4 | 5),
        })
    };
    layout::check(request).is_ok() && samples.all(observed)
}
