//! Positions of keys in the ring: open addressing with linear probing.
//!
//! A mark and its position share a cache line, which a general-purpose table keeps on two. With
//! millions of keys, each cache line is loaded from memory, and these loads dominate the cost.
//! `benches/dedup.rs` compares with `hashbrown::HashTable`.

/// Table of positions by 32 bits of their keys, which are evenly distributed.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The number of slots is a power of two, or zero.
    slots: Vec<Slot>,
    len: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// See [`mark`]; 0 for an empty slot.
    mark: u32,
    place: u32,
}

/// Minimum number of slots: one cache line.
const MIN_SLOTS: usize = 8;

impl Index {
    /// Creates an empty table without allocating memory.
    pub(super) const fn new() -> Self {
        Index {
            slots: Vec::new(),
            len: 0,
        }
    }

    /// Returns the memory in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// Returns the content of the first slot for a key, to prefetch it.
    #[inline]
    pub(super) fn first_slot(&self, hash: u32) -> u32 {
        let last = self.slots.len().wrapping_sub(1);
        let slot = self.slots.get(mark(hash) as usize & last);
        slot.map_or(0, |slot| slot.mark)
    }

    /// Whether the table has a position with this hash for which `is` returns true.
    #[inline]
    pub(super) fn contains(&self, hash: u32, is: impl Fn(u32) -> bool) -> bool {
        let mark = mark(hash);
        self.from(mark)
            .any(|(_, slot)| slot.mark == mark && is(slot.place))
    }

    /// Adds a position, without checking for an existing one.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, place: u32) {
        // Grow at four fifths: the lookup of a missing key then reads one or two cache lines.
        if 5 * self.len >= 4 * self.slots.len() {
            self.resize((2 * self.slots.len()).max(MIN_SLOTS));
        }
        self.len += 1;
        let mark = mark(hash);
        self.put(Slot { mark, place });
    }

    pub(super) fn remove(&mut self, hash: u32, place: u32) {
        let mark = mark(hash);
        let found = self
            .from(mark)
            .find(|(_, slot)| slot.mark == mark && slot.place == place);
        let Some((mut hole, _)) = found else {
            return;
        };
        self.len -= 1;
        // Following slots move into the hole, unless that would put them before their first slot.
        let last = self.slots.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & last;
            let slot = self.slots.get(at).copied().unwrap_or_default();
            if slot.mark == 0 {
                break;
            }
            let moved = at.wrapping_sub(slot.mark as usize) & last;
            if moved >= at.wrapping_sub(hole) & last {
                self.set(hole, slot);
                hole = at;
            }
        }
        self.set(hole, Slot::default());
    }

    /// Releases memory after most positions are removed. This is rare, because the table is
    /// rebuilt.
    pub(super) fn shrink(&mut self, fewest: usize) {
        if self.slots.len() > 8 * self.len.max(fewest) {
            self.resize((2 * self.len).next_power_of_two().max(MIN_SLOTS));
        }
    }

    /// Returns the slots from the first one of a mark, up to the first empty one.
    #[inline]
    fn from(&self, mark: u32) -> impl Iterator<Item = (usize, Slot)> {
        let last = self.slots.len().wrapping_sub(1);
        let mut at = mark as usize & last;
        std::iter::from_fn(move || {
            let slot = *self.slots.get(at)?;
            let here = at;
            at = (at + 1) & last;
            (slot.mark != 0).then_some((here, slot))
        })
    }

    /// Stores the slot in the first empty slot from its own position on. There is always an empty slot.
    #[inline]
    fn put(&mut self, slot: Slot) {
        let last = self.slots.len().wrapping_sub(1);
        let mut at = slot.mark as usize & last;
        while self.slots.get(at).is_some_and(|slot| slot.mark != 0) {
            at = (at + 1) & last;
        }
        self.set(at, slot);
    }

    #[inline]
    fn set(&mut self, at: usize, slot: Slot) {
        if let Some(there) = self.slots.get_mut(at) {
            *there = slot;
        }
    }

    fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        for slot in old.into_iter().filter(|slot| slot.mark != 0) {
            self.put(slot);
        }
    }
}

/// A slot with mark 0 is empty.
#[inline]
fn mark(hash: u32) -> u32 {
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn index_has_added_and_not_removed_keys() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut index, mut expected) = (Index::new(), BTreeSet::new());
        // Few different hashes, at the end of the table and at its beginning: many share slots, and some runs wrap around.
        let hashes = [0, 1, 2, 6, 7, 15, 62, 63, 126, 127, u32::MAX - 1, u32::MAX];
        for step in 0..8_000_u32 {
            let hash = *random.choice(&hashes).unwrap();
            if random.u32(..1000) < 400 + 200 * u32::from(step % 4000 < 2000) {
                index.insert(hash, step);
                expected.insert((hash, step));
            } else if let Some(one) = random.choice(expected.iter().copied().collect::<Vec<_>>()) {
                index.remove(one.0, one.1);
                expected.remove(&one);
            }
            index.remove(hash, step + 1);
            if step % 97 == 0 {
                index.shrink(4);
            }
            if step % 200 == 0 {
                let missing = |one: &&(u32, u32)| !index.contains(one.0, |place| place == one.1);
                assert_eq!(expected.iter().find(missing), None);
                let there = index.slots.iter().filter(|slot| slot.mark != 0);
                assert_eq!(there.count(), expected.len());
                assert_eq!(index.len, expected.len());
            }
        }
    }

    #[test]
    fn empty_index_contains_nothing() {
        let mut index = Index::new();
        assert!(!index.contains(7, |_| true));
        index.remove(7, 7);
        assert_eq!((index.len, index.bytes()), (0, 0));
    }
}
