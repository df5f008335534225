//! Merges encoded requests into larger ones, or rewrites them in fewer bytes, keeping every sample as it is.
//!
//! This is the operation of batching. No values are added and nothing is repaired, so the output has exactly the
//! content of the input. A request for which this cannot be guaranteed stays unchanged.

use bytes::Bytes;

use super::compact::Compactor;
use super::ingest::ingest;
use super::layout;
use super::model::Profiles;
use super::reindex::CopiedEntries;
use tributary_otlp::reader::{Fields, Value};

/// A request merged from others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Merged request.
    pub request: Bytes,
    /// Positions of the merged requests in the input.
    pub parts: Vec<usize>,
}

/// Merges several requests into one, with one dictionary and each resource and scope once.
///
/// Returns more than one request if the merged request would exceed `most` bytes. Requests that cannot be read
/// without loss, because they have another version of the protocol or break its rules, stay unchanged and alone.
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
                    // Rare: the merged request is larger than all of them together.
                    todo.push(group.split_off(group.len() / 2));
                    todo.push(group);
                }
            }
        }
    }
    joined
}

/// Rewrites a request with unique dictionary entries, without unreferenced entries, and with each resource and
/// scope once. Every sample stays as it is. `None` if the result is not smaller, or the request cannot be read
/// without loss.
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

/// Adds a request if nothing is lost. Unknown fields would not be written, so a request with unknown fields is
/// refused. An encoding longer than necessary may count as an unknown field.
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
    // A sample without observations violates a rule. Reading drops the sample, although it was counted.
    if ingested.unobserved > 0 {
        return None;
    }
    profiles.resources = ingested.resources;
    Some(profiles)
}

/// Whether all samples of a request can be read: the version is known, and each sample has observations. A sample
/// without observations would be dropped although it was counted. Indices are not checked here, but when the
/// request is read.
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
