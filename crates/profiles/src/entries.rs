//! Locates the entries of an encoded dictionary in one pass without copying.

use smallvec::SmallVec;

use super::decoded::Shape;
use super::fault::DictionaryTable;
use super::fault::ProfileFault;
use super::table::cleared;
use tributary_otlp::reader::{Field, Fields, Value, varint};

/// The tables of an encoded `ProfilesDictionary`, entry by entry.
#[derive(Debug, Default)]
pub struct Entries<'r> {
    /// `mapping_table`.
    pub mappings: Vec<&'r [u8]>,
    /// `location_table`.
    pub locations: Vec<&'r [u8]>,
    /// `function_table`.
    pub functions: Vec<&'r [u8]>,
    /// `link_table`.
    pub links: Vec<&'r [u8]>,
    /// `string_table`.
    pub strings: Vec<&'r [u8]>,
    /// `attribute_table`.
    pub attributes: Vec<&'r [u8]>,
    /// `stack_table`.
    pub stacks: Vec<&'r [u8]>,
    pub(super) unknown: bool,
}

impl<'r> Entries<'r> {
    /// The entries of one dictionary.
    ///
    /// # Errors
    /// Fails if the bytes are not a dictionary.
    pub fn new(dictionary: &'r [u8]) -> Result<Self, ProfileFault> {
        let mut entries = Entries::default();
        entries.add(dictionary)?;
        Ok(entries)
    }

    /// Locates the entries of all dictionaries of a request. Returns the encoded `ResourceProfiles` too.
    ///
    /// # Errors
    /// Fails if the bytes are not a request.
    pub fn of_request(request: &'r [u8]) -> Result<(Self, Vec<&'r [u8]>), ProfileFault> {
        let mut entries = Entries::default();
        let resources = entries.add_request(request)?;
        Ok((entries, resources))
    }

    /// Like [`Self::of_request`], but allocates once, by the shape of the request.
    ///
    /// # Errors
    /// Fails like [`Self::of_request`].
    pub fn of_shape(
        request: &'r [u8],
        shape: &Shape,
    ) -> Result<(Self, Vec<&'r [u8]>), ProfileFault> {
        let room = |table: usize| Vec::with_capacity(shape.tables[table]);
        let mut entries = Entries {
            mappings: room(1),
            locations: room(2),
            functions: room(3),
            links: room(4),
            strings: room(5),
            attributes: room(6),
            stacks: room(7),
            unknown: false,
        };
        let resources = entries.add_request(request)?;
        Ok((entries, resources))
    }

    pub(super) fn add_request(&mut self, request: &'r [u8]) -> Result<Vec<&'r [u8]>, ProfileFault> {
        const PLACE: &str = "the request";
        let mut resources = Vec::new();
        for field in fields(request, PLACE) {
            let field = field?;
            match field.number {
                1 => resources.push(bytes(field, PLACE)?),
                2 => self.add(bytes(field, PLACE)?)?,
                _ => self.unknown = true,
            }
        }
        Ok(resources)
    }

    /// Adds the entries of another dictionary. Protobuf merges repeated occurrences of a message.
    pub fn add(&mut self, dictionary: &'r [u8]) -> Result<(), ProfileFault> {
        const PLACE: &str = "the dictionary";
        for field in fields(dictionary, PLACE) {
            let field = field?;
            let table = match field.number {
                1 => &mut self.mappings,
                2 => &mut self.locations,
                3 => &mut self.functions,
                4 => &mut self.links,
                5 => &mut self.strings,
                6 => &mut self.attributes,
                7 => &mut self.stacks,
                _ => {
                    self.unknown = true;
                    continue;
                }
            };
            table.push(bytes(field, PLACE)?);
        }
        Ok(())
    }

    /// The encoded entries of one table.
    pub fn table(&self, table: DictionaryTable) -> &[&'r [u8]] {
        match table {
            DictionaryTable::Mapping => &self.mappings,
            DictionaryTable::Location => &self.locations,
            DictionaryTable::Function => &self.functions,
            DictionaryTable::Link => &self.links,
            DictionaryTable::String => &self.strings,
            DictionaryTable::Attribute => &self.attributes,
            DictionaryTable::Stack => &self.stacks,
        }
    }

    /// Checks that references to functions, strings and attributes lead to entries. Otherwise an appended entry
    /// would become the target of a dangling reference.
    ///
    /// # Errors
    /// Returns the first dangling reference, or the fault if an entry cannot be read.
    pub(super) fn check_references(&self) -> Result<(), ProfileFault> {
        let there = |table: DictionaryTable, at: u64| {
            let index = at as i32;
            let found = usize::try_from(index).is_ok_and(|at| at < self.table(table).len());
            match index == 0 || found {
                true => Ok(()),
                false => Err(ProfileFault::Dangling { table, index }),
            }
        };
        let attributes = |field, place| {
            numbers(field, place, |index| {
                there(DictionaryTable::Attribute, index)
            })
        };
        for mapping in &self.mappings {
            const PLACE: &str = "a mapping";
            for field in fields(mapping, PLACE) {
                let field = field?;
                match field.number {
                    4 => there(DictionaryTable::String, number(field, PLACE)?)?,
                    5 => attributes(field, PLACE)?,
                    _ => {}
                }
            }
        }
        for location in &self.locations {
            const PLACE: &str = "a location";
            for field in fields(location, PLACE) {
                let field = field?;
                match field.number {
                    3 => {
                        for field in fields(bytes(field, PLACE)?, PLACE) {
                            let field = field?;
                            if field.number == 1 {
                                there(DictionaryTable::Function, number(field, PLACE)?)?;
                            }
                        }
                    }
                    4 => attributes(field, PLACE)?,
                    _ => {}
                }
            }
        }
        for function in &self.functions {
            const PLACE: &str = "a function";
            for field in fields(function, PLACE) {
                let field = field?;
                if let 1..=3 = field.number {
                    there(DictionaryTable::String, number(field, PLACE)?)?;
                }
            }
        }
        for attribute in &self.attributes {
            const PLACE: &str = "an attribute";
            for field in fields(attribute, PLACE) {
                let field = field?;
                if let 1 | 3 = field.number {
                    there(DictionaryTable::String, number(field, PLACE)?)?;
                }
            }
        }
        Ok(())
    }

    /// Empties the tables, keeping their memory for another dictionary.
    pub(super) fn cleared<'o>(self) -> Entries<'o> {
        Entries {
            mappings: cleared(self.mappings),
            locations: cleared(self.locations),
            functions: cleared(self.functions),
            links: cleared(self.links),
            strings: cleared(self.strings),
            attributes: cleared(self.attributes),
            stacks: cleared(self.stacks),
            unknown: false,
        }
    }
}

#[inline(always)]
pub(super) fn fields<'m>(
    message: &'m [u8],
    place: &'static str,
) -> impl Iterator<Item = Result<Field<'m>, ProfileFault>> {
    Fields::new(message).map(move |field| field.map_err(|_| ProfileFault::Malformed(place)))
}

#[inline(always)]
pub(super) fn bytes<'m>(field: Field<'m>, place: &'static str) -> Result<&'m [u8], ProfileFault> {
    field.value.bytes().ok_or(ProfileFault::Malformed(place))
}

pub(super) fn text<'m>(field: Field<'m>, place: &'static str) -> Result<&'m str, ProfileFault> {
    str::from_utf8(bytes(field, place)?).map_err(|_| ProfileFault::Malformed(place))
}

#[inline(always)]
pub(super) fn number(field: Field<'_>, place: &'static str) -> Result<u64, ProfileFault> {
    match field.value {
        Value::Varint(value) => Ok(value),
        _ => Err(ProfileFault::Malformed(place)),
    }
}

#[inline(always)]
pub(super) fn signed(field: Field<'_>, place: &'static str) -> Result<i64, ProfileFault> {
    number(field, place).map(u64::cast_signed)
}

/// Reads an index. Only the lower 32 bits of a longer integer count, as everywhere in protobuf.
#[inline(always)]
pub(super) fn index(field: Field<'_>, place: &'static str) -> Result<i32, ProfileFault> {
    number(field, place).map(|value| value as i32)
}

/// Reads integers, packed or unpacked.
#[inline(always)]
pub fn numbers(
    field: Field<'_>,
    place: &'static str,
    mut each: impl FnMut(u64) -> Result<(), ProfileFault>,
) -> Result<(), ProfileFault> {
    match field.value {
        Value::Varint(value) => each(value),
        Value::Bytes(mut packed) => {
            while !packed.is_empty() {
                let (value, rest) = varint(packed).map_err(|_| ProfileFault::Malformed(place))?;
                packed = rest;
                each(value)?;
            }
            Ok(())
        }
        _ => Err(ProfileFault::Malformed(place)),
    }
}

/// Indices in one entry; mostly few.
pub(super) type Indices = SmallVec<[i32; 16]>;

pub(super) fn indices(
    field: Field<'_>,
    place: &'static str,
    into: &mut Indices,
) -> Result<(), ProfileFault> {
    numbers(field, place, |value| {
        into.push(value as i32);
        Ok(())
    })
}

/// References of an encoded sample to entries of the dictionary.
pub(super) struct SampleReferences {
    pub(super) stack: i32,
    pub(super) attributes: Indices,
    pub(super) link: i32,
    pub(super) unknown: bool,
}

/// Reads a sample. Its values and timestamps replace the content of the buffers.
#[inline]
pub(super) fn sample(
    from: &[u8],
    values: &mut Vec<i64>,
    timestamps: &mut Vec<u64>,
) -> Result<SampleReferences, ProfileFault> {
    const PLACE: &str = "a sample";
    let mut references = SampleReferences {
        stack: 0,
        attributes: Indices::new(),
        link: 0,
        unknown: false,
    };
    values.clear();
    timestamps.clear();
    for field in fields(from, PLACE) {
        let field = field?;
        match field.number {
            1 => references.stack = index(field, PLACE)?,
            2 => indices(field, PLACE, &mut references.attributes)?,
            3 => references.link = index(field, PLACE)?,
            4 => numbers(field, PLACE, |value| {
                values.push(value.cast_signed());
                Ok(())
            })?,
            5 => fixed(field, PLACE, timestamps)?,
            _ => references.unknown = true,
        }
    }
    Ok(references)
}

/// Reads 64-bit integers of fixed length, packed or unpacked.
pub(super) fn fixed(
    field: Field<'_>,
    place: &'static str,
    into: &mut Vec<u64>,
) -> Result<(), ProfileFault> {
    match field.value {
        Value::Fixed64(value) => into.push(value),
        Value::Bytes(packed) => {
            let (values, []) = packed.as_chunks::<8>() else {
                return Err(ProfileFault::Malformed(place));
            };
            into.extend(values.iter().map(|value| u64::from_le_bytes(*value)));
        }
        _ => return Err(ProfileFault::Malformed(place)),
    }
    Ok(())
}
