//! The budget, its permits, and the reserve of stored queues.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use smallvec::SmallVec;

use super::clients::ClientMemory;

/// The memory budget of the process. Code that is about to hold telemetry takes a [`Permit`] first.
///
/// Taking a permit never waits: a receiver without a permit refuses the request, which is cheaper than holding the
/// connection.
#[derive(Debug)]
pub struct Budget {
    limit: AtomicUsize,
    /// Whether the limit was set explicitly, as opposed to the default.
    is_explicit: AtomicBool,
    used: AtomicUsize,
    /// Bytes of `used` for requests that have not arrived completely.
    pub(super) unfinished: AtomicUsize,
    /// Memory of clients that `used` does not include.
    pub clients: ClientMemory,
    stored_queues: AtomicUsize,
    /// Bytes of `used` that stored queues have read from disk.
    read_ahead: AtomicUsize,
}

/// Share of the budget that is reserved for the read-ahead of all stored queues: one part in this many.
const READ_AHEAD_SHARE: usize = 4;
/// Maximum read-ahead of one stored queue, in bytes, regardless of the budget.
const MAX_READ_AHEAD: usize = 16 << 20;

/// Permits that several batches share together with their bytes.
pub type Permits = SmallVec<[Arc<Permit>; 1]>;

impl Budget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Budget {
            limit: AtomicUsize::new(limit),
            is_explicit: AtomicBool::new(false),
            used: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(0),
            clients: ClientMemory::default(),
            stored_queues: AtomicUsize::new(0),
            read_ahead: AtomicUsize::new(0),
        })
    }

    /// Takes a permit for `bytes`, unless that would exceed the limit.
    pub fn acquire(self: &Arc<Self>, bytes: usize) -> Result<Permit, NoRoom> {
        let mut permit = self.empty_permit();
        permit.grow(bytes).map(|()| permit)
    }

    /// Returns an empty permit, to be grown later.
    pub fn empty_permit(self: &Arc<Self>) -> Permit {
        Permit {
            budget: self.clone(),
            bytes: 0,
            purpose: Purpose::Requests,
        }
    }

    /// Registers a stored queue. Its read-ahead is reserved from now on.
    pub fn stored_queue(self: &Arc<Self>) -> StoredQueue {
        self.stored_queues.fetch_add(1, Relaxed);
        StoredQueue(self.clone())
    }

    /// Returns the free bytes that are reserved for stored queues.
    fn read_ahead_reserve(&self) -> usize {
        let queues = self.stored_queues.load(Relaxed);
        let reserve = (self.limit() / READ_AHEAD_SHARE).min(queues.saturating_mul(MAX_READ_AHEAD));
        let reserve = if queues == 0 { 0 } else { reserve };
        reserve.saturating_sub(self.read_ahead.load(Relaxed))
    }

    /// Returns an empty permit that may grow beyond the limit, into the [`output_reserve`](Self::output_reserve), for
    /// the output of a component whose input is counted already. Otherwise, if requests took the whole budget, no
    /// output could be encoded, and no request would end.
    pub fn output_permit(self: &Arc<Self>) -> Permit {
        Permit {
            budget: self.clone(),
            bytes: 0,
            purpose: Purpose::Output,
        }
    }

    /// Returns the bytes beyond the limit that outputs may take: an eighth of the limit, and at least 8 MiB.
    pub fn output_reserve(&self) -> usize {
        (self.limit() / 8).max(MIN_OUTPUT_RESERVE)
    }

    /// Checks that a permit for `bytes` would be granted now, without taking one.
    pub fn has_room(&self, bytes: usize) -> Result<(), NoRoom> {
        let limit = self.limit() - self.read_ahead_reserve();
        if self.used().saturating_add(bytes) <= self.available(limit) {
            return Ok(());
        }
        Err(NoRoom {
            needed: bytes,
            limit,
        })
    }

    /// Whether less than a quarter of the unreserved limit is free.
    pub fn is_scarce(&self) -> bool {
        let limit = self.limit() - self.read_ahead_reserve();
        self.used() > limit - limit / 4
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// Resets the limit to a default, which the next [`set_limit`](Self::set_limit) replaces. Existing permits stay
    /// valid.
    pub fn reset_limit(&self, default: usize) {
        self.is_explicit.store(false, Relaxed);
        self.limit.store(default, Relaxed);
    }

    /// Sets the limit explicitly. The first call replaces the default; of several calls, the smallest limit counts.
    pub fn set_limit(&self, bytes: usize) {
        if self.is_explicit.swap(true, Relaxed) {
            self.limit.fetch_min(bytes, Relaxed);
        } else {
            self.limit.store(bytes, Relaxed);
        }
    }

    /// Returns the bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Returns the part of `limit` that permits may take now. Memory of clients reduces it by the bytes above
    /// [`CLIENT_ALLOWANCE`].
    fn available(&self, limit: usize) -> usize {
        limit.saturating_sub(self.clients.bytes().saturating_sub(CLIENT_ALLOWANCE))
    }

    /// Returns the limit of all permits together when a permit for `purpose` grows.
    fn limit_of(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Output => self.limit().saturating_add(self.output_reserve()),
            Purpose::Requests | Purpose::ReadAhead => self.limit() - self.read_ahead_reserve(),
        }
    }

    fn take(&self, bytes: usize, purpose: Purpose) -> bool {
        let limit = self.available(self.limit_of(purpose));
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|total| *total <= limit)
            })
            .is_ok()
    }
}

/// Reason why a permit was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget of {limit} bytes has no room for {needed} bytes")]
pub struct NoRoom {
    /// Requested size of the permit in bytes.
    pub needed: usize,
    /// Limit of the whole budget in bytes.
    pub limit: usize,
}

impl NoRoom {
    /// Whether the permit would fit into an empty budget.
    pub fn may_fit_later(&self) -> bool {
        self.needed <= self.limit
    }
}

/// The right to hold some bytes, released on drop.
#[derive(Debug)]
pub struct Permit {
    pub(super) budget: Arc<Budget>,
    pub(super) bytes: usize,
    purpose: Purpose,
}

/// The purpose of the bytes of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Telemetry that arrived.
    Requests,
    /// Records that a stored queue has read from the disk.
    ReadAhead,
    /// The output of a component, which may take the reserve.
    Output,
}

impl Permit {
    /// Returns the size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the budget that the permit was taken from.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// The reserve for outputs of the budget: see [`Budget::output_reserve`].
    pub fn output_reserve(&self) -> usize {
        self.budget.output_reserve()
    }

    /// Takes another permit from the same budget.
    pub fn another(&self, bytes: usize) -> Result<Permit, NoRoom> {
        self.budget.acquire(bytes)
    }

    /// Grows by `more` bytes, or stays unchanged on error.
    pub fn grow(&mut self, more: usize) -> Result<(), NoRoom> {
        if !self.budget.take(more, self.purpose) {
            return Err(NoRoom {
                needed: self.bytes.saturating_add(more),
                limit: self.budget.limit_of(self.purpose),
            });
        }
        self.bytes += more;
        Ok(())
    }

    /// Changes the size to `bytes`, or stays unchanged on error.
    pub fn resize(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.shrink_to(bytes);
        self.grow(bytes.saturating_sub(self.bytes))
    }

    /// Releases the bytes above `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        if let Some(surplus) = self.bytes.checked_sub(bytes) {
            self.budget.used.fetch_sub(surplus, Relaxed);
            if self.purpose == Purpose::ReadAhead {
                self.budget.read_ahead.fetch_sub(surplus, Relaxed);
            }
            self.bytes = bytes;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// An open stored queue. Its read-ahead is reserved until the drop.
#[derive(Debug)]
pub struct StoredQueue(Arc<Budget>);

impl StoredQueue {
    /// Returns the maximum bytes of records that the queue may have in memory: an equal part of the reserve of all
    /// stored queues.
    pub fn allowance(&self) -> usize {
        let queues = self.0.stored_queues.load(Relaxed).max(1);
        (self.0.limit() / READ_AHEAD_SHARE / queues).min(MAX_READ_AHEAD)
    }

    /// Takes a permit for a record that was read from disk. The call never fails, because the reserved
    /// [`allowance`](Self::allowance) bounds the read-ahead of the queue. The queue may exceed the allowance by one
    /// record.
    pub fn read_ahead(&self, bytes: usize) -> Permit {
        self.0.used.fetch_add(bytes, Relaxed);
        self.0.read_ahead.fetch_add(bytes, Relaxed);
        Permit {
            budget: self.0.clone(),
            bytes,
            purpose: Purpose::ReadAhead,
        }
    }
}

impl Drop for StoredQueue {
    fn drop(&mut self) {
        self.0.stored_queues.fetch_sub(1, Relaxed);
    }
}

/// Bytes that clients may use without a permit before the permits shrink: half of the 48 MiB that the process may use
/// above the limit. The program itself uses the other half.
const CLIENT_ALLOWANCE: usize = 24 << 20;

/// Minimum reserve for outputs, in bytes: a request of the usual maximum size, 4 MiB, and the same for the result.
const MIN_OUTPUT_RESERVE: usize = 8 << 20;

/// Bytes that an unfinished request may always take, from the half that is reserved for small requests.
pub(super) const SMALL_REQUEST: usize = 64 << 10;

#[cfg(test)]
mod tests;
