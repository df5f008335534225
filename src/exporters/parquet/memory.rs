//! How much unfinished files may hold: rows, the requests that they came in, and what writing them takes.

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
    /// What of it comes back without anything further being finished early.
    ending: AtomicUsize,
    freed: Notify,
    encoders: Arc<Semaphore>,
}

/// A turn at encoding row groups; given back when dropped.
pub(super) struct Turn {
    _encoder: Option<OwnedSemaphorePermit>,
    _memory: Permit,
    set_aside: usize,
    more: Charge,
}

/// Row groups that are encoded at the same time: more would only wait for the same processors, each with buffers.
static ENCODERS: LazyLock<usize> = LazyLock::new(|| cores().min(4));
/// What one takes besides its rows, for a small row group. What it takes more counts while it is written.
const ENCODER_BYTES: usize = 6 << 20;

/// A part of it; given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
    /// Whether it comes back soon.
    is_ending: bool,
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
            ending: AtomicUsize::new(0),
            freed: Notify::new(),
            encoders: Arc::new(Semaphore::new(*ENCODERS)),
        })
    }

    fn limit(&self) -> usize {
        self.most.min(self.budget.limit() / 2)
    }

    /// What of it is set aside for each encoder; all of them together have a quarter at most.
    fn per_encoder(&self) -> usize {
        ENCODER_BYTES.min(self.limit() / 4 / *ENCODERS)
    }

    /// Waits for a turn at encoding a row group. Who has one must not wait for another.
    pub(super) async fn turn(self: &Arc<Self>) -> Turn {
        // It is never closed.
        let encoder = self.encoders.clone().acquire_owned().await.ok();
        let mut memory = self.budget.nothing();
        // Its room was set aside here; whether the process has it, too, is not ours to say.
        let _ = memory.grow(self.per_encoder());
        Turn {
            _encoder: encoder,
            _memory: memory,
            set_aside: self.per_encoder(),
            more: self.rows(),
        }
    }

    /// Room for a request that takes `held` bytes while it waits, and for rows of `rows` bytes; `None` when there is
    /// none. One request always has room: it could never be written otherwise.
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

    /// Requests that the queue or the client's connection holds, and counts in the process's budget.
    pub(super) fn requests(self: &Arc<Self>) -> Charge {
        self.charge(None)
    }

    /// Rows, and what else the process's budget does not know of.
    pub(super) fn rows(self: &Arc<Self>) -> Charge {
        self.charge(Some(self.budget.nothing()))
    }

    /// Bytes that come back soon: of files that are being finished, and of row groups that are being written.
    pub(super) fn ending(&self) -> usize {
        self.ending.load(Relaxed)
    }

    /// Returns when something was given back after the call.
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
    /// The row group takes so much besides its rows; what was not set aside for it counts while it is written.
    pub(super) fn takes(&mut self, bytes: usize) {
        self.more.set(bytes.saturating_sub(self.set_aside));
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

    /// From now on it counts as about to be given back.
    pub(super) fn ends(&mut self) {
        if !std::mem::replace(&mut self.is_ending, true) {
            self.memory.ending.fetch_add(self.bytes, Relaxed);
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
