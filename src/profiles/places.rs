//! Where the location at an address may be found again, without a look at what else is known of it.
//!
//! A location is its mapping, its address, its lines and its attributes, but in nearly all profiles the first two tell
//! all of them apart. So its address leads to the location that was added with it, and what that one refers to is compared
//! with what was read, down to the bytes of the names: no string and no function has to be hashed and looked up. It is a
//! hint. Where it is wrong, or there is none, everything is looked up by its full key.

use super::dictionary::Location;
use super::id::{Id as _, LocationId, MappingId};

/// Two locations by a hash of mapping and address: the one that was noted last first. Collisions cost a hint, no more, so
/// the hash needs no seed.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// A power of two of them, or none.
    sets: Vec<[LocationId; 2]>,
}

impl Places {
    fn set(&self, mapping: MappingId, address: u64) -> usize {
        // Fibonacci hashing: the high bits depend on all that is below.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let key = address ^ (mapping.index() as u64).rotate_right(16);
        let hash = key.wrapping_mul(GOLDEN) >> 32;
        hash as usize & self.sets.len().wrapping_sub(1)
    }

    /// The locations that may be there. Index 0 means none.
    #[inline]
    pub(super) fn find(&self, mapping: MappingId, address: u64) -> [LocationId; 2] {
        let set = self.sets.get(self.set(mapping, address));
        set.copied().unwrap_or_default()
    }

    /// Notes the last one of these.
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

    /// The memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.sets.capacity() * size_of::<[LocationId; 2]>()
    }
}
