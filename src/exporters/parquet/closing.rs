//! Chooses files to finish early, for memory, for other files or for the queue.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout};

use super::early::Early;
use super::files::{Files, MAX_FINISHING_FILES};
use super::memory::Charge;
use super::relief::Relief;
use super::shelf::BATCH_BYTES;
use crate::pipeline::batch::Code;
use crate::queue::{Encoded, Fault, SendError};
use tributary_otlp::Signal;

/// Maximum time that a batch waits for memory before the queue retries it.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Interval at which a batch that waits for memory checks whether other parts of the process have
/// released some.
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Time that a batch waits for files being finished before one more file is finished for it,
/// because the first files may be stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// Memory for rows of a batch, and the turn of the batch at making them.
pub(super) struct Reserved {
    _memory: Charge,
    _line: OwnedMutexGuard<()>,
}

impl Files {
    /// Records that the queue of a signal has little room left. Files are then finished early, unless
    /// files being finished will release enough room.
    pub(super) fn relieve(&self, signal: Signal) {
        self.relief(signal).want();
        self.changed.notify_one();
    }

    /// Waits until a batch and `rows` bytes of its rows fit into memory. Finishes files early if
    /// necessary.
    pub(super) async fn make_room(
        self: &Arc<Self>,
        batch: &Encoded,
        rows: usize,
    ) -> Result<Reserved, SendError> {
        let bytes = batch.bytes();
        // While rows are made, the request is in memory once more if the queue holds it in another
        // form or not at all, and if it consists of several chunks.
        let again =
            usize::from(batch.retained_bytes != bytes) + usize::from(batch.chunks.len() > 1);
        let copied = bytes.saturating_mul(again);
        let held = batch.retained_bytes.saturating_add(BATCH_BYTES);
        let memory = &self.setup.memory;
        let total = copied.saturating_add(rows);
        if !memory.may_fit(total) {
            let reason = format!(
                "the rows of the batch need up to {total} bytes of memory, more than the memory budget; send \
                 smaller requests, or raise the limit of `memory_limiter`"
            );
            return Err(SendError::permanent(
                Code::ResourceExhausted,
                Fault::Size,
                reason,
            ));
        }
        let waited = timeout(LONGEST_WAIT, async {
            // Batches of a signal make rows one after the other. Those that wait reserve nothing,
            // so that no file is finished early for them.
            let line = self.line(batch.signal).await;
            let _first = self.first_in_line.lock().await;
            let mut since = Instant::now();
            loop {
                let freed = memory.freed();
                if let Some(reserved) = memory.reserve(held, copied, rows) {
                    return Reserved {
                        _memory: reserved,
                        _line: line,
                    };
                }
                // Files that are being finished may release enough.
                let is_enough = memory.ending() >= memory.needed(held, copied, rows);
                if !is_enough || since.elapsed() >= STUCK_AFTER {
                    self.close_largest().await;
                    since = Instant::now();
                }
                let _ = timeout(MEMORY_CHECK_INTERVAL, freed).await;
            }
        });
        waited.await.map_err(|_| {
            let reason = "no memory for more rows: files are written more slowly than rows arrive; check the disk \
                          or the object store, or raise `max_memory`";
            SendError::transient(Code::ResourceExhausted, reason)
        })
    }

    async fn close_largest(self: &Arc<Self>) {
        // A stuck file must not keep the other files from making room.
        if self.finishing.load(Relaxed) >= MAX_FINISHING_FILES {
            return;
        }
        let mut largest = None;
        for signal in Signal::ALL {
            let shelf = self.shelf(signal).await;
            let of_shelf = shelf
                .largest()
                .map(|(size, key)| (size, signal, key.clone()));
            largest = largest
                .into_iter()
                .chain(of_shelf)
                .max_by_key(|(size, ..)| *size);
        }
        if let Some((_, signal, key)) = largest {
            let open = self.shelf(signal).await.take(&key);
            open.into_iter()
                .for_each(|open| self.finish(open, Some(Early::Memory)));
        }
    }

    pub(super) async fn close_for_queue(self: &Arc<Self>, signal: Signal) {
        let Some(queue) = self.setup.queue else {
            return;
        };
        if self.finishing.load(Relaxed) >= MAX_FINISHING_FILES {
            return;
        }
        let mut shelf = self.shelf(signal).await;
        if !self.relief(signal).must_close(shelf.room(), queue) {
            return;
        }
        let open = match queue.is_stored {
            // Segments of the log are released when all their records are acknowledged, and each
            // segment has records of all services.
            true => shelf.take_all(),
            false => {
                let roomiest = shelf.roomiest().cloned();
                let open = roomiest.and_then(|key| shelf.take(&key));
                open.into_iter().collect()
            }
        };
        drop(shelf);
        open.into_iter()
            .for_each(|open| self.finish(open, Some(Early::Queue)));
    }

    pub(super) fn relief(&self, signal: Signal) -> &Relief {
        #[allow(clippy::indexing_slicing, reason = "there is one for each signal")]
        &self.relief[signal.index()]
    }

    pub(super) async fn close_surplus(self: &Arc<Self>) {
        while self.open.get() > self.setup.limits.most_open {
            let mut idlest = None;
            for signal in Signal::ALL {
                let shelf = self.shelf(signal).await;
                let of_shelf = shelf
                    .idlest()
                    .map(|(touched, key)| (touched, signal, key.clone()));
                idlest = idlest
                    .into_iter()
                    .chain(of_shelf)
                    .min_by_key(|(touched, ..)| *touched);
            }
            let Some((_, signal, key)) = idlest else {
                return;
            };
            let open = self.shelf(signal).await.take(&key);
            open.into_iter()
                .for_each(|open| self.finish(open, Some(Early::Files)));
        }
    }
}
