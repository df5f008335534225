//! Operations on encoded OTLP requests, without decoding them.
//!
//! - Validating received requests: [`validate`] and [`merge_repeated`], by tables made from OTLP's own
//!   [`descriptor`]s.
//! - Reading: [`view`] for the meaning of messages, [`reader`] for the encoding.
//! - Editing: [`attributes`] and the underlying [`edit`]or; [`sieve`] removes items; [`stamp`] adds the sender's identity;
//!   [`strings`] rewrites strings.
//! - Splitting: [`split`] by size, [`mod@partition`] by destination. Merging needs no operation: concatenated requests are
//!   a request.
//! - OTLP/JSON: [`json`].
//! - Memory: [`decoded_bytes`] bounds the size of decoded structs, [`room`] bounds the memory of an operation.
//!
//! A request that encoded operations do not fully support, such as a request with a duplicate singular message, is
//! decoded into prost's structs and encoded again. All other operations keep unknown fields.
//!
//! # Example
//!
//! ```
//! use prost::Message as _;
//! use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
//! use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
//! use tributary_otlp::{Limit, Signal, count, split, validate};
//!
//! let logs = ScopeLogs { log_records: vec![LogRecord::default(); 5], ..ScopeLogs::default() };
//! let resource = ResourceLogs { scope_logs: vec![logs], ..ResourceLogs::default() };
//! let request = ExportLogsServiceRequest { resource_logs: vec![resource] }.encode_to_vec();
//!
//! assert_eq!(validate(Signal::Logs, &request)?, 5);
//! let limit = Limit { items: 2, bytes: usize::MAX };
//! let parts = split(Signal::Logs, &request.into(), limit);
//! assert_eq!(parts.iter().map(|(items, _)| *items).collect::<Vec<_>>(), [2, 2, 1]);
//! // Requests behind each other are one request.
//! let joined: Vec<u8> = parts.iter().flat_map(|(_, part)| part.to_vec()).collect();
//! assert_eq!(count(Signal::Logs, &joined), 5);
//! # Ok::<(), tributary_otlp::Malformed>(())
//! ```

pub mod attributes;
mod count;
mod decoded;
pub mod descriptor;
pub mod edit;
pub mod json;
mod nack;
pub mod partition;
pub mod reader;
pub mod regroup;
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
pub use self::decoded::{Decoded, decoded_bytes, decoded_metric_bytes};
pub use self::nack::Nack;
pub use self::requests::Requests;
pub use self::signal::Signal;
pub use self::split::split;
pub use self::validate::DEPTH_LIMIT;

/// The reason why bytes are not a valid request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}, at byte {offset}{}", within(path))]
pub struct Malformed {
    /// Offset of the error from the start of the request, in bytes.
    pub offset: usize,
    /// Path of the field, as in `resource_spans.scope_spans.spans.name`; empty if unknown.
    pub path: String,
    /// Description of the error.
    pub reason: &'static str,
}

impl Malformed {
    /// Creates an error without a field path.
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

/// Validates that `request` is an `Export*ServiceRequest` of `signal`, as deeply as prost's decoder, and returns the
/// number of its items.
///
/// Accepts the same requests as prost, with one exception: groups in unknown fields are refused. OTLP has no
/// groups.
pub fn validate(signal: Signal, request: &[u8]) -> Result<usize, Malformed> {
    validate::check(signal, request).map(|checked| checked.items)
}

/// Facts about a valid request, returned by [`check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checked {
    /// Number of spans, data points, log records or samples.
    pub items: usize,
    /// Whether a singular message occurs repeatedly in its parent, so that readers would have to merge the
    /// occurrences: see [`merge_repeated`].
    pub repeats_single: bool,
}

/// Like [`validate`]. Also detects whether the request must pass [`merge_repeated`] before other operations.
pub fn check(signal: Signal, request: &[u8]) -> Result<Checked, Malformed> {
    validate::check(signal, request)
}

/// Merges repeated occurrences of singular messages, by decoding and encoding. Unknown fields and the sign of
/// a negative zero are lost.
pub fn merge_repeated(signal: Signal, request: &[u8]) -> Result<Bytes, Malformed> {
    Decoded::decode(signal, request)
        .map(|decoded| decoded.encode())
        .map_err(|_| Malformed::new(0, "messages that cannot be merged"))
}

/// Maximum size of a part of a split request; `usize::MAX` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Spans, data points, log records.
    pub items: usize,
    /// Encoded bytes.
    pub bytes: usize,
}
