//! Room for profiles to be decoded in, which takes many times their bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::pipeline::batch::{Code, Nack};
use crate::pipeline::output_memory;
use crate::pipeline::output_memory::OutputMemory;
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_otlp::Signal;
use tributary_otlp::edit::Unedited;
use tributary_profiles::decoded_bytes;

/// When to come back while there is no room.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The right to decode these requests of profiles, all at once. What cannot do without it refuses them, see [`refusal`];
/// what can leaves them as they are.
///
/// # Errors
/// When the budget has no room for what they become.
pub(super) fn room(requests: &[Bytes], budget: &Arc<Budget>) -> Result<Permit, NoRoom> {
    let needed = requests.iter().map(|request| decoded_bytes(request));
    budget.acquire(needed.fold(0, usize::saturating_add))
}

/// The refusal of profiles that there is no room to decode: for now, or for good when there never will be.
pub(super) fn refusal(no_room: NoRoom) -> Nack {
    if no_room.may_fit_later() {
        return Nack::exhausted(
            "the memory budget of this collector has no room to decode the profiles; try again later",
            RETRY_AFTER,
        );
    }
    let reason = format!(
        "the profiles cannot be decoded: {no_room}; send smaller requests or raise the limit of `memory_limiter`"
    );
    Nack::permanent(Code::ResourceExhausted, reason)
}

/// The refusal of a request that was not edited with the memory of `output`.
pub(super) fn unedited(signal: Signal, error: Unedited, output: &OutputMemory) -> Nack {
    match error {
        Unedited::Malformed(error) => Nack::invalid(format!("malformed {signal} request: {error}")),
        Unedited::Full(_) => output_memory::refusal(output.no_room()),
    }
}
