//! Everything that is done to OTLP bytes without decoding them.
//!
//! - Where a request enters: [`validate`] and [`merge_repeated`], by tables made from OTLP's own [`descriptor`]s.
//! - Reading: [`view`] for what a message means, [`reader`] for the encoding itself.
//! - Changing: [`attributes`], and the [`edit`]or under it; [`sieve`] for taking things out; [`stamp`] for who sent a
//!   request; [`strings`] for every string there is.
//! - Cutting: [`split`] by size, [`mod@partition`] by destination. (Batching needs nothing: requests one after the other are a request.)
//! - OTLP/JSON: [`json`].
//! - Memory: [`decoded_bytes`] for what structs would take, [`room`] for what grows while a request is worked on.
//!
//! The rule for all of it: what the wire path does not fully understand, such as a message that occurs twice where it
//! should occur once, takes the way through prost's structs. Unknown fields stay where the wire path is taken.

pub mod attributes;
mod count;
mod decoded;
pub mod descriptor;
pub mod edit;
pub mod json;
mod nack;
pub mod partition;
pub mod reader;
mod requests;
pub mod room;
mod schema;
pub mod sieve;
mod signal;
mod split;
pub mod stamp;
pub mod strings;
mod validate;
pub mod view;

use bytes::Bytes;

pub use self::count::count;
pub use self::decoded::{Decoded, decoded_bytes};
pub use self::nack::Nack;
pub use self::requests::Requests;
pub use self::signal::Signal;
pub use self::split::split;
pub use self::validate::DEPTH_LIMIT;

/// Why bytes are not a valid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, at byte {offset}{}", within(path))]
pub struct Malformed {
    /// Offset of the error from the start of the request, in bytes.
    pub offset: usize,
    /// The field, as in `resource_spans.scope_spans.spans.name`; empty when it is not known.
    pub path: String,
    /// Description of the error.
    pub reason: &'static str,
}

impl Malformed {
    /// An error in a field that cannot be named.
    pub fn new(offset: usize, reason: &'static str) -> Self {
        Malformed {
            offset,
            path: String::new(),
            reason,
        }
    }
}

fn within(path: &str) -> String {
    match path {
        "" => String::new(),
        path => format!(" in {path}"),
    }
}

/// Checks that `request` is a valid `Export*ServiceRequest` of `signal`, exactly as deep as prost's decode would, and
/// counts its items in the same walk.
///
/// Accepts the same requests as prost, with one exception: groups in unknown fields are refused. OTLP never had
/// groups.
pub fn validate(signal: Signal, request: &[u8]) -> Result<usize, Malformed> {
    validate::check(signal, request).map(|checked| checked.items)
}

/// Facts about a valid request, returned by [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Spans, data points, log records or samples.
    pub items: usize,
    /// Whether a message that should occur once in its parent occurs again, so that readers would have to merge the
    /// two: see [`merge_repeated`].
    pub repeats_single: bool,
}

/// Validates like [`validate`], and finds out whether the request must go through [`merge_repeated`] before other
/// readers see the request.
pub fn check(signal: Signal, request: &[u8]) -> Result<Checked, Malformed> {
    validate::check(signal, request)
}

/// Merges messages that occur repeatedly where they should occur once, by decoding and encoding, so that nobody after
/// has to. Unknown fields are lost, and so is the sign of a negative zero.
pub fn merge_repeated(signal: Signal, request: &[u8]) -> Result<Bytes, Malformed> {
    Decoded::decode(signal, request)
        .map(|decoded| decoded.encode())
        .map_err(|_| Malformed::new(0, "messages that cannot be merged"))
}

/// The most a piece of a split request may have; `usize::MAX` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Spans, data points, log records.
    pub items: usize,
    /// Encoded bytes.
    pub bytes: usize,
}
