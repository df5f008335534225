//! All unfinished files: accepts batches, decides when files are finished, and finishes them.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, Notify, OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::adding::Todo;
use super::early::{Early, Metrics};
use super::manifest::Manifest;
use super::memory::Memory;
use super::part::Part;
use super::place::{Place, PlaceError};
use super::relief::{QueueRoom, Relief};
use super::shelf::{Ending, Limits, Open, OpenFiles, Shelf};
use super::table::Layout;
use super::ticket::PartialDeliveries;
use crate::pipeline::batch::Code;
use crate::pipeline::episode::Episode;
use crate::queue::{Encoded, Fault, SendError};
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;

/// Size in bytes above which rows are not made on the threads that serve sockets. Making rows of
/// this size takes about a millisecond.
pub(super) const LARGE_BATCH: usize = 64 << 10;
/// Maximum number of files being finished at the same time. More files would only compete for the
/// same disk, each with a row group in memory.
pub(super) const MAX_FINISHING_FILES: usize = 4;

/// Settings and destination of the files.
pub(super) struct Setup {
    pub(super) id: ComponentId,
    pub(super) place: Place,
    pub(super) layout: Arc<Layout>,
    pub(super) limits: Limits,
    /// The sending queue of each signal, if there is one.
    pub(super) queue: Option<QueueRoom>,
    pub(super) by_service: bool,
    pub(super) memory: Arc<Memory>,
    pub(super) manifest: Option<Manifest>,
}

/// All unfinished files of an exporter.
pub(super) struct Files {
    pub(super) setup: Setup,
    /// One shelf for each signal. A shelf is locked while rows are made; other batches wait without
    /// occupying a thread.
    shelves: [Arc<Mutex<Shelf>>; 4],
    pub(super) open: OpenFiles,
    pub(super) partial: Arc<PartialDeliveries>,
    pub(super) metrics: Metrics,
    /// Files that are being finished or wait for it.
    pub(super) finishing: AtomicUsize,
    pub(super) turns: Semaphore,
    /// Locks by signal. The batch that makes rows, or waits for memory for rows, holds the lock of its signal.
    lines: [Arc<Mutex<()>>; 4],
    /// Held by the batch that waits for memory. Later batches wait for this lock; otherwise small
    /// batches would take memory before enough is free for a large one.
    pub(super) first_in_line: Mutex<()>,
    pub(super) tasks: TaskTracker,
    /// Notified when rows are added or the exporter ends.
    pub(super) changed: Notify,
    /// Time at which the exporter began to end.
    ending: OnceLock<Instant>,
    /// Number of batches whose rows are being made.
    taking: AtomicUsize,
    /// Room that the queues request, by signal.
    pub(super) relief: [Relief; 4],
    pub(super) failures: SampledLog,
    pub(super) early: [SampledLog; 3],
    /// Time with rows in shared partitions.
    overflow: Episode,
}

impl Files {
    /// Returns the state without any files.
    pub(super) fn new(setup: Setup) -> Arc<Self> {
        let open = OpenFiles::default();
        Arc::new(Files {
            metrics: Metrics::new(&setup.id),
            setup,
            shelves: Signal::ALL.map(|_| Arc::new(Mutex::new(Shelf::new(&open)))),
            open,
            partial: Arc::default(),
            finishing: AtomicUsize::new(0),
            turns: Semaphore::new(MAX_FINISHING_FILES),
            lines: Signal::ALL.map(|_| Arc::default()),
            first_in_line: Mutex::new(()),
            tasks: TaskTracker::new(),
            changed: Notify::new(),
            ending: OnceLock::new(),
            taking: AtomicUsize::new(0),
            relief: Signal::ALL.map(|_| Relief::new()),
            failures: SampledLog::default(),
            early: [(); 3].map(|()| SampledLog::of_one_line()),
            overflow: Episode::default(),
        })
    }

    /// Writes complete row groups. If the batch needs more files than may be open, finishes the
    /// files that the batch opened.
    pub(super) async fn write(self: &Arc<Self>, signal: Signal, todo: Todo, needs_files: bool) {
        for part in todo.write {
            let Setup {
                place,
                layout,
                memory,
                ..
            } = &self.setup;
            let written = part.write(place, layout, memory).await;
            if written.is_err() || self.is_full(&part) {
                let open = self.shelf(signal).await.take_part(&part);
                open.into_iter().for_each(|open| self.finish(open, None));
            }
        }
        self.count_overflow(todo.overflow_rows);
        // Shared partitions leave room for further files.
        let is_full = needs_files && self.open.get() >= self.setup.limits.most_open;
        for part in todo.opened.into_iter().filter(|_| is_full) {
            let open = self.shelf(signal).await.take_part(&part);
            let open = open.into_iter();
            open.for_each(|open| self.finish(open, Some(Early::Files)));
        }
        if todo.begun {
            self.close_surplus().await;
            self.metrics.open.set(self.open.get() as f64);
        }
    }

    /// Counts rows in shared partitions, and logs the begin and the end of such a time.
    fn count_overflow(&self, rows: usize) {
        if rows > 0 {
            self.metrics.overflow.increment(rows as u64);
            if self.overflow.occurs(rows) {
                warn!(
                    otelcol.component.id = %self.setup.id,
                    otelcol.component.kind = "exporter",
                    max_partitions = self.setup.limits.most_partitions,
                    "There are more combinations of service and hour than `max_partitions`; rows of the rest go to \
                     shared files, with the service `__overflow__`. Check the senders' service names, or raise \
                     `max_partitions`."
                );
            }
        } else if let Some(ended) = self.overflow.over() {
            info!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                lasted = ?ended.lasted,
                rows = ended.items,
                "The number of partitions is within `max_partitions` again; no more rows go to shared files."
            );
        }
    }

    /// Finishes files as they become due, as long as the future is polled.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            self.count_overflow(0);
            for signal in Signal::ALL {
                if self.relief(signal).is_wanted() {
                    self.close_for_queue(signal).await;
                }
            }
            let limits = &self.setup.limits;
            let now = Instant::now();
            let mut next: Option<Instant> = None;
            for signal in Signal::ALL {
                let mut shelf = self.shelf(signal).await;
                let ending = self.ending.get().map(|since| Ending {
                    since: *since,
                    is_busy: self.taking.load(Relaxed) > 0,
                });
                let due = shelf.take_due(now, limits, ending);
                let next_due = shelf.next_due(limits, ending);
                // Files with partial batches of clients that disconnected in the meantime.
                let spoiled = shelf.take_spoiled();
                drop(shelf);
                self.give_up(spoiled);
                due.into_iter().for_each(|open| self.finish(open, None));
                next = next.into_iter().chain(next_due).min();
            }
            match next {
                Some(due) => tokio::select! {
                    () = sleep_until(due) => {}
                    () = changed => {}
                },
                None => changed.await,
            }
        }
    }

    /// Begins to end: files are finished once no more rows are added.
    pub(super) fn end(&self) {
        self.ending.get_or_init(Instant::now);
        self.changed.notify_one();
    }

    /// Returns the room that a batch takes in the queue.
    pub(super) fn room_of(&self, batch: &Encoded) -> usize {
        self.setup.queue.map_or(0, |queue| queue.taken_by(batch))
    }

    /// Waits until no file is being finished, or until `deadline`.
    pub(super) async fn ended(&self, deadline: Instant) {
        self.tasks.close();
        // The queue has counted batches in unfinished files as lost by then.
        let _ = timeout_at(deadline, self.tasks.wait()).await;
    }

    /// Whether there are no unfinished files.
    pub(super) fn idle(&self) -> bool {
        self.open.get() == 0 && self.tasks.is_empty()
    }

    /// Records a new file, so that its due time is scheduled.
    pub(super) fn begun(&self) {
        self.changed.notify_one();
    }

    /// Discards files with partial batches, so that no reader sees half a batch. Receivers reject
    /// data that leads here.
    pub(super) fn give_up(&self, spoiled: Vec<Open>) {
        for open in spoiled {
            let error = PlaceError(
                "discarded, because it contains part of a batch that cannot be read".to_owned(),
            );
            self.failed(&open.close(), &error);
        }
        self.metrics.open.set(self.open.get() as f64);
    }

    fn is_full(&self, part: &Part) -> bool {
        let limits = &self.setup.limits;
        part.bytes() >= limits.file_bytes || part.rows() >= limits.file_rows
    }

    pub(super) async fn line(&self, signal: Signal) -> OwnedMutexGuard<()> {
        #[allow(clippy::indexing_slicing, reason = "there is one for each signal")]
        let line = &self.lines[signal.index()];
        line.clone().lock_owned().await
    }

    pub(super) async fn shelf(&self, signal: Signal) -> OwnedMutexGuard<Shelf> {
        #[allow(clippy::indexing_slicing, reason = "there is one for each signal")]
        let shelf = &self.shelves[signal.index()];
        shelf.clone().lock_owned().await
    }
}

/// Returns the error for a batch that no file can hold. A retry would fail in the same way.
pub(super) fn unreadable(reason: &str) -> SendError {
    SendError::permanent(Code::InvalidArgument, Fault::Content, reason)
}

/// A batch whose rows are being made.
pub(super) struct Taking<'a>(&'a Files);

impl<'a> Taking<'a> {
    pub(super) fn new(files: &'a Files) -> Self {
        files.taking.fetch_add(1, Relaxed);
        Taking(files)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.taking.fetch_sub(1, Relaxed);
        if self.0.ending.get().is_some() {
            self.0.changed.notify_one();
        }
    }
}

/// A file that counts as being finished.
pub(super) struct Counted<'a>(pub(super) &'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
