//! How much names may add to a batch.

use tributary_memory::Permit;

/// The fewest bytes that may be added to a batch, and how often what it has.
///
/// A location of a few bytes may be in thirty functions, each of which was inlined into the next. Real requests become
/// up to three times as long, where every location is new.
const FEWEST: usize = 8 << 20;
const TIMES: usize = 8;

/// So many bytes more are asked for at once.
const STEP: usize = 256 << 10;

/// Bytes that may be added: so many for so much data, as far as the memory budget has them.
pub(super) struct Room {
    /// For what is added.
    permit: Permit,
    most: usize,
    /// What was added to the requests before this one.
    before: usize,
}

impl Room {
    /// For a batch of so many bytes; `permit` is for none yet.
    pub(super) fn new(permit: Permit, bytes: usize) -> Self {
        Room {
            permit,
            most: bytes.saturating_mul(TIMES).max(FEWEST),
            before: 0,
        }
    }

    /// Whether there is room for so many more bytes of this request.
    pub(super) fn has(&mut self, added: usize) -> bool {
        let added = self.before.saturating_add(added);
        // Until the request is written they are there twice.
        let missing = added.saturating_mul(2).checked_sub(self.permit.bytes());
        let missing = missing.filter(|missing| *missing > 0);
        let granted = |missing: usize| {
            let permit = &mut self.permit;
            permit.grow(missing.max(STEP)).is_ok() || permit.grow(missing).is_ok()
        };
        added <= self.most && missing.is_none_or(granted)
    }

    /// A request was named: the next one comes.
    pub(super) fn next(&mut self, added: usize) {
        self.before = self.before.saturating_add(added);
    }

    /// The permit for all that was added.
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
    fn there_is_room_up_to_a_bound_and_as_far_as_the_budget_goes() {
        let budget = Budget::new(1 << 30);
        let mut room = Room::new(budget.nothing(), 2 << 20);
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
        let mut room = Room::new(budget.nothing(), 1);
        assert!(room.has(500) && !room.has(501));
        assert_eq!(budget.used(), 1000);
    }
}
