//! Everything that is done to OTLP bytes without decoding them.
//!
//! - Where a request enters: [`validate`] and [`admit`], by tables made from OTLP's own [`descriptor`]s.
//! - Reading: [`view`] for what a message means, [`reader`] for the encoding itself.
//! - Changing: [`attributes`], and the [`edit`]or under it.
//! - Cutting: [`split`]. (Batching needs nothing: requests one after the other are a request.)
//! - OTLP/JSON: [`json`].
//!
//! The rule for all of it: what the wire path does not fully understand, such as a message that occurs twice where it
//! should occur once, takes the way through prost's structs. Unknown fields stay where the wire path is taken.

pub mod attributes;
mod count;
pub mod descriptor;
pub mod edit;
pub mod json;
pub mod reader;
mod schema;
mod split;
mod validate;
pub mod view;

use bytes::Bytes;

pub use self::count::count;
pub use self::split::split;
pub use self::validate::DEPTH_LIMIT;
use crate::batch::{Decoded, Signal};

/// Why bytes are not a valid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, at byte {offset}{}", within(path))]
pub struct Malformed {
    /// Where, from the start of the request.
    pub offset: usize,
    /// The field, as in `resource_spans.scope_spans.spans.name`; empty when it is not known.
    pub path: String,
    /// What is wrong.
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
/// What prost accepts is accepted and what prost refuses is refused, with one exception: groups in unknown fields
/// (which OTLP never had) are refused.
pub fn validate(signal: Signal, request: &[u8]) -> Result<usize, Malformed> {
    validate::check(signal, request).map(|checked| checked.items)
}

/// What [`validate`] does, for the request as it enters: returns its items, and the bytes to go on with.
///
/// Those are the same bytes, but for one rarity: when a message that should occur once occurs again in its parent,
/// readers have to merge the two. That is done here, by decoding and encoding, so that nobody after has to. (Unknown
/// fields of such a request are lost.)
pub fn admit(signal: Signal, request: Bytes) -> Result<(usize, Bytes), Malformed> {
    let checked = validate::check(signal, &request)?;
    if !checked.repeats_single {
        return Ok((checked.items, request));
    }
    let merged = Decoded::decode(signal, &request)
        .map_err(|_| Malformed::new(0, "messages that cannot be merged"))?
        .encode();
    Ok((checked.items, merged))
}

/// The most a piece of a split request may have; `usize::MAX` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Spans, data points, log records.
    pub items: usize,
    /// Encoded bytes.
    pub bytes: usize,
}
