//! Attribute values as texts, with their original type.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use tributary_otlp::view::AnyValue;

/// Letters of the types: of attributes in `*_attribute_types`, of bodies in `body_type`.
pub(super) mod letter {
    pub(in super::super) const STRING: u8 = b's';
    pub(in super::super) const BOOL: u8 = b'b';
    pub(in super::super) const INT: u8 = b'i';
    pub(in super::super) const DOUBLE: u8 = b'd';
    pub(in super::super) const BYTES: u8 = b'y';
    pub(in super::super) const ARRAY: u8 = b'a';
    pub(in super::super) const MAP: u8 = b'm';
    pub(in super::super) const NONE: u8 = b'n';
    pub(in super::super) const UNIT: u8 = b'u';
}

/// Appends a value as text, and returns the letter of its type. Numbers are decimal, bytes base64,
/// lists and maps JSON.
pub(super) fn put(value: &AnyValue<'_>, output: &mut Vec<u8>) -> u8 {
    match value {
        AnyValue::Empty | AnyValue::StringIndex(_) => letter::NONE,
        AnyValue::String(text) => {
            output.extend_from_slice(text.as_bytes());
            letter::STRING
        }
        AnyValue::Bool(value) => {
            output.extend_from_slice(if *value { b"true" } else { b"false" });
            letter::BOOL
        }
        AnyValue::Int(value) => {
            // Writing to memory does not fail.
            let _ = write!(output, "{value}");
            letter::INT
        }
        AnyValue::Double(value) => {
            put_double(*value, output);
            letter::DOUBLE
        }
        AnyValue::Bytes(bytes) => {
            output.extend_from_slice(STANDARD.encode(bytes).as_bytes());
            letter::BYTES
        }
        AnyValue::Array(_) => {
            put_json(value, output);
            letter::ARRAY
        }
        AnyValue::Map(_) => {
            put_json(value, output);
            letter::MAP
        }
    }
}

/// Appends the shortest digits that round-trip, always with a point or an exponent.
fn put_double(value: f64, output: &mut Vec<u8>) {
    let _ = match value {
        _ if value.is_nan() => write!(output, "NaN"),
        f64::INFINITY => write!(output, "Infinity"),
        f64::NEG_INFINITY => write!(output, "-Infinity"),
        _ => write!(output, "{value:?}"),
    };
}

/// Appends JSON. Values that JSON lacks become strings: bytes in base64, and non-finite numbers.
/// The validator limits the nesting of values.
pub(super) fn put_json(value: &AnyValue<'_>, output: &mut Vec<u8>) {
    match value {
        AnyValue::Empty | AnyValue::StringIndex(_) => output.extend_from_slice(b"null"),
        AnyValue::Double(number) if !number.is_finite() => {
            output.push(b'"');
            put_double(*number, output);
            output.push(b'"');
        }
        AnyValue::Bool(_) | AnyValue::Int(_) | AnyValue::Double(_) => {
            put(value, output);
        }
        AnyValue::String(text) => quote(text, output),
        AnyValue::Bytes(bytes) => quote(&STANDARD.encode(bytes), output),
        AnyValue::Array(values) => {
            output.push(b'[');
            for (at, value) in values.clone().enumerate() {
                if at > 0 {
                    output.push(b',');
                }
                put_json(&value, output);
            }
            output.push(b']');
        }
        AnyValue::Map(entries) => {
            output.push(b'{');
            for (at, entry) in entries.clone().enumerate() {
                if at > 0 {
                    output.push(b',');
                }
                quote(entry.key(), output);
                output.push(b':');
                put_json(&entry.value().unwrap_or(AnyValue::Empty), output);
            }
            output.push(b'}');
        }
    }
}

pub(super) fn quote(text: &str, output: &mut Vec<u8>) {
    // Writing to memory does not fail, and every text is representable in JSON.
    let _ = serde_json::to_writer(output, text);
}
