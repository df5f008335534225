//! Binaries that are mapped at other addresses in other processes, brought to the same ones.

use super::dictionary::{Binary, Dictionary, Mapping};
use super::id::{Id as _, MappingId};
use super::table::Records;

/// What happens to addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Addresses {
    /// They stay as they are, and mappings are the same when all about them is.
    #[default]
    Exact,
    /// They are moved to where the first mapping of the same binary is: see [`Dictionary::binary`]. Processes that run
    /// the same binary at different addresses then have the same locations, as in pprof's own merge.
    Relocated,
}

/// Where the first mapping of each binary is.
#[derive(Debug, Default)]
pub struct Relocations {
    binaries: Records<MappingId, Binary>,
    /// The mapping of each binary.
    mappings: Vec<MappingId>,
}

impl Relocations {
    /// None yet.
    pub fn new() -> Self {
        Relocations {
            binaries: Records::without_zero(),
            mappings: Vec::new(),
        }
    }

    /// The first mapping of this one's binary, and how far it is from here to there.
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

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.binaries.bytes() + self.mappings.capacity() * size_of::<MappingId>()
    }
}
