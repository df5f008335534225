//! Memory of the outputs of a component.
//!
//! All components that decode, edit, split, transcode, render or compress follow one rule: they reserve the bytes of
//! the output in the memory budget before they allocate them. [`OutputMemory`] implements [`Room`] for the functions
//! of [`tributary_otlp`], which reserve while they run. [`OutputMemory::take`] reserves a size known in advance, such as
//! [`decoded_bytes`](tributary_otlp::decoded_bytes). If the budget has no room, a processor refuses the request
//! (see [`refusal`]), and an exporter retries or splits it (see
//! [`SendError::no_memory`](crate::queue::SendError::no_memory)).

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use crate::pipeline::batch::{Code, Nack};
use tributary_memory::{Budget, NoRoom, Permit};
use tributary_otlp::room::{Room, RoomExhausted};

/// Retry delay of a refused sender.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Minimum size of a reservation in bytes, so that a small output needs one reservation.
const STEP: usize = 16 << 10;

/// Memory of an output while a stage produces it, and the permit for that memory.
#[derive(Debug)]
pub struct OutputMemory {
    permit: RefCell<Permit>,
    used: Cell<usize>,
    refused: Cell<Option<NoRoom>>,
}

impl OutputMemory {
    /// Creates an empty reservation in the budget.
    pub fn new(budget: &Arc<Budget>) -> Self {
        OutputMemory {
            permit: RefCell::new(budget.output_permit()),
            used: Cell::new(0),
            refused: Cell::new(None),
        }
    }

    /// Reserves `bytes` more.
    ///
    /// # Errors
    /// The budget has no room.
    pub fn take(&self, bytes: usize) -> Result<(), NoRoom> {
        let used = self.used.get().saturating_add(bytes);
        let mut permit = self.permit.borrow_mut();
        let lacking = used.saturating_sub(permit.bytes());
        if lacking > 0 && permit.grow(lacking.max(STEP)).is_err() {
            permit
                .grow(lacking)
                .inspect_err(|no_room| self.refused.set(Some(*no_room)))?;
        }
        self.used.set(used);
        Ok(())
    }

    /// Whether the budget had no room for a reservation.
    pub fn is_refused(&self) -> bool {
        self.refused.get().is_some()
    }

    /// Returns the reason of the last [`RoomExhausted`].
    pub fn no_room(&self) -> NoRoom {
        self.refused.get().unwrap_or(NoRoom {
            needed: self.used.get(),
            limit: self.used.get(),
        })
    }

    /// Returns the bytes beyond the limit that all outputs together may use.
    pub fn output_reserve(&self) -> usize {
        self.permit.borrow().output_reserve()
    }

    /// Returns the permit for the given number of bytes, and releases the remaining memory.
    pub fn keep(self, bytes: usize) -> Permit {
        let mut permit = self.permit.into_inner();
        permit.shrink_to(bytes);
        permit
    }
}

impl Room for OutputMemory {
    fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
        OutputMemory::take(self, bytes).map_err(|_| RoomExhausted)
    }

    fn release(&self, bytes: usize) {
        let used = self.used.get().saturating_sub(bytes);
        self.used.set(used);
        let mut permit = self.permit.borrow_mut();
        if permit.bytes() > used.saturating_add(STEP) {
            permit.shrink_to(used);
        }
    }
}

/// Returns the refusal of a batch for which the budget has no memory: retryable, unless the batch needs more than the
/// whole budget.
pub fn refusal(no_room: NoRoom) -> Nack {
    if no_room.may_fit_later() {
        return Nack::exhausted(
            "the memory budget of this collector is used up; retry the request later",
            RETRY_AFTER,
        );
    }
    let reason = format!(
        "cannot process the request: {no_room}; send smaller requests, or raise the limit of `memory_limiter`"
    );
    Nack::permanent(Code::ResourceExhausted, reason)
}
