//! String and function tables of a request, extended by new entries.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use tributary_otlp::reader::{Fields, Value};

pub(super) struct Strings<'r> {
    table: Vec<&'r [u8]>,
    added: Vec<u8>,
    /// End of each new string.
    ends: Vec<usize>,
    /// Hash and index of every string. Stored hashes avoid reading all strings again when the table grows.
    known: HashTable<(u64, usize)>,
    hasher: RandomState,
}

/// Maximum size of the tag and length of an entry, unless the entry is very long, in bytes.
const FRAMING: usize = 4;

impl<'r> Strings<'r> {
    pub(super) fn new(table: Vec<&'r [u8]>) -> Self {
        let mut strings = Strings {
            known: HashTable::with_capacity(table.len()),
            table,
            added: Vec::new(),
            ends: Vec::new(),
            hasher: RandomState::default(),
        };
        for index in 0..strings.table.len() {
            let string = strings.table.get(index).copied().unwrap_or_default();
            strings.find_or_insert(string, index);
        }
        if strings.table.is_empty() {
            // Entry 0 means "not set".
            strings.index("");
        }
        strings
    }

    pub(super) fn index(&mut self, string: &str) -> u64 {
        let next = self.table.len() + self.ends.len();
        let index = self.find_or_insert(string.as_bytes(), next);
        if index == next {
            self.added.extend_from_slice(string.as_bytes());
            self.ends.push(self.added.len());
        }
        index as u64
    }

    /// New strings, in order.
    pub(super) fn added(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|at| piece(&self.added, &self.ends, at))
    }

    /// Size of the new strings in a request, in bytes.
    pub(super) fn added_bytes(&self) -> usize {
        self.added.len() + self.ends.len() * FRAMING
    }

    /// Returns the index of a string; `next` if the string is new.
    fn find_or_insert(&mut self, string: &[u8], next: usize) -> usize {
        let hash = self.hasher.hash_one(string);
        let table = &self.table;
        let get = |index: usize| match index.checked_sub(table.len()) {
            None => table.get(index).copied().unwrap_or_default(),
            Some(behind) => piece(&self.added, &self.ends, behind),
        };
        let same = |(known, index): &(u64, usize)| *known == hash && get(*index) == string;
        if let Some((_, index)) = self.known.find(hash, same) {
            return *index;
        }
        self.known
            .insert_unique(hash, (hash, next), |(hash, _)| *hash);
        next
    }
}

/// Returns the string number `at` of the strings with these ends.
fn piece<'p>(bytes: &'p [u8], ends: &[usize], at: usize) -> &'p [u8] {
    let start = at.checked_sub(1).and_then(|before| ends.get(before));
    let end = ends.get(at).copied().unwrap_or_default();
    bytes
        .get(start.copied().unwrap_or_default()..end)
        .unwrap_or_default()
}

/// The function table and its new entries. A function consists of its name, linkage name, file and first line.
pub(super) struct Functions {
    known: HashMap<[u64; 4], u64, RandomState>,
    pub(super) added: Vec<[u64; 4]>,
    next: u64,
}

impl Functions {
    pub(super) fn new(table: &[&[u8]]) -> Self {
        let mut functions = Functions {
            known: HashMap::with_capacity_and_hasher(table.len(), RandomState::default()),
            added: Vec::new(),
            next: table.len() as u64,
        };
        for (entry, index) in table.iter().zip(0..) {
            let mut key = [0; 4];
            for field in Fields::new(entry).flatten() {
                let slot = usize::try_from(field.number).ok();
                let slot = slot.and_then(|number| key.get_mut(number.wrapping_sub(1)));
                if let (Some(slot), Value::Varint(value)) = (slot, field.value) {
                    *slot = value;
                }
            }
            functions.known.entry(key).or_insert(index);
        }
        if table.is_empty() {
            functions.index([0; 4]);
        }
        functions
    }

    pub(super) fn index(&mut self, key: [u64; 4]) -> u64 {
        *self.known.entry(key).or_insert_with(|| {
            self.added.push(key);
            self.next += 1;
            self.next - 1
        })
    }
}
