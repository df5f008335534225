//! Interned strings.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Id of a string in [`Strings`]; 0 is the empty string.
pub(super) type StringId = u32;

#[derive(Debug)]
pub(super) struct Strings {
    bytes: Vec<u8>,
    ends: Vec<u32>,
    table: HashTable<StringId>,
    hasher: FixedState,
}

/// Maximum length of a name in bytes; longer names are truncated. Names of C++ templates can have megabytes.
const MAX_NAME_LENGTH: usize = 64 << 10;

impl Strings {
    pub(super) fn new() -> Self {
        let mut strings = Strings {
            bytes: Vec::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: FixedState::with_seed(0),
        };
        strings.add(b"");
        strings
    }

    /// Returns the id of a string. Returns the id of the empty string if the table already holds 4 GiB.
    pub(super) fn add(&mut self, string: &[u8]) -> StringId {
        let string = string.get(..MAX_NAME_LENGTH).unwrap_or(string);
        let hash = self.hasher.hash_one(string);
        let (bytes, ends) = (&self.bytes, &self.ends);
        let found = self.table.find(hash, |id| get(bytes, ends, *id) == string);
        if let Some(id) = found {
            return *id;
        }
        let end = u32::try_from(self.bytes.len() + string.len());
        let (Ok(end), Ok(id)) = (end, u32::try_from(self.ends.len())) else {
            return 0;
        };
        self.bytes.extend_from_slice(string);
        self.ends.push(end);
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        self.table
            .insert_unique(hash, id, |id| hasher.hash_one(get(bytes, ends, *id)));
        id
    }

    pub(super) fn get(&self, id: StringId) -> &[u8] {
        get(&self.bytes, &self.ends, id)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

fn get<'s>(bytes: &'s [u8], ends: &[u32], id: StringId) -> &'s [u8] {
    let id = id as usize;
    let start = id.checked_sub(1).and_then(|before| ends.get(before));
    let start = start.copied().unwrap_or_default() as usize;
    let end = ends.get(id).copied().unwrap_or_default() as usize;
    bytes.get(start..end).unwrap_or_default()
}
