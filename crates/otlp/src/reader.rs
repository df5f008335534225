//! Reads the protobuf encoding from a slice: varints, keys, lengths and fields. Nothing is copied or
//! allocated.
//!
//! Rules and limits follow the [encoding guide](https://protobuf.dev/programming-guides/encoding/), as far as prost
//! enforces the guide. The one exception is groups: OTLP has none, so they are refused even in unknown fields.

use std::ops::Range;

/// The reason why bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WireFault {
    /// The input ends inside a varint, or the varint has more than 64 bits.
    Varint,
    /// A value extends beyond the end of its message.
    Truncated,
    /// A field key exceeds 32 bits.
    Key,
    /// Field number zero.
    FieldZero,
    /// Wire type 6 or 7.
    WireType,
    /// Wire type 3 or 4.
    Group,
}

impl WireFault {
    /// Returns a description of the fault for error messages.
    pub const fn text(self) -> &'static str {
        match self {
            WireFault::Varint => "truncated or oversized varint",
            WireFault::Truncated => "the value is longer than the message around it",
            WireFault::Key => "field key above 32 bits",
            WireFault::FieldZero => "field number 0",
            WireFault::WireType => "invalid wire type 6 or 7",
            WireFault::Group => "a group (wire type 3 or 4), which is not supported",
        }
    }
}

/// Reads a varint of up to 64 bits; longer encodings of small values are legal. Also returns the rest of the
/// input.
#[inline(always)]
pub fn varint(input: &[u8]) -> Result<(u64, &[u8]), WireFault> {
    match input {
        [byte, rest @ ..] if *byte < 0x80 => Ok((u64::from(*byte), rest)),
        [low, high, rest @ ..] if *high < 0x80 => {
            Ok((u64::from(*low & 0x7f) | u64::from(*high) << 7, rest))
        }
        _ => long_varint(input),
    }
}

#[inline(never)]
fn long_varint(input: &[u8]) -> Result<(u64, &[u8]), WireFault> {
    let mut value = 0;
    for (at, byte) in input.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            // The tenth byte has room for one bit.
            if at == 9 && *byte > 1 {
                break;
            }
            return Ok((value, input.get(at + 1..).unwrap_or_default()));
        }
    }
    Err(WireFault::Varint)
}

/// Reads a length and that many bytes. Also returns the rest of the input.
#[inline(always)]
pub fn delimited(input: &[u8]) -> Result<(&[u8], &[u8]), WireFault> {
    let (length, rest) = varint(input)?;
    usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length))
        .ok_or(WireFault::Truncated)
}

/// The value of a field, by wire type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Integers, booleans, enums.
    Varint(u64),
    /// `fixed64`, `sfixed64`, `double`.
    Fixed64(u64),
    /// `fixed32`, `sfixed32`, `float`.
    Fixed32(u32),
    /// Strings, bytes, messages, packed scalars.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the payload of a length-delimited field.
    #[inline]
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field<'a> {
    /// Number of the field.
    pub number: u32,
    /// Value of the field.
    pub value: Value<'a>,
    /// Offset of the field from the start of the outermost message, in bytes.
    pub offset: usize,
    /// The whole field: key, length and value.
    pub raw: &'a [u8],
}

impl<'a> Field<'a> {
    /// Returns the range of bytes of the field in the outermost message.
    #[inline]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.raw.len()
    }

    /// Returns the fields of the contained message; none for other values.
    #[inline]
    pub fn fields(&self) -> Fields<'a> {
        let rest = self.value.bytes().unwrap_or_default();
        Fields {
            rest,
            end: self.offset + self.raw.len(),
        }
    }
}

/// Reads a value of a wire type. Also returns the rest of the input.
#[inline(always)]
pub fn value(wire_type: u32, input: &[u8]) -> Result<(Value<'_>, &[u8]), WireFault> {
    match wire_type {
        0 => varint(input).map(|(value, rest)| (Value::Varint(value), rest)),
        1 => {
            let (value, rest) = input.split_first_chunk().ok_or(WireFault::Truncated)?;
            Ok((Value::Fixed64(u64::from_le_bytes(*value)), rest))
        }
        2 => delimited(input).map(|(value, rest)| (Value::Bytes(value), rest)),
        5 => {
            let (value, rest) = input.split_first_chunk().ok_or(WireFault::Truncated)?;
            Ok((Value::Fixed32(u32::from_le_bytes(*value)), rest))
        }
        3 | 4 => Err(WireFault::Group),
        _ => Err(WireFault::WireType),
    }
}

/// Iterates over the fields of a message, in order. An error ends the iteration.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
    /// Offset of the end of the message in the outermost message.
    end: usize,
}

impl<'a> Fields<'a> {
    /// Reads the fields of the outermost message.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Fields {
            rest: message,
            end: message.len(),
        }
    }

    #[inline(always)]
    fn read(&mut self) -> Result<Field<'a>, WireFault> {
        let input = self.rest;
        let (key, rest) = varint(input)?;
        let key = u32::try_from(key).map_err(|_| WireFault::Key)?;
        let (value, rest) = value(key & 7, rest)?;
        let number = key >> 3;
        if number == 0 {
            return Err(WireFault::FieldZero);
        }
        let (raw, _) = input
            .split_at_checked(input.len() - rest.len())
            .ok_or(WireFault::Truncated)?;
        self.rest = rest;
        Ok(Field {
            number,
            value,
            offset: self.end - input.len(),
            raw,
        })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireFault>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// Returns the encoded size of `value`: 1 to 10 bytes.
#[inline]
pub fn varint_len(value: u64) -> usize {
    // Seven bits per byte, rounded up: (64 - leading zeros + 6) / 7. Zero takes one byte too.
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends the shortest encoding of `value`.
#[inline]
pub fn put_varint(mut value: u64, output: &mut Vec<u8>) {
    while value >= 0x80 {
        output.push(value as u8 | 0x80);
        value >>= 7;
    }
    output.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_of_every_length_are_read_as_written() {
        for value in (0..64).map(|bits| u64::MAX >> bits).chain([0, 1, 300]) {
            let mut encoded = Vec::new();
            put_varint(value, &mut encoded);
            assert_eq!(encoded.len(), varint_len(value));
            encoded.push(7);
            assert_eq!(varint(&encoded), Ok((value, &[7][..])));
            for end in 0..encoded.len() - 1 {
                assert_eq!(varint(&encoded[..end]), Err(WireFault::Varint));
            }
        }
    }

    #[test]
    fn overlong_varint_is_legal_up_to_ten_bytes_and_64_bits() {
        assert_eq!(varint(&[0x81, 0x80, 0x00]), Ok((1, &[][..])));
        let mut ten = [0x80; 10];
        ten[9] = 1;
        assert_eq!(varint(&ten), Ok((1 << 63, &[][..])));
        ten[9] = 2;
        assert_eq!(varint(&ten), Err(WireFault::Varint));
        let mut eleven = [0x80; 11];
        eleven[10] = 0;
        assert_eq!(varint(&eleven), Err(WireFault::Varint));
    }

    #[test]
    fn each_malformed_field_has_a_distinct_fault() {
        let huge_length = [
            0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1,
        ];
        for (bytes, fault) in [
            (&[0x08][..], WireFault::Varint),
            (&[0x0a, 2, 0], WireFault::Truncated),
            (&huge_length, WireFault::Truncated),
            (&[0x09, 0, 0, 0], WireFault::Truncated),
            (&[0x0d, 0], WireFault::Truncated),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0], WireFault::Key),
            (&[0x00, 0], WireFault::FieldZero),
            (&[0x0e], WireFault::WireType),
            (&[0x0b, 0x0c], WireFault::Group),
        ] {
            let mut fields = Fields::new(bytes);
            assert_eq!(fields.next(), Some(Err(fault)), "{bytes:?}");
            assert_eq!(fields.next(), None);
        }
    }
}
