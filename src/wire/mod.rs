//! Everything that is done to OTLP bytes without decoding them.

pub mod attributes;
mod count;
pub mod descriptor;
pub mod edit;
pub mod json;
pub mod reader;
mod schema;
mod split;
mod validate;

pub use self::count::count;
pub use self::split::split;
pub use self::validate::DEPTH_LIMIT;
use crate::batch::Signal;

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

/// The most a piece of a split request may have; `usize::MAX` where there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Spans, data points, log records.
    pub items: usize,
    /// Encoded bytes.
    pub bytes: usize,
}
