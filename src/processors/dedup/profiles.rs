//! Identity of profiles.
//!
//! A profile with an id is identified by the id and its sample type, and both are cheap to find.
//! Otherwise all of its content determines an id, which is written into the profile, so that the
//! next hop need not repeat this and decides alike.

use bytes::Bytes;

use super::keys::{Keys, NONE, fields, messages};
use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::{Field, Fields, Value};
use tributary_profiles::entries::Entries;
use tributary_profiles::identity::{DeliveryIdentity, Identities, delivery_key};
use tributary_profiles::ingest::ingest;
use tributary_profiles::reindex::{CopiedEntries, ProfileFault};
use tributary_profiles::write::encode;
use tributary_profiles::{Dictionary, Shape};

/// The parts of an encoded profile that its identity needs.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Sketch {
    profile_id: Option<[u8; 16]>,
    /// Indices in the string table.
    kind: u64,
    unit: u64,
    pub(super) samples: usize,
}

/// Returns the number of profiles in a request.
pub(super) fn count(request: &[u8]) -> usize {
    profiles(request).count()
}

/// Returns the sketches of a request's profiles, in order.
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
    // Not `fields`, which is not inlined: a request has many fields.
    for field in Fields::new(profile) {
        let Ok(field) = field else { break };
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

/// Whether all profiles have ids, so that no other content is needed.
pub(super) fn all_have_ids(sketches: &[Sketch]) -> bool {
    sketches.iter().all(|sketch| sketch.profile_id.is_some())
}

/// Returns the keys of profiles that all have ids.
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
            // Index 0 is unset in a message without a dictionary.
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

/// Returns the identity of each profile in a request of this shape, in order. Resources are
/// compared without ignored attributes.
///
/// Returns an error if an index is out of range or the request is invalid in another way: such a
/// request is not changed.
pub(super) fn deliveries(
    request: &[u8],
    shape: &Shape,
    ignored: &[String],
) -> Result<Vec<Option<DeliveryIdentity>>, ProfileFault> {
    let (entries, resources) = Entries::of_shape(request, shape)?;
    let mut memory = Vec::new();
    let mut identities = Identities::new(&entries, &mut memory);
    let profiles = identities.profiles(&resources, ignored)?;
    let mut deliveries = Vec::with_capacity(profiles.len());
    for profile in &profiles {
        deliveries.push(identities.delivery(profile)?);
    }
    if identities.unknown() {
        // Unknown fields may be the only difference between two profiles.
        for (delivery, profile) in deliveries.iter_mut().zip(&profiles) {
            *delivery = delivery.filter(|_| profile.has_id());
        }
    }
    Ok(deliveries)
}

/// Returns the keys of profiles, in order.
pub(super) fn keys(keys: &Keys, deliveries: &[Option<DeliveryIdentity>]) -> Vec<u128> {
    let key =
        |known: &Option<DeliveryIdentity>| known.map_or(NONE, |known| keys.profile(known.key));
    deliveries.iter().map(key).collect()
}

/// Returns the request without the profiles marked in `drop`; the others get the ids in
/// `deliveries`. With `decode`, unreferenced dictionary entries are removed too, if the request can
/// be rewritten.
pub(super) fn without(
    request: &[u8],
    sketches: &[Sketch],
    deliveries: &[Option<DeliveryIdentity>],
    drop: &[bool],
    decode: bool,
) -> Bytes {
    let rewritten = decode.then(|| rewrite(request, deliveries, drop)).flatten();
    rewritten.unwrap_or_else(|| {
        let left = edit(request, sketches, deliveries, drop);
        left.map_or_else(|| Bytes::copy_from_slice(request), Bytes::from)
    })
}

/// Returns `None` if the rewritten request would be incomplete: a later version of the protocol may
/// have more fields, and samples without observations are left out.
fn rewrite(
    request: &[u8],
    deliveries: &[Option<DeliveryIdentity>],
    drop: &[bool],
) -> Option<Bytes> {
    let mut dictionary = Dictionary::default();
    let mut ingested = ingest(
        request,
        &mut dictionary,
        &mut CopiedEntries::default(),
        None,
    )
    .ok()?;
    if ingested.unknown || ingested.unobserved > 0 {
        return None;
    }
    let mut drops = drop.iter().copied();
    let mut deliveries = deliveries.iter().copied();
    for resource in &mut ingested.resources {
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
    let resources = &mut ingested.resources;
    resources.retain(|resource| !resource.scopes.is_empty());
    Some(encode(&dictionary, resources))
}

/// Writes ids into the profiles of a request without a valid id; everything else stays unchanged.
/// `None` if no profile needs an id.
pub(super) fn fill(
    request: &[u8],
    sketches: &[Sketch],
    deliveries: &[Option<DeliveryIdentity>],
) -> Option<Vec<u8>> {
    edit(request, sketches, deliveries, &[])
}

/// Does the same, and removes the profiles marked in `drop`. Their part of the dictionary stays.
fn edit(
    request: &[u8],
    sketches: &[Sketch],
    deliveries: &[Option<DeliveryIdentity>],
    drop: &[bool],
) -> Option<Vec<u8>> {
    let mut editor = Editor::new(request);
    let mut drop = drop.iter().copied();
    let mut missing = sketches.iter().zip(deliveries).map(|(sketch, known)| {
        let known = known.filter(|_| sketch.profile_id.is_none())?;
        Some(known.profile_id)
    });
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
    use tributary_profiles::testing_requests::named;

    /// Returns a request with two equal profiles; the second one has an unknown field.
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

    fn known(request: &[u8]) -> Vec<Option<DeliveryIdentity>> {
        deliveries(request, &Shape::of(request), &[]).unwrap()
    }

    /// Field 100, of a later version.
    const UNKNOWN: [u8; 4] = [0xa2, 0x06, 1, b'!'];

    #[test]
    fn unknown_fields_stay_when_items_are_removed() {
        let request = with_unknown_field(&[7; 16]);
        let without = |drop: [bool; 2]| {
            let known = known(&request);
            without(&request, &sketches(&request), &known, &drop, true)
        };
        let left = without([true, false]);
        assert_eq!(sketches(&left).len(), 1);
        assert!(left.windows(UNKNOWN.len()).any(|bytes| bytes == UNKNOWN));
        let left = without([false, true]);
        assert_eq!(sketches(&left).len(), 1);
        assert!(!left.windows(UNKNOWN.len()).any(|bytes| bytes == UNKNOWN));
    }

    #[test]
    fn unreadable_profiles_without_ids_pass() {
        let request = with_unknown_field(&[]);
        let known = known(&request);
        assert_eq!(known, [None, None]);
        assert_eq!(keys(&Keys::new(Vec::new()), &known), [NONE, NONE]);
    }

    #[test]
    fn duplicates_without_memory_go_dictionary_stays() {
        let mut request = named("a", 1, ["one", "two"]);
        let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
        let mut other = profiles[0].clone();
        other.samples.pop();
        profiles.push(other);
        let request = request.encode_to_vec();
        let known = known(&request);
        let without = |decode| {
            let left = without(
                &request,
                &sketches(&request),
                &known,
                &[true, false],
                decode,
            );
            Request::decode(left).unwrap()
        };
        let (rewritten, edited) = (without(true), without(false));
        for left in [&rewritten, &edited] {
            let [profile] = &left.resource_profiles[0].scope_profiles[0].profiles[..] else {
                panic!("one of the two is left");
            };
            assert_eq!(profile.samples.len(), 1);
            assert_eq!(profile.profile_id, known[1].unwrap().profile_id);
        }
        let has_two = |left: &Request| {
            let strings = &left.dictionary.as_ref().unwrap().string_table;
            strings.iter().any(|string| string == "two")
        };
        assert!(has_two(&edited) && !has_two(&rewritten));
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
        let known = known(&request);
        let left = without(&request, &sketches(&request), &known, &[true, false], true);
        assert_eq!(sketches(&left)[0].samples, 2);
    }
}
