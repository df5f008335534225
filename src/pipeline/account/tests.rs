use std::cell::Cell;

use super::*;

/// Counts accepted and refused items.
#[derive(Default)]
struct Counts {
    accepted: Cell<usize>,
    refused: Cell<usize>,
}

impl Decided for &Counts {
    fn accepted(&self, items: usize) {
        self.accepted.set(self.accepted.get() + items);
    }

    fn refused(&self, items: usize) {
        self.refused.set(self.refused.get() + items);
    }
}

#[test]
fn pending_items_count_as_refused_unless_accepted() {
    let counts = Counts::default();
    drop(Pending::new(&counts, 3));
    Pending::new(&counts, 5).accepted();
    assert_eq!((counts.accepted.get(), counts.refused.get()), (5, 3));
}
