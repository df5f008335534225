//! Transcodes JSON to an encoded request, in one pass over the text.

use std::fmt;

use prost_types::field_descriptor_proto::Type;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::value::{Value, ValuePosition};
use super::writer::{Step, Writer};
use super::{JsonError, MAX_DEPTH, scalar};
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
    // `Message` limits the depth of messages, and serde_json skips unknown values without recursion.
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
pub(super) struct Message<'w, 'd> {
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
