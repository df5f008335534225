//! One request of profiles becomes several within a limit, each with the dictionary entries it uses and no others.

use std::ops::Range;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_128;

use super::identity::Identities;
use super::join::profiles;
use super::model::{Profile, Profiles, ResourceProfiles, ScopeProfiles};
use super::write::Encoder;
use crate::batch::Signal;
use crate::wire::{Limit, count};

/// All pieces together may be this many times as large as the request: a dictionary that all samples need must not
/// become one per sample.
const GROWTH: usize = 4;

/// Small requests may grow to this many bytes in any case.
const SMALL: usize = 64 << 10;

/// Cuts a valid request into pieces within `limit`, each with its number of samples, in order.
///
/// Cuts go between profiles or, where need be, between the samples of one. The pieces of a profile have its header, but
/// an identity of their own, so that nobody takes one for the repetition of another; and not the original payload, which
/// is that of the whole.
///
/// A single sample above the byte limit becomes a piece of its own. Pieces exceed the limit where they would otherwise
/// take more than four times the bytes of the request together. What fits is returned as it is, without a copy, and so
/// is what cannot be read: see [`join`](super::join()).
pub fn split(request: &Bytes, limit: Limit) -> Vec<(usize, Bytes)> {
    let items = count(Signal::Profiles, request);
    let whole = || vec![(items, request.clone())];
    if items <= limit.items && request.len() <= limit.bytes {
        return whole();
    }
    let Some(profiles) = profiles(request) else {
        return whole();
    };
    let mut cutter = Cutter::new(&profiles);
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
            // A guess, since samples differ and share much; further down each time, so that it ends soon.
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

/// Cuts a request in two between profiles, as near to the middle as there is such a place; nothing if there is none.
pub fn halve(request: &[u8]) -> Option<[(usize, Bytes); 2]> {
    let profiles = profiles(request)?;
    let mut cutter = Cutter::new(&profiles);
    let middle = cutter.atoms / 2;
    let mut place = 0;
    let places = profiles.iter().map(|profile| {
        place += of_profile(profile);
        place
    });
    let inner = places.filter(|place| *place < cutter.atoms);
    let place = inner.min_by_key(|place| place.abs_diff(middle))?;
    Some([0..place, place..cutter.atoms].map(|range| {
        let piece = cutter.encode(range);
        (count(Signal::Profiles, &piece), piece)
    }))
}

fn scale(size: usize, by: usize, over: usize) -> usize {
    let scaled = (size as u128 * by as u128) / (over.max(1) as u128);
    usize::try_from(scaled).unwrap_or(usize::MAX)
}

/// Takes ranges of atoms out of profiles. An atom is a sample, or a profile, scope or resource that has none.
struct Cutter<'p> {
    profiles: &'p Profiles,
    encoder: Encoder<'p>,
    identities: Identities<'p>,
    /// How many there are.
    atoms: usize,
}

impl<'p> Cutter<'p> {
    fn new(profiles: &'p Profiles) -> Self {
        Cutter {
            profiles,
            encoder: Encoder::new(&profiles.dictionary),
            identities: Identities::new(&profiles.dictionary),
            atoms: profiles.resources.iter().map(of_resource).sum(),
        }
    }

    fn encode(&mut self, range: Range<usize>) -> Bytes {
        let mut pieces: Vec<ResourceProfiles> = Vec::new();
        let mut start = 0;
        for resource in &self.profiles.resources {
            let end = start + of_resource(resource);
            if overlaps(start..end, &range) {
                let piece = self.resource(resource, start, &range);
                pieces.push(piece);
            }
            start = end;
        }
        self.encoder.encode(&pieces)
    }

    fn resource(
        &mut self,
        from: &ResourceProfiles,
        mut start: usize,
        range: &Range<usize>,
    ) -> ResourceProfiles {
        let mut scopes = Vec::new();
        for scope in &from.scopes {
            let end = start + of_scope(scope);
            if overlaps(start..end, range) {
                scopes.push(self.scope(from, scope, start, range));
            }
            start = end;
        }
        ResourceProfiles {
            resource: from.resource.clone(),
            schema_url: from.schema_url.clone(),
            scopes,
        }
    }

    fn scope(
        &mut self,
        resource: &ResourceProfiles,
        from: &ScopeProfiles,
        mut start: usize,
        range: &Range<usize>,
    ) -> ScopeProfiles {
        let mut profiles = Vec::new();
        for profile in &from.profiles {
            let end = start + of_profile(profile);
            if overlaps(start..end, range) {
                let within = range.start.max(start) - start..range.end.min(end) - start;
                profiles.push(if within.len() == end - start {
                    profile.clone()
                } else {
                    self.piece(resource, from, profile, within)
                });
            }
            start = end;
        }
        ScopeProfiles {
            scope: from.scope.clone(),
            schema_url: from.schema_url.clone(),
            profiles,
        }
    }

    fn piece(
        &mut self,
        resource: &ResourceProfiles,
        scope: &ScopeProfiles,
        whole: &Profile,
        samples: Range<usize>,
    ) -> Profile {
        let from = samples.start as u64;
        let mut piece = Profile {
            header: whole.header.clone(),
            samples: whole.samples.slice(samples),
        };
        piece.header.original = None;
        // The id follows from the whole's, the place and the content: a piece that is delivered again has the same,
        // and no other piece has it, however the whole is cut the next time. What has neither an id nor a time has none.
        let delivery = self.identities.delivery(resource, scope, whole);
        piece.header.profile_id = delivery.map(|delivery| {
            let mut text = delivery.profile_id.to_vec();
            text.extend_from_slice(&from.to_le_bytes());
            let content = self.identities.content(resource, scope, &piece);
            text.extend_from_slice(&content.to_le_bytes());
            // All zero is not a valid id.
            xxh3_128(&text).max(1).to_be_bytes()
        });
        piece
    }
}

fn overlaps(a: Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn of_resource(resource: &ResourceProfiles) -> usize {
    let scopes = resource.scopes.iter().map(of_scope);
    scopes.sum::<usize>().max(1)
}

fn of_scope(scope: &ScopeProfiles) -> usize {
    let profiles = scope.profiles.iter().map(of_profile);
    profiles.sum::<usize>().max(1)
}

fn of_profile(profile: &Profile) -> usize {
    profile.samples.len().max(1)
}
