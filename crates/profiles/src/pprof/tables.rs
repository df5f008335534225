//! Locates the entries of a file in one pass without copying.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use opentelemetry_proto::tonic::common::v1::AnyValue;

use super::super::table::cleared;
use super::error::{Error, FileTable};
use tributary_memory::Permit;
use tributary_otlp::reader::{Fields, Value, varint};

/// Maximum number of sample types of a file. Go's heap profiles have four, profilers of the JVM about ten.
pub(super) const SAMPLE_TYPES: usize = 64;

/// Memory for an entry while a file is read, for any size in the file: its slice and its slot in a table of ids,
/// doubled, because vectors grow by doubling; or a comment with its value.
const ENTRY_BYTES: usize = 2 * (size_of::<u64>() + size_of::<AnyValue>()) + 16;

/// Number of entries that are accounted for together. The bytes of an ordinary file cover its entries, so it requests
/// no extra memory.
const ENTRIES_PER_CHARGE: usize = 1024;

/// Choice of the id of an entry that has field 1 several times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Ids {
    /// The first id, found without reading the whole entry. No known writer writes two ids.
    #[default]
    First,
    /// The last id, as protocol buffers define.
    Last,
    /// The first id. Entries without an id, entries with the id of another entry, and references to missing entries are
    /// repaired.
    Lenient,
}

#[derive(Debug, Default)]
pub(super) struct Tables<'f> {
    pub(super) ids: Ids,
    /// Entries without an id, or with the id of another entry.
    pub(super) invalid_ids: u64,
    pub(super) sample_types: Vec<&'f [u8]>,
    pub(super) samples: Vec<&'f [u8]>,
    pub(super) mappings: Entries<'f>,
    pub(super) locations: Entries<'f>,
    pub(super) functions: Entries<'f>,
    pub(super) strings: Vec<&'f [u8]>,
    pub(super) comments: Vec<u64>,
    pub(super) period_type: &'f [u8],
    pub(super) period: i64,
    pub(super) time: i64,
    pub(super) duration: i64,
    pub(super) default_sample_type: u64,
    pub(super) drop_frames: u64,
    pub(super) keep_frames: u64,
    pub(super) doc_url: u64,
}

#[derive(Debug, Default)]
pub(super) struct Entries<'f> {
    messages: Vec<&'f [u8]>,
    /// Position by id. Empty while the ids are 1, 2, 3 and so on, as in files of nearly all writers.
    positions: HashMap<u64, u32, RandomState>,
}

impl<'f> Entries<'f> {
    fn cleared<'g>(self) -> Entries<'g> {
        Entries {
            messages: cleared(self.messages),
            positions: HashMap::default(),
        }
    }

    /// Adds an entry. Returns the number of repairs.
    fn push(&mut self, table: FileTable, message: &'f [u8], ids: Ids) -> Result<u64, Error> {
        let (id, mut repairs) = (id(table, message, ids)?, 0);
        if id == 0 {
            if ids != Ids::Lenient {
                return Err(Error::NoId(table));
            }
            repairs = 1;
        }
        let count = self.messages.len() as u64;
        if id != count + 1 || !self.positions.is_empty() {
            if self.positions.is_empty() {
                self.positions.extend((1..=count).zip(0..));
            }
            let position = u32::try_from(count).unwrap_or(u32::MAX);
            if let Some(first) = self.positions.insert(id, position) {
                if ids != Ids::Lenient {
                    return Err(Error::SameId { table, id });
                }
                self.positions.insert(id, first);
                repairs = 1;
            }
        }
        self.messages.push(message);
        Ok(repairs)
    }

    #[inline(always)]
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        if self.positions.is_empty() {
            return usize::try_from(id.wrapping_sub(1))
                .ok()
                .filter(|at| *at < self.messages.len());
        }
        self.positions.get(&id).map(|at| *at as usize)
    }

    pub(super) fn get(&self, position: usize) -> &'f [u8] {
        self.messages.get(position).copied().unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }
}

/// Returns the id of an entry, which is field 1 in all tables, and mostly comes first.
fn id(table: FileTable, message: &[u8], ids: Ids) -> Result<u64, Error> {
    let place = table.place();
    let wire = |fault| Error::Wire { place, fault };
    if let ([0x08, rest @ ..], Ids::First | Ids::Lenient) = (message, ids) {
        return Ok(varint(rest).map_err(wire)?.0);
    }
    let mut id = 0;
    for field in Fields::new(message) {
        let field = field.map_err(wire)?;
        if field.number == 1 {
            id = integer(place, 1, field.value)?;
            if ids != Ids::Last {
                break;
            }
        }
    }
    Ok(id)
}

/// Whether an unreadable file is a concatenation of files. Each file begins its strings with an empty one and has
/// one time.
pub(super) fn is_concatenated(file: &[u8]) -> bool {
    let (mut strings, mut times) = (false, false);
    for field in Fields::new(file).map_while(Result::ok) {
        match (field.number, field.value) {
            (6, Value::Bytes([])) if strings => return true,
            (6, _) => strings = true,
            (9, _) if times => return true,
            (9, _) => times = true,
            _ => {}
        }
    }
    false
}

#[inline(always)]
pub(super) fn integer(place: &'static str, field: u32, value: Value<'_>) -> Result<u64, Error> {
    match value {
        Value::Varint(value) => Ok(value),
        _ => Err(Error::FieldType { place, field }),
    }
}

#[inline(always)]
pub(super) fn bytes<'f>(
    place: &'static str,
    field: u32,
    value: Value<'f>,
) -> Result<&'f [u8], Error> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(Error::FieldType { place, field }),
    }
}

#[inline(always)]
pub(super) fn integers(
    place: &'static str,
    field: u32,
    value: Value<'_>,
    mut each: impl FnMut(u64) -> Result<(), Error>,
) -> Result<(), Error> {
    match value {
        Value::Varint(value) => each(value),
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                let (value, rest) = varint(packed).map_err(|fault| Error::Wire { place, fault })?;
                packed = rest;
                each(value)?;
            }
            Ok(())
        }
        _ => Err(Error::FieldType { place, field }),
    }
}

impl<'f> Tables<'f> {
    /// Locates the entries of a file, reusing the memory of an earlier file. `permit` grows by the memory of entries
    /// beyond their bytes.
    pub(super) fn new(
        file: &'f [u8],
        memory: Tables<'_>,
        ids: Ids,
        permit: &mut Permit,
    ) -> Result<Self, Error> {
        const PLACE: &str = "the profile";
        let mut tables = memory.cleared();
        tables.ids = ids;
        let mut entries: usize = 0;
        let mut repairs = 0;
        for field in Fields::new(file) {
            entries += 1;
            if entries.is_multiple_of(ENTRIES_PER_CHARGE) {
                permit.grow(ENTRIES_PER_CHARGE * ENTRY_BYTES)?;
            }
            let field = field.map_err(|fault| Error::Wire {
                place: PLACE,
                fault,
            })?;
            let (number, value) = (field.number, field.value);
            let message = || bytes(PLACE, number, value);
            let integer = || integer(PLACE, number, value);
            match number {
                1 if tables.sample_types.len() == SAMPLE_TYPES => {
                    return Err(Error::SampleTypes(SAMPLE_TYPES));
                }
                1 => tables.sample_types.push(message()?),
                2 => tables.samples.push(message()?),
                3 => repairs += tables.mappings.push(FileTable::Mapping, message()?, ids)?,
                4 => {
                    repairs += tables
                        .locations
                        .push(FileTable::Location, message()?, ids)?
                }
                5 => {
                    repairs += tables
                        .functions
                        .push(FileTable::Function, message()?, ids)?
                }
                6 => tables.strings.push(message()?),
                7 => tables.drop_frames = integer()?,
                8 => tables.keep_frames = integer()?,
                9 if tables.time != 0 => return Err(Error::Concatenated),
                9 => tables.time = integer()?.cast_signed(),
                10 => tables.duration = integer()?.cast_signed(),
                11 => tables.period_type = message()?,
                12 => tables.period = integer()?.cast_signed(),
                13 => {
                    if let Value::Bytes(packed) = value {
                        permit.grow(packed.len().saturating_mul(ENTRY_BYTES))?;
                    }
                    integers(PLACE, number, value, |comment| {
                        tables.comments.push(comment);
                        Ok(())
                    })?;
                }
                14 => tables.default_sample_type = integer()?,
                15 => tables.doc_url = integer()?,
                _ => {}
            }
        }
        let first = tables.strings.first();
        if first.is_some_and(|first| !first.is_empty()) {
            if ids != Ids::Lenient {
                return Err(Error::FirstString);
            }
            // References to the first string mean no string.
            repairs += 1;
        }
        tables.invalid_ids = repairs;
        if tables.sample_types.is_empty() {
            return Err(Error::NoSampleTypes);
        }
        Ok(tables)
    }

    /// Empties the tables, keeping their memory for another file.
    pub(super) fn cleared<'g>(self) -> Tables<'g> {
        Tables {
            sample_types: cleared(self.sample_types),
            samples: cleared(self.samples),
            mappings: self.mappings.cleared(),
            locations: self.locations.cleared(),
            functions: self.functions.cleared(),
            strings: cleared(self.strings),
            ..Tables::default()
        }
    }
}
