//! A queue on disk: requests are appended to a log, and read back when they can be sent.
//!
//! ```text
//! consume -> reserve -> append -> Ok        log -> feed -> [batcher] -> consumers -> acknowledge
//! ```
//!
//! Only the records that are sent next are in memory, within the queue's share of the memory budget. When the exporter
//! ends or is replaced, records that were read but not delivered return to the log for the next reader.

mod ahead;
mod handle;
pub(super) mod record;
mod reservation;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use metrics::Gauge;
use parking_lot::Mutex;

use super::config::{Overflow, QueueConfig, Sizer};
use super::ledger::Ledger;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::batch::Batch;
use crate::pipeline::episode::Episode;
use ahead::Ahead;
pub(super) use ahead::Credit;
pub(super) use handle::RecordHandle;
pub use record::decode;
pub(super) use reservation::LogReservation;
use tributary_otlp::Signal;
use tributary_storage::{
    AppendError, Lease, Log, LogRegistry, NewRecord, QueueName, ReadResult, Record, Recovered,
    Storage,
};

/// Wait after a failed read of a file.
pub(super) const READ_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The log of one queue, and the state of its records in flight.
pub(super) struct Stored {
    lease: Lease,
    storage: Arc<Storage>,
    logs: LogRegistry,
    name: QueueName,
    dead_letter_lock: tokio::sync::Mutex<()>,
    /// Episode in which the queue is full and drops its oldest data.
    dropping: Episode,
    recovered: Mutex<Option<Recovered>>,
    config: QueueConfig,
    /// Names of the headers whose values must be equal within a batch.
    headers: Vec<String>,
    pub(super) signal: Signal,
    /// Units of the records that are being appended.
    reserved: Mutex<usize>,
    gauge: Gauge,
    pub(super) ahead: Arc<Ahead>,
    /// Number of records that were read and are neither acknowledged nor returned.
    in_flight: AtomicUsize,
    ledger: Arc<Ledger>,
    closed: AtomicBool,
}

/// Result of a read.
pub(super) enum Read {
    Records(Vec<(RecordHandle, Record)>),
    Empty,
    /// Another exporter gets the records from now on.
    Ended,
}

impl Stored {
    /// Opens the log of an exporter's queue, if the queue has `storage`.
    pub(super) fn open(
        cx: &BuildContext,
        signal: Signal,
        config: &QueueConfig,
        headers: Vec<String>,
        ledger: &Arc<Ledger>,
    ) -> Result<Option<Arc<Self>>, BuildError> {
        let Some(id) = &config.storage else {
            return Ok(None);
        };
        let storage = cx.extensions.get(id).storage.ok_or_else(|| {
            BuildError(format!(
                "sending_queue::storage: the extension `{id}` is not running or is not a storage extension; name a \
                 `file_storage` extension that `service.extensions` lists"
            ))
        })?;
        let name = QueueName {
            exporter: cx.id.clone(),
            signal,
        };
        let max_bytes = (config.sizer() == Sizer::Bytes).then_some(config.queue_size as u64);
        let opened = storage.open(&cx.stored_queues, &name, max_bytes);
        let (lease, recovered) =
            opened.map_err(|error| BuildError(format!("sending_queue::storage: {error}")))?;
        Ok(Some(Arc::new(Stored {
            lease,
            storage,
            logs: cx.stored_queues.clone(),
            name,
            dead_letter_lock: Default::default(),
            dropping: Episode::default(),
            recovered: Mutex::new(recovered),
            config: config.clone(),
            headers,
            signal,
            reserved: Mutex::default(),
            gauge: ledger.metrics.queue_size.clone(),
            ahead: Ahead::new(&cx.budget),
            in_flight: AtomicUsize::new(0),
            ledger: ledger.clone(),
            closed: AtomicBool::new(false),
        })))
    }

    /// Acquires the log from the replaced exporter, and reports the recovered data.
    pub(super) fn start(&self) {
        let recovered = self.recovered.lock().take();
        if let Some(recovered) = recovered {
            self.ledger.metrics.recovered(count(recovered.items));
            // The number of items is unknown, but it is at least one per record.
            let lost = count(recovered.lost_records);
            if lost > 0 {
                self.ledger.metrics.recovered(lost);
                self.ledger.damaged(lost);
            }
            self.report(&recovered);
        }
        self.lease.become_reader();
        self.update_metrics();
    }

    fn report(&self, found: &Recovered) {
        let directory = self.log().directory().display();
        tracing::info!(
            %directory,
            records = found.records,
            items = found.items,
            bytes = found.bytes,
            took = ?found.took,
            "Opened a queue on disk. Its backlog is sent now; some items may be delivered twice."
        );
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        self.lease.log()
    }

    /// Returns the units that a record of this size takes.
    pub(super) fn units(&self, items: usize, bytes: usize) -> usize {
        match self.config.sizer() {
            Sizer::Requests => 1,
            // An empty request also takes space.
            Sizer::Items => items.max(1),
            Sizer::Bytes => Log::bytes_for(bytes),
        }
    }

    /// Encodes a batch as a record, which shares the bytes of the batch.
    pub(super) fn record(&self, batch: &mut Batch) -> NewRecord {
        record::encode(batch, &self.headers)
    }

    /// Appends a record durably.
    pub(super) async fn append(&self, record: NewRecord) -> Result<(), AppendError> {
        let outcome = self.log().append(record).await;
        self.update_metrics();
        outcome
    }

    /// Adds a batch to the dead letters of this queue and returns their directory. The dead letters are opened for each
    /// batch, so that an operator can drain them while the collector runs.
    pub(super) async fn add_dead_letter(&self, mut batch: Batch) -> Result<PathBuf, String> {
        let record = self.record(&mut batch);
        let _guard = self.dead_letter_lock.lock().await;
        let (storage, logs, name) = (self.storage.clone(), self.logs.clone(), self.name.clone());
        let open = move || storage.open_dead_letters(&logs, &name);
        let opened = tokio::task::spawn_blocking(open).await;
        let lease = opened
            .map_err(|error| error.to_string())?
            .map_err(|error| error.to_string())?;
        let directory = lease.log().directory().to_owned();
        let appended = lease.log().append(record).await;
        // Closing waits for the disk.
        let closed = tokio::task::spawn_blocking(move || lease.close()).await;
        appended.map_err(|error| error.to_string())?;
        closed.map_err(|error| error.to_string())?;
        Ok(directory)
    }

    /// Returns the next records, reading from disk if necessary. Records that are dropped return to the log.
    pub(super) async fn next(self: &Arc<Self>, max_bytes: usize) -> io::Result<Read> {
        if let Some(read) = self.read(max_bytes, false)? {
            return Ok(read);
        }
        let stored = self.clone();
        let reading = tokio::task::spawn_blocking(move || stored.read(max_bytes, true));
        // The task fails only if the runtime shuts down.
        let read = reading.await.unwrap_or(Ok(None))?;
        Ok(read.unwrap_or(Read::Ended))
    }

    /// Returns `None` if the read would need the disk and `from_disk` is false.
    fn read(self: &Arc<Self>, max_bytes: usize, from_disk: bool) -> io::Result<Option<Read>> {
        Ok(Some(match self.lease.next(max_bytes, from_disk)? {
            ReadResult::Records(records) => {
                let records = records.into_iter();
                Read::Records(
                    records
                        .map(|record| (RecordHandle::new(self, &record), record))
                        .collect(),
                )
            }
            ReadResult::Empty => Read::Empty,
            ReadResult::Ended => Read::Ended,
            ReadResult::OnDisk => return Ok(None),
        }))
    }

    /// Returns the bytes of read-ahead that a record takes. Records in memory cannot be dropped in favour of new ones,
    /// so with `drop_oldest` at least half of the queue stays on disk.
    pub(super) fn ahead_of(&self, record: &Record) -> usize {
        let bytes = record.bytes();
        if self.config.overflow != Overflow::DropOldest {
            return bytes;
        }
        let units = self.units(record.items, bytes);
        let allowance = self.ahead.allowance() as u128;
        let share = 2 * units as u128 * allowance / self.config.queue_size.max(1) as u128;
        bytes.max(usize::try_from(share).unwrap_or(usize::MAX))
    }

    /// Returns the units of the records in the log.
    fn used_units(&self) -> usize {
        let usage = self.log().usage();
        count(match self.config.sizer() {
            Sizer::Requests => usage.records,
            Sizer::Items => usage.items,
            Sizer::Bytes => usage.bytes,
        })
    }

    /// Updates the queue metrics, and counts lost records.
    pub(super) fn update_metrics(&self) {
        let lost = self.log().take_lost_items();
        if lost > 0 {
            self.ledger.damaged(count(lost));
        }
        if self.lease.reads() {
            self.gauge.set(self.used_units() as f64);
        }
    }

    /// Whether all data is delivered, or another exporter has acquired the log.
    pub(super) fn idle(&self) -> bool {
        self.in_flight.load(Relaxed) == 0
            && (self.log().usage().records == 0 || !self.lease.reads())
    }

    /// Whether this queue delivers the records of the log.
    pub(super) fn reads(&self) -> bool {
        !self.closed.load(Relaxed) && self.lease.reads()
    }

    /// Refuses new records and wakes waiting senders.
    pub(super) fn stop(&self) {
        self.closed.store(true, Relaxed);
        self.log().wake();
    }

    /// Releases the log. The last user writes everything and releases the lock before this call returns.
    pub(super) async fn close(self: &Arc<Self>) {
        let stored = self.clone();
        let closed = tokio::task::spawn_blocking(move || stored.lease.close()).await;
        if matches!(closed, Ok(true)) {
            // Closing the log detects lost records.
            self.update_metrics();
            let left = self.log().usage().items;
            self.ledger.metrics.kept(count(left));
            self.gauge.set(0.0);
            if left > 0 {
                tracing::info!(
                    directory = %self.log().directory().display(), items = left,
                    "Closed a queue on disk. Its backlog stays on disk and is sent when the queue is opened again."
                );
            }
        }
    }
}

/// Converts a count, saturating.
fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
