//! Names for locations that have none, written into an encoded request: its dictionary is read and edited in place, its
//! samples are not looked at.
//!
//! [`Unnamed`] tells which locations have an address but no lines, by mapping. [`Naming`] takes functions, and the lines in
//! them of some locations, and writes the request with them: strings and functions that are there already are referred to,
//! others are added at the end of their tables, so that no index changes. Addresses and mappings stay as they are.

use std::collections::HashMap;
use std::hash::BuildHasher as _;

use bytes::Bytes;
use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::entries::{Entries, fields, number, numbers, text};
use super::names::{
    BUILD_ID_GNU, BUILD_ID_GO, HAS_FILENAMES, HAS_FUNCTIONS, HAS_INLINE_FRAMES, HAS_LINE_NUMBERS,
};
use super::reindex::Fault;
use crate::wire::edit::{Editor, put_delimited};
use crate::wire::reader::{Fields, Value, put_varint};

/// The locations of a request that have an address and no lines, and whose mapping says of which binary they are.
#[derive(Debug, Default)]
pub struct Unnamed<'r> {
    entries: Entries<'r>,
    /// Those mappings that have such locations.
    pub mappings: Vec<UnnamedMapping<'r>>,
    /// How many locations have neither lines nor a build id: nobody can ever name them.
    pub without_build_id: usize,
}

/// A mapping with locations that have no names.
#[derive(Debug, Default)]
pub struct UnnamedMapping<'r> {
    /// Its place in the table.
    index: usize,
    /// Where it is in memory, and where it begins in its file.
    pub memory_start: u64,
    /// The address behind it.
    pub memory_limit: u64,
    /// Where it begins in its file, in bytes.
    pub file_offset: u64,
    /// Its GNU build id.
    pub gnu_build_id: Option<&'r str>,
    /// Its Go build id.
    pub go_build_id: Option<&'r str>,
    /// The addresses, with the places of their locations in the table; in the order of the addresses.
    pub locations: Vec<(u64, usize)>,
}

/// A function that locations are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedFunction<'n> {
    /// The name for people.
    pub name: &'n str,
    /// The name in the binary.
    pub system_name: &'n str,
    /// The source file; empty if it is not known.
    pub file: &'n str,
    /// The line where it begins; 0 if it is not known.
    pub start_line: u32,
}

/// A [`NamedFunction`] of a [`Naming`]: where it is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionIndex {
    index: u64,
    has_name: bool,
    has_file: bool,
}

/// One frame of a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedLine {
    /// The function.
    pub function: FunctionIndex,
    /// The line in the file, from 1; 0 if it is not known.
    pub line: u32,
    /// The column in the line, from 1; 0 if it is not known.
    pub column: u32,
}

impl<'r> Unnamed<'r> {
    /// Reads the dictionary of a request.
    ///
    /// # Errors
    /// When these bytes are no request, or refer to functions, strings or attributes that are not there: they would be those
    /// that names add to the tables.
    pub fn read(request: &'r [u8]) -> Result<Self, Fault> {
        let mut unnamed = Unnamed::default();
        for field in fields(request, "the request") {
            let field = field?;
            if let (2, Value::Bytes(dictionary)) = (field.number, field.value) {
                unnamed.entries.add(dictionary)?;
            }
        }
        unnamed.find()?;
        if !unnamed.mappings.is_empty() {
            unnamed.entries.no_dangling()?;
        }
        Ok(unnamed)
    }

    fn find(&mut self) -> Result<(), Fault> {
        // By the index of a mapping, where it is in `mappings`.
        let mut places: Vec<Option<usize>> = vec![None; self.entries.mappings.len()];
        for (at, location) in self.entries.locations.iter().enumerate() {
            let Some((mapping, address)) = unnamed(location)? else {
                continue;
            };
            let Some(place) = places.get_mut(mapping).filter(|_| mapping != 0) else {
                self.without_build_id += 1;
                continue;
            };
            let place = match *place {
                Some(place) => place,
                None => {
                    let entry = self.entries.mappings.get(mapping).copied();
                    let read = self.entries.mapping(mapping, entry.unwrap_or_default())?;
                    self.mappings.push(read);
                    *place.insert(self.mappings.len() - 1)
                }
            };
            if let Some(mapping) = self.mappings.get_mut(place) {
                mapping.locations.push((address, at));
            }
        }
        let before = self.unnamed();
        let identified = |m: &UnnamedMapping| m.gnu_build_id.is_some() || m.go_build_id.is_some();
        self.mappings.retain(identified);
        self.without_build_id += before - self.unnamed();
        for mapping in &mut self.mappings {
            mapping.locations.sort_unstable();
        }
        Ok(())
    }

    /// How many locations could be named.
    pub fn unnamed(&self) -> usize {
        self.mappings.iter().map(|m| m.locations.len()).sum()
    }
}

/// The mapping and the address of a location, if it has an address and no lines.
fn unnamed(location: &[u8]) -> Result<Option<(usize, u64)>, Fault> {
    const PLACE: &str = "a location";
    let (mut mapping, mut address) = (0, 0);
    for field in fields(location, PLACE) {
        let field = field?;
        match field.number {
            1 => mapping = number(field, PLACE)?,
            2 => address = number(field, PLACE)?,
            3 => return Ok(None),
            _ => {}
        }
    }
    let mapping = usize::try_from(mapping).unwrap_or(usize::MAX);
    Ok((address != 0).then_some((mapping, address)))
}

/// An attribute, as far as it matters here.
#[derive(Debug, Clone, Copy, Default)]
struct Attribute<'r> {
    key: &'r str,
    text: Option<&'r str>,
}

impl<'r> Entries<'r> {
    fn mapping(&self, index: usize, mapping: &'r [u8]) -> Result<UnnamedMapping<'r>, Fault> {
        const PLACE: &str = "a mapping";
        let mut read = UnnamedMapping {
            index,
            ..UnnamedMapping::default()
        };
        for field in fields(mapping, PLACE) {
            let field = field?;
            match field.number {
                1 => read.memory_start = number(field, PLACE)?,
                2 => read.memory_limit = number(field, PLACE)?,
                3 => read.file_offset = number(field, PLACE)?,
                5 => numbers(field, PLACE, |attribute| {
                    let attribute = self.attribute(attribute)?;
                    match attribute.key {
                        BUILD_ID_GNU => read.gnu_build_id = attribute.text,
                        BUILD_ID_GO => read.go_build_id = attribute.text,
                        _ => {}
                    }
                    Ok(())
                })?,
                _ => {}
            }
        }
        Ok(read)
    }

    fn attribute(&self, index: u64) -> Result<Attribute<'r>, Fault> {
        const PLACE: &str = "an attribute";
        let index = usize::try_from(index).ok().filter(|index| *index != 0);
        let entry = index.and_then(|index| self.attributes.get(index));
        let mut attribute = Attribute::default();
        for field in fields(entry.copied().unwrap_or_default(), PLACE) {
            let field = field?;
            match (field.number, field.value) {
                (1, Value::Varint(key)) => attribute.key = self.string(key),
                (2, Value::Bytes(value)) => {
                    for field in fields(value, PLACE) {
                        let field = field?;
                        attribute.text = match (field.number, field.value) {
                            (1, _) => Some(text(field, PLACE)?),
                            (8, Value::Varint(index)) => Some(self.string(index)),
                            _ => None,
                        };
                    }
                }
                _ => {}
            }
        }
        attribute.text = attribute.text.filter(|text| !text.is_empty());
        Ok(attribute)
    }

    /// A string; one that is not there is empty.
    fn string(&self, index: u64) -> &'r str {
        let index = usize::try_from(index).ok();
        let string = index.and_then(|index| self.strings.get(index));
        string
            .and_then(|bytes| str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

/// Collects names for locations of a request, and writes it with them.
pub struct Naming<'u> {
    entries: &'u Entries<'u>,
    strings: Strings<'u>,
    functions: Functions,
    /// By the place of a location: its lines, encoded.
    lines: Vec<(usize, Vec<u8>)>,
    /// By the index of a mapping: what its locations have now.
    flags: HashMap<usize, Flags, RandomState>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Flags {
    functions: bool,
    filenames: bool,
    line_numbers: bool,
    inline_frames: bool,
}

impl Flags {
    fn keys(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.functions, HAS_FUNCTIONS),
            (self.filenames, HAS_FILENAMES),
            (self.line_numbers, HAS_LINE_NUMBERS),
            (self.inline_frames, HAS_INLINE_FRAMES),
        ];
        all.into_iter().filter(|(set, _)| *set).map(|(_, key)| key)
    }
}

/// The table of strings, with what is added.
struct Strings<'u> {
    table: &'u [&'u [u8]],
    added: Vec<Box<[u8]>>,
    /// The indices of both.
    known: HashTable<usize>,
    hasher: RandomState,
}

impl<'u> Strings<'u> {
    fn new(table: &'u [&'u [u8]]) -> Self {
        let mut strings = Strings {
            table,
            added: Vec::new(),
            known: HashTable::with_capacity(table.len()),
            hasher: RandomState::default(),
        };
        for (index, string) in table.iter().enumerate() {
            strings.find_or_insert(string, index);
        }
        if table.is_empty() {
            // The first one means "not set".
            strings.index("");
        }
        strings
    }

    fn index(&mut self, string: &str) -> u64 {
        let next = self.table.len() + self.added.len();
        let index = self.find_or_insert(string.as_bytes(), next);
        if index == next {
            self.added.push(string.as_bytes().into());
        }
        index as u64
    }

    /// The index of a string; `next` if it was not known until now.
    fn find_or_insert(&mut self, string: &[u8], next: usize) -> usize {
        let hash = self.hasher.hash_one(string);
        let (table, added, hasher) = (self.table, &self.added, &self.hasher);
        let get = |index: usize| match index.checked_sub(table.len()) {
            None => table.get(index).copied().unwrap_or_default(),
            Some(behind) => added
                .get(behind)
                .map(|string| &**string)
                .unwrap_or_default(),
        };
        if let Some(index) = self.known.find(hash, |index| get(*index) == string) {
            return *index;
        }
        let hash_of = |index: &usize| hasher.hash_one(get(*index));
        self.known.insert_unique(hash, next, hash_of);
        next
    }
}

/// The table of functions, with what is added. A function is its name, its system name, its file and its first line.
struct Functions {
    known: HashMap<[u64; 4], u64, RandomState>,
    added: Vec<[u64; 4]>,
    next: u64,
}

impl Functions {
    fn new(table: &[&[u8]]) -> Self {
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

    fn index(&mut self, key: [u64; 4]) -> u64 {
        *self.known.entry(key).or_insert_with(|| {
            self.added.push(key);
            self.next += 1;
            self.next - 1
        })
    }
}

impl<'u> Naming<'u> {
    /// For the request that was read.
    pub fn new(unnamed: &'u Unnamed<'u>) -> Self {
        Naming {
            entries: &unnamed.entries,
            strings: Strings::new(&unnamed.entries.strings),
            functions: Functions::new(&unnamed.entries.functions),
            lines: Vec::new(),
            flags: HashMap::default(),
        }
    }

    /// Where that function is in the table; it is added if it was not there, unless it has neither a name nor a file.
    pub fn function(&mut self, function: &NamedFunction<'_>) -> FunctionIndex {
        if function.name.is_empty() && function.file.is_empty() {
            return FunctionIndex {
                index: 0,
                has_name: false,
                has_file: false,
            };
        }
        let key = [
            self.strings.index(function.name),
            self.strings.index(function.system_name),
            self.strings.index(function.file),
            function.start_line.into(),
        ];
        FunctionIndex {
            index: self.functions.index(key),
            has_name: !function.name.is_empty(),
            has_file: !function.file.is_empty(),
        }
    }

    /// Names the location at that place of the table: its frames, innermost first. Those of functions with neither a name nor a
    /// file are left out. Returns whether there are others.
    pub fn name(
        &mut self,
        mapping: &UnnamedMapping<'_>,
        location: usize,
        frames: impl IntoIterator<Item = NamedLine>,
    ) -> bool {
        let flags = self.flags.entry(mapping.index).or_default();
        let mut lines = Vec::new();
        let mut count = 0;
        for frame in frames {
            let function = frame.function;
            if !function.has_name && !function.has_file {
                continue;
            }
            flags.functions |= function.has_name;
            flags.filenames |= function.has_file;
            flags.line_numbers |= frame.line != 0;
            put_scalars(
                3,
                [function.index, frame.line.into(), frame.column.into()],
                &mut lines,
            );
            count += 1;
        }
        flags.inline_frames |= count > 1;
        if count > 0 {
            self.lines.push((location, lines));
        }
        count > 0
    }

    /// The request with the names; none if there are none.
    pub fn write(mut self, request: &[u8]) -> Option<Bytes> {
        if self.lines.is_empty() {
            return None;
        }
        self.lines.sort_unstable_by_key(|(location, _)| *location);
        let attributes = self.attributes();
        let dictionaries = || Fields::new(request).flatten().filter(|f| f.number == 2);
        let last = dictionaries().count().checked_sub(1)?;
        let (mut mapping, mut location) = (0, 0);
        let mut lines = self.lines.iter().peekable();
        let mut editor = Editor::new(request);
        for (at, dictionary) in dictionaries().enumerate() {
            editor.message(&dictionary, |editor| {
                for field in dictionary.fields().flatten() {
                    let body = field.value.bytes().unwrap_or_default();
                    match field.number {
                        1 => {
                            if let Some(flags) = attributes.of_mappings.get(&mapping) {
                                let entry = with_attributes(body, flags);
                                editor.replace(&field, |out| put_delimited(1, &entry, out));
                            }
                            mapping += 1;
                        }
                        2 => {
                            if let Some((_, lines)) = lines.next_if(|(at, _)| *at == location) {
                                editor.replace(&field, |out| {
                                    put_varint(2 << 3 | 2, out);
                                    put_varint((body.len() + lines.len()) as u64, out);
                                    out.extend_from_slice(body);
                                    out.extend_from_slice(lines);
                                });
                            }
                            location += 1;
                        }
                        _ => {}
                    }
                }
                if at == last {
                    editor.append(&dictionary, |out| self.put_added(&attributes, out));
                }
            });
        }
        editor.finish().map(Bytes::from)
    }

    /// What is added to the tables.
    fn put_added(&self, attributes: &Attributes, out: &mut Vec<u8>) {
        for function in &self.functions.added {
            put_scalars(3, *function, out);
        }
        for string in &self.strings.added {
            put_delimited(5, string, out);
        }
        for attribute in &attributes.added {
            put_delimited(6, attribute, out);
        }
    }

    /// The attributes of mappings that say what their locations have.
    fn attributes(&mut self) -> Attributes {
        const TRUE: [u8; 2] = [2 << 3, 1];
        let mut attributes = Attributes::default();
        let mut next = self.entries.attributes.len() as u64;
        if next == 0 {
            attributes.added.push(Vec::new());
            next = 1;
        }
        // A key may be there once in a mapping: what says the opposite goes.
        let mut said: HashMap<&str, Vec<u64>> = HashMap::new();
        let mut truth: HashMap<&str, u64> = HashMap::new();
        for (entry, index) in self.entries.attributes.iter().zip(0..) {
            let Ok(attribute) = self.entries.attribute(index) else {
                continue;
            };
            if !attribute.key.starts_with("pprof.mapping.has_") {
                continue;
            }
            said.entry(attribute.key).or_default().push(index);
            let mut values = Fields::new(entry).flatten();
            let value = values.find(|field| field.number == 2);
            let unit = Fields::new(entry).flatten().any(|field| field.number == 3);
            if !unit && value.and_then(|field| field.value.bytes()) == Some(&TRUE) {
                truth.entry(attribute.key).or_insert(index);
            }
        }
        for (mapping, flags) in &self.flags {
            let mut of_mapping = MappingFlags::default();
            for key in flags.keys() {
                let index = *truth.entry(key).or_insert_with(|| {
                    let mut entry = Vec::new();
                    put_varint(1 << 3, &mut entry);
                    put_varint(self.strings.index(key), &mut entry);
                    put_delimited(2, &TRUE, &mut entry);
                    attributes.added.push(entry);
                    next += 1;
                    next - 1
                });
                of_mapping.now.push(index);
                of_mapping
                    .before
                    .extend(said.get(key).into_iter().flatten());
            }
            if !of_mapping.now.is_empty() {
                attributes.of_mappings.insert(*mapping, of_mapping);
            }
        }
        attributes
    }
}

#[derive(Debug, Default)]
struct Attributes {
    /// Entries that are added to the table.
    added: Vec<Vec<u8>>,
    of_mappings: HashMap<usize, MappingFlags, RandomState>,
}

#[derive(Debug, Default)]
struct MappingFlags {
    /// The attributes it has from now on.
    now: Vec<u64>,
    /// Those with the same keys, which it may have had before.
    before: Vec<u64>,
}

/// A mapping with other attributes.
fn with_attributes(mapping: &[u8], flags: &MappingFlags) -> Vec<u8> {
    const PLACE: &str = "a mapping";
    let mut entry = Vec::with_capacity(mapping.len() + 16);
    let mut packed = Vec::new();
    for field in Fields::new(mapping).flatten() {
        if field.number != 5 {
            entry.extend_from_slice(field.raw);
            continue;
        }
        // It was read before without a fault.
        let _ = numbers(field, PLACE, |index| {
            if !flags.before.contains(&index) {
                put_varint(index, &mut packed);
            }
            Ok(())
        });
    }
    for index in &flags.now {
        put_varint(*index, &mut packed);
    }
    put_delimited(5, &packed, &mut entry);
    entry
}

/// Appends a message of integers, whose fields are 1, 2, 3 and so on; those that are 0 are left out.
fn put_scalars<const N: usize>(message: u32, values: [u64; N], out: &mut Vec<u8>) {
    let mut body = Vec::with_capacity(11 * N);
    for (value, number) in values.into_iter().zip(1..) {
        if value != 0 {
            put_varint(number << 3, &mut body);
            put_varint(value, &mut body);
        }
    }
    put_delimited(message, &body, out);
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value};
    use opentelemetry_proto::tonic::profiles::v1development as proto;
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;
    use crate::profiles::testing::request;

    fn attribute(key: i32, value: any_value::Value) -> proto::KeyValueAndUnit {
        proto::KeyValueAndUnit {
            key_strindex: key,
            value: Some(AnyValue { value: Some(value) }),
            unit_strindex: 0,
        }
    }

    fn location(mapping: i32, address: u64) -> proto::Location {
        proto::Location {
            mapping_index: mapping,
            address,
            ..proto::Location::default()
        }
    }

    /// Three mappings: one of a binary with a build id that says it has no functions, one without a build id, one whose
    /// build id is a reference.
    fn dictionary() -> proto::ProfilesDictionary {
        let strings = [
            "",
            BUILD_ID_GNU,
            HAS_FUNCTIONS,
            "main",
            "main.c",
            "c0ffee00",
        ];
        let mapping = |attributes: &[i32]| proto::Mapping {
            memory_start: 0x1000,
            memory_limit: 0x2000,
            file_offset: 0x100,
            attribute_indices: attributes.to_vec(),
            ..proto::Mapping::default()
        };
        let line = proto::Line {
            function_index: 1,
            line: 7,
            column: 0,
        };
        proto::ProfilesDictionary {
            string_table: strings.map(str::to_owned).to_vec(),
            attribute_table: vec![
                proto::KeyValueAndUnit::default(),
                attribute(1, any_value::Value::StringValue("deadbeef".to_owned())),
                attribute(2, any_value::Value::BoolValue(false)),
                attribute(1, any_value::Value::StringValueStrindex(5)),
            ],
            mapping_table: vec![
                proto::Mapping::default(),
                mapping(&[1, 2]),
                mapping(&[2]),
                mapping(&[3]),
            ],
            function_table: vec![
                proto::Function::default(),
                proto::Function {
                    name_strindex: 3,
                    system_name_strindex: 3,
                    filename_strindex: 4,
                    start_line: 5,
                },
            ],
            location_table: vec![
                proto::Location::default(),
                location(1, 0x1030),
                location(1, 0x1010),
                proto::Location {
                    lines: vec![line],
                    ..location(1, 0x1020)
                },
                location(2, 0x1010),
                location(3, 0x1010),
                location(0, 0x1010),
                location(99, 0x1010),
            ],
            ..proto::ProfilesDictionary::default()
        }
    }

    fn encoded(dictionary: proto::ProfilesDictionary) -> Vec<u8> {
        let request = ExportProfilesServiceRequest {
            dictionary: Some(dictionary),
            ..ExportProfilesServiceRequest::default()
        };
        request.encode_to_vec()
    }

    /// A function, a line and a column.
    type Frame = (NamedFunction<'static>, u32, u32);

    const MAIN: Frame = (
        NamedFunction {
            name: "main",
            system_name: "main",
            file: "main.c",
            start_line: 5,
        },
        9,
        3,
    );
    const INLINED: Frame = (
        NamedFunction {
            name: "f<int>",
            system_name: "_Z1fIiEvv",
            file: "f.h",
            start_line: 1,
        },
        2,
        0,
    );

    /// Names a location.
    fn name(
        naming: &mut Naming<'_>,
        mapping: &UnnamedMapping<'_>,
        location: usize,
        frames: &[Frame],
    ) -> bool {
        let frames: Vec<_> = frames
            .iter()
            .map(|(function, line, column)| NamedLine {
                function: naming.function(function),
                line: *line,
                column: *column,
            })
            .collect();
        naming.name(mapping, location, frames)
    }

    #[test]
    fn locations_with_lines_or_without_a_build_id_are_not_offered() {
        let request = encoded(dictionary());
        let unnamed = Unnamed::read(&request).unwrap();
        let found: Vec<_> = unnamed
            .mappings
            .iter()
            .map(|mapping| (mapping.gnu_build_id, mapping.locations.clone()))
            .collect();
        assert_eq!(
            found,
            [
                (Some("deadbeef"), vec![(0x1010, 2), (0x1030, 1)]),
                (Some("c0ffee00"), vec![(0x1010, 5)]),
            ]
        );
        assert_eq!(unnamed.without_build_id, 3);
        let first = &unnamed.mappings[0];
        assert_eq!((first.memory_start, first.memory_limit), (0x1000, 0x2000));
        assert_eq!(first.file_offset, 0x100);
    }

    #[test]
    fn names_refer_to_what_is_there_and_nothing_else_changes() {
        let before = dictionary();
        let request = encoded(before.clone());
        let unnamed = Unnamed::read(&request).unwrap();
        let mut naming = Naming::new(&unnamed);
        assert!(name(&mut naming, &unnamed.mappings[0], 1, &[INLINED, MAIN]));
        assert!(name(&mut naming, &unnamed.mappings[0], 2, &[MAIN]));
        assert!(
            !name(&mut naming, &unnamed.mappings[1], 5, &[]),
            "it is unknown"
        );
        let written = naming.write(&request).unwrap();
        let written = ExportProfilesServiceRequest::decode(written).unwrap();
        let after = written.dictionary.unwrap();

        let mut expected = before;
        let strings = ["f<int>", "_Z1fIiEvv", "f.h"].map(str::to_owned);
        expected.string_table.extend(strings);
        let flags = [HAS_FILENAMES, HAS_INLINE_FRAMES, HAS_LINE_NUMBERS].map(str::to_owned);
        expected.string_table.extend(flags);
        expected.function_table.push(proto::Function {
            name_strindex: 6,
            system_name_strindex: 7,
            filename_strindex: 8,
            start_line: 1,
        });
        let line = |function_index, line, column| proto::Line {
            function_index,
            line,
            column,
        };
        expected.location_table[1].lines = vec![line(2, 2, 0), line(1, 9, 3)];
        expected.location_table[2].lines = vec![line(1, 9, 3)];
        let mut tail = after.string_table[9..].to_vec();
        tail.sort_unstable();
        assert_eq!(tail, expected.string_table[9..]);
        expected.string_table = after.string_table.clone();
        let key = |index: &i32| {
            let attribute = &after.attribute_table[*index as usize];
            let key = after.string_table[attribute.key_strindex as usize].as_str();
            (key, attribute.value.clone().unwrap().value.unwrap())
        };
        let indices = &after.mapping_table[1].attribute_indices;
        let mut attributes: Vec<_> = indices[1..].iter().map(key).collect();
        attributes.sort_by_key(|(key, _)| *key);
        let yes = any_value::Value::BoolValue(true);
        let flags = [
            HAS_FILENAMES,
            HAS_FUNCTIONS,
            HAS_INLINE_FRAMES,
            HAS_LINE_NUMBERS,
        ];
        assert_eq!(attributes, flags.map(|key| (key, yes.clone())));
        assert_eq!(indices[0], 1, "the build id stays");
        expected.mapping_table[1].attribute_indices = indices.clone();
        expected.attribute_table = after.attribute_table.clone();
        assert_eq!(after, expected);
    }

    #[test]
    fn tables_that_are_empty_get_their_first_entry() {
        let before = proto::ProfilesDictionary {
            location_table: dictionary().location_table[..2].to_vec(),
            mapping_table: dictionary().mapping_table[..2].to_vec(),
            string_table: dictionary().string_table,
            attribute_table: dictionary().attribute_table,
            ..proto::ProfilesDictionary::default()
        };
        let request = encoded(before);
        let unnamed = Unnamed::read(&request).unwrap();
        let mut naming = Naming::new(&unnamed);
        name(&mut naming, &unnamed.mappings[0], 1, &[MAIN]);
        let written = naming.write(&request).unwrap();
        let written = ExportProfilesServiceRequest::decode(written).unwrap();
        let after = written.dictionary.unwrap();
        assert_eq!(after.function_table[0], proto::Function::default());
        assert_eq!(after.location_table[1].lines[0].function_index, 1);
    }

    #[test]
    fn what_leads_nowhere_does_not_lead_to_what_is_added() {
        type Change = fn(&mut proto::ProfilesDictionary);
        let changes: [Change; 5] = [
            |tables| tables.mapping_table[2].filename_strindex = 6,
            |tables| tables.mapping_table[2].attribute_indices.push(4),
            |tables| tables.location_table[3].lines[0].function_index = 2,
            |tables| tables.function_table[1].filename_strindex = 6,
            |tables| tables.attribute_table[1].unit_strindex = -1,
        ];
        for change in changes {
            let mut tables = dictionary();
            change(&mut tables);
            let request = encoded(tables);
            let refused = Unnamed::read(&request).map(|unnamed| unnamed.unnamed());
            assert!(
                matches!(refused, Err(Fault::Dangling { .. })),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn several_dictionaries_in_a_request_are_one() {
        let whole = dictionary();
        let first = proto::ProfilesDictionary {
            location_table: whole.location_table[..2].to_vec(),
            string_table: whole.string_table[..3].to_vec(),
            ..proto::ProfilesDictionary::default()
        };
        let second = proto::ProfilesDictionary {
            location_table: whole.location_table[2..].to_vec(),
            string_table: whole.string_table[3..].to_vec(),
            ..whole
        };
        let request = [encoded(first), encoded(second)].concat();
        let unnamed = Unnamed::read(&request).unwrap();
        let mut naming = Naming::new(&unnamed);
        name(&mut naming, &unnamed.mappings[0], 1, &[INLINED]);
        name(&mut naming, &unnamed.mappings[0], 2, &[MAIN]);
        let written = naming.write(&request).unwrap();
        let written = ExportProfilesServiceRequest::decode(written).unwrap();
        let after = written.dictionary.unwrap();
        let name = |location: usize| {
            let line = &after.location_table[location].lines[0];
            let function = &after.function_table[line.function_index as usize];
            after.string_table[function.name_strindex as usize].as_str()
        };
        assert_eq!((name(1), name(2)), ("f<int>", "main"));
    }

    proptest! {
        /// Whatever the request is, what is named is named as it was said, and samples and all other entries are what
        /// they were.
        #[test]
        fn naming_changes_locations_without_lines_and_only_adds_to_tables(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut before = request(&bytes);
            let tables = before.dictionary.as_mut().unwrap();
            let key = i32::try_from(tables.string_table.len()).unwrap();
            tables.string_table.push(BUILD_ID_GNU.to_owned());
            let id = any_value::Value::StringValue("deadbeef".to_owned());
            let build_id = i32::try_from(tables.attribute_table.len()).unwrap();
            tables.attribute_table.push(attribute(key, id));
            for mapping in tables.mapping_table.iter_mut().skip(1) {
                mapping.attribute_indices.push(build_id);
            }
            for location in tables.location_table.iter_mut().step_by(2) {
                location.lines.clear();
            }
            let encoded = before.encode_to_vec();
            let unnamed = Unnamed::read(&encoded).unwrap();
            let mut naming = Naming::new(&unnamed);
            let mut named = Vec::new();
            for mapping in &unnamed.mappings {
                for (_, location) in &mapping.locations {
                    name(&mut naming, mapping, *location, &[INLINED, MAIN]);
                    named.push(*location);
                }
            }
            let Some(written) = naming.write(&encoded) else {
                prop_assert!(named.is_empty());
                return Ok(());
            };
            let written = ExportProfilesServiceRequest::decode(written).unwrap();
            prop_assert_eq!(&written.resource_profiles, &before.resource_profiles);
            let (before, after) = (before.dictionary.unwrap(), written.dictionary.unwrap());
            prop_assert_eq!(&after.stack_table, &before.stack_table);
            prop_assert!(after.string_table.starts_with(&before.string_table));
            prop_assert!(after.function_table.starts_with(&before.function_table));
            prop_assert!(after.attribute_table.starts_with(&before.attribute_table));
            for (at, (old, new)) in before.location_table.iter().zip(&after.location_table).enumerate() {
                let mut stripped = new.clone();
                if named.contains(&at) {
                    let names: Vec<_> = new.lines.iter().map(|line| {
                        let function = &after.function_table[line.function_index as usize];
                        after.string_table[function.name_strindex as usize].as_str()
                    }).collect();
                    prop_assert_eq!(names, ["f<int>", "main"]);
                    stripped.lines.clear();
                }
                prop_assert_eq!(&stripped, old);
            }
        }

        /// What was overwritten on the way does not end the process, and what is written is a request if what came was
        /// one.
        #[test]
        fn damaged_requests_are_named_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..60),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let mut damaged = if bytes.len() < 30 {
                encoded(dictionary())
            } else {
                request(&bytes).encode_to_vec()
            };
            for (at, byte) in damage {
                let at = at.index(damaged.len());
                damaged[at] = byte;
            }
            let Ok(unnamed) = Unnamed::read(&damaged) else {
                return Ok(());
            };
            let mut naming = Naming::new(&unnamed);
            for mapping in &unnamed.mappings {
                for (_, location) in &mapping.locations {
                    name(&mut naming, mapping, *location, &[INLINED, MAIN]);
                }
            }
            if let Some(written) = naming.write(&damaged) {
                let was_valid = ExportProfilesServiceRequest::decode(&damaged[..]).is_ok();
                let is_valid = ExportProfilesServiceRequest::decode(written).is_ok();
                prop_assert!(is_valid || !was_valid);
            }
        }
    }
}
