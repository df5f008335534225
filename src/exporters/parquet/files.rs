//! All unfinished files: accepts batches, decides when files are finished, and finishes them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metrics::{Counter, Gauge, counter, gauge};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::manifest::Manifest;
use super::memory::{Charge, Memory};
use super::part::{Finished, Part};
use super::place::{Place, PlaceError};
use super::relief::{QueueRoom, Relief};
use super::shelf::{BATCH_BYTES, Closed, Ending, Limits, Open, OpenFiles, Shelf, Todo};
use super::steps::{Ended, Steps, first_step};
use super::table::Layout;
use super::ticket::{Partly, Ticket};
use crate::pipeline::batch::Code;
use crate::pipeline::episode::Episode;
use crate::queue::{Encoded, Fault, SendError, Settled};
use tributary_config::ComponentId;
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;

/// Size in bytes above which rows are not made on the threads that serve sockets. Making rows of
/// this size takes about a millisecond.
const LARGE_BATCH: usize = 64 << 10;
/// Maximum number of files being finished at the same time. More files would only compete for the
/// same disk, each with a row group in memory.
const FINISHING: usize = 4;
/// Longest time that a batch waits for memory before the queue is told to retry.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Interval at which a batch that waits for memory checks whether other parts of the process have
/// released some.
const LOOK: Duration = Duration::from_millis(200);
/// Time that a batch waits for files being finished before one more file is finished for it,
/// because the first files may be stuck.
const PATIENCE: Duration = Duration::from_secs(2);

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
    open: OpenFiles,
    partly: Arc<Partly>,
    metrics: Metrics,
    /// Files that are being finished or wait for it.
    finishing: AtomicUsize,
    turns: Semaphore,
    /// Locks by signal. The batch that makes rows, or waits for memory for rows, holds the lock of its signal.
    lines: [Arc<Mutex<()>>; 4],
    /// Held by the batch that waits for memory. Later batches wait for this lock; otherwise small
    /// batches would take memory before enough is free for a large one.
    first_in_line: Mutex<()>,
    tasks: TaskTracker,
    /// Notified when rows are added or the exporter ends.
    changed: Notify,
    /// Time at which the exporter began to end.
    ending: OnceLock<Instant>,
    /// Number of batches whose rows are being made.
    taking: AtomicUsize,
    /// Room that the queues ask for, one for each signal.
    relief: [Relief; 4],
    failures: SampledLog,
    early: [SampledLog; 3],
    /// Time with rows in shared partitions.
    overflow: Episode,
}

/// Reason why a file is finished before it is full or old enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Early {
    Memory,
    Files,
    Queue,
}

impl Early {
    /// Returns the reason for log messages, and the setting that avoids it.
    fn explanation(self) -> &'static str {
        match self {
            Early::Memory => {
                "`max_memory` is used up. Raise it, or set `sending_queue.storage`, which keeps requests on disk"
            }
            Early::Files => "`max_open_files` is reached. Raise it, or use `partition_by: hour`",
            Early::Queue => {
                "`sending_queue` is three quarters full. Raise its `queue_size`, or lower `rotation.interval`"
            }
        }
    }
}

struct Metrics {
    id: String,
    open: Gauge,
    failures: Counter,
    early: [Counter; 3],
    overflow: Counter,
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
            partly: Arc::default(),
            finishing: AtomicUsize::new(0),
            turns: Semaphore::new(FINISHING),
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

    /// Makes rows of a batch. The returned value reports the delivery: the time when all files with
    /// rows of the batch are finished.
    ///
    /// # Errors
    /// If no row of the batch is in any file.
    pub(super) async fn take(self: &Arc<Self>, batch: &Encoded) -> Result<Settled, SendError> {
        let _taking = Taking::new(self);
        let (ticket, outcome) = Ticket::new(&batch.identity, &self.partly);
        let mut is_large = batch.bytes() > LARGE_BATCH;
        let mut has_first = false;
        loop {
            let ended = match self.make_room(batch, first_step(batch)).await {
                Ok(reserved) => {
                    let shelf = self.shelf(batch.signal).await;
                    let mut steps =
                        Steps::new(self.clone(), batch, &ticket, shelf, reserved, has_first);
                    let ended = match is_large {
                        true => spawn_blocking(move || steps.all()).await,
                        false => Ok(steps.first()),
                    };
                    ended.unwrap_or_else(|panicked| {
                        Ended::Failed(unreadable(&format!("making rows failed: {panicked}")))
                    })
                }
                Err(error) => Ended::Failed(error),
            };
            match ended {
                Ended::Complete(todo) => self.write(batch.signal, todo, false).await,
                Ended::More(todo, needs_files) => {
                    // The remaining steps take time. A repeated batch skips the rows that are in
                    // files already.
                    self.write(batch.signal, todo, needs_files).await;
                    (is_large, has_first) = (true, true);
                    continue;
                }
                Ended::Failed(error) => {
                    let spoiled = self.shelf(batch.signal).await.take_spoiled();
                    self.give_up(spoiled);
                    if !ticket.has_rows() {
                        return Err(error);
                    }
                    // Some rows are in files, so the error is reported once these files are
                    // finished and their rows are known.
                    ticket.failed(&error);
                }
            }
            return Ok(outcome);
        }
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

    /// Notes that the queue of that signal has little room left. Files are then finished early,
    /// unless enough room is about to be released anyway.
    pub(super) fn relieve(&self, signal: Signal) {
        self.relief(signal).want();
        self.changed.notify_one();
    }

    /// Starts the end: files are finished once no more rows come for them.
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

    /// Notes that a file was begun, so that its due time is scheduled.
    pub(super) fn begun(&self) {
        self.changed.notify_one();
    }

    /// Discards files with partial batches, so that no reader sees half a batch. Receivers reject
    /// data that leads here.
    fn give_up(&self, spoiled: Vec<Open>) {
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

    /// Waits until a batch and rows of it that take `rows` bytes fit into memory; finishes files
    /// early if needed.
    pub(super) async fn make_room(
        self: &Arc<Self>,
        batch: &Encoded,
        rows: usize,
    ) -> Result<Reserved, SendError> {
        let bytes = batch.bytes();
        // While rows are made, the request is in memory once more if the queue holds it in another
        // form or not at all, and if it consists of several chunks.
        let again = usize::from(batch.held != bytes) + usize::from(batch.chunks.len() > 1);
        let copied = bytes.saturating_mul(again);
        let held = batch.held.saturating_add(BATCH_BYTES);
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
                if !is_enough || since.elapsed() >= PATIENCE {
                    self.close_largest().await;
                    since = Instant::now();
                }
                let _ = timeout(LOOK, freed).await;
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
        if self.finishing.load(Relaxed) >= FINISHING {
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

    async fn close_for_queue(self: &Arc<Self>, signal: Signal) {
        let Some(queue) = self.setup.queue else {
            return;
        };
        if self.finishing.load(Relaxed) >= FINISHING {
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

    fn relief(&self, signal: Signal) -> &Relief {
        #[allow(clippy::indexing_slicing, reason = "there is one for each signal")]
        &self.relief[signal.index()]
    }

    async fn close_surplus(self: &Arc<Self>) {
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

    fn finish(self: &Arc<Self>, open: Open, early: Option<Early>) {
        if let Some(early) = early {
            self.metrics.early(early).increment(1);
            self.log_early(early);
        }
        let signal = open.part.key.kind.signal();
        let closed = open.close();
        let closing = self.relief(signal).closing(closed.room);
        self.metrics.open.set(self.open.get() as f64);
        self.finishing.fetch_add(1, Relaxed);
        let files = self.clone();
        self.tasks.spawn(async move {
            let counted = (Counted(&files.finishing), closing);
            let _turn = files.turns.acquire().await;
            let Setup {
                place,
                layout,
                memory,
                ..
            } = &files.setup;
            let outcome = closed.part.finish(place, layout, memory).await;
            match &outcome {
                Ok(finished) => {
                    if let Some(finished) = finished {
                        files.finished(&closed.part, *finished).await;
                    }
                    closed.tell(Ok(()));
                }
                Err(error) => files.failed(&closed, error),
            }
            // Before the batches are released, so that a batch that waits for room finds it.
            drop(counted);
            drop(closed);
        });
    }

    fn log_early(&self, early: Early) {
        #[allow(clippy::indexing_slicing, reason = "there is one for each reason")]
        let log = &self.early[early as usize];
        if let Some(suppressed) = log.admit() {
            warn!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                reason = early.explanation(),
                suppressed = (suppressed > 0).then_some(suppressed),
                "Finished a file before it reached the limits of `rotation`"
            );
        }
    }

    async fn finished(self: &Arc<Self>, part: &Arc<Part>, finished: Finished) {
        self.metrics.finished(part, finished);
        if self.setup.manifest.is_none() {
            return;
        }
        let (files, part) = (self.clone(), part.clone());
        let added = spawn_blocking(move || match &files.setup.manifest {
            Some(manifest) => manifest.add(&part, finished),
            None => Ok(()),
        });
        if let Ok(Err(error)) = added.await
            && let Some(suppressed) = self.failures.admit()
        {
            error!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                %error,
                suppressed = (suppressed > 0).then_some(suppressed),
                "Cannot add a finished file to the manifest; check the directory and the disk"
            );
        }
    }

    fn failed(&self, closed: &Closed, error: &PlaceError) {
        let lost = SendError::transient(Code::Unavailable, error.to_string());
        closed.tell(Err(&lost));
        self.metrics.failures.increment(1);
        if let Some(suppressed) = self.failures.admit() {
            error!(
                otelcol.component.id = %self.setup.id,
                otelcol.component.kind = "exporter",
                file = closed.part.path,
                %error,
                suppressed = (suppressed > 0).then_some(suppressed),
                "Cannot write a file; its batches are retried, or refused if there is no queue. Check the \
                 directory and the disk, or the object store"
            );
        }
    }

    async fn line(&self, signal: Signal) -> OwnedMutexGuard<()> {
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

/// Memory for rows of a batch, and the turn of the batch at making them.
pub(super) struct Reserved {
    _memory: Charge,
    _line: OwnedMutexGuard<()>,
}

/// A batch whose rows are being made.
struct Taking<'a>(&'a Files);

impl<'a> Taking<'a> {
    fn new(files: &'a Files) -> Self {
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
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    fn new(id: &ComponentId) -> Self {
        let id = id.to_string();
        let early = |reason: &'static str| {
            counter!(
                "tributary_exporter_parquet_early_files",
                "exporter" => id.clone(),
                "reason" => reason
            )
        };
        Metrics {
            open: gauge!("tributary_exporter_parquet_open_files", "exporter" => id.clone()),
            failures: counter!("tributary_exporter_parquet_failed_files", "exporter" => id.clone()),
            early: [early("memory"), early("open_files"), early("queue")],
            overflow: counter!("tributary_exporter_parquet_overflow_rows", "exporter" => id.clone()),
            id,
        }
    }

    fn early(&self, why: Early) -> &Counter {
        let [memory, files, queue] = &self.early;
        match why {
            Early::Memory => memory,
            Early::Files => files,
            Early::Queue => queue,
        }
    }

    fn finished(&self, part: &Part, finished: Finished) {
        let table = part.key.kind.name();
        for (name, value) in [
            ("tributary_exporter_parquet_files", 1),
            ("tributary_exporter_parquet_rows", finished.summary.rows),
            ("tributary_exporter_parquet_bytes", finished.bytes),
        ] {
            counter!(name, "exporter" => self.id.clone(), "table" => table).increment(value);
        }
    }
}
