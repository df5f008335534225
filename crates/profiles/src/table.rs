//! Interning tables: an entry gets the same index every time.
//!
//! Entries are compared by their full key; a hash only finds candidates. Hashes are seeded per process, so that an
//! attacker cannot choose colliding keys.

use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::marker::PhantomData;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::id::Id;

/// Index of an entry and 32 bits of its hash. The hash avoids most comparisons with other entries and lets the
/// table grow without rehashing.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    entry: u32,
}

impl Slot {
    /// Spreads the hash, since the table takes the bucket from the low bits and the tag from the high bits.
    fn spread(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

#[derive(Debug, Clone, Default)]
struct Index {
    slots: HashTable<Slot>,
    hashes: RandomState,
}

impl Index {
    fn hash<K: Hash + ?Sized>(&self, key: &K) -> u32 {
        (self.hashes.hash_one(key) >> 32) as u32
    }

    /// Hashes the bytes without their length, because no other data is hashed before or after them.
    fn hash_bytes(&self, bytes: &[u8]) -> u32 {
        let mut hasher = self.hashes.build_hasher();
        hasher.write(bytes);
        (hasher.finish() >> 32) as u32
    }

    #[inline]
    fn find(&self, hash: u32, equal: impl Fn(usize) -> bool) -> Option<u32> {
        let found = self.slots.find(Slot::spread(hash), |slot| {
            slot.hash == hash && equal(slot.entry as usize)
        });
        found.map(|slot| slot.entry)
    }

    #[inline(never)]
    fn add(&mut self, hash: u32, next: usize) -> u32 {
        // Memory is exhausted before this limit: 2^32 entries take at least 48 GiB.
        let entry = u32::try_from(next).unwrap_or(u32::MAX);
        let slot = Slot { hash, entry };
        self.slots
            .insert_unique(Slot::spread(hash), slot, |slot| Slot::spread(slot.hash));
        entry
    }

    fn bytes(&self) -> usize {
        self.slots.allocation_size()
    }
}

/// A table of fixed-size records.
#[derive(Debug, Clone)]
pub struct Records<I, T> {
    entries: Vec<T>,
    index: Index,
    id: PhantomData<I>,
}

impl<I: Id, T: Copy + Eq + Hash + Default> Records<I, T> {
    /// Creates a table with the zero value only.
    pub fn new() -> Self {
        let mut table = Self::without_zero();
        table.intern(T::default());
        table
    }

    /// Creates an empty table without a zero value, in which 0 is an ordinary index.
    pub fn without_zero() -> Self {
        Records {
            entries: Vec::new(),
            index: Index::default(),
            id: PhantomData,
        }
    }

    /// Interns a record.
    pub fn intern(&mut self, record: T) -> I {
        let hash = self.index.hash(&record);
        let equal = |at: usize| self.entries.get(at) == Some(&record);
        let index = match self.index.find(hash, equal) {
            Some(index) => index,
            None => {
                self.entries.push(record);
                self.index.add(hash, self.entries.len() - 1)
            }
        };
        I::new(index)
    }

    /// Removes all records including the zero value, keeping the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.index.slots.clear();
    }

    /// Returns a record, or the zero value for an index of another table.
    pub fn get(&self, id: I) -> T {
        self.entries.get(id.index()).copied().unwrap_or_default()
    }

    /// All records, in the order of insertion.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    /// Memory of the table, in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<T>() + self.index.bytes()
    }
}

impl<I: Id, T: Copy + Eq + Hash + Default> Default for Records<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A table of lists, stored consecutively in one vector.
#[derive(Debug, Clone)]
pub struct Lists<I, T> {
    items: Vec<T>,
    ends: Vec<usize>,
    index: Index,
    id: PhantomData<I>,
}

impl<I: Id, T: Copy + Eq + Hash> Lists<I, T> {
    /// Creates a table with the empty list only.
    pub fn new() -> Self {
        let mut table = Lists {
            items: Vec::new(),
            ends: Vec::new(),
            index: Index::default(),
            id: PhantomData,
        };
        table.intern(&[]);
        table
    }

    /// Interns a list.
    pub fn intern(&mut self, list: &[T]) -> I {
        let hash = self.index.hash(list);
        let equal =
            |at: usize| span(&self.ends, at).and_then(|span| self.items.get(span)) == Some(list);
        let index = match self.index.find(hash, equal) {
            Some(index) => index,
            None => {
                self.items.extend_from_slice(list);
                self.ends.push(self.items.len());
                self.index.add(hash, self.ends.len() - 1)
            }
        };
        I::new(index)
    }

    /// Returns a list, or the empty list for an index of another table.
    pub fn get(&self, id: I) -> &[T] {
        span(&self.ends, id.index())
            .and_then(|span| self.items.get(span))
            .unwrap_or_default()
    }

    /// Number of lists.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table contains only the empty list.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Memory of the table, in bytes.
    pub fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>()
            + self.ends.capacity() * size_of::<usize>()
            + self.index.bytes()
    }
}

impl<I: Id, T: Copy + Eq + Hash> Default for Lists<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A table of strings, stored consecutively in one string.
#[derive(Debug, Clone)]
pub struct Strings<I> {
    text: String,
    ends: Vec<usize>,
    index: Index,
    id: PhantomData<I>,
}

impl<I: Id> Strings<I> {
    /// Creates a table with the empty string only.
    pub fn new() -> Self {
        let mut table = Strings {
            text: String::new(),
            ends: Vec::new(),
            index: Index::default(),
            id: PhantomData,
        };
        table.intern("");
        table
    }

    /// Interns a string.
    pub fn intern(&mut self, string: &str) -> I {
        let hash = self.index.hash_bytes(string.as_bytes());
        match self.find(hash, string.as_bytes()) {
            Some(id) => id,
            None => self.add(hash, string),
        }
    }

    /// Interns bytes as a string; `None` if they are not UTF-8. Only new strings are validated.
    pub fn intern_bytes(&mut self, bytes: &[u8]) -> Option<I> {
        let hash = self.index.hash_bytes(bytes);
        if let Some(id) = self.find(hash, bytes) {
            return Some(id);
        }
        let string = str::from_utf8(bytes).ok()?;
        Some(self.add(hash, string))
    }

    #[inline]
    fn find(&self, hash: u32, bytes: &[u8]) -> Option<I> {
        // Compared as bytes, which needs no check of character boundaries.
        let text = self.text.as_bytes();
        let equal = |at: usize| span(&self.ends, at).and_then(|span| text.get(span)) == Some(bytes);
        self.index.find(hash, equal).map(I::new)
    }

    fn add(&mut self, hash: u32, string: &str) -> I {
        self.text.push_str(string);
        self.ends.push(self.text.len());
        I::new(self.index.add(hash, self.ends.len() - 1))
    }

    /// Returns a string, or the empty string for an index of another table.
    pub fn get(&self, id: I) -> &str {
        span(&self.ends, id.index())
            .and_then(|span| self.text.get(span))
            .unwrap_or_default()
    }

    /// Returns the bytes of a string, or no bytes for an index of another table.
    #[inline]
    pub(super) fn get_bytes(&self, id: I) -> &[u8] {
        span(&self.ends, id.index())
            .and_then(|span| self.text.as_bytes().get(span))
            .unwrap_or_default()
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether the table contains only the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Memory of the table, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.index.bytes()
    }
}

impl<I: Id> Default for Strings<I> {
    fn default() -> Self {
        Self::new()
    }
}

/// Clears a vector of slices and reuses its memory under another lifetime.
pub(super) fn cleared<'o>(mut slices: Vec<&[u8]>) -> Vec<&'o [u8]> {
    slices.clear();
    slices.into_iter().map(|_| &[][..]).collect()
}

fn span(ends: &[usize], at: usize) -> Option<std::ops::Range<usize>> {
    let start = match at.checked_sub(1) {
        None => 0,
        Some(before) => *ends.get(before)?,
    };
    Some(start..*ends.get(at)?)
}

#[cfg(test)]
mod tests {
    use super::super::id::{FunctionId, LinkId, LocationId, StackId, StringId};
    use super::*;

    #[test]
    fn equal_entries_share_an_index_and_zero_is_reserved() {
        let mut strings = Strings::<StringId>::new();
        assert_eq!(strings.intern("").index(), 0);
        let first = strings.intern("one");
        let second = strings.intern("two");
        assert_ne!(first, second);
        assert_eq!(strings.intern("one"), first);
        assert_eq!((strings.get(first), strings.get(second)), ("one", "two"));
        assert_eq!(strings.intern_bytes(b"two"), Some(second));
        assert_eq!(strings.intern_bytes(b"t\xff"), None);
        assert_eq!(strings.intern_bytes(b"three").unwrap().index(), 3);
        assert_eq!(strings.len(), 4);

        let mut records = Records::<LinkId, (u64, u32)>::new();
        assert_eq!(records.intern((0, 0)).index(), 0);
        let record = records.intern((7, 1));
        assert_eq!(records.intern((7, 1)), record);
        assert_eq!(records.get(record), (7, 1));
    }

    #[test]
    fn lists_differ_by_length_and_order() {
        let id = LocationId::new;
        let mut lists = Lists::<StackId, LocationId>::new();
        let stacks: Vec<Vec<LocationId>> = vec![
            vec![],
            vec![id(0)],
            vec![id(0), id(0)],
            vec![id(1), id(2)],
            vec![id(2), id(1)],
            (0..9).map(id).collect(),
            (0..10).map(id).collect(),
        ];
        let ids: Vec<StackId> = stacks.iter().map(|stack| lists.intern(stack)).collect();
        assert_eq!(lists.len(), stacks.len());
        for (id, stack) in ids.iter().zip(&stacks) {
            assert_eq!(lists.get(*id), stack);
            assert_eq!(lists.intern(stack), *id);
        }
    }

    #[test]
    fn growing_table_keeps_entries() {
        let mut records = Records::<FunctionId, u64>::new();
        let ids: Vec<FunctionId> = (1..50_000).map(|key| records.intern(key * 8)).collect();
        for (key, id) in (1..50_000).zip(ids) {
            assert_eq!(records.intern(key * 8), id);
            assert_eq!(records.get(id), key * 8);
        }
        assert_eq!(records.entries().len(), 50_000);
        assert!(records.bytes() >= 50_000 * 16);
    }

    #[test]
    fn index_of_another_table_has_no_entry() {
        assert_eq!(Strings::<StringId>::new().get(StringId::new(7)), "");
        let lists = Lists::<StackId, u32>::new();
        assert!(lists.get(StackId::new(u32::MAX)).is_empty());
        assert_eq!(Records::<LinkId, u64>::new().get(LinkId::new(7)), 0);
    }
}
