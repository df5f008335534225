//! Copies entries of a request's dictionary into another dictionary on demand.
//!
//! Entries without references are not copied, and each entry is looked up once. Every index is checked.

mod stacks;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use prost::Message as _;

use super::carried::IdMap;
use super::dictionary::Dictionary;
use super::entries::{Entries, Indices, bytes, fields, index, indices, number, signed};
pub use super::fault::{DictionaryTable, ProfileFault};
use super::id::{
    AttributeId, AttributeSetId, FunctionId, LinkId, LocationId, MappingId, StackId, StringId,
};
use super::references::References;
use super::relocations::Relocations;
use crate::entry::{Attribute, Function, Line, Link, Mapping, ValueType};

/// Copied entries of a source and their indices in the target. The memory is reused for the next source.
#[derive(Debug, Default)]
pub struct CopiedEntries {
    pub(super) entries: Entries<'static>,
    strings: IdMap<StringId>,
    attributes: IdMap<AttributeId>,
    mappings: IdMap<MappingId>,
    /// Address shift of each mapping.
    shifts: Vec<u64>,
    functions: IdMap<FunctionId>,
    locations: IdMap<LocationId>,
    /// First location that was not prefetched yet.
    prefetched: usize,
    links: IdMap<LinkId>,
    stacks: IdMap<StackId>,
    set: Vec<AttributeId>,
    lines: Vec<Line>,
    stack: Vec<LocationId>,
}

/// The dictionary of a request, being copied into another dictionary.
#[derive(Debug)]
pub struct DictionaryCopier<'s, 'r> {
    entries: &'s Entries<'r>,
    into: &'s mut Dictionary,
    memo: &'s mut CopiedEntries,
    relocations: Option<&'s mut Relocations>,
    references: References<'s, &'r [u8]>,
    /// Whether unknown fields were found in the copied entries.
    pub(super) unknown: bool,
}

impl<'s, 'r> DictionaryCopier<'s, 'r> {
    /// Copies entries into `into`. Addresses are shifted if there are `relocations`.
    pub fn new(
        entries: &'s Entries<'r>,
        into: &'s mut Dictionary,
        memo: &'s mut CopiedEntries,
        relocations: Option<&'s mut Relocations>,
    ) -> Self {
        memo.strings.reset(entries.strings.len());
        memo.attributes.reset(entries.attributes.len());
        memo.mappings.reset(entries.mappings.len());
        memo.shifts.clear();
        memo.shifts.resize(entries.mappings.len(), 0);
        memo.functions.reset(entries.functions.len());
        memo.locations.reset(entries.locations.len());
        memo.prefetched = 0;
        memo.links.reset(entries.links.len());
        memo.stacks.reset(entries.stacks.len());
        DictionaryCopier {
            entries,
            into,
            memo,
            relocations,
            references: References::new(&entries.strings),
            unknown: entries.unknown,
        }
    }

    /// Returns the entry of a table. Index 0 means no entry, even if the table is empty or its first entry is not the
    /// zero value.
    fn entry(&self, table: DictionaryTable, index: i32) -> Result<Option<&'r [u8]>, ProfileFault> {
        if index == 0 {
            return Ok(None);
        }
        match self.entries.table(table).get(at(index)) {
            Some(entry) => Ok(Some(*entry)),
            None => Err(ProfileFault::Dangling { table, index }),
        }
    }

    /// Copies a string.
    ///
    /// # Errors
    /// Fails if there is no such string.
    pub fn string(&mut self, index: i32) -> Result<StringId, ProfileFault> {
        self.likely_string(index, StringId::default())
    }

    /// Copies a string that probably equals `likely`.
    fn likely_string(&mut self, index: i32, likely: StringId) -> Result<StringId, ProfileFault> {
        if let Some(id) = self.memo.strings.get(at(index)) {
            return Ok(id);
        }
        let id = match self.entry(DictionaryTable::String, index)? {
            None => StringId::default(),
            Some(bytes) => {
                let id = self.into.likely_string(bytes, likely);
                id.ok_or(ProfileFault::Malformed("a string"))?
            }
        };
        self.memo.strings.insert(at(index), id);
        Ok(id)
    }

    /// Merges an encoded value type into `into`.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub(super) fn value_type(
        &mut self,
        from: &[u8],
        into: &mut ValueType,
    ) -> Result<(), ProfileFault> {
        const PLACE: &str = "a value type";
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => into.kind = self.string(index(field, PLACE)?)?,
                2 => into.unit = self.string(index(field, PLACE)?)?,
                _ => self.unknown = true,
            }
        }
        Ok(())
    }

    /// Copies a set of attributes.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub fn attribute_set(&mut self, indices: &[i32]) -> Result<AttributeSetId, ProfileFault> {
        if indices.is_empty() {
            return Ok(AttributeSetId::default());
        }
        let mut set = std::mem::take(&mut self.memo.set);
        set.clear();
        for index in indices {
            set.push(self.attribute(*index)?);
        }
        let id = self.into.attribute_set(&set);
        self.memo.set = set;
        Ok(id)
    }

    /// Copies an attribute.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub fn attribute(&mut self, index: i32) -> Result<AttributeId, ProfileFault> {
        if let Some(id) = self.memo.attributes.get(at(index)) {
            return Ok(id);
        }
        let id = match self.entry(DictionaryTable::Attribute, index)? {
            None => AttributeId::default(),
            Some(from) => self.new_attribute(from)?,
        };
        self.memo.attributes.insert(at(index), id);
        Ok(id)
    }

    fn new_attribute(&mut self, from: &[u8]) -> Result<AttributeId, ProfileFault> {
        const PLACE: &str = "an attribute";
        let mut attribute = Attribute::default();
        let mut value: Option<AnyValue> = None;
        let mut encoded = 0;
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => attribute.key = self.string(index(field, PLACE)?)?,
                2 => {
                    let bytes = bytes(field, PLACE)?;
                    encoded += bytes.len();
                    let value = value.get_or_insert_default();
                    value
                        .merge(bytes)
                        .map_err(|_| ProfileFault::Malformed(PLACE))?;
                }
                3 => attribute.unit = self.string(index(field, PLACE)?)?,
                _ => self.unknown = true,
            }
        }
        if let Some(mut value) = value {
            self.unknown |= value.encoded_len() != encoded;
            self.references.resolve_value(&mut value)?;
            attribute.value = self.into.value(&value);
        }
        Ok(self.into.attribute(attribute))
    }

    /// Copies a mapping. Returns the shift of its addresses too.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub fn mapping(&mut self, index: i32) -> Result<(MappingId, u64), ProfileFault> {
        if let Some(id) = self.memo.mappings.get(at(index)) {
            let shift = self.memo.shifts.get(at(index));
            return Ok((id, shift.copied().unwrap_or_default()));
        }
        let (id, shift) = match self.entry(DictionaryTable::Mapping, index)? {
            None => (MappingId::default(), 0),
            Some(from) => {
                let mapping = self.new_mapping(from)?;
                match &mut self.relocations {
                    Some(relocations) => relocations.relocate(self.into, mapping),
                    None => (self.into.mapping(mapping), 0),
                }
            }
        };
        self.memo.mappings.insert(at(index), id);
        if let Some(place) = self.memo.shifts.get_mut(at(index)) {
            *place = shift;
        }
        Ok((id, shift))
    }

    fn new_mapping(&mut self, from: &[u8]) -> Result<Mapping, ProfileFault> {
        const PLACE: &str = "a mapping";
        let mut mapping = Mapping::default();
        let mut attributes = Indices::new();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => mapping.start = number(field, PLACE)?,
                2 => mapping.limit = number(field, PLACE)?,
                3 => mapping.file_offset = number(field, PLACE)?,
                4 => mapping.filename = self.string(index(field, PLACE)?)?,
                5 => indices(field, PLACE, &mut attributes)?,
                _ => self.unknown = true,
            }
        }
        mapping.attributes = self.attribute_set(&attributes)?;
        Ok(mapping)
    }

    /// Copies a function.
    ///
    /// # Errors
    /// Fails if an index is outside of its table.
    pub fn function(&mut self, index: i32) -> Result<FunctionId, ProfileFault> {
        self.likely_function(index, FunctionId::default())
    }

    fn likely_function(
        &mut self,
        index: i32,
        likely: FunctionId,
    ) -> Result<FunctionId, ProfileFault> {
        if let Some(id) = self.memo.functions.get(at(index)) {
            return Ok(id);
        }
        let id = match self.entry(DictionaryTable::Function, index)? {
            None => FunctionId::default(),
            Some(from) => self.new_function(from, likely)?,
        };
        self.memo.functions.insert(at(index), id);
        Ok(id)
    }

    fn new_function(
        &mut self,
        from: &[u8],
        likely: FunctionId,
    ) -> Result<FunctionId, ProfileFault> {
        const PLACE: &str = "a function";
        let like = self.into.get_function(likely);
        let mut function = Function::default();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => function.name = self.likely_string(index(field, PLACE)?, like.name)?,
                2 => {
                    let index = index(field, PLACE)?;
                    function.system_name = self.likely_string(index, like.system_name)?;
                }
                3 => {
                    let index = index(field, PLACE)?;
                    function.filename = self.likely_string(index, like.filename)?;
                }
                4 => function.start_line = signed(field, PLACE)?,
                _ => self.unknown = true,
            }
        }
        Ok(self.into.likely_function(function, likely))
    }

    /// Copies a link. Ids of a length other than the protocol's count as missing.
    ///
    /// # Errors
    /// Fails if there is no such link.
    pub fn link(&mut self, index: i32) -> Result<LinkId, ProfileFault> {
        if let Some(id) = self.memo.links.get(at(index)) {
            return Ok(id);
        }
        let id = match self.entry(DictionaryTable::Link, index)? {
            None => LinkId::default(),
            Some(from) => self.new_link(from)?,
        };
        self.memo.links.insert(at(index), id);
        Ok(id)
    }

    fn new_link(&mut self, from: &[u8]) -> Result<LinkId, ProfileFault> {
        const PLACE: &str = "a link";
        let mut link = Link::default();
        for field in fields(from, PLACE) {
            let field = field?;
            match field.number {
                1 => link.trace_id = bytes(field, PLACE)?.try_into().unwrap_or_default(),
                2 => link.span_id = bytes(field, PLACE)?.try_into().unwrap_or_default(),
                _ => self.unknown = true,
            }
        }
        Ok(self.into.link(link))
    }

    /// String references outside of the dictionary, in resources and scopes.
    pub fn references(&mut self) -> &mut References<'s, &'r [u8]> {
        &mut self.references
    }
}

/// Converts an index to a position. A negative index becomes a position that no table has.
#[inline(always)]
fn at(index: i32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}
