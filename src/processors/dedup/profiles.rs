//! What profiles are known by.
//!
//! With an id, a profile is known by that and by its sample type, which both are found on the wire. Without one it is
//! decoded, and its content makes the id: it is written into the profile, so that the next hop need not do this again
//! and decides alike.

use bytes::Bytes;

use super::keys::{Keys, NONE, fields, messages};
use crate::profiles::Dictionary;
use crate::profiles::identity::{Delivery, Identities, delivery_key};
use crate::profiles::ingest::ingest;
use crate::profiles::model::ResourceProfiles;
use crate::profiles::reindex::{Fault, Memo};
use crate::profiles::write::encode;
use crate::wire::edit::{Editor, put_delimited};
use crate::wire::reader::{Field, Fields, Value};

/// A profile on the wire, as far as it matters here.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sketch {
    /// A valid one.
    profile_id: Option<[u8; 16]>,
    /// Places in the table of strings.
    kind: u64,
    unit: u64,
    /// How many there are.
    pub(super) samples: usize,
}

/// How many profiles a request has.
pub(super) fn count(request: &[u8]) -> usize {
    profiles(request).count()
}

/// The profiles of a request, in order.
pub(super) fn sketches(request: &[u8]) -> Vec<Sketch> {
    profiles(request).map(sketch).collect()
}

fn profiles(request: &[u8]) -> impl Iterator<Item = &[u8]> {
    messages(request, 1)
        .flat_map(|resource| messages(resource, 2))
        .flat_map(|scope| messages(scope, 2))
}

fn sketch(profile: &[u8]) -> Sketch {
    let mut sketch = Sketch::default();
    for field in fields(profile) {
        match (field.number, field.value) {
            (1, Value::Bytes(sample_type)) => {
                for field in fields(sample_type) {
                    match (field.number, field.value) {
                        (1, Value::Varint(place)) => sketch.kind = place,
                        (2, Value::Varint(place)) => sketch.unit = place,
                        _ => {}
                    }
                }
            }
            (2, Value::Bytes(_)) => sketch.samples += 1,
            (7, Value::Bytes(id)) => {
                sketch.profile_id = id.try_into().ok().filter(|id| *id != [0; 16]);
            }
            _ => {}
        }
    }
    sketch
}

/// Whether all of them have ids, so that nothing need be decoded.
pub(super) fn all_have_ids(sketches: &[Sketch]) -> bool {
    sketches.iter().all(|sketch| sketch.profile_id.is_some())
}

/// The keys of profiles that all have ids.
pub(super) fn keys_by_id(keys: &Keys, request: &[u8], sketches: &[Sketch]) -> Vec<u128> {
    let mut wanted: Vec<u64> = sketches
        .iter()
        .flat_map(|sketch| [sketch.kind, sketch.unit])
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    let strings = messages(request, 2).flat_map(|dictionary| messages(dictionary, 5));
    let mut found: Vec<(u64, &[u8])> = Vec::with_capacity(wanted.len());
    let mut wanted = wanted.into_iter().peekable();
    for (place, string) in (0..).zip(strings) {
        match wanted.peek() {
            None => break,
            Some(next) if *next == place => {
                found.push((place, string));
                wanted.next();
            }
            Some(_) => {}
        }
    }
    let string = |place: u64| {
        let at = found.binary_search_by_key(&place, |(place, _)| *place).ok();
        match at.and_then(|at| found.get(at)) {
            Some((_, string)) => Some(*string),
            // Not set, in a message without a dictionary.
            None => (place == 0).then_some(&b""[..]),
        }
    };
    let key = |sketch: &Sketch| {
        let delivery = delivery_key(
            &sketch.profile_id?,
            string(sketch.kind)?,
            string(sketch.unit)?,
        );
        Some(keys.profile(delivery))
    };
    sketches
        .iter()
        .map(|sketch| key(sketch).unwrap_or(NONE))
        .collect()
}

/// Decoded profiles, and how each of them is known.
pub(super) struct Known {
    dictionary: Dictionary,
    resources: Vec<ResourceProfiles>,
    deliveries: Vec<Option<Delivery>>,
    /// Whether all of the request is in here, so that it can be written anew: a later version of the protocol has more
    /// fields, and samples without observations are left out.
    whole: bool,
}

impl Known {
    /// Reads a request; resources are compared without the attributes that are ignored.
    pub(super) fn read(request: &[u8], ignored: &[String]) -> Result<Self, Unreadable> {
        let mut dictionary = Dictionary::default();
        let ingested = ingest(request, &mut dictionary, &mut Memo::default(), None)?;
        let resources = ingested.resources;
        let mut identities = Identities::new(&dictionary);
        let mut deliveries = Vec::new();
        for resource in &resources {
            let mut head = ResourceProfiles {
                resource: resource.resource.clone(),
                schema_url: resource.schema_url.clone(),
                scopes: Vec::new(),
            };
            if let Some(resource) = &mut head.resource {
                let attributes = &mut resource.attributes;
                attributes.retain(|attribute| !ignored.contains(&attribute.key));
            }
            for scope in &resource.scopes {
                deliveries.extend(scope.profiles.iter().map(|profile| {
                    // What is not understood may be all that makes two of them different.
                    let told_apart = !ingested.unknown || profile.header.profile_id.is_some();
                    told_apart.then(|| identities.delivery(&head, scope, profile))?
                }));
            }
        }
        Ok(Known {
            dictionary,
            resources,
            deliveries,
            whole: !ingested.unknown && ingested.unobserved == 0,
        })
    }

    /// The keys of the profiles, in order.
    pub(super) fn keys(&self, keys: &Keys) -> Vec<u128> {
        let known = self.deliveries.iter();
        known
            .map(|known| known.map_or(NONE, |known| keys.profile(known.key)))
            .collect()
    }

    /// The ids of the profiles, in order.
    pub(super) fn ids(&self) -> Vec<Option<[u8; 16]>> {
        let known = self.deliveries.iter();
        known
            .map(|known| known.map(|known| known.profile_id))
            .collect()
    }

    /// The request without the profiles for which `drop` says so, and without what only they referred to, as far as that
    /// can be written anew.
    pub(super) fn without(self, request: &[u8], sketches: &[Sketch], drop: &[bool]) -> Bytes {
        match self.whole {
            true => self.encode_without(drop),
            false => {
                let left = edit(request, sketches, &self.ids(), drop);
                left.map_or_else(|| Bytes::copy_from_slice(request), Bytes::from)
            }
        }
    }

    fn encode_without(mut self, drop: &[bool]) -> Bytes {
        let mut drops = drop.iter().copied();
        let mut deliveries = self.deliveries.into_iter();
        for resource in &mut self.resources {
            resource.scopes.retain_mut(|scope| {
                let before = scope.profiles.len();
                scope.profiles.retain_mut(|profile| {
                    if let Some(known) = deliveries.next().flatten() {
                        profile.header.profile_id = Some(known.profile_id);
                    }
                    !drops.next().unwrap_or(false)
                });
                before == 0 || !scope.profiles.is_empty()
            });
        }
        self.resources
            .retain(|resource| !resource.scopes.is_empty());
        encode(&self.dictionary, &self.resources)
    }
}

/// A request with an index that points nowhere, or something else that cannot be understood: it is not touched.
#[derive(Debug)]
pub(super) struct Unreadable;

impl From<Fault> for Unreadable {
    fn from(_: Fault) -> Self {
        Unreadable
    }
}

/// Writes ids into the profiles of a request that have no valid one; everything else stays as it is. `None` when there
/// is nothing to write.
pub(super) fn fill(
    request: &[u8],
    sketches: &[Sketch],
    ids: &[Option<[u8; 16]>],
) -> Option<Vec<u8>> {
    edit(request, sketches, ids, &[])
}

/// The same, and the profiles for which `drop` says so are taken out. Their part of the dictionary stays.
fn edit(
    request: &[u8],
    sketches: &[Sketch],
    ids: &[Option<[u8; 16]>],
    drop: &[bool],
) -> Option<Vec<u8>> {
    let mut editor = Editor::new(request);
    let mut drop = drop.iter().copied();
    let mut missing = sketches
        .iter()
        .zip(ids)
        .map(|(sketch, id)| id.filter(|_| sketch.profile_id.is_none()));
    for resource in of_number(Fields::new(request), 1) {
        editor.message(&resource, |editor| {
            for scope in of_number(resource.fields(), 2) {
                editor.message(&scope, |editor| {
                    for profile in of_number(scope.fields(), 2) {
                        let id = missing.next().flatten();
                        if drop.next().unwrap_or(false) {
                            editor.delete(&profile);
                        } else if let Some(id) = id {
                            editor.message(&profile, |editor| give_id(&profile, &id, editor));
                        }
                    }
                });
            }
        });
    }
    editor.finish()
}

fn give_id<'a>(profile: &Field<'a>, id: &[u8; 16], editor: &mut Editor<'a>) {
    for invalid in of_number(profile.fields(), 7) {
        editor.delete(&invalid);
    }
    editor.append(profile, |output| put_delimited(7, id, output));
}

fn of_number<'a>(fields: Fields<'a>, number: u32) -> impl Iterator<Item = Field<'a>> {
    fields
        .map_while(Result::ok)
        .filter(move |field| field.number == number && field.value.bytes().is_some())
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest as Request;
    use prost::Message as _;

    use super::*;
    use crate::profiles::testing_batches::named;

    /// A request with two equal profiles; the second one has a field that is not known.
    fn with_unknown_field(id: &[u8]) -> Vec<u8> {
        let mut request = named("a", 1, ["one"]);
        let dictionary = request.dictionary.take();
        let mut profile = request.resource_profiles[0].scope_profiles[0].profiles[0].clone();
        profile.time_unix_nano = 5;
        profile.profile_id = id.to_vec();
        let mut bytes = Request {
            dictionary,
            ..Request::default()
        }
        .encode_to_vec();
        let (mut scope, mut resource) = (Vec::new(), Vec::new());
        let mut profile = profile.encode_to_vec();
        put_delimited(2, &profile, &mut scope);
        profile.extend(UNKNOWN);
        put_delimited(2, &profile, &mut scope);
        put_delimited(2, &scope, &mut resource);
        put_delimited(1, &resource, &mut bytes);
        bytes
    }

    /// Field 100, of a later version.
    const UNKNOWN: [u8; 4] = [0xa2, 0x06, 1, b'!'];

    #[test]
    fn what_is_not_known_stays_when_others_are_taken_out() {
        let request = with_unknown_field(&[7; 16]);
        let known = Known::read(&request, &[]).unwrap();
        let left = known.without(&request, &sketches(&request), &[true, false]);
        assert_eq!(sketches(&left).len(), 1);
        assert!(left.windows(UNKNOWN.len()).any(|bytes| bytes == UNKNOWN));
        let known = Known::read(&request, &[]).unwrap();
        let left = known.without(&request, &sketches(&request), &[false, true]);
        assert_eq!(sketches(&left).len(), 1);
        assert!(!left.windows(UNKNOWN.len()).any(|bytes| bytes == UNKNOWN));
    }

    #[test]
    fn profiles_without_ids_that_are_not_understood_all_pass() {
        let request = with_unknown_field(&[]);
        let known = Known::read(&request, &[]).unwrap();
        assert_eq!(known.keys(&Keys::new(Vec::new())), [NONE, NONE]);
        assert_eq!(known.ids(), [None, None]);
    }

    #[test]
    fn samples_without_observations_are_not_lost_with_a_duplicate() {
        let mut request = named("a", 1, ["one", "two"]);
        let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
        let mut other = profiles[0].clone();
        other.samples[0].values.clear();
        other.samples[0].timestamps_unix_nano.clear();
        profiles.push(other);
        let request = request.encode_to_vec();
        let known = Known::read(&request, &[]).unwrap();
        let left = known.without(&request, &sketches(&request), &[true, false]);
        assert_eq!(sketches(&left)[0].samples, 2);
    }
}
