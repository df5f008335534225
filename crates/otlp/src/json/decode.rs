//! Transcodes JSON to an encoded request, in one pass over the text.

use std::fmt;

use prost::encoding::{WireType, encode_varint};
use prost_types::field_descriptor_proto::Type;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::writer::{Step, Writer};
use super::{JsonError, MAX_DEPTH, is_id, scalar};
use crate::Signal;
use crate::descriptor::{Descriptors, FieldDescriptor, MessageDescriptor};

pub(super) fn to_wire(
    descriptors: &Descriptors,
    signal: Signal,
    json: &[u8],
    limit: usize,
) -> Result<Option<Vec<u8>>, JsonError> {
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    // Names and punctuation are at least half of any OTLP/JSON.
    let mut writer = Writer::new(descriptors, json.len() / 2, limit);
    let mut text = serde_json::Deserializer::from_slice(json);
    // The depth of messages is limited instead, and serde_json skips unknown values without recursion.
    text.disable_recursion_limit();
    let root = Message {
        writer: &mut writer,
        message: &descriptors.messages[descriptors.root(signal)],
        depth: 0,
    };
    match (&mut text).deserialize_any(root).and_then(|()| text.end()) {
        Ok(()) => Ok(Some(writer.finish())),
        Err(_) if writer.is_full => Ok(None),
        Err(error) => Err(JsonError {
            path: writer.path(),
            reason: without_value(error.to_string()),
        }),
    }
}

/// Removes the value from serde's message for a wrong type.
fn without_value(reason: String) -> String {
    let mismatch = reason
        .strip_prefix("invalid type: ")
        .and_then(|rest| rest.rsplit_once(", expected "));
    let Some((found, expected)) = mismatch else {
        return reason;
    };
    let found = match found.split_whitespace().next() {
        Some("null") => "null",
        Some("boolean") => "a boolean",
        Some("string") => "a string",
        Some("sequence") => "a list",
        _ => "a number",
    };
    let (expected, position) = expected.split_once(" at line ").unwrap_or((expected, "?"));
    format!("expected {expected}, found {found} at line {position}")
}

/// Reads an object into the content of a message.
struct Message<'w, 'd> {
    writer: &'w mut Writer<'d>,
    message: &'d MessageDescriptor,
    depth: usize,
}

impl<'de> Visitor<'de> for Message<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        let Message {
            writer,
            message,
            depth,
        } = self;
        if depth > MAX_DEPTH {
            return Err(A::Error::custom(format_args!(
                "nested deeper than {MAX_DEPTH} messages"
            )));
        }
        let mut next = 0;
        let (mut fields_seen, mut oneofs_seen) = (0_u64, 0_u64);
        while let Some(found) = object.next_key_seed(Key { message, next })? {
            let Some((position, field)) = found else {
                object.next_value::<IgnoredAny>()?;
                continue;
            };
            next = position + 1;
            let value = Value {
                writer: &mut *writer,
                field,
                depth,
                place: ValuePosition::Field,
            };
            let problem = match object.next_value_seed(value) {
                Ok(false) => continue,
                Ok(true) if !insert(&mut fields_seen, position) => "the key occurs twice",
                Ok(true)
                    if field
                        .oneof
                        .is_some_and(|oneof| !insert(&mut oneofs_seen, oneof)) =>
                {
                    "only one of the alternatives may be set"
                }
                Ok(true) => continue,
                Err(error) => {
                    writer.path.push(Step::Field(&field.json_name));
                    return Err(error);
                }
            };
            writer.path.push(Step::Field(&field.json_name));
            return Err(A::Error::custom(problem));
        }
        Ok(())
    }
}

/// Adds a number to a bit set; `false` if it was present.
fn insert(set: &mut u64, number: usize) -> bool {
    let bit = 1 << (number % 64);
    let new = *set & bit == 0;
    *set |= bit;
    new
}

/// Looks up the field of a key. Keys are mostly in field order, so the search starts at `next`.
struct Key<'d> {
    message: &'d MessageDescriptor,
    next: usize,
}

impl<'de, 'd> DeserializeSeed<'de> for Key<'d> {
    type Value = Option<(usize, &'d FieldDescriptor)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'d> Visitor<'_> for Key<'d> {
    type Value = Option<(usize, &'d FieldDescriptor)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E>(self, key: &[u8]) -> Result<Self::Value, E> {
        let fields = &self.message.fields;
        let from_next = fields.iter().enumerate().skip(self.next);
        let up_to_next = fields.iter().enumerate().take(self.next);
        Ok(from_next
            .chain(up_to_next)
            .find(|(_, field)| field.json_name.as_bytes() == key || field.name.as_bytes() == key))
    }
}

#[derive(Clone, Copy, PartialEq)]
enum ValuePosition {
    Field,
    /// Element of a list with its own field key.
    Element,
    /// Element of a packed list.
    Packed,
}

/// Reads a value of a field. Returns false for `null`.
struct Value<'w, 'd> {
    writer: &'w mut Writer<'d>,
    field: &'d FieldDescriptor,
    depth: usize,
    place: ValuePosition,
}

impl<'d> Value<'_, 'd> {
    fn is_list(&self) -> bool {
        self.field.repeated && self.place == ValuePosition::Field
    }

    fn skips_zero(&self) -> bool {
        self.place == ValuePosition::Field && !self.field.has_presence()
    }

    fn integer<E: Error>(self, value: i128) -> Result<bool, E> {
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
            // ZigZag moves the sign to the lowest bit. 32-bit values give the same result in 64 bits.
            Type::Sint32 | Type::Sint64 => {
                let signed = value as i64;
                self.varint(((signed << 1) ^ (signed >> 63)) as u64);
            }
            _ => self.varint(bits),
        }
        Ok(true)
    }

    fn double(self, value: f64) {
        self.fixed(
            WireType::SixtyFourBit,
            value.to_bits(),
            &value.to_le_bytes(),
        );
    }

    fn varint(self, value: u64) {
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

    fn string<E: Error>(self, text: &[u8]) -> Result<bool, E> {
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

    fn binary<E: Error>(self, text: &str) -> Result<bool, E> {
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

    fn enumeration<E: Error>(self, text: &str) -> Result<bool, E> {
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

    fn mismatch<E: Error>(&self, found: &str) -> E {
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

    fn is_integer(&self) -> bool {
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

    fn is_double(&self) -> bool {
        !self.is_list() && self.field.kind == Type::Double
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_, '_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        if self.field.kind == Type::String && !self.is_list() {
            // In serde_json, only byte strings may contain lone surrogates, and only options may be null.
            deserializer.deserialize_option(self)
        } else {
            deserializer.deserialize_any(self)
        }
    }
}

impl<'de> Visitor<'de> for Value<'_, '_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_none<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_bytes(self)
    }

    fn visit_bytes<E: Error>(self, text: &[u8]) -> Result<bool, E> {
        self.string(text)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        match self.field.kind {
            _ if self.is_list() => Err(self.mismatch("a string")),
            Type::Bytes => self.binary(text),
            Type::Enum => self.enumeration(text),
            Type::Double => match scalar::double(text) {
                Some(value) => {
                    self.double(value);
                    Ok(true)
                }
                None => Err(self.mismatch("another string")),
            },
            _ if self.is_integer() => match scalar::integer(text) {
                Some(value) => self.integer(value),
                None => Err(self.mismatch("another string")),
            },
            _ => Err(self.mismatch("a string")),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        if self.field.kind != Type::Bool || self.is_list() {
            return Err(self.mismatch("a boolean"));
        }
        self.varint(u64::from(value));
        Ok(true)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        if self.is_integer() {
            return self.integer(i128::from(value));
        }
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        if self.is_integer() {
            return self.integer(i128::from(value));
        }
        self.visit_f64(value as f64)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        if self.is_double() {
            self.double(value);
            return Ok(true);
        }
        if self.is_integer() {
            return match scalar::integral(value) {
                Some(value) => self.integer(value),
                None if value.fract() == 0.0 => self.integer(i128::MAX),
                None => Err(self.mismatch("a fraction")),
            };
        }
        Err(self.mismatch("a number"))
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<bool, A::Error> {
        let descriptors = self.writer.descriptors;
        let message = self
            .field
            .message
            .and_then(|at| descriptors.messages.get(at));
        let (Some(message), false) = (message, self.is_list()) else {
            return Err(self.mismatch("an object"));
        };
        let open = self.writer.open(self.field);
        Message {
            writer: &mut *self.writer,
            message,
            depth: self.depth + 1,
        }
        .visit_map(object)?;
        self.writer.close(open);
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
        if !self.is_list() {
            return Err(self.mismatch("a list"));
        }
        let Value {
            writer,
            field,
            depth,
            ..
        } = self;
        // proto3 packs all repeated scalars.
        let packed = !matches!(field.kind, Type::Message | Type::String | Type::Bytes);
        let start = writer.out.len();
        let open = packed.then(|| writer.open(field));
        let mut index = 0;
        loop {
            let element = Value {
                writer: &mut *writer,
                field,
                depth,
                place: if packed {
                    ValuePosition::Packed
                } else {
                    ValuePosition::Element
                },
            };
            let error = match list.next_element_seed(element) {
                Ok(Some(true)) => match writer.room(0) {
                    Ok(()) => {
                        index += 1;
                        continue;
                    }
                    Err(full) => A::Error::custom(full),
                },
                Ok(Some(false)) => A::Error::custom("null is not allowed in a list"),
                Ok(None) => break,
                Err(error) => error,
            };
            writer.path.push(Step::Index(index));
            return Err(error);
        }
        match open {
            Some(_) if index == 0 => writer.out.truncate(start),
            Some(open) => writer.close(open),
            None => {}
        }
        Ok(true)
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
