//! How much unfinished files may hold: rows, and the requests that they came in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Notify;

use crate::memory::{Budget, Permit};

/// The memory of all unfinished files of an exporter.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    budget: Arc<Budget>,
    used: AtomicUsize,
    freed: Notify,
}

/// A part of it; given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
    /// What of it the process's budget does not know of otherwise.
    permit: Option<Permit>,
}

impl Memory {
    /// At most `most` bytes, and half of the budget.
    pub(super) fn new(most: usize, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Memory {
            most,
            budget: budget.clone(),
            used: AtomicUsize::new(0),
            freed: Notify::new(),
        })
    }

    /// Room for a request that takes `held` bytes while it waits, and for rows of `rows` bytes; `None` when there is
    /// none. One request always has room: it could never be written otherwise.
    pub(super) fn reserve(self: &Arc<Self>, held: usize, rows: usize) -> Option<Charge> {
        let needed = held.saturating_add(rows);
        let limit = self.most.min(self.budget.limit() / 2);
        let fits = |used: usize| {
            let fits = used.saturating_add(needed) <= limit && self.budget.has_room(rows).is_ok();
            (used == 0 || fits).then(|| used.saturating_add(needed))
        };
        self.used.fetch_update(Relaxed, Relaxed, fits).ok()?;
        let mut charge = self.charge(None);
        charge.bytes = needed;
        Some(charge)
    }

    /// Requests that the queue or the client's connection holds, and counts in the process's budget.
    pub(super) fn requests(self: &Arc<Self>) -> Charge {
        self.charge(None)
    }

    /// Rows.
    pub(super) fn rows(self: &Arc<Self>) -> Charge {
        self.charge(Some(self.budget.nothing()))
    }

    /// Returns when something was given back after the call.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.freed.notified()
    }

    fn charge(self: &Arc<Self>, permit: Option<Permit>) -> Charge {
        Charge {
            memory: self.clone(),
            bytes: 0,
            permit,
        }
    }
}

impl Charge {
    /// Another one of the same kind, for nothing yet.
    #[cfg(feature = "object-store")]
    pub(super) fn another(&self) -> Self {
        match self.permit {
            Some(_) => self.memory.rows(),
            None => self.memory.requests(),
        }
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it so much. The rows are there already, so they are counted here even where the process's budget has no
    /// room.
    pub(super) fn set(&mut self, bytes: usize) {
        self.memory.used.fetch_add(bytes, Relaxed);
        self.memory.used.fetch_sub(self.bytes, Relaxed);
        self.bytes = bytes;
        if let Some(permit) = &mut self.permit {
            permit.shrink_to(bytes);
            let _ = permit.grow(bytes - permit.bytes());
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Relaxed);
        self.memory.freed.notify_waiters();
    }
}
