//! Requests that wait to become a batch.

use std::collections::VecDeque;

use crate::batch::{Batch, Signal};
use crate::wire::{self, Limit};

/// When requests are enough, and how much a batch may have at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Enough to be sent: whichever is reached first.
    pub(super) enough: Limit,
    /// The most one batch may have.
    pub(super) most: Limit,
}

/// Requests of one partition, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    requests: VecDeque<Batch>,
    items: usize,
    bytes: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    pub(super) fn push(&mut self, batch: Batch) {
        self.items += batch.items();
        self.bytes += batch.bytes();
        self.requests.push_back(batch);
    }

    /// Whether what waits is enough for a batch.
    pub(super) fn is_enough(&self, sizes: &Sizes) -> bool {
        self.items >= sizes.enough.items || self.bytes >= sizes.enough.bytes
    }

    /// The next batch within the limits: as many whole requests as fit, or a piece of one that is too large alone.
    pub(super) fn take(&mut self, sizes: &Sizes) -> Option<Batch> {
        let mut batch = self.pop(&sizes.most)?;
        while let Some(next) = self.requests.front() {
            let items = batch.items() + next.items();
            let bytes = batch.bytes() + next.bytes();
            if items > sizes.most.items || bytes > sizes.most.bytes {
                break;
            }
            match self.pop(&sizes.most) {
                Some(next) => batch.append(next),
                None => break,
            }
        }
        Some(batch)
    }

    fn pop(&mut self, most: &Limit) -> Option<Batch> {
        let mut request = self.requests.pop_front()?;
        self.items -= request.items();
        self.bytes -= request.bytes();
        let fits = request.items() <= most.items && request.bytes() <= most.bytes;
        // Profiles were cut before they came in, which is work that must not be done under the lock.
        if fits || request.signal() == Signal::Profiles {
            return Some(request);
        }
        let whole = request.wire().to_bytes();
        let mut pieces = wire::split(request.signal(), &whole, *most).into_iter();
        let (items, bytes) = pieces.next()?;
        let first = request.clone().with_wire(items, bytes);
        // The rest goes back to the front, in order.
        for (items, bytes) in pieces.rev() {
            let piece = request.clone().with_wire(items, bytes);
            self.items += piece.items();
            self.bytes += piece.bytes();
            self.requests.push_front(piece);
        }
        Some(first)
    }
}
