//! Aligns processes that map a binary at different addresses.

use super::dictionary::{Binary, Dictionary};
use super::id::{Id as _, MappingId};
use super::table::Records;
use crate::entry::Mapping;

/// Treatment of addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addresses {
    /// Addresses stay unchanged, and mappings are equal only if all their fields are equal.
    #[default]
    Exact,
    /// Addresses are shifted to the first mapping of the same binary: see [`Dictionary::binary`]. Processes that
    /// run the same binary at different addresses then share locations, as in pprof's merge.
    Relocated,
}

/// First mapping of each binary.
#[derive(Debug, Default)]
pub struct Relocations {
    binaries: Records<MappingId, Binary>,
    mappings: Vec<MappingId>,
}

impl Relocations {
    /// Creates an empty table.
    pub fn new() -> Self {
        Relocations {
            binaries: Records::without_zero(),
            mappings: Vec::new(),
        }
    }

    /// Returns the first mapping of the same binary, and the shift of addresses to it.
    pub fn relocate(&mut self, dictionary: &mut Dictionary, mapping: Mapping) -> (MappingId, u64) {
        let binary = self.binaries.intern(dictionary.binary(mapping));
        if let Some(first) = self.mappings.get(binary.index()) {
            let start = dictionary.get_mapping(*first).start;
            return (*first, start.wrapping_sub(mapping.start));
        }
        let id = dictionary.mapping(mapping);
        self.mappings.push(id);
        (id, 0)
    }

    /// Memory of the table, in bytes.
    pub fn bytes(&self) -> usize {
        self.binaries.bytes() + self.mappings.capacity() * size_of::<MappingId>()
    }
}
