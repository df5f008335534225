//! Transcodes OTLP/JSON to encoded requests and back, for all four signals, by OTLP's own descriptors.
//!
//! The rules are those of the OTLP specification ("JSON Protobuf Encoding") over the ProtoJSON mapping: ids in hex,
//! other bytes in base64, enums as integers, 64-bit integers as decimal strings (numbers are read too), `NaN` and
//! `Infinity` as strings, `null` for absent, unknown names ignored at any depth.
//!
//! If the specification and the mapping leave a choice, this module decides:
//!
//! - `snake_case` names are read too, as ProtoJSON demands of parsers. OTLP calls these names invalid, but ignoring
//!   them would silently lose data.
//! - A duplicate key, in either spelling, is an error, and so are two members of one `oneof`: keeping only one value
//!   would silently lose the other.
//! - `null` inside a list is an error, as in ProtoJSON.
//! - An enum name is an error that states the number to write.
//! - A lone surrogate (`"\ud83d"`) becomes U+FFFD. SDKs that truncate strings at a number of UTF-16 units produce lone
//!   surrogates, which must not cost the whole request. Bytes that are not UTF-8 are an error.
//! - Ids of any length are accepted, because acceptance must not depend on the encoding, and protobuf accepts them.
//! - A byte order mark at the start is skipped, and an unescaped control character inside a string is accepted.
//!
//! Errors never repeat text from the request, because request content must not get into logs.

mod decode;
mod encode;
mod scalar;
#[cfg(test)]
mod tests;
mod value;
mod wire;
mod writer;

use std::fmt;
use std::sync::LazyLock;

use super::Malformed;
use super::descriptor::{Descriptors, FieldDescriptor};
use super::edit::EditError;
use super::room::{Room, Unbounded};
use crate::Signal;

/// The reason why a text is not valid OTLP/JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// Path of the invalid value, such as `resourceSpans[0].scopeSpans[1].spans[7].traceId`; empty for the
    /// request itself.
    pub path: String,
    /// Description of the error and of the expected value, with line and column (both from 1, the column in bytes).
    pub reason: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.path, self.reason)
        }
    }
}

impl std::error::Error for JsonError {}

/// Transcodes an OTLP/JSON request to an encoded one, in one pass. The output is always valid.
///
/// # Errors
/// Fails at the first violation; the module documentation has the rules.
pub fn to_wire(signal: Signal, json: &[u8]) -> Result<Vec<u8>, JsonError> {
    let request = to_wire_within(signal, json, usize::MAX)?;
    Ok(request.unwrap_or_default())
}

/// Like [`to_wire`], but returns `None` if the encoded request exceeds about `limit` bytes. An encoded
/// request is smaller than its JSON, except for lists of short numbers: `0,` can take eight bytes.
///
/// # Errors
/// Fails like [`to_wire`].
pub fn to_wire_within(
    signal: Signal,
    json: &[u8],
    limit: usize,
) -> Result<Option<Vec<u8>>, JsonError> {
    decode::to_wire(&DESCRIPTORS, signal, json, limit)
}

/// Transcodes a valid encoded request to OTLP/JSON. Unknown fields are dropped: JSON has no place for them.
///
/// # Errors
/// Fails if the request is invalid.
pub fn from_wire(signal: Signal, request: &[u8]) -> Result<Vec<u8>, Malformed> {
    match from_wire_within(signal, request, &Unbounded) {
        Err(EditError::RoomExhausted(_)) => Err(Malformed::new(0, "the text is too large")),
        Err(EditError::Malformed(error)) => Err(error),
        Ok(json) => Ok(json),
    }
}

/// Like [`from_wire`], with memory from `room`. The text may be many times larger than the request.
///
/// # Errors
/// Fails if the request is invalid, or if `room` is exhausted.
pub fn from_wire_within(
    signal: Signal,
    request: &[u8],
    room: &dyn Room,
) -> Result<Vec<u8>, EditError> {
    encode::from_wire(&DESCRIPTORS, signal, request, room)
}

static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(Descriptors::load);

/// Maximum depth of nested messages below the request, equal to prost's limit.
const MAX_DEPTH: usize = 100;

/// Whether a bytes field is written in hex: trace ids, span ids, and by the same rule profile ids.
fn is_id(field: &FieldDescriptor) -> bool {
    matches!(
        field.name.as_str(),
        "trace_id" | "span_id" | "parent_span_id" | "profile_id"
    )
}
