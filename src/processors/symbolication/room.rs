//! Limit on the bytes that symbols add to a batch.

use tributary_memory::Permit;

/// Minimum limit in bytes, and limit as a multiple of the batch size.
///
/// A location of a few bytes may have thirty functions, each inlined into the next. Real requests
/// grow up to three times if every location is new.
const MIN_BYTES: usize = 8 << 20;
const GROWTH_FACTOR: usize = 8;

/// Bytes reserved at once.
const RESERVATION_STEP: usize = 256 << 10;

/// Bytes that may be added, limited by the size of the batch and by the memory budget.
pub(super) struct Room {
    /// Permit for the added bytes.
    permit: Permit,
    most: usize,
    /// Bytes added to previous requests of the batch.
    before: usize,
}

impl Room {
    /// Creates the limit for a batch of this size in bytes; `permit` must be empty.
    pub(super) fn new(permit: Permit, bytes: usize) -> Self {
        Room {
            permit,
            most: bytes.saturating_mul(GROWTH_FACTOR).max(MIN_BYTES),
            before: 0,
        }
    }

    /// Whether `added` bytes may be added to the current request.
    pub(super) fn has(&mut self, added: usize) -> bool {
        let added = self.before.saturating_add(added);
        // The added bytes exist twice until the request is written.
        let missing = added.saturating_mul(2).checked_sub(self.permit.bytes());
        let missing = missing.filter(|missing| *missing > 0);
        let granted = |missing: usize| {
            let permit = &mut self.permit;
            permit.grow(missing.max(RESERVATION_STEP)).is_ok() || permit.grow(missing).is_ok()
        };
        added <= self.most && missing.is_none_or(granted)
    }

    /// Records the bytes added to a finished request.
    pub(super) fn next(&mut self, added: usize) {
        self.before = self.before.saturating_add(added);
    }

    /// Returns the permit for all added bytes.
    pub(super) fn into_permit(mut self) -> Permit {
        self.permit.shrink_to(self.before);
        self.permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_memory::Budget;

    #[test]
    fn room_ends_at_limit_or_budget() {
        let budget = Budget::new(1 << 30);
        let mut room = Room::new(budget.empty_permit(), 2 << 20);
        assert!(room.has(16 << 20) && !room.has((16 << 20) + 1));
        room.next(16 << 20);
        assert!(
            room.has(0) && !room.has(1),
            "it is for all requests of a batch"
        );
        assert_eq!(budget.used(), 32 << 20);
        let permit = room.into_permit();
        assert_eq!(budget.used(), 16 << 20);
        drop(permit);
        let budget = Budget::new(1000);
        let mut room = Room::new(budget.empty_permit(), 1);
        assert!(room.has(500) && !room.has(501));
        assert_eq!(budget.used(), 1000);
    }
}
