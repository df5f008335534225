//! Encodes fields of protobuf messages.

use tributary_otlp::reader::put_varint;

pub(super) fn tag(output: &mut Vec<u8>, field: u32, wire_type: u32) {
    put_varint(u64::from(field << 3 | wire_type), output);
}

pub(super) fn message(output: &mut Vec<u8>, field: u32, body: &[u8]) {
    tag(output, field, 2);
    put_varint(u64::try_from(body.len()).unwrap_or_default(), output);
    output.extend_from_slice(body);
}

/// Writes a string, unless it is empty, which is the default.
pub(super) fn text(output: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        message(output, field, text.as_bytes());
    }
}

/// Writes a number, unless it is 0, which is the default.
pub(super) fn number(output: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        tag(output, field, 0);
        put_varint(number, output);
    }
}

/// Writes a number, unless it is 0, which is the default.
pub(super) fn fixed64(output: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        tag(output, field, 1);
        output.extend_from_slice(&number.to_le_bytes());
    }
}
