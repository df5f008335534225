//! Encodes JSON values as fields of a message.

use prost::encoding::{WireType, encode_varint};
use prost_types::field_descriptor_proto::Type;
use serde::de::Error;

use super::writer::Writer;
use super::{is_id, scalar};
use crate::descriptor::FieldDescriptor;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum ValuePosition {
    Field,
    /// Element of a list with its own field key.
    Element,
    /// Element of a packed list.
    Packed,
}

/// Reads a value of a field. Returns false for `null`.
pub(super) struct Value<'w, 'd> {
    pub(super) writer: &'w mut Writer<'d>,
    pub(super) field: &'d FieldDescriptor,
    pub(super) depth: usize,
    pub(super) place: ValuePosition,
}

impl<'d> Value<'_, 'd> {
    pub(super) fn is_list(&self) -> bool {
        self.field.repeated && self.place == ValuePosition::Field
    }

    fn skips_zero(&self) -> bool {
        self.place == ValuePosition::Field && !self.field.has_presence()
    }

    pub(super) fn integer<E: Error>(self, value: i128) -> Result<bool, E> {
        let (range, type_name) = match self.field.kind {
            Type::Int64 | Type::Sint64 | Type::Sfixed64 => (
                i128::from(i64::MIN)..=i128::from(i64::MAX),
                "a signed 64-bit",
            ),
            Type::Uint64 | Type::Fixed64 => (0..=i128::from(u64::MAX), "an unsigned 64-bit"),
            Type::Uint32 | Type::Fixed32 => (0..=i128::from(u32::MAX), "an unsigned 32-bit"),
            _ => (
                i128::from(i32::MIN)..=i128::from(i32::MAX),
                "a signed 32-bit",
            ),
        };
        if !range.contains(&value) {
            return Err(E::custom(format_args!(
                "the number is out of range for {type_name} integer"
            )));
        }
        // Truncation keeps the two's complement, as varints require.
        let bits = value as u64;
        match self.field.kind {
            Type::Fixed64 | Type::Sfixed64 => {
                self.fixed(WireType::SixtyFourBit, bits, &bits.to_le_bytes())
            }
            Type::Fixed32 | Type::Sfixed32 => {
                self.fixed(WireType::ThirtyTwoBit, bits, &(bits as u32).to_le_bytes())
            }
            // ZigZag moves the sign to the lowest bit; 32-bit values need no special case.
            Type::Sint32 | Type::Sint64 => {
                let signed = value as i64;
                self.varint(((signed << 1) ^ (signed >> 63)) as u64);
            }
            _ => self.varint(bits),
        }
        Ok(true)
    }

    pub(super) fn double(self, value: f64) {
        self.fixed(
            WireType::SixtyFourBit,
            value.to_bits(),
            &value.to_le_bytes(),
        );
    }

    pub(super) fn varint(self, value: u64) {
        if value == 0 && self.skips_zero() {
            return;
        }
        if self.place != ValuePosition::Packed {
            self.writer.key(self.field, WireType::Varint);
        }
        encode_varint(value, &mut self.writer.out);
    }

    fn fixed(self, wire_type: WireType, bits: u64, bytes: &[u8]) {
        if bits == 0 && self.skips_zero() {
            return;
        }
        if self.place != ValuePosition::Packed {
            self.writer.key(self.field, wire_type);
        }
        self.writer.out.extend_from_slice(bytes);
    }

    pub(super) fn string<E: Error>(self, text: &[u8]) -> Result<bool, E> {
        if text.is_empty() && self.skips_zero() {
            return Ok(true);
        }
        self.writer.room(text.len()).map_err(E::custom)?;
        match std::str::from_utf8(text) {
            Ok(text) => self.writer.bytes(self.field, text.as_bytes()),
            Err(_) => match replace_surrogates(text) {
                Some(repaired) => self.writer.bytes(self.field, repaired.as_bytes()),
                None => return Err(E::custom("the text is not valid UTF-8")),
            },
        }
        Ok(true)
    }

    pub(super) fn binary<E: Error>(self, text: &str) -> Result<bool, E> {
        if text.is_empty() && self.skips_zero() {
            return Ok(true);
        }
        self.writer.room(text.len()).map_err(E::custom)?;
        let open = self.writer.open(self.field);
        let out = &mut self.writer.out;
        if is_id(self.field) {
            if !scalar::hex(text, out) {
                return Err(E::custom(
                    "expected an even number of hexadecimal digits \
                     (OTLP/JSON writes ids in hex, not in base64)",
                ));
            }
        } else if !scalar::base64(text, out) {
            return Err(E::custom("expected base64"));
        }
        self.writer.close(open);
        Ok(true)
    }

    pub(super) fn enumeration<E: Error>(self, text: &str) -> Result<bool, E> {
        if let Some(value) = scalar::integer(text) {
            return self.integer(value);
        }
        let descriptors = self.writer.descriptors;
        let values = self
            .field
            .enumeration
            .and_then(|at| descriptors.enums.get(at));
        let known =
            values.and_then(|enumeration| enumeration.values.iter().find(|(name, _)| name == text));
        Err(match known {
            Some((name, number)) => E::custom(format_args!(
                "OTLP/JSON does not allow enum names; write {number} instead of \"{name}\""
            )),
            None => E::custom("expected the number of an enum value, found a string"),
        })
    }

    pub(super) fn mismatch<E: Error>(&self, found: &str) -> E {
        let expected = if self.is_list() {
            "a list"
        } else {
            match self.field.kind {
                Type::Message | Type::Group => "an object",
                Type::String => "a string",
                Type::Bytes if is_id(self.field) => "hexadecimal digits in a string",
                Type::Bytes => "base64 in a string",
                Type::Bool => "true or false",
                Type::Enum => "the number of an enum value",
                Type::Double | Type::Float => "a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
                _ => "an integer, as a number or in a string",
            }
        };
        E::custom(format_args!("expected {expected}, found {found}"))
    }

    pub(super) fn is_integer(&self) -> bool {
        !self.is_list()
            && !matches!(
                self.field.kind,
                Type::Message
                    | Type::Group
                    | Type::String
                    | Type::Bytes
                    | Type::Bool
                    | Type::Double
                    | Type::Float
            )
    }

    pub(super) fn is_double(&self) -> bool {
        !self.is_list() && self.field.kind == Type::Double
    }
}

/// Replaces lone surrogates by U+FFFD; `None` if the text is invalid otherwise.
fn replace_surrogates(mut text: &[u8]) -> Option<String> {
    let mut repaired = String::with_capacity(text.len());
    loop {
        match std::str::from_utf8(text) {
            Ok(rest) => {
                repaired.push_str(rest);
                return Some(repaired);
            }
            Err(error) => {
                let (valid, rest) = text.split_at(error.valid_up_to());
                repaired.push_str(std::str::from_utf8(valid).ok()?);
                let [0xed, 0xa0..=0xbf, 0x80..=0xbf, rest @ ..] = rest else {
                    return None;
                };
                repaired.push(char::REPLACEMENT_CHARACTER);
                text = rest;
            }
        }
    }
}
