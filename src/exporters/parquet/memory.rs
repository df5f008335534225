//! Memory limit of unfinished files: rows, their requests, and buffers for writing.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use tributary_memory::{Budget, Permit};
use tributary_net::server::cores;

/// The memory of all unfinished files of an exporter.
#[derive(Debug)]
pub(super) struct Memory {
    most: usize,
    budget: Arc<Budget>,
    used: AtomicUsize,
    /// Bytes that will be released without finishing further files early.
    ending: AtomicUsize,
    freed: Notify,
    encoders: Arc<Semaphore>,
}

/// A turn at encoding row groups; ended by dropping it.
pub(super) struct Turn {
    _encoder: Option<OwnedSemaphorePermit>,
    _memory: Permit,
    set_aside: usize,
    more: Charge,
}

/// Maximum number of row groups encoded at the same time. More row groups would only compete for
/// the same processors, each with its own buffers.
static ENCODERS: LazyLock<usize> = LazyLock::new(|| cores().min(4));
/// Memory for encoding a small row group besides its rows, in bytes. Larger row groups reserve the
/// excess while they are written.
const ENCODER_BYTES: usize = 6 << 20;

/// A share of the memory; released by dropping it.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
    /// Whether the share is about to be released.
    is_ending: bool,
    /// The part of the share that the process's budget does not count elsewhere.
    permit: Option<Permit>,
}

impl Memory {
    /// Limits the memory to `most` bytes and to half of the budget.
    pub(super) fn new(most: usize, budget: &Arc<Budget>) -> Arc<Self> {
        Arc::new(Memory {
            most,
            budget: budget.clone(),
            used: AtomicUsize::new(0),
            ending: AtomicUsize::new(0),
            freed: Notify::new(),
            encoders: Arc::new(Semaphore::new(*ENCODERS)),
        })
    }

    fn limit(&self) -> usize {
        self.most.min(self.budget.limit() / 2)
    }

    /// Returns the bytes reserved for each encoder; all encoders together get at most a quarter of
    /// the memory.
    fn per_encoder(&self) -> usize {
        ENCODER_BYTES.min(self.limit() / 4 / *ENCODERS)
    }

    /// Waits for a turn at encoding a row group. The holder of a turn must not wait for another
    /// turn.
    pub(super) async fn turn(self: &Arc<Self>) -> Turn {
        // The semaphore is never closed.
        let encoder = self.encoders.clone().acquire_owned().await.ok();
        let mut memory = self.budget.nothing();
        // The room was reserved in this limit; the process's budget may still lack it, which this
        // function cannot change.
        let _ = memory.grow(self.per_encoder());
        Turn {
            _encoder: encoder,
            _memory: memory,
            set_aside: self.per_encoder(),
            more: self.rows(),
        }
    }

    /// Reserves memory for a request of `held` bytes in the queue and for rows of `rows` bytes;
    /// returns `None` if there is not enough. A single request always fits, since it could never be
    /// written otherwise.
    pub(super) fn reserve(self: &Arc<Self>, held: usize, rows: usize) -> Option<Charge> {
        let needed = held.saturating_add(rows);
        let limit = self.limit() - self.per_encoder() * *ENCODERS;
        let fits = |used: usize| {
            let fits = used.saturating_add(needed) <= limit && self.budget.has_room(rows).is_ok();
            (used == 0 || fits).then(|| used.saturating_add(needed))
        };
        self.used.fetch_update(Relaxed, Relaxed, fits).ok()?;
        let mut charge = self.charge(None);
        charge.bytes = needed;
        Some(charge)
    }

    /// Returns an empty share for requests that the queue or the client's connection holds and
    /// counts in the process's budget.
    pub(super) fn requests(self: &Arc<Self>) -> Charge {
        self.charge(None)
    }

    /// Returns an empty share for rows and other memory that the process's budget does not count
    /// elsewhere.
    pub(super) fn rows(self: &Arc<Self>) -> Charge {
        self.charge(Some(self.budget.nothing()))
    }

    /// Returns the bytes that will be released soon, by files being finished and row groups being
    /// written.
    pub(super) fn ending(&self) -> usize {
        self.ending.load(Relaxed)
    }

    /// Completes when memory is released after the call.
    pub(super) fn freed(&self) -> impl Future<Output = ()> + '_ {
        self.freed.notified()
    }

    fn charge(self: &Arc<Self>, permit: Option<Permit>) -> Charge {
        Charge {
            memory: self.clone(),
            bytes: 0,
            is_ending: false,
            permit,
        }
    }
}

impl Turn {
    /// Reserves memory for a row group besides its rows; the part above the encoder's reservation
    /// counts while the row group is written.
    pub(super) fn takes(&mut self, bytes: usize) {
        self.more.set(bytes.saturating_sub(self.set_aside));
    }
}

impl Charge {
    /// Returns an empty share of the same kind.
    #[cfg(feature = "object-store")]
    pub(super) fn another(&self) -> Self {
        match self.permit {
            Some(_) => self.memory.rows(),
            None => self.memory.requests(),
        }
    }

    /// Counts the share as about to be released from now on.
    pub(super) fn ends(&mut self) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.memory.ending.fetch_add(self.bytes, Relaxed);
        }
    }

    /// Returns the size of the share.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the size of the share. The rows exist already, so they are counted even if the
    /// process's budget has no room.
    pub(super) fn set(&mut self, bytes: usize) {
        self.memory.used.fetch_add(bytes, Relaxed);
        self.memory.used.fetch_sub(self.bytes, Relaxed);
        if self.is_ending {
            self.memory.ending.fetch_add(bytes, Relaxed);
            self.memory.ending.fetch_sub(self.bytes, Relaxed);
        }
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
        if self.is_ending {
            self.memory.ending.fetch_sub(self.bytes, Relaxed);
        }
        self.memory.freed.notify_waiters();
    }
}
