//! Flushed data that waits for the next stage.

use std::collections::VecDeque;

use crate::pipeline::batch::Batch;

/// Number of waiting flushed batches from which clients are refused.
pub(crate) const MAX_READY: usize = 8;

/// Limit or count of concurrent deliveries. A single delivery may exceed the limit in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deliveries {
    pub(crate) count: usize,
    pub(crate) bytes: usize,
}

/// A type with a memory size.
pub(crate) trait Buffered {
    /// Returns the approximate memory size in bytes.
    fn bytes(&self) -> usize;

    /// Whether the senders still have the data and can wait. The next stage may then buffer the
    /// data for a long time, so the delivery must not block other deliveries.
    fn can_wait(&self) -> bool {
        false
    }
}

impl Buffered for Batch {
    fn bytes(&self) -> usize {
        Batch::bytes(self)
    }
}

/// Flushed data that waits for the next stage. After a push, call [`Buffer::wake`] to wake the flusher.
pub(crate) struct Queue<R> {
    waiting: VecDeque<R>,
    bytes: usize,
}

impl<R> Default for Queue<R> {
    fn default() -> Self {
        Queue {
            waiting: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<R: Buffered> Queue<R> {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the number or the bytes of the waiting batches have reached their limit.
    pub(crate) fn is_full(&self, max_bytes: usize) -> bool {
        self.waiting.len() >= MAX_READY || self.bytes >= max_bytes
    }

    pub(crate) fn push(&mut self, ready: R) {
        self.bytes += ready.bytes();
        self.waiting.push_back(ready);
    }

    /// Takes the next batch, if the limit of concurrent deliveries allows it.
    pub(super) fn pop(&mut self, max: Deliveries, in_flight: Deliveries) -> Option<R> {
        let front = self.waiting.front()?;
        let next = front.bytes();
        let fits = in_flight.bytes == 0 || in_flight.bytes.saturating_add(next) <= max.bytes;
        let has_slot = in_flight.count < max.count || front.can_wait() && max.count > 1;
        if !has_slot || !fits {
            return None;
        }
        self.bytes = self.bytes.saturating_sub(next);
        self.waiting.pop_front()
    }
}
