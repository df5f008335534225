//! Finds locations by address, as a hint.
//!
//! A location consists of a mapping, an address, lines and attributes, but in nearly all profiles the mapping and the
//! address identify it. The address therefore leads to the location added with the same address. The reader then
//! compares the location's content with the input, down to the bytes of the names, instead of hashing and looking up
//! every string and function. If the hint is wrong or missing, everything is looked up by its full key.

use super::id::{Id as _, LocationId, MappingId};
use crate::entry::Location;

/// Hints: sets of two locations by a hash of mapping and address, the most recent location first. A collision only
/// loses a hint, so the hash needs no seed.
#[derive(Debug, Clone, Default)]
pub(super) struct LocationHints {
    /// Sets, as many as a power of two, or none.
    sets: Vec<[LocationId; 2]>,
}

impl LocationHints {
    fn set(&self, mapping: MappingId, address: u64) -> usize {
        // Programs are linked to the same address, and locations lie at nearly regular distances. A product keeps such
        // patterns in its low bits; folding its halves together removes the patterns.
        const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        const FOLD: u64 = 0xa076_1d64_78bd_642f;
        let key = address.wrapping_add((mapping.index() as u64).wrapping_mul(HASH_MULTIPLIER));
        let product = u128::from(key) * u128::from(FOLD);
        let hash = (product >> 64) as u64 ^ product as u64;
        hash as usize & self.sets.len().wrapping_sub(1)
    }

    /// Returns the locations that may match. Index 0 means no location.
    #[inline]
    pub(super) fn find(&self, mapping: MappingId, address: u64) -> [LocationId; 2] {
        let set = self.sets.get(self.set(mapping, address));
        set.copied().unwrap_or_default()
    }

    /// Records the last of these locations.
    pub(super) fn note_last(&mut self, locations: &[Location]) {
        if locations.len() > self.sets.len() {
            let sets = locations.len().next_power_of_two().max(64);
            self.sets.clear();
            self.sets.resize(sets, Default::default());
            for (location, at) in locations.iter().zip(0..) {
                self.note(*location, LocationId::new(at));
            }
        } else if let Some((last, before)) = locations.split_last() {
            let at = u32::try_from(before.len()).unwrap_or_default();
            self.note(*last, LocationId::new(at));
        }
    }

    fn note(&mut self, location: Location, id: LocationId) {
        let set = self.set(location.mapping, location.address);
        if let Some(set) = self.sets.get_mut(set) {
            *set = [id, set[0]];
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[LocationId; 2]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the locations that are found again for 50 programs of a thousand locations each, at this distance from
    /// the same start address.
    fn kept(distance: impl Fn(u64) -> u64) -> usize {
        let mut hints = LocationHints::default();
        let mut locations = vec![Location::default()];
        for mapping in 1..=50 {
            let mut address = 0x40_1000;
            for at in 0..1000 {
                address += distance(at);
                locations.push(Location {
                    mapping: MappingId::new(mapping),
                    address,
                    ..Location::default()
                });
                hints.note_last(&locations);
            }
        }
        let found = locations.iter().zip(0..).filter(|(location, at)| {
            let ids = hints.find(location.mapping, location.address);
            ids.contains(&LocationId::new(*at))
        });
        found.count()
    }

    /// Random hashing would keep 46,640 of 50,000 locations in 65,536 sets of two: with m = 50,000 / 65,536,
    /// a share of (2 - (2 + m) / e^m) / m.
    #[test]
    fn equal_link_addresses_do_not_collide() {
        for distance in [1, 4, 8, 16, 24, 64, 4096] {
            let kept = kept(|_| distance);
            assert!(kept > 46_000, "{kept} at a distance of {distance}");
        }
        let kept = kept(|at| 8 + at * at % 193);
        assert!(kept > 46_000, "{kept} at different distances");
    }
}
