//! Splits a request into several within a limit, each with only the dictionary entries it uses.

use std::cell::OnceCell;
use std::ops::Range;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::entries::Entries;
use super::identity::{DeliveryIdentity, EncodedProfile, Identities};
use super::join::profiles;
use super::model::{Header, Profile, Profiles, ResourceProfiles, ScopeProfiles};
use super::write::Encoder;
use tributary_otlp::Signal;
use tributary_otlp::{Limit, count};

/// Maximum total size of the parts, as a multiple of the request's size. Otherwise a dictionary that all samples
/// need would be repeated once per sample.
const GROWTH: usize = 4;

/// Total size in bytes that the parts of a small request may have in any case.
const SMALL: usize = 64 << 10;

/// Splits a valid request into parts within `limit`, each with its number of samples, in order.
///
/// Splits are made between profiles or, if necessary, between the samples of a profile. Parts of a profile share its
/// header, but have distinct profile ids, so that no part is a duplicate of another. Parts do not contain the original
/// payload, which describes the whole profile.
///
/// A single sample above the byte limit becomes a separate part. Parts exceed the limit if they would otherwise take
/// more than four times the bytes of the request in total. A request within the limit is returned unchanged without a
/// copy, and so is a request that cannot be read: see [`join`](super::join()).
pub fn split(request: &Bytes, limit: Limit) -> Vec<(usize, Bytes)> {
    let items = count(Signal::Profiles, request);
    let whole = || vec![(items, request.clone())];
    if items <= limit.items && request.len() <= limit.bytes {
        return whole();
    }
    let Some(profiles) = profiles(request) else {
        return whole();
    };
    let Ok((entries, resources)) = Entries::of_request(request) else {
        return whole();
    };
    let mut memory = Vec::new();
    let mut cutter = Cutter::new(&profiles, &entries, &resources, &mut memory);
    let mut pieces = Vec::new();
    let mut left = request.len().saturating_mul(GROWTH).max(SMALL);
    let mut at = 0;
    let mut guess = cutter.atoms;
    while at < cutter.atoms {
        let rest = cutter.atoms - at;
        let mut size = rest;
        if left > 0 {
            size = rest.min(limit.items.max(1)).min(guess);
        }
        let mut tries = 0;
        let piece = loop {
            let piece = cutter.encode(at..at + size);
            if piece.len() <= limit.bytes || size == 1 || left == 0 {
                break piece;
            }
            // An estimate, since samples differ and share data. The estimate shrinks with every try, so that the loop
            // ends soon.
            tries = (tries + 1).min(8);
            let fits = scale(size, limit.bytes, piece.len());
            size = fits.min(size - size * tries / 16).clamp(1, size - 1);
        };
        left = left.saturating_sub(piece.len());
        at += size;
        guess = scale(size, limit.bytes, piece.len()).clamp(1, size.saturating_mul(2));
        pieces.push((count(Signal::Profiles, &piece), piece));
    }
    pieces
}

/// Splits a request in two between profiles, as near to the middle as possible. Returns `None` for a single profile.
pub fn halve(request: &[u8]) -> Option<[(usize, Bytes); 2]> {
    let profiles = profiles(request)?;
    let (entries, resources) = Entries::of_request(request).ok()?;
    let mut memory = Vec::new();
    let mut cutter = Cutter::new(&profiles, &entries, &resources, &mut memory);
    let middle = cutter.atoms / 2;
    let ends = cutter.leaves.iter().map(|leaf| leaf.atoms.end);
    let inner = ends.filter(|end| *end < cutter.atoms);
    let middle = inner.min_by_key(|end| end.abs_diff(middle))?;
    Some([0..middle, middle..cutter.atoms].map(|range| {
        let part = cutter.encode(range);
        (count(Signal::Profiles, &part), part)
    }))
}

fn scale(size: usize, by: usize, over: usize) -> usize {
    let scaled = (size as u128 * by as u128) / (over.max(1) as u128);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

/// Extracts ranges of atoms from profiles. An atom is a sample, or a profile, scope or resource without samples.
/// The cost of a part depends on the part, not on all profiles.
struct Cutter<'p> {
    encoder: Encoder<'p>,
    whole_profiles: WholeProfiles<'p>,
    leaves: Vec<Leaf<'p>>,
    atoms: usize,
}

/// The profiles as encoded in the request, from which the ids of their parts are derived.
struct WholeProfiles<'p> {
    resources: &'p [&'p [u8]],
    identities: Identities<'p, 'p>,
    /// Profiles in order; `None` until the first lookup.
    profiles: Vec<EncodedProfile<'p>>,
    #[cfg(test)]
    looks: usize,
}

/// A profile, or a scope or resource without profiles.
struct Leaf<'p> {
    resource: &'p ResourceProfiles,
    scope: Option<&'p ScopeProfiles>,
    profile: Option<&'p Profile>,
    /// Number of profiles before this leaf.
    place: usize,
    atoms: Range<usize>,
    /// Identity of the whole profile, computed for the first part; `None` if the profile has no identity.
    delivery: OnceCell<Option<DeliveryIdentity>>,
}

impl<'p> Cutter<'p> {
    fn new(
        profiles: &'p Profiles,
        entries: &'p Entries<'p>,
        resources: &'p [&'p [u8]],
        memory: &'p mut Vec<u128>,
    ) -> Self {
        let mut cutter = Cutter {
            encoder: Encoder::new(&profiles.dictionary),
            whole_profiles: WholeProfiles {
                resources,
                identities: Identities::new(entries, memory),
                profiles: Vec::new(),
                #[cfg(test)]
                looks: 0,
            },
            leaves: Vec::new(),
            atoms: 0,
        };
        for resource in &profiles.resources {
            if resource.scopes.is_empty() {
                cutter.add(resource, None, None);
            }
            for scope in &resource.scopes {
                if scope.profiles.is_empty() {
                    cutter.add(resource, Some(scope), None);
                }
                for profile in &scope.profiles {
                    cutter.add(resource, Some(scope), Some(profile));
                }
            }
        }
        cutter
    }

    fn add(
        &mut self,
        resource: &'p ResourceProfiles,
        scope: Option<&'p ScopeProfiles>,
        profile: Option<&'p Profile>,
    ) {
        let start = self.atoms;
        self.atoms += profile.map_or(1, |profile| profile.samples.len().max(1));
        let before = self.leaves.last();
        self.leaves.push(Leaf {
            resource,
            scope,
            profile,
            place: before.map_or(0, |leaf| leaf.place + usize::from(leaf.profile.is_some())),
            atoms: start..self.atoms,
            delivery: OnceCell::new(),
        });
    }

    fn encode(&mut self, range: Range<usize>) -> Bytes {
        let first = self
            .leaves
            .partition_point(|leaf| leaf.atoms.end <= range.start);
        let mut pieces: Vec<ResourceProfiles> = Vec::new();
        let mut before: Option<&Leaf<'p>> = None;
        for leaf in self.leaves.get(first..).unwrap_or_default() {
            if leaf.atoms.start >= range.end {
                break;
            }
            let same_resource = before.is_some_and(|b| std::ptr::eq(b.resource, leaf.resource));
            if !same_resource {
                pieces.push(ResourceProfiles {
                    resource: leaf.resource.resource.clone(),
                    schema_url: leaf.resource.schema_url.clone(),
                    scopes: Vec::new(),
                });
            }
            let scopes = pieces.last_mut().map(|piece| &mut piece.scopes);
            if let (Some(scopes), Some(scope)) = (scopes, leaf.scope) {
                let scope_before = before.and_then(|before| before.scope);
                if !scope_before.is_some_and(|before| std::ptr::eq(before, scope)) {
                    scopes.push(ScopeProfiles {
                        scope: scope.scope.clone(),
                        schema_url: scope.schema_url.clone(),
                        profiles: Vec::new(),
                    });
                }
                if let (Some(scope), Some(profile)) = (scopes.last_mut(), leaf.profile) {
                    let start = leaf.atoms.start;
                    let end = leaf.atoms.end.min(range.end);
                    let within = range.start.max(start) - start..end - start;
                    let piece = leaf.piece(profile, within, &mut self.whole_profiles);
                    scope.profiles.push(piece);
                }
            }
            before = Some(leaf);
        }
        self.encoder.encode(&pieces)
    }
}

impl Leaf<'_> {
    /// Returns a profile with the samples in a range.
    fn piece(
        &self,
        whole: &Profile,
        samples: Range<usize>,
        whole_profiles: &mut WholeProfiles<'_>,
    ) -> Profile {
        if samples.len() == self.atoms.len() {
            return whole.clone();
        }
        // The id is derived from the identity of the whole profile, the position and the content. A redelivered part
        // has the same id, and no other part has it, even if the next split differs. A profile with neither an id nor a
        // time gets no id.
        let delivery = self
            .delivery
            .get_or_init(|| whole_profiles.delivery(self.place));
        let profile_id = delivery.and_then(|delivery| {
            let content = whole_profiles.content(self.place, samples.clone())?;
            let mut text = delivery.profile_id.to_vec();
            text.extend_from_slice(&(samples.start as u64).to_le_bytes());
            text.extend_from_slice(&content.to_le_bytes());
            // An id of zeros is invalid.
            Some(xxh3_128(&text).max(1).to_be_bytes())
        });
        Profile {
            header: Header {
                original: None,
                profile_id,
                ..whole.header.clone()
            },
            samples: whole.samples.slice(samples),
        }
    }
}

// Faults in the request were found during decoding.
impl WholeProfiles<'_> {
    fn delivery(&mut self, place: usize) -> Option<DeliveryIdentity> {
        #[cfg(test)]
        {
            self.looks += 1;
        }
        if self.profiles.is_empty() {
            self.profiles = self.identities.profiles(self.resources, &[]).ok()?;
        }
        self.identities.delivery(self.profiles.get(place)?).ok()?
    }

    fn content(&mut self, place: usize, samples: Range<usize>) -> Option<u128> {
        let profile = self.profiles.get(place)?;
        self.identities.content(profile, samples).ok()
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::testing_requests::named;

    #[test]
    fn part_cost_is_independent_of_request_size() {
        let names: Vec<String> = (0..300).map(|number| number.to_string()).collect();
        // Without an id, the identity is the whole content.
        let request = named("s", 1, names.iter().map(String::as_str)).encode_to_vec();
        let profiles = profiles(&request).unwrap();
        let (entries, resources) = Entries::of_request(&request).unwrap();
        let mut memory = Vec::new();
        let mut cutter = Cutter::new(&profiles, &entries, &resources, &mut memory);
        let pieces: Vec<Bytes> = (0..300).map(|at| cutter.encode(at..at + 1)).collect();
        assert_eq!(cutter.whole_profiles.looks, 1);
        let mut ids: Vec<_> = pieces
            .iter()
            .map(|piece| super::profiles(piece).unwrap())
            .map(|piece| piece.iter().next().unwrap().header.profile_id.unwrap())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 300);
    }
}
