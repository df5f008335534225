//! Keys of delivered items in order of arrival, with lookup in constant time and eviction of the
//! oldest.
//!
//! A ring stores the keys, 16 bytes each, and an index maps keys to positions. Times are stored per
//! span of the ring. The structure takes 26 to 36 bytes per key; a map with times as values takes
//! at least 40 and does not know the oldest key.
//!
//! The index is divided into shards that grow separately, and stores 32 bits of each key beside its
//! position. Growth therefore reads no keys from the ring, which is not in the cache, and no caller
//! waits for the rebuild of a table of millions.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use tokio::time::Instant;

use super::index::Index;
use tributary_memory::Permit;

/// Bytes charged to the memory budget per key, everything included.
pub(super) const BYTES_PER_KEY: usize = 40;

/// Keys allocated and charged together: 20 KiB.
pub(super) const CHUNK: usize = 512;

/// Time steps per window: the precision of the times of keys.
const TIME_STEPS_PER_WINDOW: u32 = 128;

/// Shards of the index.
const PARTS: usize = 16;

/// Expired keys removed per new key, so that no call removes many at once.
const REMOVALS_PER_KEY: usize = 4;

/// Keys remembered within a time window and a byte limit.
#[derive(Debug)]
pub(super) struct Seen {
    window: Duration,
    /// Maximum number of chunks.
    limit: usize,
    /// The ring. All chunks but the last are full.
    chunks: VecDeque<Vec<u128>>,
    /// Position of the first key of the first chunk. Positions increase without end and wrap
    /// around.
    base: u32,
    /// First position that is still in the index.
    first: u32,
    /// Position of the next key.
    next: u32,
    /// Keys before this position have expired, whether or not they are still in the index.
    horizon: u32,
    index: [Index; PARTS],
    stretches: VecDeque<Stretch>,
    permit: Permit,
    /// Number of keys evicted before the end of their window.
    forgotten: u64,
}

/// Keys remembered at about the same time.
#[derive(Debug)]
struct Stretch {
    began: Instant,
    ended: Instant,
    /// Position after the last key of the span.
    end: u32,
}

impl Seen {
    /// Creates an empty set. `permit` grows with the remembered keys.
    pub(super) fn new(window: Duration, max_bytes: usize, permit: Permit) -> Self {
        // Positions have 32 bits and are compared by their distance.
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

    /// Returns the number of keys in memory.
    pub(super) fn len(&self) -> usize {
        distance(self.first, self.next)
    }

    /// Returns the number of keys evicted before the end of their window because of the byte limit.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Expires the keys that are older than the window at `now`.
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

    /// Prefetches the index slots and ring positions of all keys in one loop. The loop has no
    /// branch that depends on loaded data, so the cache misses overlap; separate lookups would wait
    /// for each miss.
    pub(super) fn fetch(&self, keys: &[u128]) {
        let slots = keys.iter().map(|key| {
            let part = self.index.get(part(*key));
            part.map_or(0, |part| part.first_slot(mark(*key)))
        });
        std::hint::black_box(slots.fold(0, std::ops::BitOr::bitor));
    }

    /// Remembers keys that arrive at `now`.
    pub(super) fn remember(&mut self, keys: impl Iterator<Item = u128>, now: Instant) {
        self.advance(now);
        let before = self.next;
        for key in keys {
            self.sweep(REMOVALS_PER_KEY);
            if !self.make_room() {
                break;
            }
            self.push(key);
        }
        if self.next == before {
            return;
        }
        match self.stretches.back_mut() {
            Some(last) if now - last.began < self.window / TIME_STEPS_PER_WINDOW => {
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

    /// Ensures that the last chunk has room for a key; at the byte limit, the oldest keys are
    /// evicted.
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
        // The oldest chunk is reused.
        let end = self.base.wrapping_add(CHUNK as u32);
        while distance(self.first, end) <= CHUNK && self.first != end {
            self.forgotten += u64::from(is_from(self.first, self.horizon));
            self.forget_first();
        }
        // Positions compare correctly within a distance of 2^31, so evicted positions must be
        // behind the horizon.
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

    /// Removes some expired keys, and chunks that become empty.
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

    /// Shrinks the index after most keys have been removed.
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

/// Keys of each delivery in flight.
#[derive(Debug, Default)]
pub(super) struct InFlight(HashTable<(u128, u64)>);

/// The delivery that already has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// The same delivery.
    Own,
    /// Another delivery.
    Other,
}

impl InFlight {
    /// Registers a key for a delivery, unless a delivery already has it.
    #[inline]
    pub(super) fn take(&mut self, key: u128, delivery: u64) -> Result<(), HeldBy> {
        let same = |other: &(u128, u64)| other.0 == key;
        match self
            .0
            .entry(whole_hash(key), same, |(key, _)| whole_hash(*key))
        {
            Entry::Vacant(place) => {
                place.insert((key, delivery));
                Ok(())
            }
            Entry::Occupied(found) if found.get().1 == delivery => Err(HeldBy::Own),
            Entry::Occupied(_) => Err(HeldBy::Other),
        }
    }

    /// Releases the keys of this delivery; keys of other deliveries in `keys` are ignored.
    pub(super) fn release(&mut self, keys: &[u128], delivery: u64) {
        for key in keys {
            let own = |other: &(u128, u64)| *other == (*key, delivery);
            if let Ok(found) = self.0.find_entry(whole_hash(*key), own) {
                found.remove();
            }
        }
        // Release the memory of a burst.
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = HashTable::new();
        }
    }

    /// Releases all keys if no other delivery has keys. `count` is the number of keys of this
    /// delivery. Returns true if the keys were released. This is the common case, and cheap.
    pub(super) fn clear(&mut self, count: usize) -> bool {
        let alone = self.0.len() == count && self.0.capacity() <= 32 * count.max(32);
        if alone {
            self.0.clear();
        }
        alone
    }
}

/// Capacity that an empty table keeps: half a megabyte.
const KEPT: usize = 16 << 10;

#[inline]
fn whole_hash(key: u128) -> u64 {
    (key >> 64) as u64
}

/// Returns the 32 bits of a key in the index. With 32 bits, one in billions of comparisons reads the
/// ring without a match.
#[inline]
fn mark(key: u128) -> u32 {
    (key >> 96) as u32
}

/// Returns the index shard of a key, from other bits than those of its mark.
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

/// Whether a position is at or after `from`.
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

    /// Keys as in production: hashes.
    fn keys(range: std::ops::Range<u64>) -> impl Iterator<Item = u128> {
        range.map(|number| xxhash_rust::xxh3::xxh3_128(&number.to_le_bytes()))
    }

    fn found(seen: &Seen, range: std::ops::Range<u64>) -> usize {
        keys(range).filter(|key| seen.contains(*key)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn key_is_remembered_for_the_window() {
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
        // Expired keys are removed as new keys arrive, and their memory is released.
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
    async fn full_budget_forgets_oldest_or_new_keys() {
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
            // While a shard grows, its old and new tables exist together: half as much again.
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
    fn key_in_flight_belongs_to_one_delivery() {
        let mut in_flight = InFlight::default();
        assert_eq!(in_flight.take(7, 1), Ok(()));
        assert_eq!(in_flight.take(7, 1), Err(HeldBy::Own));
        assert_eq!(in_flight.take(7, 2), Err(HeldBy::Other));
        in_flight.release(&[7], 2);
        assert_eq!(in_flight.take(7, 2), Err(HeldBy::Other));
        in_flight.release(&[6, 7], 1);
        assert_eq!(in_flight.take(7, 2), Ok(()));
        assert_eq!(in_flight.take(8, 3), Ok(()));
        assert!(!in_flight.clear(1), "another delivery is in flight");
        in_flight.release(&[8], 3);
        assert!(in_flight.clear(1));
        assert_eq!(in_flight.take(7, 3), Ok(()));
    }
}
