//! Encoded requests of profiles become larger ones, or smaller ones, sample by sample the same.
//!
//! This is what batching needs. Nothing is added up and nothing mended, so that what goes out is exactly what came in:
//! a request for which that cannot be said is left as it is.

use bytes::Bytes;

use super::compact::Compactor;
use super::ingest::ingest;
use super::layout;
use super::model::Profiles;
use super::reindex::Memo;
use tributary_otlp::reader::{Fields, Value};

/// A request that others became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The request.
    pub request: Bytes,
    /// Which ones it was made of: positions in what was given.
    pub parts: Vec<usize>,
}

/// Makes one request of several, with one dictionary and each resource and scope once.
///
/// More than one comes out where the one would have more than `most` bytes, and for requests that cannot be read without
/// a loss: those of another version of the protocol and those that break its rules. They stay as they are, alone.
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
                    // Rare: together they are larger than each for itself.
                    todo.push(group.split_off(group.len() / 2));
                    todo.push(group);
                }
            }
        }
    }
    joined
}

/// The same request in fewer bytes: one dictionary entry for what is equal and none that nothing refers to, each resource
/// and scope once, every sample as it was. Nothing if that makes it no smaller, or if it cannot be read without a loss.
pub fn compacted(request: &Bytes) -> Option<Bytes> {
    collected(request).filter(|compacted| compacted.len() < request.len())
}

/// The same, be it larger: none of what nothing refers to is in it. Nothing if it cannot be read without a loss.
pub fn collected(request: &[u8]) -> Option<Bytes> {
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

/// Adds a request, if nothing of it gets lost on the way. What is not known would not be written; who encodes the same in
/// more bytes than needed may be taken for a sender of such.
fn add(compactor: &mut Compactor, request: &[u8]) -> bool {
    if layout::recognise(request).is_err() {
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

/// The profiles of a request, if nothing of it that is known gets lost on the way.
pub(super) fn profiles(request: &[u8]) -> Option<Profiles> {
    layout::recognise(request).ok()?;
    let mut profiles = Profiles::default();
    let mut memo = Memo::default();
    let ingested = ingest(request, &mut profiles.dictionary, &mut memo, None).ok()?;
    // A sample without observations breaks a rule. Reading leaves it out, but it was counted.
    if ingested.unobserved > 0 {
        return None;
    }
    profiles.resources = ingested.resources;
    Some(profiles)
}

/// Whether the samples of a request can all be read: it is of a version that is known, and each has observations, without
/// which it would be left out though it was counted. Whether its indices lead anywhere is found when it is read.
pub fn understood(request: &[u8]) -> bool {
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
    layout::recognise(request).is_ok() && samples.all(observed)
}
