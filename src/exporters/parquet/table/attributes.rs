//! Attributes: pairs of key and value that are stored once, and the sets of pairs of rows.

use super::gathered::gathered;
use super::ranges::Ranges;
use super::strings::{NONE, Strings};
use super::text::{self, letter};
use tributary_otlp::reader::{Fields, put_varint};
use tributary_otlp::view::{AnyValue, Message, View as _};

gathered! {
    /// Pairs of key and value, identified by numbers. Most pairs are found again by their encoded
    /// bytes.
    pub(super) struct Pairs {
        /// `KeyValue` messages.
        raw: Strings,
        pub(super) keys: Strings,
        /// The values of the pairs, by the numbers of the pairs.
        pub(super) values: Strings,
        key: Vec<u32>,
        letter: Vec<u8>,
        scratch: Vec<u8>,
    }
}

impl Pairs {
    /// Returns the number of an encoded `KeyValue` without references to a dictionary.
    #[inline]
    pub(super) fn add(&mut self, raw: &[u8]) -> u32 {
        let id = self.raw.intern(raw);
        if id as usize == self.key.len() {
            self.read(raw);
        }
        id
    }

    #[inline(never)]
    fn read(&mut self, raw: &[u8]) {
        let (mut key, mut value) = (&[][..], AnyValue::Empty);
        for field in Fields::new(raw).map_while(Result::ok) {
            match (field.number, field.value.bytes()) {
                (1, Some(bytes)) => key = bytes,
                (2, Some(bytes)) => value = AnyValue::view(Message::new(bytes)),
                _ => {}
            }
        }
        self.scratch.clear();
        let letter = text::put(&value, &mut self.scratch);
        self.key.push(self.keys.intern(key));
        self.values.push(&self.scratch);
        self.letter.push(letter);
    }

    /// Returns the number of the pair for the unit of an attribute.
    pub(super) fn add_unit(&mut self, key: &[u8], unit: &[u8]) -> u32 {
        // No `KeyValue` begins with a field of number 0.
        let raw = [&[0], key, &[0], unit].concat();
        let id = self.raw.intern(&raw);
        if id as usize == self.key.len() {
            self.key.push(self.keys.intern(&[key, b".unit"].concat()));
            self.values.push(unit);
            self.letter.push(letter::UNIT);
        }
        id
    }

    #[inline]
    pub(super) fn key(&self, pair: u32) -> u32 {
        self.key.get(pair as usize).copied().unwrap_or(NONE)
    }

    #[inline]
    pub(super) fn letter(&self, pair: u32) -> u8 {
        let letter = self.letter.get(pair as usize);
        letter.copied().unwrap_or(letter::NONE)
    }
}

/// Encodes a `KeyValue` with a bytes value.
fn encode_bytes(key: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(bytes.len() + 8);
    put_bytes(7, bytes, &mut value);
    encode_value(key, &value)
}

/// Encodes a `KeyValue` with an encoded `AnyValue`.
pub(super) fn encode_value(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(key.len() + value.len() + 8);
    put_bytes(1, key, &mut raw);
    put_bytes(2, value, &mut raw);
    raw
}

fn put_bytes(number: u8, bytes: &[u8], output: &mut Vec<u8>) {
    output.push(number << 3 | 2);
    put_varint(bytes.len() as u64, output);
    output.extend_from_slice(bytes);
}

gathered! {
    /// Consecutive sets of attributes: one for each row, event, link or exemplar.
    pub(super) struct Sets {
        pairs: Vec<u32>,
        ranges: Ranges,
        /// Letters of the types; an empty text if all values are texts.
        types: Vec<u32>,
    }
}

impl Sets {
    /// Adds a pair to the set that [`end`](Self::end) ends.
    #[inline]
    pub(super) fn push(&mut self, pair: u32) {
        self.pairs.push(pair);
    }

    /// Returns an id for its column. An id of an unexpected length becomes an attribute of the set,
    /// and null in its column.
    #[inline]
    pub(super) fn id<const N: usize>(
        &mut self,
        key: &[u8],
        id: &[u8],
        pairs: &mut Pairs,
    ) -> Option<[u8; N]> {
        let fitting = id.try_into().ok();
        if fitting.is_none() && !id.is_empty() {
            self.push(pairs.add(&encode_bytes(key, id)));
        }
        fitting
    }

    /// Ends a set.
    #[inline]
    pub(super) fn end(&mut self, pairs: &Pairs, texts: &mut Strings) {
        let start = self.ranges.end();
        let set = self.pairs.get(start..).unwrap_or_default();
        let mut letters = [0; 64];
        let types = match letters.get_mut(..set.len()) {
            Some(letters) => {
                let mut all = true;
                for (letter, pair) in letters.iter_mut().zip(set) {
                    *letter = pairs.letter(*pair);
                    all &= *letter == letter::STRING;
                }
                texts.intern(if all { &[] } else { letters })
            }
            None => {
                let letters: Vec<u8> = set.iter().map(|pair| pairs.letter(*pair)).collect();
                texts.intern(&letters)
            }
        };
        self.ranges.push(self.pairs.len());
        self.types.push(types);
    }

    /// Returns the pairs of a set.
    #[inline]
    pub(super) fn get(&self, at: usize) -> &[u32] {
        self.pairs.get(self.ranges.get(at)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn types(&self, at: usize) -> u32 {
        self.types.get(at).copied().unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.types.len()
    }
}
