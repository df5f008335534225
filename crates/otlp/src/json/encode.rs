//! Transcodes an encoded request to JSON.

use std::io::Write;
use std::ops::Range;

use base64::display::Base64Display;
use base64::encoded_len;
use base64::engine::general_purpose::STANDARD;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost_types::field_descriptor_proto::Type;

use super::wire::{Content, Stop, is_number, is_zero, malformed, take, unzigzag, wire_type_of};
use super::{MAX_DEPTH, is_id};
use crate::descriptor::{Descriptors, FieldDescriptor, MessageDescriptor};
use crate::edit::EditError;
use crate::room::{Room, RoomExhausted, reserve};
use crate::{Decoded, Signal};
use crate::{Malformed, decoded_bytes};

pub(super) fn from_wire(
    descriptors: &Descriptors,
    signal: Signal,
    request: &[u8],
    room: &dyn Room,
) -> Result<Vec<u8>, EditError> {
    let merged;
    let stop = match transcode(descriptors, signal, request, room) {
        Ok(json) => return Ok(json),
        Err(Stop::NeedsMerge) => {
            let needed = decoded_bytes(signal, request);
            room.take(needed)?;
            merged = Decoded::decode(signal, request)
                .map_err(|_| Malformed::new(0, "prost refuses the request"))?
                .encode();
            room.release(needed);
            room.take(merged.len())?;
            match transcode(descriptors, signal, &merged, room) {
                Ok(json) => return Ok(json),
                Err(stop) => stop,
            }
        }
        Err(stop) => stop,
    };
    Err(match stop {
        Stop::Malformed(error) => error.into(),
        Stop::RoomExhausted => RoomExhausted.into(),
        Stop::NeedsMerge => {
            Malformed::new(0, "a singular field still occurs twice after merging").into()
        }
    })
}

fn transcode(
    descriptors: &Descriptors,
    signal: Signal,
    request: &[u8],
    room: &dyn Room,
) -> Result<Vec<u8>, Stop> {
    let mut transcoder = Transcoder {
        descriptors,
        request,
        room,
        out: Vec::new(),
        entries: Vec::new(),
    };
    reserve(room, &mut transcoder.out, request.len() * 2)?;
    let root = &descriptors.messages[descriptors.root(signal)];
    transcoder.message(root, 0..request.len(), 0)?;
    let Transcoder {
        mut out, entries, ..
    } = transcoder;
    room.release(entries.capacity() * size_of::<Entry<'_>>());
    // The text may be buffered through many retries; its spare capacity should not.
    if out.capacity() > out.len() + out.len() / 4 {
        room.release(out.capacity() - out.len());
        out.shrink_to_fit();
    }
    Ok(out)
}

const HEX: &[u8; 16] = b"0123456789abcdef";

struct Transcoder<'d, 'r> {
    descriptors: &'d Descriptors,
    request: &'r [u8],
    room: &'r dyn Room,
    out: Vec<u8>,
    /// Fields of all open messages, innermost message last.
    entries: Vec<Entry<'d>>,
}

/// One occurrence of a field.
#[derive(Clone)]
struct Entry<'d> {
    field: &'d FieldDescriptor,
    content: Content,
}

/// Maximum size in bytes of a write that skips the budget check: a number, a name, punctuation.
const SHORT: usize = 128;

impl<'d> Transcoder<'d, '_> {
    fn message(
        &mut self,
        message: &'d MessageDescriptor,
        range: Range<usize>,
        depth: usize,
    ) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            return malformed(range.start, "nested too deep");
        }
        reserve(self.room, &mut self.out, SHORT)?;
        let base = self.entries.len();
        self.scan(message, range)?;
        let mine = &mut self.entries[base..];
        // JSON needs all elements of a list together; the stable sort keeps their order. Most requests are
        // sorted already.
        if !mine.is_sorted_by_key(|entry| entry.field.number) {
            mine.sort_by_key(|entry| entry.field.number);
        }
        let mut oneofs_seen = 0_u64;
        let mut comma = false;
        self.out.push(b'{');
        let mut at = base;
        while let Some(Entry { field, .. }) = self.entries.get(at) {
            let field = *field;
            let count = self.entries[at..]
                .iter()
                .take_while(|entry| entry.field.number == field.number)
                .count();
            if let Some(oneof) = field.oneof {
                let bit = 1 << (oneof % 64);
                if oneofs_seen & bit != 0 || count > 1 {
                    return Err(Stop::NeedsMerge);
                }
                oneofs_seen |= bit;
            }
            if field.repeated {
                self.name(field, &mut comma);
                self.list(field, at..at + count, depth)?;
            } else {
                if count > 1 && field.kind == Type::Message {
                    return Err(Stop::NeedsMerge);
                }
                let content = self.entries[at + count - 1].content.clone();
                if field.has_presence() || !is_zero(field.kind, &content) {
                    self.name(field, &mut comma);
                    self.value(field, content, depth)?;
                }
            }
            at += count;
        }
        self.out.push(b'}');
        self.entries.truncate(base);
        Ok(())
    }

    /// Collects the fields of a message.
    fn scan(&mut self, message: &'d MessageDescriptor, range: Range<usize>) -> Result<(), Stop> {
        let Some(mut rest) = self.request.get(range.clone()) else {
            return malformed(range.start, "the message is cut off");
        };
        while !rest.is_empty() {
            let at = range.end - rest.len();
            let Ok((number, wire_type)) = decode_key(&mut rest) else {
                return malformed(at, "no valid key");
            };
            let at = range.end - rest.len();
            let content = match wire_type {
                WireType::Varint => match decode_varint(&mut rest) {
                    Ok(value) => Content::Bits(value),
                    Err(_) => return malformed(at, "no valid varint"),
                },
                WireType::SixtyFourBit => Content::Bits(u64::from_le_bytes(take(&mut rest, at)?)),
                WireType::ThirtyTwoBit => {
                    Content::Bits(u32::from_le_bytes(take(&mut rest, at)?).into())
                }
                WireType::LengthDelimited => {
                    let Ok(length) = decode_varint(&mut rest) else {
                        return malformed(at, "no valid length");
                    };
                    let at = range.end - rest.len();
                    let Some((_, behind)) = usize::try_from(length)
                        .ok()
                        .and_then(|length| rest.split_at_checked(length))
                    else {
                        return malformed(at, "a length exceeds the message");
                    };
                    rest = behind;
                    Content::Range(at..range.end - rest.len())
                }
                WireType::StartGroup | WireType::EndGroup => {
                    return malformed(at, "groups are not part of OTLP");
                }
            };
            let fields = &message.fields;
            let Ok(position) = fields.binary_search_by_key(&number, |field| field.number) else {
                continue;
            };
            let field = &fields[position];
            let packed = field.repeated && wire_type == WireType::LengthDelimited;
            if wire_type != wire_type_of(field.kind) && !packed {
                return malformed(at, "a field has the wrong wire type");
            }
            match &content {
                // An empty packed list has no elements, and an empty list is omitted.
                Content::Range(range) if range.is_empty() && is_number(field.kind) => {}
                _ => {
                    reserve(self.room, &mut self.entries, 1)?;
                    self.entries.push(Entry { field, content });
                }
            }
        }
        Ok(())
    }

    fn name(&mut self, field: &FieldDescriptor, comma: &mut bool) {
        if std::mem::replace(comma, true) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(field.json_name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn list(
        &mut self,
        field: &'d FieldDescriptor,
        entries: Range<usize>,
        depth: usize,
    ) -> Result<(), Stop> {
        self.out.push(b'[');
        for at in entries.clone() {
            if at > entries.start {
                self.out.push(b',');
            }
            match self.entries[at].content.clone() {
                Content::Range(range) if is_number(field.kind) => self.packed(field, range)?,
                content => self.value(field, content, depth)?,
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn packed(&mut self, field: &FieldDescriptor, range: Range<usize>) -> Result<(), Stop> {
        let mut rest = &self.request[range.clone()];
        while !rest.is_empty() {
            let at = range.end - rest.len();
            if at > range.start {
                self.out.push(b',');
            }
            let bits = match wire_type_of(field.kind) {
                WireType::SixtyFourBit => u64::from_le_bytes(take(&mut rest, at)?),
                WireType::ThirtyTwoBit => u32::from_le_bytes(take(&mut rest, at)?).into(),
                _ => match decode_varint(&mut rest) {
                    Ok(value) => value,
                    Err(_) => return malformed(at, "no valid varint"),
                },
            };
            reserve(self.room, &mut self.out, SHORT)?;
            self.number(field.kind, bits);
        }
        Ok(())
    }

    fn value(
        &mut self,
        field: &'d FieldDescriptor,
        content: Content,
        depth: usize,
    ) -> Result<(), Stop> {
        reserve(self.room, &mut self.out, SHORT)?;
        let range = match content {
            Content::Bits(bits) => {
                self.number(field.kind, bits);
                return Ok(());
            }
            Content::Range(range) => range,
        };
        let bytes = &self.request[range.clone()];
        match (field.kind, field.message) {
            (_, Some(message)) => {
                let message = &self.descriptors.messages[message];
                self.message(message, range, depth + 1)?;
            }
            (Type::String, _) => match std::str::from_utf8(bytes) {
                Ok(text) => {
                    reserve(self.room, &mut self.out, SHORT + escaped(bytes))?;
                    self.text(text);
                }
                Err(_) => return malformed(range.start, "a string is not valid UTF-8"),
            },
            _ if is_id(field) => {
                reserve(self.room, &mut self.out, SHORT + 2 * bytes.len())?;
                self.out.push(b'"');
                for byte in bytes {
                    self.out.push(HEX[usize::from(byte >> 4)]);
                    self.out.push(HEX[usize::from(byte & 15)]);
                }
                self.out.push(b'"');
            }
            _ => {
                let len = encoded_len(bytes.len(), true).unwrap_or(usize::MAX / 2);
                reserve(self.room, &mut self.out, SHORT + len)?;
                self.print(format_args!("\"{}\"", Base64Display::new(bytes, &STANDARD)));
            }
        }
        Ok(())
    }

    fn number(&mut self, kind: Type, bits: u64) {
        // 32-bit values are truncated: negative ones take ten bytes as varints.
        match kind {
            Type::Bool => self.print(format_args!("{}", bits != 0)),
            Type::Int32 | Type::Enum | Type::Sfixed32 => {
                self.print(format_args!("{}", bits as i32))
            }
            Type::Uint32 | Type::Fixed32 => self.print(format_args!("{}", bits as u32)),
            Type::Sint32 => self.print(format_args!("{}", unzigzag(bits & 0xffff_ffff))),
            Type::Int64 | Type::Sfixed64 => self.print(format_args!("\"{}\"", bits as i64)),
            Type::Sint64 => self.print(format_args!("\"{}\"", unzigzag(bits))),
            Type::Double => self.double(f64::from_bits(bits)),
            Type::Float => self.double(f32::from_bits(bits as u32).into()),
            _ => self.print(format_args!("\"{bits}\"")),
        }
    }

    fn double(&mut self, value: f64) {
        if value.is_nan() {
            self.out.extend_from_slice(b"\"NaN\"");
        } else if value.is_infinite() {
            let text: &[u8] = if value > 0.0 {
                b"\"Infinity\""
            } else {
                b"\"-Infinity\""
            };
            self.out.extend_from_slice(text);
        } else {
            // Writing into a vector cannot fail. serde_json writes the shortest digits that parse as the same
            // value.
            let _ = serde_json::to_writer(&mut self.out, &value);
        }
    }

    fn text(&mut self, text: &str) {
        let _ = serde_json::to_writer(&mut self.out, text);
    }

    fn print(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }
}

/// Maximum size of an escaped text: a control character takes six bytes.
fn escaped(text: &[u8]) -> usize {
    let more = |byte: &u8| match byte {
        0..0x20 => 5,
        b'"' | b'\\' => 1,
        _ => 0,
    };
    text.len() + text.iter().map(more).sum::<usize>()
}
