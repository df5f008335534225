//! Adds names to locations of an encoded request. Only the dictionary is read and edited; samples are copied
//! unread.
//!
//! [`UnsymbolizedLocations`] finds locations with an address but no lines, by binary and mapping. [`ReturnAddresses`] tells which of
//! these locations have a return address. [`RequestSymbolizer`] takes functions and lines for locations and writes the request
//! with them. Existing strings and functions are reused, and new ones are appended to their tables, so no index
//! changes. Addresses and mappings stay unchanged.

mod callers;
mod flags;
mod strings;
#[cfg(test)]
mod tests;
mod unnamed;

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use foldhash::fast::RandomState;

pub use self::callers::ReturnAddresses;
pub use self::unnamed::{UnsymbolizedBinary, UnsymbolizedLocations, UnsymbolizedMapping};

use self::flags::{Attributes, Flags};
use self::strings::{Functions, Strings};
use super::fault::ProfileFault;
use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::{Fields, put_varint, varint_len};

/// A function that contains locations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedFunction<'n> {
    /// Display name.
    pub name: &'n str,
    /// Linkage name.
    pub system_name: &'n str,
    /// Path of the source file; empty if unknown.
    pub file: &'n str,
    /// Line of the definition; 0 if unknown.
    pub start_line: u32,
}

/// Index of a [`NamedFunction`] in the function table of a [`RequestSymbolizer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionIndex {
    index: u64,
    has_name: bool,
    has_file: bool,
}

/// One frame of a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedLine {
    /// Function of the frame.
    pub function: FunctionIndex,
    /// Line in the file, from 1; 0 if unknown.
    pub line: u32,
    /// Column in the line, from 1; 0 if unknown.
    pub column: u32,
}

/// Collects names for locations of a request and writes the request with them.
pub struct RequestSymbolizer<'r> {
    request: &'r [u8],
    attributes: Attributes,
    strings: Strings<'r>,
    functions: Functions,
    /// Encoded lines of all named locations.
    encoded: Vec<u8>,
    /// Range in `encoded`, by the index of a location. Neighbours often share a range, because a line has many
    /// addresses.
    lines: Vec<(usize, Range<usize>)>,
    /// Size of `lines` in the written request, in bytes.
    lines_bytes: usize,
    /// Properties of a mapping's locations after naming, by the index of the mapping.
    flags: HashMap<usize, Flags, RandomState>,
}

/// Approximate size of a function in a request, in bytes.
const FUNCTION_BYTES: usize = 20;

impl<'r> RequestSymbolizer<'r> {
    /// Prepares to name locations of a request that [`UnsymbolizedLocations`] has read.
    ///
    /// # Errors
    /// Fails if the bytes are not a request.
    pub fn new(request: &'r [u8]) -> Result<Self, ProfileFault> {
        let mut entries = unnamed::entries(request)?;
        Ok(RequestSymbolizer {
            request,
            attributes: Attributes::read(&entries),
            strings: Strings::new(std::mem::take(&mut entries.strings)),
            functions: Functions::new(&entries.functions),
            encoded: Vec::new(),
            lines: Vec::new(),
            lines_bytes: 0,
            flags: HashMap::default(),
        })
    }

    /// Approximate growth of the request by the names so far, in bytes.
    pub fn added(&self) -> usize {
        let functions = self.functions.added.len() * FUNCTION_BYTES;
        self.lines_bytes + self.strings.added_bytes() + functions
    }

    /// Returns the index of a function, adding the function if necessary. A function with neither a name nor a file is
    /// not added.
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

    /// Names the location at an index of the table with its frames, innermost first. Frames of functions with
    /// neither a name nor a file are left out. Returns false if no frame remains.
    pub fn name(
        &mut self,
        mapping: &UnsymbolizedMapping,
        location: usize,
        frames: impl IntoIterator<Item = NamedLine>,
    ) -> bool {
        let start = self.encoded.len();
        let mut flags = Flags::default();
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
                &mut self.encoded,
            );
            count += 1;
        }
        if count == 0 {
            return false;
        }
        flags.inline_frames = count > 1;
        self.flags.entry(mapping.index).or_default().add(flags);
        let mut lines = start..self.encoded.len();
        self.lines_bytes += lines.len();
        if let Some((_, last)) = self.lines.last()
            && self.encoded.get(last.clone()) == self.encoded.get(lines.clone())
        {
            self.encoded.truncate(start);
            lines = last.clone();
        }
        self.lines.push((location, lines));
        true
    }

    /// Returns the request with the names; `None` if nothing was named.
    pub fn write(mut self) -> Option<Bytes> {
        if self.lines.is_empty() {
            return None;
        }
        self.lines.sort_unstable_by_key(|(location, _)| *location);
        for flags in self.flags.values() {
            self.attributes.add(*flags, &mut self.strings);
        }
        let request = self.request;
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
                            let flags = self.flags.get(&mapping).copied().unwrap_or_default();
                            if let Some(entry) = self.attributes.written(body, flags) {
                                editor.replace(&field, |out| put_delimited(1, &entry, out));
                            }
                            mapping += 1;
                        }
                        2 => {
                            if let Some((_, lines)) = lines.next_if(|(at, _)| *at == location) {
                                let lines = self.encoded.get(lines.clone()).unwrap_or_default();
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
                    editor.append(&dictionary, |out| self.put_added(out));
                }
            });
        }
        editor.finish().map(Bytes::from)
    }

    /// Writes the entries appended to the tables.
    fn put_added(&self, out: &mut Vec<u8>) {
        out.reserve(self.added().saturating_sub(self.lines_bytes));
        for function in &self.functions.added {
            put_scalars(3, *function, out);
        }
        for string in self.strings.added() {
            put_delimited(5, string, out);
        }
        for attribute in &self.attributes.added {
            put_delimited(6, attribute, out);
        }
    }
}

/// Appends a message of integers in the fields 1, 2, 3 and so on; zeros are omitted.
fn put_scalars<const N: usize>(message: u32, values: [u64; N], out: &mut Vec<u8>) {
    let present = || values.into_iter().zip(1..).filter(|(value, _)| *value != 0);
    let length: usize = present().map(|(value, _)| 1 + varint_len(value)).sum();
    put_varint(u64::from(message << 3 | 2), out);
    put_varint(length as u64, out);
    for (value, number) in present() {
        put_varint(number << 3, out);
        put_varint(value, out);
    }
}
