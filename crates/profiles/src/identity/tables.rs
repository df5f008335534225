//! Hashes of dictionary entries, computed on first use.

use opentelemetry_proto::tonic::common::v1::AnyValue;
use prost::Message as _;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_128;

use super::sequence::HashCache;
pub(super) use super::sequence::at;
use crate::entries::{Entries, Indices, bytes, fields, index, indices, number, signed};
use crate::fault::{DictionaryTable, ProfileFault};
use crate::names;
use crate::references::References;

/// Hashes of the entries of a request's tables.
#[derive(Debug)]
pub(super) struct Tables<'e, 'r> {
    entries: &'e Entries<'r>,
    /// Resolver for references in resources, scopes and values.
    pub(super) references: References<'e, &'r [u8]>,
    strings: HashCache<'e>,
    /// Hashes of attributes; an empty attribute has the hash 0.
    attributes: HashCache<'e>,
    keys: HashCache<'e>,
    mappings: HashCache<'e>,
    starts: HashCache<'e>,
    functions: HashCache<'e>,
    pub(super) locations: HashCache<'e>,
    pub(super) stacks: HashCache<'e>,
    pub(super) unknown: bool,
    /// Hash of the empty string.
    nothing: u128,
}

impl<'e, 'r> Tables<'e, 'r> {
    /// Creates the tables; `memory` stores all hashes in one allocation, because profiles are often small.
    pub(super) fn new(entries: &'e Entries<'r>, memory: &'e mut Vec<u128>) -> Self {
        let strings = entries.strings.len();
        let attributes = entries.attributes.len();
        let mappings = entries.mappings.len();
        let functions = entries.functions.len();
        let locations = entries.locations.len();
        let stacks = entries.stacks.len();
        let all = strings + 2 * attributes + 2 * mappings + functions + locations + stacks;
        *memory = vec![0; all];
        let memory = &mut memory.as_mut_slice();
        Tables {
            entries,
            references: References::new(&entries.strings),
            strings: HashCache::of(strings, memory),
            attributes: HashCache::of(attributes, memory),
            keys: HashCache::of(attributes, memory),
            mappings: HashCache::of(mappings, memory),
            starts: HashCache::of(mappings, memory),
            functions: HashCache::of(functions, memory),
            locations: HashCache::of(locations, memory),
            stacks: HashCache::of(stacks, memory),
            unknown: entries.unknown,
            nothing: xxh3_128(b""),
        }
    }

    /// Returns the entry of a table. Index 0 means an empty entry, even if the table is empty or its first
    /// entry is not.
    #[inline]
    pub(super) fn entry(
        &self,
        table: DictionaryTable,
        index: i32,
    ) -> Result<&'r [u8], ProfileFault> {
        if index == 0 {
            return Ok(&[]);
        }
        let entry = self.entries.table(table).get(at(index));
        entry
            .copied()
            .ok_or(ProfileFault::Dangling { table, index })
    }

    #[inline]
    pub(super) fn string(&mut self, index: i32) -> Result<u128, ProfileFault> {
        if index == 0 {
            return Ok(self.nothing);
        }
        match self.strings.get(index) {
            Some(hash) => Ok(hash),
            None => self.new_string(index),
        }
    }

    fn new_string(&mut self, index: i32) -> Result<u128, ProfileFault> {
        let string = self.entry(DictionaryTable::String, index)?;
        Ok(self.strings.set(index, xxh3_128(string)))
    }

    /// Hashes a set of attributes, ignoring their order. Of several attributes with the same key, only the first is
    /// hashed.
    #[inline]
    pub(super) fn attribute_set(&mut self, indices: &[i32]) -> Result<u128, ProfileFault> {
        match indices {
            [] => Ok(0),
            [index] => self.attribute(*index),
            indices => self.several_attributes(indices),
        }
    }

    fn several_attributes(&mut self, indices: &[i32]) -> Result<u128, ProfileFault> {
        let mut set: SmallVec<[(u128, u128); 8]> = SmallVec::new();
        for index in indices {
            let hash = self.attribute(*index)?;
            if hash != 0 {
                set.push((self.key(*index), hash));
            }
        }
        // A stable sort keeps the first attribute of a key first.
        set.sort_by_key(|(key, _)| *key);
        set.dedup_by_key(|(key, _)| *key);
        let hashes = set.iter().map(|(_, hash)| *hash);
        Ok(hashes.fold(0, u128::wrapping_add))
    }

    /// Returns the hash of the key of an attribute that is already hashed.
    fn key(&self, index: i32) -> u128 {
        self.keys.get(index).unwrap_or_default()
    }

    #[inline]
    fn attribute(&mut self, index: i32) -> Result<u128, ProfileFault> {
        match self.attributes.get(index) {
            Some(hash) => Ok(hash),
            None => self.new_attribute(index),
        }
    }

    fn new_attribute(&mut self, of: i32) -> Result<u128, ProfileFault> {
        const PLACE: &str = "an attribute";
        let (mut key, mut unit) = (0, 0);
        let mut value: SmallVec<[&[u8]; 1]> = SmallVec::new();
        for field in fields(self.entry(DictionaryTable::Attribute, of)?, PLACE) {
            let field = field?;
            match field.number {
                1 => key = index(field, PLACE)?,
                2 => value.push(bytes(field, PLACE)?),
                3 => unit = index(field, PLACE)?,
                _ => self.unknown = true,
            }
        }
        let (key, unit) = (self.string(key)?, self.string(unit)?);
        self.keys.set(of, key);
        let mut said = Vec::with_capacity(128);
        said.extend_from_slice(&key.to_le_bytes());
        said.extend_from_slice(&unit.to_le_bytes());
        self.value(&value, &mut said)?;
        if key == self.nothing && unit == self.nothing && said.len() == 2 * size_of::<u128>() {
            return Ok(0);
        }
        Ok(self.attributes.set(of, xxh3_128(&said)))
    }

    /// Encodes a value without references to strings, in the shortest form.
    fn value(&mut self, parts: &[&[u8]], said: &mut Vec<u8>) -> Result<(), ProfileFault> {
        const PLACE: &str = "an attribute";
        if let [value] = parts
            && is_plain(value)
        {
            said.extend_from_slice(value);
            return Ok(());
        }
        let mut value = AnyValue::default();
        for part in parts {
            value
                .merge(*part)
                .map_err(|_| ProfileFault::Malformed(PLACE))?;
        }
        let encoded = parts.iter().map(|part| part.len()).sum::<usize>();
        self.unknown |= value.encoded_len() != encoded;
        self.references.resolve_value(&mut value)?;
        said.extend(value.encode_to_vec());
        Ok(())
    }

    /// Hashes the binary of a mapping by the rule of [`Dictionary::binary`](crate::Dictionary::binary).
    /// Returns its start address too.
    #[inline]
    pub(super) fn mapping(&mut self, of: i32) -> Result<(u128, u64), ProfileFault> {
        let hash = match self.mappings.get(of) {
            Some(hash) => hash,
            None => self.new_mapping(of)?,
        };
        let start = self.starts.get(of).unwrap_or_default();
        Ok((hash, start as u64))
    }

    fn new_mapping(&mut self, of: i32) -> Result<u128, ProfileFault> {
        const PLACE: &str = "a mapping";
        const PAGE: u64 = 0x1000;
        let (mut start, mut limit, mut offset, mut filename) = (0_u64, 0_u64, 0_u64, 0);
        let mut attributes = Indices::new();
        for field in fields(self.entry(DictionaryTable::Mapping, of)?, PLACE) {
            let field = field?;
            match field.number {
                1 => start = number(field, PLACE)?,
                2 => limit = number(field, PLACE)?,
                3 => offset = number(field, PLACE)?,
                4 => filename = index(field, PLACE)?,
                5 => indices(field, PLACE, &mut attributes)?,
                _ => self.unknown = true,
            }
        }
        self.starts.set(of, u128::from(start));
        let mut said = [0; 48];
        let pages = limit.wrapping_sub(start).div_ceil(PAGE);
        said[..8].copy_from_slice(&pages.to_le_bytes());
        said[8..16].copy_from_slice(&offset.to_le_bytes());
        match self.build_id(&attributes)? {
            Some(build_id) => said[16..32].copy_from_slice(&build_id.to_le_bytes()),
            None => said[32..].copy_from_slice(&self.string(filename)?.to_le_bytes()),
        }
        Ok(self.mappings.set(of, xxh3_128(&said)))
    }

    fn build_id(&mut self, attributes: &[i32]) -> Result<Option<u128>, ProfileFault> {
        for index in attributes {
            self.attribute(*index)?;
        }
        for name in names::BUILD_IDS {
            let name = xxh3_128(name.as_bytes());
            let found = attributes.iter().find(|index| self.key(**index) == name);
            if let Some(index) = found {
                return self.attribute(*index).map(Some);
            }
        }
        Ok(None)
    }

    #[inline]
    pub(super) fn function(&mut self, of: i32) -> Result<u128, ProfileFault> {
        match self.functions.get(of) {
            Some(hash) => Ok(hash),
            None => self.new_function(of),
        }
    }

    fn new_function(&mut self, of: i32) -> Result<u128, ProfileFault> {
        const PLACE: &str = "a function";
        let mut strings = [0; 3];
        let mut start_line = 0;
        for field in fields(self.entry(DictionaryTable::Function, of)?, PLACE) {
            let field = field?;
            let [name, system_name, filename] = &mut strings;
            match field.number {
                1 => *name = index(field, PLACE)?,
                2 => *system_name = index(field, PLACE)?,
                3 => *filename = index(field, PLACE)?,
                4 => start_line = signed(field, PLACE)?,
                _ => self.unknown = true,
            }
        }
        let mut said = [0; 56];
        for (part, string) in said.as_chunks_mut::<16>().0.iter_mut().zip(strings) {
            *part = self.string(string)?.to_le_bytes();
        }
        said[48..].copy_from_slice(&start_line.to_le_bytes());
        Ok(self.functions.set(of, xxh3_128(&said)))
    }

    /// Returns the trace id and span id of a link. Ids of invalid length count as missing.
    pub(super) fn link(&mut self, of: i32) -> Result<[u8; 24], ProfileFault> {
        const PLACE: &str = "a link";
        let mut ids = [0; 24];
        let (trace, span) = ids.split_at_mut(16);
        for field in fields(self.entry(DictionaryTable::Link, of)?, PLACE) {
            let field = field?;
            let into = match field.number {
                1 => &mut *trace,
                2 => &mut *span,
                _ => {
                    self.unknown = true;
                    continue;
                }
            };
            let id = bytes(field, PLACE)?;
            match id.len() == into.len() {
                true => into.copy_from_slice(id),
                false => into.fill(0),
            }
        }
        Ok(ids)
    }
}

/// Whether a value is a short text or a non-negative number in shortest encoding, as most values are.
fn is_plain(value: &[u8]) -> bool {
    match value {
        [0x0a, length, text @ ..] => *length < 0x80 && text.len() == usize::from(*length),
        [0x18, more @ .., last] => {
            let minimal = more.is_empty() || *last > 0;
            *last < 0x80 && minimal && more.len() < 9 && more.iter().all(|byte| *byte >= 0x80)
        }
        _ => false,
    }
}
