//! Mapping attributes that tell which names the locations of a mapping have.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::strings::Strings;
use super::unnamed::Attribute;
use crate::entries::{Entries, numbers};
use crate::names::{HAS_FILENAMES, HAS_FUNCTIONS, HAS_INLINE_FRAMES, HAS_LINE_NUMBERS};
use tributary_otlp::edit::put_delimited;
use tributary_otlp::reader::{Fields, put_varint};

/// Kinds of names that the locations of a mapping have after naming.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) functions: bool,
    pub(super) filenames: bool,
    pub(super) line_numbers: bool,
    pub(super) inline_frames: bool,
}

/// Attribute keys, in the order of [`Flags::set`].
const KEYS: [&str; 4] = [
    HAS_FUNCTIONS,
    HAS_FILENAMES,
    HAS_LINE_NUMBERS,
    HAS_INLINE_FRAMES,
];

/// Encoded attribute value `true`.
const TRUE: [u8; 2] = [2 << 3, 1];

impl Flags {
    fn set(self) -> [bool; KEYS.len()] {
        [
            self.functions,
            self.filenames,
            self.line_numbers,
            self.inline_frames,
        ]
    }

    /// Adds the flags of `other`.
    pub(super) fn add(&mut self, other: Flags) {
        self.functions |= other.functions;
        self.filenames |= other.filenames;
        self.line_numbers |= other.line_numbers;
        self.inline_frames |= other.inline_frames;
    }
}

/// The attribute table, restricted to [`KEYS`].
pub(super) struct Attributes {
    /// Entries appended to the table.
    pub(super) added: Vec<Vec<u8>>,
    next: u64,
    /// Index in `KEYS` by attribute, for any value. A key may occur only once in a mapping, so a former value is
    /// removed.
    said: HashMap<u64, usize, RandomState>,
    true_attributes: [Option<u64>; KEYS.len()],
}

impl Attributes {
    pub(super) fn read(entries: &Entries<'_>) -> Self {
        let mut attributes = Attributes {
            added: Vec::new(),
            next: entries.attributes.len() as u64,
            said: HashMap::default(),
            true_attributes: [None; KEYS.len()],
        };
        if attributes.next == 0 {
            // Entry 0 means "not set".
            attributes.added.push(Vec::new());
            attributes.next = 1;
        }
        for (entry, index) in entries.attributes.iter().zip(0..) {
            let Ok(attribute) = Attribute::read(entries, index) else {
                continue;
            };
            let key = KEYS.iter().position(|key| key.as_bytes() == attribute.key);
            let Some(key) = key else {
                continue;
            };
            attributes.said.insert(index, key);
            let mut values = Fields::new(entry).flatten();
            let value = values.find(|field| field.number == 2);
            let unit = Fields::new(entry).flatten().any(|field| field.number == 3);
            if !unit
                && value.and_then(|field| field.value.bytes()) == Some(&TRUE)
                && let Some(true_attributes) = attributes.true_attributes.get_mut(key)
            {
                true_attributes.get_or_insert(index);
            }
        }
        attributes
    }

    /// Appends the attributes that are missing to express these flags.
    pub(super) fn add(&mut self, flags: Flags, strings: &mut Strings<'_>) {
        for ((key, true_attributes), set) in
            KEYS.iter().zip(&mut self.true_attributes).zip(flags.set())
        {
            if set && true_attributes.is_none() {
                let mut entry = Vec::new();
                put_varint(1 << 3, &mut entry);
                put_varint(strings.index(key), &mut entry);
                put_delimited(2, &TRUE, &mut entry);
                self.added.push(entry);
                *true_attributes = Some(self.next);
                self.next += 1;
            }
        }
    }

    /// Returns the mapping with these flags; `None` if no flag is set. The attributes must have been [added](Self::add)
    /// before.
    pub(super) fn written(&self, mapping: &[u8], flags: Flags) -> Option<Vec<u8>> {
        const PLACE: &str = "a mapping";
        let set = flags.set();
        if set == [false; KEYS.len()] {
            return None;
        }
        let replaced = |index: &u64| {
            let key = self.said.get(index);
            key.is_some_and(|key| set.get(*key) == Some(&true))
        };
        let mut entry = Vec::with_capacity(mapping.len() + 16);
        let mut packed = Vec::new();
        for field in Fields::new(mapping).flatten() {
            if field.number != 5 {
                entry.extend_from_slice(field.raw);
                continue;
            }
            // Reading the field succeeded before.
            let _ = numbers(field, PLACE, |index| {
                if !replaced(&index) {
                    put_varint(index, &mut packed);
                }
                Ok(())
            });
        }
        for (true_attributes, set) in self.true_attributes.iter().zip(set) {
            if let Some(index) = true_attributes.filter(|_| set) {
                put_varint(index, &mut packed);
            }
        }
        put_delimited(5, &packed, &mut entry);
        Some(entry)
    }
}
