//! Translates received spans of other schemas to OTLP, with memory from the permit of the request.

use std::cell::{Cell, RefCell};
use std::time::SystemTime;

use tributary_memory::{NoRoom, Permit};
use tributary_otlp::room::{Room, RoomExhausted};
use tributary_span_formats::{SpanFormat, TranslateError, TranslateOptions, translate};

use crate::pipeline::batch::Nack;
use crate::serving::body::{ReceivedBytes, out_of_memory};

/// Replaces a body by the OTLP request with its spans.
///
/// # Errors
/// The spans are malformed, or the memory budget has no room for the request.
pub(super) fn translate_body(
    format: SpanFormat,
    parse_string_tags: bool,
    body: &mut ReceivedBytes,
) -> Result<(), Nack> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap_or_default().as_nanos();
    let options = TranslateOptions {
        parse_string_tags,
        now: u64::try_from(now).unwrap_or(u64::MAX),
    };
    let room = PermitRoom::new(&mut body.permit);
    let translated = translate(format, &options, &body.bytes, &room);
    let no_room = room.refusal();
    match translated {
        Ok(translated) => {
            let capacity = translated.request.capacity();
            body.bytes = translated.request.into();
            body.permit.shrink_to(capacity);
            Ok(())
        }
        Err(TranslateError::Malformed(error)) => {
            Err(Nack::invalid(format!("malformed spans: {error}")))
        }
        Err(TranslateError::RoomExhausted(_)) => Err(out_of_memory(no_room)),
    }
}

/// A room whose memory is added to a permit. The permit keeps what it has grown by.
struct PermitRoom<'p> {
    permit: RefCell<&'p mut Permit>,
    /// Bytes of the permit that were returned and may be taken again.
    free: Cell<usize>,
    refused: Cell<Option<NoRoom>>,
}

impl<'p> PermitRoom<'p> {
    fn new(permit: &'p mut Permit) -> Self {
        PermitRoom {
            permit: RefCell::new(permit),
            free: Cell::new(0),
            refused: Cell::new(None),
        }
    }

    /// Returns the reason of the last [`RoomExhausted`].
    fn refusal(&self) -> NoRoom {
        self.refused.get().unwrap_or(NoRoom {
            needed: 0,
            limit: usize::MAX,
        })
    }
}

impl Room for PermitRoom<'_> {
    fn take(&self, bytes: usize) -> Result<(), RoomExhausted> {
        let free = self.free.get();
        if bytes > free {
            // A budget shared by all threads is asked rarely.
            let needed = bytes - free;
            let mut permit = self.permit.borrow_mut();
            let before = permit.bytes();
            if permit.grow(needed.max(STEP)).is_err() {
                permit.grow(needed).map_err(|no_room| {
                    self.refused.set(Some(no_room));
                    RoomExhausted
                })?;
            }
            let grown = permit.bytes() - before;
            self.free.set(free + grown - bytes);
        } else {
            self.free.set(free - bytes);
        }
        Ok(())
    }

    fn release(&self, bytes: usize) {
        self.free.set(self.free.get().saturating_add(bytes));
    }
}

/// Minimum growth of the permit, in bytes.
const STEP: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_memory::Budget;

    #[test]
    fn last_bytes_of_the_budget_are_taken_in_smaller_steps() {
        let budget = Budget::new(STEP + 100);
        let mut permit = budget.empty_permit();
        let room = PermitRoom::new(&mut permit);
        room.take(STEP).unwrap();
        room.take(100).unwrap();
        assert_eq!(room.take(1), Err(RoomExhausted));
        room.release(100);
        room.take(100).unwrap();
        assert_eq!(permit.bytes(), STEP + 100);
    }

    #[test]
    fn returned_memory_is_taken_again_before_permit_grows() {
        let budget = Budget::new(3 * STEP);
        let mut permit = budget.empty_permit();
        let room = PermitRoom::new(&mut permit);
        for _ in 0..10 {
            room.take(2 * STEP).unwrap();
            room.release(2 * STEP);
        }
        assert_eq!(room.take(4 * STEP), Err(RoomExhausted));
        assert!(!room.refusal().may_fit_later());
        assert_eq!(permit.bytes(), 2 * STEP);
    }
}
