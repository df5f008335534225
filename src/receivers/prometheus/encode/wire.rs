//! Fields of messages.

use tributary_otlp::reader::{put_varint, varint_len};

/// Wire types.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const BYTES: u64 = 2;

fn key(number: u64, wire_type: u64, output: &mut Vec<u8>) {
    put_varint(number << 3 | wire_type, output);
}

/// Writes a field of bytes, even if it is empty.
pub(super) fn bytes(number: u64, bytes: &[u8], output: &mut Vec<u8>) {
    key(number, BYTES, output);
    put_varint(bytes.len() as u64, output);
    output.extend_from_slice(bytes);
}

/// Writes a text, unless it is empty.
pub(super) fn text(number: u64, text: &str, output: &mut Vec<u8>) {
    if !text.is_empty() {
        bytes(number, text.as_bytes(), output);
    }
}

/// Writes a number with 64 bits, even if it is 0.
pub(super) fn fixed64(number: u64, value: u64, output: &mut Vec<u8>) {
    key(number, FIXED64, output);
    output.extend_from_slice(&value.to_le_bytes());
}

/// Writes a `double`, even if it is 0.
pub(super) fn double(number: u64, value: f64, output: &mut Vec<u8>) {
    fixed64(number, value.to_bits(), output);
}

/// Writes a `sint32`.
pub(super) fn signed(number: u64, value: i32, output: &mut Vec<u8>) {
    key(number, VARINT, output);
    let zigzag = (value << 1) ^ (value >> 31);
    put_varint(u64::from(zigzag.cast_unsigned()), output);
}

/// Writes a message, even if it is empty.
pub(super) fn message(number: u64, output: &mut Vec<u8>, fields: impl FnOnce(&mut Vec<u8>)) {
    key(number, BYTES, output);
    let start = output.len();
    // Most messages have fewer than 128 bytes, whose length takes one byte.
    output.push(0);
    fields(output);
    let length = (output.len() - start - 1) as u64;
    let mut prefix = Vec::with_capacity(varint_len(length));
    put_varint(length, &mut prefix);
    output.splice(start..=start, prefix);
}

/// Writes a `KeyValue` with a text.
pub(super) fn key_value(number: u64, name: &str, value: &str, output: &mut Vec<u8>) {
    let field = |length: usize| 1 + varint_len(length as u64) + length;
    let any = field(value.len());
    key(number, BYTES, output);
    put_varint((field(name.len()) + field(any)) as u64, output);
    bytes(1, name.as_bytes(), output);
    key(2, BYTES, output);
    put_varint(any as u64, output);
    bytes(1, value.as_bytes(), output);
}
