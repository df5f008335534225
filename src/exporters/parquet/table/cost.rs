//! Memory that the rows of a request take.

use tributary_otlp::room::RoomExhausted;
use tributary_otlp::{Malformed, Signal};

/// Reason why a request has no rows. A retry would fail in the same way.
#[derive(Debug, thiserror::Error)]
pub enum RowError {
    /// The request is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The rows would be too large.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    /// The memory for reading the request is not free now.
    #[error(transparent)]
    RoomExhausted(#[from] RoomExhausted),
}

/// Returns the largest memory in bytes that a row may take in its table, from the length of its
/// item and the number of the item's fields.
pub(super) fn row_memory(length: usize, fields: usize) -> usize {
    /// Fixed-size columns of a row. Columns double, so half of their capacity may be unused.
    const ROW: usize = 400;
    /// An event, a link or a new attribute.
    const FIELD: usize = 64;
    ROW + length.saturating_mul(MEMORY_PER_BYTE) + fields.saturating_mul(FIELD)
}

/// Bytes of memory for each byte of texts and nested values: a value may become JSON, which is
/// longer, and columns of bytes double.
pub(super) const MEMORY_PER_BYTE: usize = 6;

/// Returns an upper estimate of the memory of a request's rows in tables. Requests whose rows take
/// more are possible; their rows are admitted in several steps.
pub fn rows_memory(signal: Signal, items: usize, length: usize) -> usize {
    let per_byte = match signal {
        // A location of 20 bytes is a frame, which has a number in many tables.
        Signal::Profiles => 7 * MEMORY_PER_BYTE,
        _ => 2 * MEMORY_PER_BYTE,
    };
    let of_items = items.saturating_mul(row_memory(0, 0));
    of_items.saturating_add(length.saturating_mul(per_byte))
}

/// The rows of a request would have too much shared data. The request was not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "its rows would repeat {found} {what} of resources, scopes and stacks, more than the {most} allowed for a \
     request of this size: send smaller requests of fewer hours, shorter stacks, or fewer resource attributes"
)]
pub struct TooMuch {
    pub(super) what: &'static str,
    pub(super) found: u64,
    pub(super) most: u64,
}
