//! Memory for decoding profiles, which takes many times their encoded size.

use std::sync::Arc;

use bytes::Bytes;

use crate::pipeline::batch::Nack;
use crate::pipeline::output_memory;
use crate::pipeline::output_memory::OutputMemory;
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_otlp::Signal;
use tributary_otlp::edit::EditError;
use tributary_profiles::decoded_bytes;

/// Reserves the memory for decoding these profiles requests, all at once. Without memory, a processor refuses the
/// requests (see [`output_memory::refusal`]) or forwards them unchanged.
///
/// # Errors
///
/// The budget has no room for the decoded requests.
pub(super) fn room(requests: &[Bytes], budget: &Arc<Budget>) -> Result<Permit, NoRoom> {
    let needed = requests.iter().map(|request| decoded_bytes(request));
    budget.acquire(needed.fold(0, usize::saturating_add))
}

/// Returns the refusal of a request that could not be edited with the memory of `output`.
pub(super) fn unedited(signal: Signal, error: EditError, output: &OutputMemory) -> Nack {
    match error {
        EditError::Malformed(error) => {
            Nack::invalid(format!("malformed {signal} request: {error}"))
        }
        EditError::RoomExhausted(_) => output_memory::refusal(output.no_room()),
    }
}
