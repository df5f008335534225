//! Tables that hold each entry once: an entry gets the same index whenever it is asked for again.
//!
//! Entries are found by their full key; a hash only says where to look. The hashes are seeded per process, so that
//! nobody outside can choose keys that collide.

use std::hash::{BuildHasher as _, Hash, Hasher as _};
use std::marker::PhantomData;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::id::Id;

/// Where an entry is, with 32 bits of its hash: they spare most look-ups of other entries and let the table grow
/// without hashing again.
#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: u32,
    entry: u32,
}

impl Slot {
    /// The table takes its bucket from the low bits and its tag from the high ones.
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

    /// The bytes alone: where nothing comes before or after them, their length need not be part of it.
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

    /// Adds an entry that was not found.
    #[inline(never)]
    fn add(&mut self, hash: u32, next: usize) -> u32 {
        // Memory ends long before: 2^32 entries take 48 GiB at least.
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

/// A table of records of one size.
#[derive(Debug, Clone)]
pub struct Records<I, T> {
    entries: Vec<T>,
    index: Index,
    id: PhantomData<I>,
}

impl<I: Id, T: Copy + Eq + Hash + Default> Records<I, T> {
    /// A table with the zero value only.
    pub fn new() -> Self {
        let mut table = Self::without_zero();
        table.intern(T::default());
        table
    }

    /// An empty table: here 0 is an index like any other.
    pub fn without_zero() -> Self {
        Records {
            entries: Vec::new(),
            index: Index::default(),
            id: PhantomData,
        }
    }

    /// The index of this record, which is added when it is new.
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

    /// Forgets all records, the zero value too. The memory stays.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.index.slots.clear();
    }

    /// The record, or the zero value for an index of another table.
    pub fn get(&self, id: I) -> T {
        self.entries.get(id.index()).copied().unwrap_or_default()
    }

    /// All records, in the order in which they were added.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<T>() + self.index.bytes()
    }
}

impl<I: Id, T: Copy + Eq + Hash + Default> Default for Records<I, T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A table of lists, one behind the other in one vector.
#[derive(Debug, Clone)]
pub struct Lists<I, T> {
    items: Vec<T>,
    ends: Vec<usize>,
    index: Index,
    id: PhantomData<I>,
}

impl<I: Id, T: Copy + Eq + Hash> Lists<I, T> {
    /// A table with the empty list only.
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

    /// The index of this list, which is added when it is new.
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

    /// The list, or the empty one for an index of another table.
    pub fn get(&self, id: I) -> &[T] {
        span(&self.ends, id.index())
            .and_then(|span| self.items.get(span))
            .unwrap_or_default()
    }

    /// How many lists there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is only the empty list.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The memory it takes.
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

/// A table of strings, one behind the other in one string.
#[derive(Debug, Clone)]
pub struct Strings<I> {
    text: String,
    ends: Vec<usize>,
    index: Index,
    id: PhantomData<I>,
}

impl<I: Id> Strings<I> {
    /// A table with the empty string only.
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

    /// The index of this string, which is added when it is new.
    pub fn intern(&mut self, string: &str) -> I {
        let hash = self.index.hash_bytes(string.as_bytes());
        match self.find(hash, string.as_bytes()) {
            Some(id) => id,
            None => self.add(hash, string),
        }
    }

    /// The index of a string that may not be one: nothing if it is not UTF-8. That is looked at only when it is new.
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
        // As bytes: comparing them needs no look at the boundaries of characters.
        let text = self.text.as_bytes();
        let equal = |at: usize| span(&self.ends, at).and_then(|span| text.get(span)) == Some(bytes);
        self.index.find(hash, equal).map(I::new)
    }

    fn add(&mut self, hash: u32, string: &str) -> I {
        self.text.push_str(string);
        self.ends.push(self.text.len());
        I::new(self.index.add(hash, self.ends.len() - 1))
    }

    /// The string, or the empty one for an index of another table.
    pub fn get(&self, id: I) -> &str {
        span(&self.ends, id.index())
            .and_then(|span| self.text.get(span))
            .unwrap_or_default()
    }

    /// The bytes of the string, or none for an index of another table.
    #[inline]
    pub(super) fn get_bytes(&self, id: I) -> &[u8] {
        span(&self.ends, id.index())
            .and_then(|span| self.text.as_bytes().get(span))
            .unwrap_or_default()
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is only the empty string.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<usize>() + self.index.bytes()
    }
}

impl<I: Id> Default for Strings<I> {
    fn default() -> Self {
        Self::new()
    }
}

/// Of a vector without elements nothing but the memory is left, and that is used again.
pub(super) fn emptied<'o>(mut slices: Vec<&[u8]>) -> Vec<&'o [u8]> {
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
    fn an_entry_gets_the_same_index_again_and_zero_is_the_zero_value() {
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
    fn lists_are_told_apart_by_length_and_order() {
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
    fn many_entries_survive_the_growth_of_the_table() {
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
    fn an_index_of_another_table_finds_nothing() {
        assert_eq!(Strings::<StringId>::new().get(StringId::new(7)), "");
        let lists = Lists::<StackId, u32>::new();
        assert!(lists.get(StackId::new(u32::MAX)).is_empty());
        assert_eq!(Records::<LinkId, u64>::new().get(LinkId::new(7)), 0);
    }
}
