//! What was delivered: keys in the order in which they came, found in constant time, forgotten the oldest first.
//!
//! A ring has the keys, 16 bytes each; an index finds their places. Times are kept for stretches of the ring. That
//! takes 26 to 36 bytes per key, against 40 and more of a map with times as values, and whatever is the oldest is always
//! known.
//!
//! The index is in parts, each of which grows for itself, and it has 32 bits of each key beside its place: so growth
//! does not go through the ring, which is in no cache, and nobody waits for a table of millions to be made anew.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::time::Instant;

use super::index::Index;
use tributary_memory::Permit;

/// What one key is charged for in the memory budget, all told.
pub(super) const BYTES_PER_KEY: usize = 40;

/// Keys that are allocated, and charged for, together: 20 KiB.
pub(super) const CHUNK: usize = 512;

/// Times are this much more precise than the window is long.
const STRETCHES: u32 = 128;

/// Parts of the index.
const PARTS: usize = 16;

/// How many keys too old are let go of for each new one, so that none has to wait for many.
const SWEEP: usize = 4;

/// Keys that were remembered within a time window and a byte bound.
#[derive(Debug)]
pub(super) struct Seen {
    window: Duration,
    /// The most chunks.
    limit: usize,
    /// The ring. All chunks but the last are full.
    chunks: VecDeque<Vec<u128>>,
    /// The place of the first key of the first chunk. Places count on for ever and wrap around.
    base: u32,
    /// The first place that is still in the index.
    first: u32,
    /// Where the next key goes.
    next: u32,
    /// Keys before this place are too old, whether they are in the index or not.
    horizon: u32,
    index: [Index; PARTS],
    stretches: VecDeque<Stretch>,
    permit: Permit,
    /// How many were forgotten before their time.
    forgotten: u64,
}

/// Keys that were remembered at about the same time.
#[derive(Debug)]
struct Stretch {
    began: Instant,
    ended: Instant,
    /// The place after its last key.
    end: u32,
}

impl Seen {
    /// Nothing yet. `permit` grows with what is remembered.
    pub(super) fn new(window: Duration, max_bytes: usize, permit: Permit) -> Self {
        // Places have 32 bits, and are compared by their distance.
        let keys = (max_bytes / BYTES_PER_KEY).min(1 << 30);
        Seen {
            window,
            limit: (keys / CHUNK).max(1),
            chunks: VecDeque::new(),
            base: 0,
            first: 0,
            next: 0,
            horizon: 0,
            index: [const { Index::new() }; PARTS],
            stretches: VecDeque::new(),
            permit,
            forgotten: 0,
        }
    }

    /// How many keys are in memory.
    pub(super) fn len(&self) -> usize {
        distance(self.first, self.next)
    }

    /// How many keys were forgotten before the end of their window, for want of memory.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes note of the time: what is too old by now is not found any more.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some(oldest) = self.stretches.front() {
            if now.saturating_duration_since(oldest.ended) < self.window {
                break;
            }
            self.horizon = oldest.end;
            self.stretches.pop_front();
        }
    }

    /// Whether the key was remembered, within the window as of the last [`advance`](Self::advance).
    #[inline]
    pub(super) fn contains(&self, key: u128) -> bool {
        let (chunks, base) = (&self.chunks, self.base);
        let is = |place| key_at(chunks, base, place) == Some(key) && is_from(place, self.horizon);
        let part = self.index.get(part(key));
        part.is_some_and(|part| part.contains(mark(key), is))
    }

    /// Fetches what is needed to look for these keys from memory, for all of them at a time: without a branch that depends
    /// on what is found, the processor waits for none of it. One by one each would be waited for.
    pub(super) fn fetch(&self, keys: &[u128]) {
        let slots = keys.iter().map(|key| {
            let part = self.index.get(part(*key));
            part.map_or(0, |part| part.first_slot(mark(*key)))
        });
        std::hint::black_box(slots.fold(0, std::ops::BitOr::bitor));
    }

    /// Remembers keys that came now.
    pub(super) fn remember(&mut self, keys: impl Iterator<Item = u128>, now: Instant) {
        self.advance(now);
        let before = self.next;
        for key in keys {
            self.sweep(SWEEP);
            if !self.make_room() {
                break;
            }
            self.push(key);
        }
        if self.next == before {
            return;
        }
        match self.stretches.back_mut() {
            Some(last) if now - last.began < self.window / STRETCHES => {
                last.ended = now;
                last.end = self.next;
            }
            _ => self.stretches.push_back(Stretch {
                began: now,
                ended: now,
                end: self.next,
            }),
        }
    }

    fn push(&mut self, key: u128) {
        let (Some(chunk), Some(index)) = (self.chunks.back_mut(), self.index.get_mut(part(key)))
        else {
            return;
        };
        chunk.push(key);
        index.insert(mark(key), self.next);
        self.next = self.next.wrapping_add(1);
    }

    /// Sees to it that the last chunk has room for a key; at the bound the oldest ones go.
    fn make_room(&mut self) -> bool {
        if self.chunks.back().is_some_and(|last| last.len() < CHUNK) {
            return true;
        }
        let may_grow =
            self.chunks.len() < self.limit && self.permit.grow(CHUNK * BYTES_PER_KEY).is_ok();
        if may_grow {
            self.chunks.push_back(Vec::with_capacity(CHUNK));
            return true;
        }
        if self.chunks.is_empty() {
            return false;
        }
        // The oldest chunk is used again.
        let end = self.base.wrapping_add(CHUNK as u32);
        while distance(self.first, end) <= CHUNK && self.first != end {
            self.forgotten += u64::from(is_from(self.first, self.horizon));
            self.forget_first();
        }
        // Places are told apart by less than 2^31, so none that is gone may be looked at later.
        if is_from(self.first, self.horizon) {
            self.horizon = self.first;
        }
        let first = self.first;
        self.stretches
            .retain(|stretch| !is_from(first, stretch.end));
        let Some(mut chunk) = self.chunks.pop_front() else {
            return false;
        };
        chunk.clear();
        self.base = end;
        self.chunks.push_back(chunk);
        true
    }

    /// Lets go of some keys that are too old, and of chunks without others.
    fn sweep(&mut self, most: usize) {
        for _ in 0..most {
            if is_from(self.first, self.horizon) {
                return;
            }
            self.forget_first();
            let end = self.base.wrapping_add(CHUNK as u32);
            if self.first == end {
                self.chunks.pop_front();
                self.base = end;
                self.permit
                    .shrink_to(self.chunks.len() * CHUNK * BYTES_PER_KEY);
                self.shrink_index();
            }
        }
    }

    fn forget_first(&mut self) {
        let place = self.first;
        if let Some(key) = key_at(&self.chunks, self.base, place)
            && let Some(index) = self.index.get_mut(part(key))
        {
            index.remove(mark(key), place);
        }
        self.first = place.wrapping_add(1);
    }

    /// The index follows when most of what was remembered is gone.
    fn shrink_index(&mut self) {
        for part in &mut self.index {
            part.shrink(CHUNK / PARTS);
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let parts = self.index.iter();
        parts.map(Index::bytes).sum::<usize>()
            + self.chunks.len() * (CHUNK * size_of::<u128>() + size_of::<Vec<u128>>())
    }
}

/// What is under way: the keys of each delivery whose outcome is not known.
#[derive(Debug, Default)]
pub(super) struct UnderWay(HashTable<(u128, u64)>);

/// Whose key it is already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// That of the same delivery.
    Own,
    /// That of another one.
    Other,
}

impl UnderWay {
    /// Puts a key down for a delivery, unless it is already.
    #[inline]
    pub(super) fn take(&mut self, key: u128, delivery: u64) -> Result<(), Taken> {
        let same = |other: &(u128, u64)| other.0 == key;
        match self
            .0
            .entry(whole_hash(key), same, |(key, _)| whole_hash(*key))
        {
            Entry::Vacant(place) => {
                place.insert((key, delivery));
                Ok(())
            }
            Entry::Occupied(found) if found.get().1 == delivery => Err(Taken::Own),
            Entry::Occupied(_) => Err(Taken::Other),
        }
    }

    /// Takes keys of this delivery back; `keys` may have others too.
    pub(super) fn give_back(&mut self, keys: &[u128], delivery: u64) {
        for key in keys {
            let own = |other: &(u128, u64)| *other == (*key, delivery);
            if let Ok(found) = self.0.find_entry(whole_hash(*key), own) {
                found.remove();
            }
        }
        // A burst must not be held for ever.
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = HashTable::new();
        }
    }

    /// Takes all keys back if there is no other delivery: `count` is how many keys this one has. Says whether it did.
    ///
    /// That is most often so, and costs next to nothing, unless the table is much too large.
    pub(super) fn clear(&mut self, count: usize) -> bool {
        let alone = self.0.len() == count && self.0.capacity() <= 32 * count.max(32);
        if alone {
            self.0.clear();
        }
        alone
    }
}

/// Room for so many keys under way is kept: half a megabyte.
const KEPT: usize = 16 << 10;

/// A key is a hash already.
#[inline]
fn whole_hash(key: u128) -> u64 {
    (key >> 64) as u64
}

/// What the index has of a key: 32 bits, so one in billions of comparisons goes to the ring in vain.
#[inline]
fn mark(key: u128) -> u32 {
    (key >> 96) as u32
}

/// The part of the index for a key: by other bits than those of its mark.
#[inline]
fn part(key: u128) -> usize {
    key as usize % PARTS
}

#[inline]
fn key_at(chunks: &VecDeque<Vec<u128>>, base: u32, place: u32) -> Option<u128> {
    let at = distance(base, place);
    chunks.get(at / CHUNK)?.get(at % CHUNK).copied()
}

#[inline]
fn distance(from: u32, to: u32) -> usize {
    to.wrapping_sub(from) as usize
}

/// Whether a place is not before `from`.
#[inline]
fn is_from(place: u32, from: u32) -> bool {
    place.wrapping_sub(from).cast_signed() >= 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_memory::Budget;

    const WINDOW: Duration = Duration::from_secs(128);

    fn seen(chunks: usize, budget: usize) -> Seen {
        let permit = Budget::new(budget).acquire(0).unwrap();
        Seen::new(WINDOW, chunks * CHUNK * BYTES_PER_KEY, permit)
    }

    /// Keys as they are: hashes.
    fn keys(range: std::ops::Range<u64>) -> impl Iterator<Item = u128> {
        range.map(|number| xxhash_rust::xxh3::xxh3_128(&number.to_le_bytes()))
    }

    fn found(seen: &Seen, range: std::ops::Range<u64>) -> usize {
        keys(range).filter(|key| seen.contains(*key)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_known_for_the_window_and_not_longer() {
        let mut seen = seen(100, 1 << 30);
        let start = Instant::now();
        seen.remember(keys(0..1000), start);
        seen.remember(keys(1000..2000), start + WINDOW / 2);
        for (after, old, new) in [
            (WINDOW - Duration::from_millis(1), 1000, 1000),
            (WINDOW, 0, 1000),
            (WINDOW * 3 / 2, 0, 0),
        ] {
            seen.advance(start + after);
            let known = (found(&seen, 0..1000), found(&seen, 1000..2000));
            assert_eq!(known, (old, new), "{after:?}");
        }
        // What is too old goes as new ones come, and gives its memory back.
        seen.remember(keys(2000..3000), start + WINDOW * 2);
        assert_eq!(seen.len(), 1000);
        assert!(seen.permit.bytes() <= 3 * CHUNK * BYTES_PER_KEY);
        assert_eq!(seen.forgotten(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_byte_bound_the_oldest_are_forgotten_first() {
        let mut seen = seen(4, 1 << 30);
        let all = 10 * CHUNK as u64;
        for first in (0..all).step_by(100) {
            seen.remember(keys(first..(first + 100).min(all)), Instant::now());
        }
        let kept = seen.len() as u64;
        assert!(kept > 3 * CHUNK as u64 && kept <= 4 * CHUNK as u64);
        assert_eq!(
            found(&seen, all - kept..all),
            usize::try_from(kept).unwrap()
        );
        assert_eq!(found(&seen, 0..all - kept), 0);
        assert_eq!(seen.forgotten(), all - kept);
        assert_eq!(seen.permit.bytes(), 4 * CHUNK * BYTES_PER_KEY);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_budget_has_no_room_for_is_not_remembered_or_replaces_the_oldest() {
        let mut none = seen(4, 100);
        none.remember(keys(0..10), Instant::now());
        assert_eq!((none.len(), found(&none, 0..10)), (0, 0));
        let mut one = seen(4, CHUNK * BYTES_PER_KEY);
        let all = 2 * CHUNK as u64;
        one.remember(keys(0..all), Instant::now());
        assert_eq!(found(&one, CHUNK as u64..all), CHUNK);
        assert_eq!(one.permit.bytes(), CHUNK * BYTES_PER_KEY);
    }

    #[tokio::test(start_paused = true)]
    async fn forty_bytes_are_enough_for_a_key_at_any_size() {
        let mut seen = seen(1 << 20, 1 << 40);
        for step in 0..2000 {
            let first = step * 300;
            seen.remember(keys(first..first + 300), Instant::now());
            // Old and new are there together for a moment when a part of the index grows: half as much again.
            let parts = seen.index.iter().map(Index::bytes);
            let most = seen.bytes() + parts.max().unwrap() / 2;
            assert!(most <= seen.permit.bytes(), "{} keys", seen.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn places_wrap_around() {
        let mut seen = seen(4, 1 << 30);
        let start = u32::MAX - 1000;
        (seen.base, seen.first, seen.next, seen.horizon) = (start, start, start, start);
        let now = Instant::now();
        for step in 0..100 {
            let first = step * 100;
            let at = now + Duration::from_secs(step);
            seen.remember(keys(first..first + 100), at);
            assert_eq!(found(&seen, first..first + 100), 100);
        }
        assert_eq!(found(&seen, 0..1000), 0);
    }

    #[test]
    fn a_key_under_way_belongs_to_one_delivery_until_it_gives_it_back() {
        let mut under_way = UnderWay::default();
        assert_eq!(under_way.take(7, 1), Ok(()));
        assert_eq!(under_way.take(7, 1), Err(Taken::Own));
        assert_eq!(under_way.take(7, 2), Err(Taken::Other));
        under_way.give_back(&[7], 2);
        assert_eq!(under_way.take(7, 2), Err(Taken::Other));
        under_way.give_back(&[6, 7], 1);
        assert_eq!(under_way.take(7, 2), Ok(()));
        assert_eq!(under_way.take(8, 3), Ok(()));
        assert!(!under_way.clear(1), "another one is under way");
        under_way.give_back(&[8], 3);
        assert!(under_way.clear(1));
        assert_eq!(under_way.take(7, 3), Ok(()));
    }
}
