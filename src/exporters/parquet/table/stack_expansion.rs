//! Sizes of the stacks of a request.

use super::cost::MEMORY_PER_BYTE;
use super::read::{bytes, fields, number};
use super::resolve::{index, indices};
use tributary_otlp::Malformed;
use tributary_otlp::reader::{Fields, Value};
use tributary_profiles::entries::Entries;

/// Returns the memory for resolving the references of a message with attributes, in bytes: its
/// structs and its texts.
pub(super) fn resolved(message: &[u8], strings: &[&[u8]]) -> u64 {
    /// Bytes of an attribute or a value as a struct. Lists double, and the old list is there until
    /// the new one is complete.
    const STRUCT: u64 = 240;
    /// A text, its encoded form, and its copy in a table.
    const TEXT: u64 = 3;
    /// Receivers limit the nesting of messages to this depth. Strings that look like messages are also counted, and
    /// may nest deeper.
    const MAX_DEPTH: usize = 100;
    let mut memory = STRUCT + TEXT * message.len() as u64;
    let mut open = vec![Fields::new(message)];
    while let Some(fields) = open.last_mut() {
        let Some(Ok(field)) = fields.next() else {
            open.pop();
            continue;
        };
        let more = match (field.number, field.value) {
            // A value, an attribute, a list of values, a list of attributes.
            (1 | 2 | 3 | 5 | 6, Value::Bytes(nested)) => {
                if open.len() < MAX_DEPTH {
                    open.push(Fields::new(nested));
                }
                STRUCT
            }
            // `key_strindex` and `string_value_strindex`.
            (3 | 8, value) => length(strings, index(value)).saturating_mul(TEXT),
            _ => 0,
        };
        memory = memory.saturating_add(more);
    }
    memory
}

/// The expansion of a dictionary.
pub(super) struct OfStacks {
    /// Number of frames of each stack.
    pub(super) depths: Vec<u64>,
    /// Bytes of texts in all frames together.
    pub(super) bytes: u64,
    /// Memory of all entries in a table, in bytes.
    pub(super) memory: u64,
}

/// Memory of an interned frame, in bytes.
const FRAME: u64 = 300;
/// Memory of a frame in an interned stack, in bytes.
pub(super) const FRAME_OF_STACK: u64 = 32;

/// Returns the expansion of the stacks of a dictionary. `apart`: stacks have a table of their own.
pub(super) fn of_stacks(dictionary: &Entries<'_>, apart: bool) -> Result<OfStacks, Malformed> {
    let mut functions = Vec::with_capacity(dictionary.functions.len());
    for function in &dictionary.functions {
        let mut bytes = 0_u64;
        for field in fields(function) {
            if let (1..=3, text) = field? {
                bytes += length(&dictionary.strings, index(text));
            }
        }
        functions.push(bytes);
    }
    let mut attributes = Vec::with_capacity(dictionary.attributes.len());
    let mut memory = 0_u64;
    for attribute in &dictionary.attributes {
        let mut bytes = attribute.len() as u64;
        for field in fields(attribute) {
            match field? {
                (1 | 3, text) => bytes += length(&dictionary.strings, index(text)),
                (2, Value::Bytes(value)) => {
                    memory = memory.saturating_add(resolved(value, &dictionary.strings));
                }
                _ => {}
            }
        }
        memory = memory.saturating_add(bytes.saturating_mul(MEMORY_PER_BYTE as u64));
        attributes.push(bytes);
    }
    let (mut all, mut frames_of_all) = (0_u64, 0_u64);
    let mut mappings = Vec::with_capacity(dictionary.mappings.len());
    for mapping in &dictionary.mappings {
        let mut bytes = 0_u64;
        for field in fields(mapping) {
            match field? {
                (4, file) => bytes += length(&dictionary.strings, index(file)),
                (5, value) => add_all(value, &attributes, &mut bytes),
                _ => {}
            }
        }
        all = all.saturating_add(bytes);
        mappings.push(bytes);
    }
    let mut depths = Vec::with_capacity(dictionary.locations.len());
    for location in &dictionary.locations {
        let (mut lines, mut texts, mut of_location, mut mapping) = (0_u64, 0_u64, 0_u64, 0);
        for field in fields(location) {
            match field? {
                (1, value) => mapping = index(value),
                (3, line) => {
                    lines += 1;
                    texts = texts.saturating_add(of(&functions, one(bytes(line), 1)?));
                }
                (4, value) => add_all(value, &attributes, &mut of_location),
                _ => {}
            }
        }
        let frames = lines.max(1);
        frames_of_all = frames_of_all.saturating_add(frames);
        // In a separate table of stacks, each frame is a text with all its properties.
        let repeated = match apart {
            true => of(&mappings, mapping).saturating_add(of_location),
            false => 0,
        };
        let texts = texts.saturating_add(repeated.saturating_mul(frames));
        all = all.saturating_add(texts).saturating_add(of_location);
        depths.push(frames);
    }
    let mut stacks = Vec::with_capacity(dictionary.stacks.len());
    for stack in &dictionary.stacks {
        let mut frames = 0;
        for field in fields(stack) {
            if let (1, value) = field? {
                // An invalid index counts as a frame.
                indices(value, |at| frames += of(&depths, at).max(1));
            }
        }
        stacks.push(frames);
    }
    let texts = all.saturating_mul(MEMORY_PER_BYTE as u64 / 2);
    let frames = frames_of_all.saturating_mul(FRAME);
    Ok(OfStacks {
        depths: stacks,
        bytes: all,
        memory: memory.saturating_add(texts).saturating_add(frames),
    })
}

/// Returns the value for an index, or 0.
pub(super) fn of(all: &[u64], index: i32) -> u64 {
    let at = usize::try_from(index).unwrap_or_default();
    all.get(at).copied().unwrap_or_default()
}

pub(super) fn length(strings: &[&[u8]], index: i32) -> u64 {
    let at = usize::try_from(index).unwrap_or_default();
    strings.get(at).map_or(0, |text| text.len() as u64)
}

fn add_all(value: Value<'_>, each: &[u64], sum: &mut u64) {
    indices(value, |at| *sum = sum.saturating_add(of(each, at)));
}

/// Returns the index in a field of a message.
pub(super) fn one(message: &[u8], number_: u32) -> Result<i32, Malformed> {
    let mut found = 0;
    for field in fields(message) {
        let (of, value) = field?;
        if of == number_ {
            found = number(value) as u32;
        }
    }
    Ok(found.cast_signed())
}
