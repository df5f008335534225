//! Writes the encoded output of the JSON decoder.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

use crate::descriptor::{Descriptors, FieldDescriptor};

/// The growing output.
///
/// Each nested message reserves one byte for its length. Longer lengths are recorded and inserted at the end,
/// so each byte moves at most once at any depth of nesting.
pub(super) struct Writer<'d> {
    pub(super) descriptors: &'d Descriptors,
    pub(super) out: Vec<u8>,
    /// Approximate maximum size of the output, in bytes.
    limit: usize,
    pub(super) is_full: bool,
    long: Vec<Long>,
    /// Total number of bytes that the lengths in `long` need beyond the one byte reserved for each length.
    widening: usize,
    /// Path of the error, innermost step first; filled while the error is returned.
    pub(super) path: Vec<Step<'d>>,
}

/// A length that does not fit in its reserved byte.
struct Long {
    at: usize,
    length: usize,
}

/// A message whose length is not known yet.
pub(super) struct Open {
    at: usize,
    widening: usize,
}

pub(super) enum Step<'d> {
    Field(&'d str),
    Index(usize),
}

impl<'d> Writer<'d> {
    pub(super) fn new(descriptors: &'d Descriptors, capacity: usize, limit: usize) -> Self {
        Writer {
            descriptors,
            out: Vec::with_capacity(capacity.min(limit)),
            limit,
            is_full: false,
            long: Vec::new(),
            widening: 0,
            path: Vec::new(),
        }
    }

    /// Formats the path, as in `resourceSpans[0].schemaUrl`.
    pub(super) fn path(&self) -> String {
        let mut text = String::new();
        for step in self.path.iter().rev() {
            match step {
                Step::Field(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                Step::Index(index) => {
                    text.push_str(&format!("[{index}]"));
                }
            }
        }
        text
    }

    /// Checks the limit before `bytes` more are written. Called where the output may be larger than the text.
    pub(super) fn room(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.is_full = self.out.len().saturating_add(bytes) > self.limit;
        if self.is_full {
            return Err("the request is too large");
        }
        Ok(())
    }

    pub(super) fn key(&mut self, field: &FieldDescriptor, wire_type: WireType) {
        encode_key(field.number, wire_type, &mut self.out);
    }

    pub(super) fn bytes(&mut self, field: &FieldDescriptor, bytes: &[u8]) {
        self.key(field, WireType::LengthDelimited);
        encode_varint(bytes.len() as u64, &mut self.out);
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn open(&mut self, field: &FieldDescriptor) -> Open {
        self.key(field, WireType::LengthDelimited);
        self.out.push(0);
        Open {
            at: self.out.len() - 1,
            widening: self.widening,
        }
    }

    pub(super) fn close(&mut self, open: Open) {
        let length = self.out.len() - open.at - 1 + self.widening - open.widening;
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => self.out[open.at] = short,
            _ => {
                self.long.push(Long {
                    at: open.at,
                    length,
                });
                self.widening += encoded_len_varint(length as u64) - 1;
            }
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.long.sort_unstable_by_key(|long| long.at);
        let mut source_end = self.out.len();
        let mut target_end = source_end + self.widening;
        self.out.reserve_exact(self.widening);
        self.out.resize(target_end, 0);
        for Long { at, length } in self.long.into_iter().rev() {
            let behind = at + 1..source_end;
            target_end -= behind.len();
            self.out.copy_within(behind, target_end);
            target_end -= encoded_len_varint(length as u64);
            encode_varint(length as u64, &mut &mut self.out[target_end..]);
            source_end = at;
        }
        self.out
    }
}
