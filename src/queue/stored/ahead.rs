//! Read-ahead of a stored queue: the records in memory, bounded by the queue's share of the memory budget.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::Notify;

use tributary_memory::{Budget, Permit, StoredQueue};

/// Counts the bytes that were read ahead.
#[derive(Debug)]
pub(in crate::queue) struct Ahead {
    queue: StoredQueue,
    taken: AtomicUsize,
    released: Notify,
}

/// A share of a queue's read-ahead, released on drop.
#[derive(Debug)]
pub(in crate::queue) struct Credit {
    ahead: Arc<Ahead>,
    bytes: usize,
}

impl Ahead {
    pub(super) fn new(budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Ahead {
            queue: budget.stored_queue(),
            taken: AtomicUsize::new(0),
            released: Notify::new(),
        })
    }

    /// Returns the bytes of records that may be in memory now.
    pub(in crate::queue) fn allowance(&self) -> usize {
        self.queue.allowance()
    }

    /// Takes credit for `bytes`. A queue without records in memory always gets credit, so that it can send a large
    /// record.
    pub(in crate::queue) fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Credit> {
        // An empty record also takes memory.
        let bytes = bytes.max(1);
        let allowance = self.allowance();
        let fits = |taken: usize| taken == 0 || taken.saturating_add(bytes) <= allowance;
        self.taken
            .fetch_update(Relaxed, Relaxed, |taken| {
                fits(taken).then(|| taken.saturating_add(bytes))
            })
            .ok()?;
        Some(Credit {
            ahead: self.clone(),
            bytes,
        })
    }

    /// Completes when credit is released after this call.
    pub(in crate::queue) fn released(&self) -> tokio::sync::futures::Notified<'_> {
        self.released.notified()
    }

    pub(in crate::queue) fn memory(&self, bytes: usize) -> Permit {
        self.queue.read_ahead(bytes)
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.ahead.taken.fetch_sub(self.bytes, Relaxed);
        self.ahead.released.notify_waiters();
    }
}
