//! The indices of dictionary entries in a request.

use super::super::id::Id;

/// New indices of a table's entries: 0 for the zero value and for an entry without a new index.
#[derive(Debug)]
pub(super) struct Numbers {
    numbers: Vec<u32>,
    /// Entries with a new index.
    assigned: Vec<usize>,
    next: u32,
}

impl Numbers {
    pub(super) fn new(entries: usize) -> Self {
        Numbers {
            numbers: vec![0; entries],
            assigned: Vec::new(),
            next: 1,
        }
    }

    pub(super) fn reset(&mut self) {
        for at in self.assigned.drain(..) {
            if let Some(place) = self.numbers.get_mut(at) {
                *place = 0;
            }
        }
        self.next = 1;
    }

    pub(super) fn get(&self, id: impl Id) -> Option<u64> {
        match self.numbers.get(id.index()) {
            // An index of another dictionary has no entry here.
            None => Some(0),
            Some(0) if id.index() == 0 => Some(0),
            Some(0) => None,
            Some(number) => Some(u64::from(*number)),
        }
    }

    pub(super) fn assign(&mut self, id: impl Id) -> u64 {
        let number = self.next;
        if let Some(place) = self.numbers.get_mut(id.index()) {
            *place = number;
            self.assigned.push(id.index());
            self.next += 1;
        }
        u64::from(number)
    }
}
