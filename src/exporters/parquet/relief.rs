//! Finishes files early for a sending queue that has little room left, without leaving many small
//! files.
//!
//! A queue that is three quarters full requests a flush with every request, also while a file is
//! being finished. The room that files being finished will release is therefore subtracted before
//! another file is finished.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::queue::{Encoded, QueueConfig, Sizer};

/// Interval after which a file is finished in any case while the queue requests room. Files may be
/// stuck, and the room of merged requests is unknown.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// Fractions of a unit of the queue. A batch with rows in several files has a share of its room in
/// each file.
const PARTS: usize = 1024;

/// The size of a sending queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueRoom {
    sizer: Sizer,
    /// Capacity in fractions of a unit, see [`PARTS`].
    capacity: usize,
    /// Whether the queue is persistent.
    pub(super) is_stored: bool,
}

/// Room in one queue that finished files will release.
#[derive(Debug)]
pub(super) struct Relief {
    wanted: AtomicBool,
    closing: Arc<AtomicUsize>,
    /// Time at which the finishing of a file last began.
    closed: Mutex<Instant>,
}

/// Room that is released when this value is dropped.
#[derive(Debug)]
pub(super) struct Closing {
    all: Arc<AtomicUsize>,
    room: usize,
}

impl QueueRoom {
    pub(super) fn of(config: &QueueConfig) -> Self {
        QueueRoom {
            sizer: config.sizer(),
            capacity: config.queue_size.saturating_mul(PARTS),
            is_stored: config.storage.is_some(),
        }
    }

    /// Returns the room that a batch takes until its files are finished.
    pub(super) fn taken_by(self, batch: &Encoded) -> usize {
        let units = match self.sizer {
            Sizer::Requests => 1,
            Sizer::Items => batch.items,
            // A persisted batch is not in memory.
            Sizer::Bytes if self.is_stored => batch.bytes(),
            Sizer::Bytes => batch.retained_bytes,
        };
        units.max(1).saturating_mul(PARTS)
    }
}

impl Relief {
    /// Returns the state without a request for room and without a file being finished.
    pub(super) fn new() -> Self {
        Relief {
            wanted: AtomicBool::new(false),
            closing: Arc::default(),
            closed: Mutex::new(Instant::now()),
        }
    }

    /// Records that the queue requests room.
    pub(super) fn want(&self) {
        self.wanted.store(true, Relaxed);
    }

    /// Whether the queue has requested room since the last call.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    /// Whether a file must be finished for the queue, while batches in open files take `open` of
    /// its room.
    pub(super) fn must_close(&self, open: usize, queue: QueueRoom) -> bool {
        let closing = self.closing.load(Relaxed);
        // Below a quarter of the queue, files would be small; most of the backlog is not in files
        // yet.
        let is_worth_it = open >= queue.capacity / 4 && closing < open / 4;
        let closed = *self.closed.lock();
        is_worth_it || closed.elapsed() >= STUCK_AFTER
    }

    /// Records that a file with this room is being finished.
    pub(super) fn closing(&self, room: usize) -> Closing {
        *self.closed.lock() = Instant::now();
        self.closing.fetch_add(room, Relaxed);
        Closing {
            all: self.closing.clone(),
            room,
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.all.fetch_sub(self.room, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: QueueRoom = QueueRoom {
        sizer: Sizer::Requests,
        capacity: 1000,
        is_stored: false,
    };

    #[tokio::test(start_paused = true)]
    async fn files_being_finished_count_as_room() {
        let relief = Relief::new();
        assert!(relief.must_close(750, QUEUE));
        let closing = relief.closing(750);
        assert!(!relief.must_close(10, QUEUE));
        assert!(!relief.must_close(250, QUEUE));
        drop(closing);
        assert!(relief.must_close(250, QUEUE));
    }

    #[tokio::test(start_paused = true)]
    async fn small_files_wait_for_rows_but_not_for_ever() {
        let relief = Relief::new();
        assert!(!relief.must_close(100, QUEUE));
        tokio::time::advance(STUCK_AFTER).await;
        assert!(relief.must_close(100, QUEUE));
        // A stuck file must not keep the queue full.
        let _hangs = relief.closing(900);
        assert!(!relief.must_close(100, QUEUE));
        tokio::time::advance(STUCK_AFTER).await;
        assert!(relief.must_close(100, QUEUE));
    }
}
