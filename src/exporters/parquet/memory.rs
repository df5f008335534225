//! Memory limit of unfinished files: rows, their requests, and buffers for writing.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::pipeline::output_memory::OutputMemory;
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
    /// Number of turns that have memory.
    encoding: AtomicUsize,
}

/// A turn at encoding row groups; ended by dropping it.
pub(super) struct Turn {
    memory: Arc<Memory>,
    _encoder: Option<OwnedSemaphorePermit>,
    _permit: Permit,
    set_aside: usize,
    more: Charge,
}

/// Maximum number of row groups encoded at the same time. More row groups would only compete for
/// the same processors, each with its own buffers.
static ENCODERS: LazyLock<usize> = LazyLock::new(|| cores().min(4));
/// Memory for encoding a small row group in addition to its rows, in bytes. Larger row groups reserve the
/// excess while they are written.
const ENCODER_BYTES: usize = 6 << 20;
/// Interval at which a turn that waits for memory checks whether other parts of the process have
/// released some.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(200);

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
            encoding: AtomicUsize::new(0),
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

    /// Returns the memory of a row group from which it is written regardless of the configuration,
    /// so that its encoding does not take more than the rows of all files.
    pub(super) fn largest_group(&self) -> usize {
        self.limit() / 4
    }

    /// Waits for a turn at encoding row groups, and for `bytes` of memory for the largest of them.
    /// The holder of a turn must not wait for another turn.
    pub(super) async fn turn(self: &Arc<Self>, bytes: usize) -> Turn {
        // The semaphore is never closed.
        let encoder = self.encoders.clone().acquire_owned().await.ok();
        let mut permit = self.budget.for_output();
        let bytes = bytes.max(self.per_encoder());
        loop {
            let freed = self.freed();
            // Only encoding releases the memory of rows, so one turn must do without a permit.
            let is_only = self
                .encoding
                .compare_exchange(0, 1, Relaxed, Relaxed)
                .is_ok();
            let has_room = permit.grow(bytes).is_ok();
            if has_room && !is_only {
                self.encoding.fetch_add(1, Relaxed);
            }
            if is_only || has_room {
                break;
            }
            let _ = timeout(MEMORY_CHECK_INTERVAL, freed).await;
        }
        Turn {
            memory: self.clone(),
            _encoder: encoder,
            _permit: permit,
            set_aside: self.per_encoder(),
            more: self.requests(),
        }
    }

    /// Reserves memory for a request of `held` bytes in the queue, for `copied` bytes of copies of
    /// it, and for rows of at most `rows` bytes; returns `None` if there is not enough. Without
    /// other rows, only the process's budget counts, since a request could never be written
    /// otherwise.
    pub(super) fn reserve(
        self: &Arc<Self>,
        held: usize,
        copied: usize,
        rows: usize,
    ) -> Option<Charge> {
        let limit = self.limit() - self.per_encoder() * *ENCODERS;
        let mut permit = self.budget.for_output();
        permit.grow(copied.saturating_add(rows)).ok()?;
        let needed = self.needed(held, copied, rows);
        let fits = |used: usize| {
            let total = used.saturating_add(needed);
            (used == 0 || total <= limit).then_some(total)
        };
        self.used.fetch_update(Relaxed, Relaxed, fits).ok()?;
        let mut charge = self.charge(Some(permit));
        charge.bytes = needed;
        Some(charge)
    }

    /// Returns the part of the exporter's limit that must be free for rows to be made. Most rows
    /// take a fraction of `rows`, so a small part of the limit is enough: the process's budget
    /// covers the others while they are made.
    pub(super) fn needed(&self, held: usize, copied: usize, rows: usize) -> usize {
        let rows = rows.min(self.limit() / 16);
        held.saturating_add(copied).saturating_add(rows)
    }

    /// Whether the process's budget could ever have so many bytes for rows.
    pub(super) fn may_fit(&self, rows: usize) -> bool {
        rows <= self.budget.limit().saturating_add(self.budget.reserve())
    }

    /// Returns empty memory for reading a request.
    pub(super) fn output(&self) -> OutputMemory {
        OutputMemory::new(&self.budget)
    }

    /// Returns an empty share for requests that the queue or the client's connection holds and
    /// counts in the process's budget.
    pub(super) fn requests(self: &Arc<Self>) -> Charge {
        self.charge(None)
    }

    /// Returns an empty share for rows and other memory that the process's budget does not count
    /// elsewhere.
    pub(super) fn rows(self: &Arc<Self>) -> Charge {
        self.charge(Some(self.budget.for_output()))
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
    /// Reserves memory for a row group in addition to its rows; the part above the encoder's reservation
    /// counts while the row group is written.
    pub(super) fn takes(&mut self, bytes: usize) {
        self.more.set(bytes.saturating_sub(self.set_aside));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.memory.encoding.fetch_sub(1, Relaxed);
        self.memory.freed.notify_waiters();
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
