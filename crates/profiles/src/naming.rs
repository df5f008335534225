//! Names for locations that have none, written into an encoded request: its dictionary is read and edited in place, its
//! samples are not looked at.
//!
//! [`Unnamed`] tells which locations have an address but no lines, by binary and mapping; [`ReturnAddresses`], which of them
//! have the address behind a call. [`Naming`] takes functions,
//! and the lines in them of some locations, and writes the request with them: strings and functions that are there
//! already are referred to, others are added at the end of their tables, so that no index changes. Addresses and
//! mappings stay as they are.

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
pub use self::unnamed::{Unnamed, UnnamedBinary, UnnamedMapping};

use self::flags::{Attributes, Flags};
use self::strings::{Functions, Strings};
use super::reindex::Fault;
use tributary_otlp::edit::{Editor, put_delimited};
use tributary_otlp::reader::{Fields, put_varint, varint_len};

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

/// Collects names for locations of a request, and writes it with them.
pub struct Naming<'r> {
    request: &'r [u8],
    attributes: Attributes,
    strings: Strings<'r>,
    functions: Functions,
    /// Lines, encoded: those of one location after those of another.
    encoded: Vec<u8>,
    /// By the place of a location: its lines. Neighbours mostly share them: an address is one of many of the same line.
    lines: Vec<(usize, Range<usize>)>,
    /// What `lines` take in the request, in bytes.
    lines_bytes: usize,
    /// By the index of a mapping: what its locations have now.
    flags: HashMap<usize, Flags, RandomState>,
}

/// About what a function takes in a request, in bytes.
const FUNCTION_BYTES: usize = 20;

impl<'r> Naming<'r> {
    /// For a request of which [`Unnamed`] was read.
    ///
    /// # Errors
    /// When these bytes are no request.
    pub fn new(request: &'r [u8]) -> Result<Self, Fault> {
        let mut entries = unnamed::entries(request)?;
        Ok(Naming {
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

    /// About how many bytes longer the request becomes with what was named so far.
    pub fn added(&self) -> usize {
        let functions = self.functions.added.len() * FUNCTION_BYTES;
        self.lines_bytes + self.strings.added_bytes() + functions
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
        mapping: &UnnamedMapping,
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

    /// The request with the names; none if there are none.
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

    /// What is added to the tables.
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

/// Appends a message of integers, whose fields are 1, 2, 3 and so on; those that are 0 are left out.
fn put_scalars<const N: usize>(message: u32, values: [u64; N], out: &mut Vec<u8>) {
    let present = || values.into_iter().zip(1..).filter(|(value, _)| *value != 0);
    // A tag is a byte.
    let length: usize = present().map(|(value, _)| 1 + varint_len(value)).sum();
    put_varint(u64::from(message << 3 | 2), out);
    put_varint(length as u64, out);
    for (value, number) in present() {
        put_varint(number << 3, out);
        put_varint(value, out);
    }
}
