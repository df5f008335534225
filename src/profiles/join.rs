//! Encoded requests of profiles become larger ones, or smaller ones, sample by sample the same.
//!
//! This is what batching needs. Nothing is added up and nothing mended, so that what goes out is exactly what came in:
//! a request for which that cannot be said is left as it is.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use prost::Message as _;

use super::compact::Compactor;
use super::ingest::ingest;
use super::layout;
use super::model::Profiles;
use super::reindex::Memo;

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
            let taken =
                read(part, Unknown::Refused).is_some_and(|request| compactor.add(&request).is_ok());
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
    let mut compactor = Compactor::keeping_samples();
    compactor.add(&read(request, Unknown::Refused)?).ok()?;
    let compacted = compactor.finish().encode();
    (compacted.len() < request.len()).then_some(compacted)
}

fn alone(part: &Bytes, at: usize) -> Joined {
    Joined {
        request: part.clone(),
        parts: vec![at],
    }
}

/// The profiles of a request, if nothing of it that is known gets lost on the way.
pub(super) fn profiles(request: &[u8]) -> Option<Profiles> {
    let request = understood(request)?;
    let mut profiles = Profiles::default();
    let mut memo = Memo::default();
    profiles.resources = ingest(&request, &mut profiles.dictionary, &mut memo, None).ok()?;
    Some(profiles)
}

/// A request whose samples can all be read. Fields that are not known are left out.
pub fn understood(request: &[u8]) -> Option<ExportProfilesServiceRequest> {
    read(request, Unknown::LeftOut)
}

/// What happens to fields that are not known: those of later versions of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// They are lost.
    LeftOut,
    /// A request with such fields is not read.
    Refused,
}

fn read(request: &[u8], unknown: Unknown) -> Option<ExportProfilesServiceRequest> {
    layout::recognise(request).ok()?;
    let read = ExportProfilesServiceRequest::decode(request).ok()?;
    // What is not known is not written. Who encodes the same in more bytes than needed is taken for such a request too.
    if unknown == Unknown::Refused && read.encoded_len() != request.len() {
        return None;
    }
    // A sample without observations breaks a rule. Reading leaves it out, but it was counted.
    let samples = || {
        let scopes = read.resource_profiles.iter();
        let scopes = scopes.flat_map(|resource| &resource.scope_profiles);
        scopes
            .flat_map(|scope| &scope.profiles)
            .flat_map(|profile| &profile.samples)
    };
    let observed = samples().all(|s| !s.values.is_empty() || !s.timestamps_unix_nano.is_empty());
    observed.then_some(read)
}
