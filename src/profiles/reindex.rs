//! Entries of a message's dictionary, carried over into another one as they are asked for.
//!
//! What nothing asks for stays behind; what is asked for again is looked up once. Every index is checked.

use opentelemetry_proto::tonic::profiles::v1development as proto;

use super::dictionary::{
    Attribute, Binary, Dictionary, Function, Line, Link, Location, Mapping, ValueType,
};
use super::id::{
    AttributeId, AttributeSetId, FunctionId, Id, LinkId, LocationId, MappingId, StackId, StringId,
};
use super::references::{self, References};
use super::table::Records;

/// The tables of a `ProfilesDictionary`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// `mapping_table`.
    Mapping,
    /// `location_table`.
    Location,
    /// `function_table`.
    Function,
    /// `link_table`.
    Link,
    /// `string_table`.
    String,
    /// `attribute_table`.
    Attribute,
    /// `stack_table`.
    Stack,
}

impl Table {
    /// The field's name in the protocol.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Mapping => "mapping_table",
            Table::Location => "location_table",
            Table::Function => "function_table",
            Table::Link => "link_table",
            Table::String => "string_table",
            Table::Attribute => "attribute_table",
            Table::Stack => "stack_table",
        }
    }
}

/// Why a message cannot be taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An index leads nowhere.
    #[error("there is no entry {index} in the {}", table.name())]
    Dangling {
        /// Which table should have the entry.
        table: Table,
        /// The index.
        index: i32,
    },
    /// A few bytes may refer to a long string, again and again.
    #[error(
        "its references to strings stand for more than {} bytes",
        references::LIMIT
    )]
    Expansion,
    /// Nobody can tell which value belongs to which time.
    #[error("a sample has {values} values, but {timestamps} timestamps")]
    Unequal {
        /// How many values there are.
        values: usize,
        /// How many timestamps there are.
        timestamps: usize,
    },
}

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

const UNSEEN: u32 = u32::MAX;

/// Which entries of a source have been carried over, and to where. Its memory is used again for the next source.
#[derive(Debug, Default)]
pub struct Memo {
    strings: Vec<u32>,
    attributes: Vec<u32>,
    mappings: Vec<u32>,
    /// How far the addresses of each mapping move.
    shifts: Vec<u64>,
    functions: Vec<u32>,
    locations: Vec<u32>,
    links: Vec<u32>,
    stacks: Vec<u32>,
    set: Vec<AttributeId>,
    lines: Vec<Line>,
    stack: Vec<LocationId>,
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

/// A message's dictionary, on the way into another one.
#[derive(Debug)]
pub struct Source<'s> {
    tables: &'s proto::ProfilesDictionary,
    into: &'s mut Dictionary,
    memo: &'s mut Memo,
    relocations: Option<&'s mut Relocations>,
    references: References<'s>,
}

impl<'s> Source<'s> {
    /// Entries of `tables` will go into `into`; addresses are moved where there are `relocations`.
    pub fn new(
        tables: &'s proto::ProfilesDictionary,
        into: &'s mut Dictionary,
        memo: &'s mut Memo,
        relocations: Option<&'s mut Relocations>,
    ) -> Self {
        clear(&mut memo.strings, tables.string_table.len());
        clear(&mut memo.attributes, tables.attribute_table.len());
        clear(&mut memo.mappings, tables.mapping_table.len());
        memo.shifts.clear();
        memo.shifts.resize(tables.mapping_table.len(), 0);
        clear(&mut memo.functions, tables.function_table.len());
        clear(&mut memo.locations, tables.location_table.len());
        clear(&mut memo.links, tables.link_table.len());
        clear(&mut memo.stacks, tables.stack_table.len());
        Source {
            tables,
            into,
            memo,
            relocations,
            references: References::new(&tables.string_table),
        }
    }

    /// Where the entries go.
    pub fn dictionary(&mut self) -> &mut Dictionary {
        self.into
    }

    /// A string.
    ///
    /// # Errors
    /// There is no such string.
    pub fn string(&mut self, index: i32) -> Result<StringId, Fault> {
        if let Some(id) = seen(&self.memo.strings, index) {
            return Ok(id);
        }
        let string = entry(&self.tables.string_table, Table::String, index)?;
        let id = string.map_or(StringId::default(), |string| self.into.string(string));
        note(&mut self.memo.strings, index, id);
        Ok(id)
    }

    /// What is counted.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn value_type(&mut self, from: Option<&proto::ValueType>) -> Result<ValueType, Fault> {
        let from = from.copied().unwrap_or_default();
        Ok(ValueType {
            kind: self.string(from.type_strindex)?,
            unit: self.string(from.unit_strindex)?,
        })
    }

    /// A set of attributes.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn attribute_set(&mut self, indices: &[i32]) -> Result<AttributeSetId, Fault> {
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

    /// An attribute.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn attribute(&mut self, index: i32) -> Result<AttributeId, Fault> {
        if let Some(id) = seen(&self.memo.attributes, index) {
            return Ok(id);
        }
        let id = match entry(&self.tables.attribute_table, Table::Attribute, index)? {
            None => AttributeId::default(),
            Some(from) => {
                let key = self.string(from.key_strindex)?;
                let unit = self.string(from.unit_strindex)?;
                let value = match &from.value {
                    None => Default::default(),
                    Some(value) => {
                        let value = self.references.resolved(value)?;
                        self.into.value(&value)
                    }
                };
                self.into.attribute(Attribute { key, value, unit })
            }
        };
        note(&mut self.memo.attributes, index, id);
        Ok(id)
    }

    /// A mapping, and how far its addresses move.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn mapping(&mut self, index: i32) -> Result<(MappingId, u64), Fault> {
        if let Some(id) = seen(&self.memo.mappings, index) {
            let shift = at(index).and_then(|at| self.memo.shifts.get(at));
            return Ok((id, shift.copied().unwrap_or_default()));
        }
        let (id, shift) = match entry(&self.tables.mapping_table, Table::Mapping, index)? {
            None => (MappingId::default(), 0),
            Some(from) => {
                let mapping = Mapping {
                    start: from.memory_start,
                    limit: from.memory_limit,
                    file_offset: from.file_offset,
                    filename: self.string(from.filename_strindex)?,
                    attributes: self.attribute_set(&from.attribute_indices)?,
                };
                match &mut self.relocations {
                    Some(relocations) => relocations.relocate(self.into, mapping),
                    None => (self.into.mapping(mapping), 0),
                }
            }
        };
        note(&mut self.memo.mappings, index, id);
        if let Some(place) = at(index).and_then(|at| self.memo.shifts.get_mut(at)) {
            *place = shift;
        }
        Ok((id, shift))
    }

    /// A function.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn function(&mut self, index: i32) -> Result<FunctionId, Fault> {
        if let Some(id) = seen(&self.memo.functions, index) {
            return Ok(id);
        }
        let id = match entry(&self.tables.function_table, Table::Function, index)? {
            None => FunctionId::default(),
            Some(from) => {
                let function = Function {
                    name: self.string(from.name_strindex)?,
                    system_name: self.string(from.system_name_strindex)?,
                    filename: self.string(from.filename_strindex)?,
                    start_line: from.start_line,
                };
                self.into.function(function)
            }
        };
        note(&mut self.memo.functions, index, id);
        Ok(id)
    }

    /// A location.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn location(&mut self, index: i32) -> Result<LocationId, Fault> {
        if let Some(id) = seen(&self.memo.locations, index) {
            return Ok(id);
        }
        let id = match entry(&self.tables.location_table, Table::Location, index)? {
            None => LocationId::default(),
            Some(from) => {
                let (mapping, shift) = self.mapping(from.mapping_index)?;
                let mut lines = std::mem::take(&mut self.memo.lines);
                lines.clear();
                for line in &from.lines {
                    lines.push(Line {
                        function: self.function(line.function_index)?,
                        line: line.line,
                        column: line.column,
                    });
                }
                let location = Location {
                    mapping,
                    address: from.address.wrapping_add(shift),
                    lines: self.into.lines(&lines),
                    attributes: self.attribute_set(&from.attribute_indices)?,
                };
                self.memo.lines = lines;
                self.into.location(location)
            }
        };
        note(&mut self.memo.locations, index, id);
        Ok(id)
    }

    /// A stack.
    ///
    /// # Errors
    /// An index leads nowhere.
    pub fn stack(&mut self, index: i32) -> Result<StackId, Fault> {
        if let Some(id) = seen(&self.memo.stacks, index) {
            return Ok(id);
        }
        let id = match entry(&self.tables.stack_table, Table::Stack, index)? {
            None => StackId::default(),
            Some(from) => {
                let mut stack = std::mem::take(&mut self.memo.stack);
                stack.clear();
                stack.reserve(from.location_indices.len());
                for location in &from.location_indices {
                    // Most have been seen, and this is the innermost loop: no call for those.
                    stack.push(match seen(&self.memo.locations, *location) {
                        Some(id) => id,
                        None => self.location(*location)?,
                    });
                }
                let id = self.into.stack(&stack);
                self.memo.stack = stack;
                id
            }
        };
        note(&mut self.memo.stacks, index, id);
        Ok(id)
    }

    /// A link. Ids of another length than the protocol's count as none.
    ///
    /// # Errors
    /// There is no such link.
    pub fn link(&mut self, index: i32) -> Result<LinkId, Fault> {
        if let Some(id) = seen(&self.memo.links, index) {
            return Ok(id);
        }
        let id = match entry(&self.tables.link_table, Table::Link, index)? {
            None => LinkId::default(),
            Some(from) => self.into.link(Link {
                trace_id: from.trace_id.as_slice().try_into().unwrap_or_default(),
                span_id: from.span_id.as_slice().try_into().unwrap_or_default(),
            }),
        };
        note(&mut self.memo.links, index, id);
        Ok(id)
    }

    /// For references that are not the dictionary's own: those of resources and scopes.
    pub fn references(&mut self) -> &mut References<'s> {
        &mut self.references
    }
}

fn clear(memo: &mut Vec<u32>, len: usize) {
    memo.clear();
    memo.resize(len, UNSEEN);
}

fn at(index: i32) -> Option<usize> {
    usize::try_from(index).ok()
}

#[inline(always)]
fn seen<I: Id>(memo: &[u32], index: i32) -> Option<I> {
    match at(index).and_then(|at| memo.get(at)) {
        None | Some(&UNSEEN) => None,
        Some(id) => Some(I::new(*id)),
    }
}

fn note<I: Id>(memo: &mut [u32], index: i32, id: I) {
    if let Some(place) = at(index).and_then(|at| memo.get_mut(at)) {
        *place = u32::try_from(id.index()).unwrap_or(UNSEEN);
    }
}

/// The entry of a table. Index 0 means none, whatever is there, and even if the table is empty.
fn entry<T>(table: &[T], name: Table, index: i32) -> Result<Option<&T>, Fault> {
    if index == 0 {
        return Ok(None);
    }
    match at(index).and_then(|at| table.get(at)) {
        Some(entry) => Ok(Some(entry)),
        None => Err(Fault::Dangling { table: name, index }),
    }
}
