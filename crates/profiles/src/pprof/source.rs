//! Copies entries of a file's tables into a dictionary on demand.

mod mappings;

use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use smallvec::SmallVec;

use super::super::carried::IdMap;
use super::super::dictionary::{Dictionary, PREFETCH_DISTANCE};
use super::super::id::{AttributeSetId, FunctionId, LocationId, MappingId, StringId, ValueId};
use super::super::names;
use super::super::relocations::Relocations;
use super::error::{Error, FileTable};
use super::repairs::Repairs;
use super::tables::{Ids, Tables, bytes, integer};
use crate::entry::{Function, Line, Location, ValueType};
use crate::id::Id;
use tributary_otlp::reader::{Fields, Value};

/// Copied entries and their ids in the dictionary. The memory is reused for the next file.
#[derive(Debug, Default)]
pub(super) struct CopiedEntries {
    strings: IdMap<StringId>,
    /// Strings copied as values of attributes.
    values: IdMap<ValueId>,
    functions: IdMap<FunctionId>,
    mappings: IdMap<MappingId>,
    /// Address shift of each mapping.
    shifts: Vec<u64>,
    locations: IdMap<LocationId>,
    /// First location that was not prefetched yet.
    prefetched: usize,
    lines: Vec<Line>,
}

/// Tables of a file, being copied into a dictionary.
#[derive(Debug)]
pub(super) struct FileReader<'s, 'f> {
    pub(super) tables: &'s Tables<'f>,
    pub(super) into: &'s mut Dictionary,
    pub(super) repairs: Repairs,
    memo: &'s mut CopiedEntries,
    relocations: Option<&'s mut Relocations>,
}

impl<'s, 'f> FileReader<'s, 'f> {
    pub(super) fn new(
        tables: &'s Tables<'f>,
        into: &'s mut Dictionary,
        memo: &'s mut CopiedEntries,
        relocations: Option<&'s mut Relocations>,
    ) -> Self {
        memo.strings.reset(tables.strings.len());
        memo.values.reset(tables.strings.len());
        memo.functions.reset(tables.functions.len());
        memo.mappings.reset(tables.mappings.len());
        memo.shifts.clear();
        memo.shifts.resize(tables.mappings.len(), 0);
        memo.locations.reset(tables.locations.len());
        memo.prefetched = 0;
        FileReader {
            tables,
            into,
            repairs: Repairs {
                ids: tables.invalid_ids,
                ..Repairs::default()
            },
            memo,
            relocations,
        }
    }

    pub(super) fn string(&mut self, index: u64) -> Result<StringId, Error> {
        self.likely_string(index, StringId::default())
    }

    /// Copies a string that probably equals `likely`.
    fn likely_string(&mut self, index: u64, likely: StringId) -> Result<StringId, Error> {
        if index == 0 {
            return Ok(StringId::default());
        }
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(id) = self.memo.strings.get(at) {
            return Ok(id);
        }
        let table = FileTable::String;
        let Some(bytes) = self.tables.strings.get(at) else {
            return self.missing(table, index);
        };
        let id = match self.into.likely_string(bytes, likely) {
            Some(id) => id,
            None => {
                self.repairs.strings += 1;
                self.into.string(&String::from_utf8_lossy(bytes))
            }
        };
        self.memo.strings.insert(at, id);
        Ok(id)
    }

    /// Copies a string as the value of an attribute.
    pub(super) fn value(&mut self, index: u64) -> Result<ValueId, Error> {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        if let Some(id) = self.memo.values.get(at) {
            return Ok(id);
        }
        let string = self.string(index)?;
        let text = self.into.text(string).to_owned();
        let id = self.into.value(&AnyValue {
            value: Some(Any::StringValue(text)),
        });
        self.memo.values.insert(at, id);
        Ok(id)
    }

    pub(super) fn value_type(&mut self, message: &[u8]) -> Result<ValueType, Error> {
        const PLACE: &str = "a value type";
        let mut value_type = ValueType::default();
        for field in Fields::new(message) {
            let field = field.map_err(wire(PLACE))?;
            let string = |source: &mut Self| {
                let index = integer(PLACE, field.number, field.value)?;
                source.string(index)
            };
            match field.number {
                1 => value_type.kind = string(self)?,
                2 => value_type.unit = string(self)?,
                _ => {}
            }
        }
        Ok(value_type)
    }

    /// Refuses a second id of an entry, so that the tables are read again with [`Ids::Last`].
    #[inline(always)]
    fn one_id(&self, table: FileTable, seen: &mut bool) -> Result<(), Error> {
        let again = std::mem::replace(seen, true);
        match again && self.tables.ids == Ids::First {
            true => Err(Error::TwoIds(table)),
            false => Ok(()),
        }
    }

    /// Copies the location with this id; `None` if it is missing and the reader is lenient.
    #[inline(always)]
    pub(super) fn location(&mut self, id: u64) -> Result<Option<LocationId>, Error> {
        let table = FileTable::Location;
        let Some(at) = self.tables.locations.position(id) else {
            return self.missing(table, id);
        };
        match self.memo.locations.get(at) {
            Some(id) => Ok(Some(id)),
            None => self.new_location(at).map(Some),
        }
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.tables.ids == Ids::Lenient
    }

    /// Refuses a reference to a missing entry. A lenient reader removes the reference.
    #[cold]
    fn missing<T: Default>(&mut self, table: FileTable, id: u64) -> Result<T, Error> {
        if !self.is_lenient() {
            return Err(Error::Dangling { table, id });
        }
        self.repairs.references += 1;
        Ok(T::default())
    }

    #[inline(never)]
    fn new_location(&mut self, at: usize) -> Result<LocationId, Error> {
        const PLACE: &str = "a location";
        if at >= self.memo.prefetched {
            self.prefetch(at);
        }
        let mut lines = std::mem::take(&mut self.memo.lines);
        lines.clear();
        let mut messages: SmallVec<[&[u8]; 8]> = SmallVec::new();
        let (mut mapping, mut address, mut folded, mut has_id) = (0, 0, false, false);
        for field in Fields::new(self.tables.locations.get(at)) {
            let field = field.map_err(wire(PLACE))?;
            let (number, value) = (field.number, field.value);
            match number {
                1 => self.one_id(FileTable::Location, &mut has_id)?,
                2 => mapping = integer(PLACE, number, value)?,
                3 => address = integer(PLACE, number, value)?,
                4 => messages.push(bytes(PLACE, number, value)?),
                5 => folded = integer(PLACE, number, value)? != 0,
                _ => {}
            }
        }
        let (mapping, shift) = self.mapping(mapping)?;
        let address = address.wrapping_add(shift);
        let (likely, like) = self.into.likely_location(mapping, address);
        for (message, at) in messages.into_iter().zip(0..) {
            let like = self.into.get_lines(like.lines).get(at);
            let function = like.map_or(FunctionId::default(), |line| line.function);
            lines.push(self.line(message, function)?);
        }
        let mut location = Location {
            mapping,
            address,
            lines: match self.into.get_lines(like.lines) == lines {
                true => like.lines,
                false => self.into.lines(&lines),
            },
            attributes: AttributeSetId::default(),
        };
        // Without other content, an unset flag distinguishes the location from no location.
        if folded || location == Location::default() {
            location.attributes = self.flags(&[(names::IS_FOLDED, folded)]);
        }
        let id = match location == like {
            true => likely,
            false => self.into.location(location),
        };
        self.memo.lines = lines;
        self.memo.locations.insert(at, id);
        Ok(id)
    }

    /// Prefetches for the locations from this position on. Most files have locations in the order in which samples
    /// refer to them.
    fn prefetch(&mut self, at: usize) {
        let end = self.tables.locations.len().min(at + PREFETCH_DISTANCE);
        let mut addresses = [Default::default(); PREFETCH_DISTANCE];
        for (entry, at) in addresses.iter_mut().zip(at..end) {
            let (mut mapping, mut address) = (0, 0);
            for field in Fields::new(self.tables.locations.get(at)).map_while(Result::ok) {
                match (field.number, field.value) {
                    (2, Value::Varint(value)) => mapping = value,
                    (3, Value::Varint(value)) => {
                        address = value;
                        break;
                    }
                    _ => {}
                }
            }
            let mapping = self.tables.mappings.position(mapping);
            let (mapping, shift) = mapping.map_or(Default::default(), |at| {
                let shift = self.memo.shifts.get(at).copied().unwrap_or_default();
                (self.memo.mappings.get(at).unwrap_or_default(), shift)
            });
            *entry = (mapping, address.wrapping_add(shift));
        }
        self.into.prefetch(&addresses);
        self.memo.prefetched = end;
    }

    /// Copies a line that is probably in the function `likely`.
    fn line(&mut self, message: &[u8], likely: FunctionId) -> Result<Line, Error> {
        const PLACE: &str = "a line";
        let mut line = Line::default();
        for field in Fields::new(message) {
            let field = field.map_err(wire(PLACE))?;
            let (number, value) = (field.number, field.value);
            match number {
                1 => {
                    let id = integer(PLACE, number, value)?;
                    line.function = self.function(id, likely)?;
                }
                2 => line.line = self.positive(integer(PLACE, number, value)?),
                3 => line.column = self.positive(integer(PLACE, number, value)?),
                _ => {}
            }
        }
        Ok(line)
    }

    /// Copies the function with this id, which probably equals `likely`.
    fn function(&mut self, id: u64, likely: FunctionId) -> Result<FunctionId, Error> {
        const PLACE: &str = "a function";
        let table = FileTable::Function;
        if id == 0 {
            return Ok(FunctionId::default());
        }
        let Some(at) = self.tables.functions.position(id) else {
            return self.missing(table, id);
        };
        if let Some(id) = self.memo.functions.get(at) {
            return Ok(id);
        }
        let (mut function, mut has_id) = (Function::default(), false);
        let like = self.into.get_function(likely);
        for field in Fields::new(self.tables.functions.get(at)) {
            let field = field.map_err(wire(PLACE))?;
            let (number, value) = (field.number, field.value);
            let index = || integer(PLACE, number, value);
            match number {
                1 => self.one_id(table, &mut has_id)?,
                2 => function.name = self.likely_string(index()?, like.name)?,
                3 => {
                    function.system_name = self.likely_string(index()?, like.system_name)?;
                }
                4 => function.filename = self.likely_string(index()?, like.filename)?,
                5 => function.start_line = self.positive(index()?),
                _ => {}
            }
        }
        // A function without any name is dropped: its first line alone is useless.
        let named = [function.name, function.system_name, function.filename];
        let id = match named.iter().any(|name| name.index() != 0) {
            true => self.into.likely_function(function, likely),
            false => FunctionId::default(),
        };
        self.memo.functions.insert(at, id);
        Ok(id)
    }

    /// Converts a number. A negative number becomes 0 and counts as a repair.
    pub(super) fn positive(&mut self, number: u64) -> i64 {
        i64::try_from(number).unwrap_or_else(|_| {
            self.repairs.negative += 1;
            0
        })
    }
}

/// Converts a fault in a message of this kind.
pub(super) fn wire(place: &'static str) -> impl Fn(tributary_otlp::reader::WireFault) -> Error {
    move |fault| Error::Wire { place, fault }
}
