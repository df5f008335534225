//! A queue on disk: requests are appended to a log, and read back when they can be sent.
//!
//! ```text
//! consume -> place -> append -> Ok        log -> feed -> [batcher] -> consumers -> acknowledge
//! ```
//!
//! Memory holds only the records that are sent next, within the queue's share of the memory budget. When the exporter
//! ends or is replaced, records that were read but not delivered are returned to the log for the next reader.

mod ahead;
mod feed;
mod record;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::Gauge;
use tokio::time::sleep;

use super::config::{Overflow, QueueConfig, Sizer};
use super::entry::Ledger;
use super::room::NoRoom;
use crate::component::{BuildContext, BuildError};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::Batch;
use crate::pipeline::episode::Episode;
use tributary_otlp::Signal;
use tributary_storage::{
    AppendError, Lease, Log, Logs, NewRecord, Next, QueueName, Record, Recovered, Storage,
};

pub(super) use feed::feed;
pub use record::decode;

use ahead::{Ahead, Credit};

/// Wait after a file could not be read.
const PAUSE: Duration = Duration::from_secs(1);

/// The log of one queue, and the state of its records in flight.
pub(super) struct Stored {
    lease: Lease,
    storage: Arc<Storage>,
    logs: Logs,
    name: QueueName,
    burying: tokio::sync::Mutex<()>,
    /// Episode in which the queue is full and drops its oldest data.
    dropping: Episode,
    recovered: Mutex<Option<Recovered>>,
    config: QueueConfig,
    /// Names of the headers that keep batches apart.
    headers: Vec<String>,
    signal: Signal,
    /// Units of the records that are being appended.
    reserved: Mutex<usize>,
    gauge: Gauge,
    ahead: Arc<Ahead>,
    /// Number of records that were read and are neither acknowledged nor returned.
    under_way: AtomicUsize,
    ledger: Arc<Ledger>,
    closed: AtomicBool,
}

/// Room for a record that is being appended. Released on drop, when the log counts the record or the append has failed.
pub(super) struct Place {
    stored: Arc<Stored>,
    units: usize,
}

/// The record that a request was read from. On drop, the record is acknowledged or returned to the log.
pub(super) struct Kept {
    stored: Arc<Stored>,
    record: Marked,
    /// The record's share of the read-ahead.
    credit: Mutex<Option<Credit>>,
    given_back: AtomicBool,
    /// Items that are already delivered or dropped. They are sent again if the record is returned.
    settled: AtomicUsize,
}

/// Result of a read.
enum Read {
    Records(Vec<(Kept, Record)>),
    Empty,
    /// Another exporter gets the records from now on.
    Ended,
}

/// A record without its content.
#[derive(Debug, Clone, Copy)]
struct Marked {
    sequence: u64,
    items: usize,
    place: tributary_storage::Place,
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
                "sending_queue::storage: the extension `{id}` does not run, or keeps no queues"
            ))
        })?;
        let name = QueueName {
            exporter: cx.id.clone(),
            signal,
        };
        let most = (config.sizer() == Sizer::Bytes).then_some(config.queue_size as u64);
        let opened = storage.open(&cx.stored_queues, &name, most);
        let (lease, recovered) =
            opened.map_err(|error| BuildError(format!("sending_queue::storage: {error}")))?;
        Ok(Some(Arc::new(Stored {
            lease,
            storage,
            logs: cx.stored_queues.clone(),
            name,
            burying: Default::default(),
            dropping: Episode::default(),
            recovered: Mutex::new(recovered),
            config: config.clone(),
            headers,
            signal,
            reserved: Mutex::default(),
            gauge: ledger.metrics.queue_size.clone(),
            ahead: Ahead::new(&cx.budget),
            under_way: AtomicUsize::new(0),
            ledger: ledger.clone(),
            closed: AtomicBool::new(false),
        })))
    }

    /// Takes the log over from an exporter that this one replaces, and logs the recovered data.
    pub(super) fn start(&self) {
        let recovered = self
            .recovered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
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
        self.lease.take_over();
        self.show();
    }

    fn report(&self, found: &Recovered) {
        let directory = self.log().directory().display();
        tracing::info!(
            %directory,
            records = found.records,
            items = found.items,
            bytes = found.bytes,
            took = ?found.took,
            "A stored queue is open. What it holds is sent; some of it may have been sent before."
        );
    }

    pub(super) fn log(&self) -> &Arc<Log> {
        self.lease.log()
    }

    /// Takes room for a batch. If configured to do so, drops older data or waits.
    pub(super) async fn place(self: &Arc<Self>, units: usize) -> Result<Place, NoRoom> {
        loop {
            let freed = self.log().freed();
            tokio::pin!(freed);
            // Registered before the check, so that no notification is lost.
            freed.as_mut().enable();
            let no_room = match self.try_place(units) {
                Ok(place) => {
                    self.drops_nothing();
                    return Ok(place);
                }
                Err(no_room) => no_room,
            };
            match no_room {
                NoRoom::Full if self.config.overflow == Overflow::DropOldest => {
                    if self.log().is_stuck() {
                        // Dropping data would not make room.
                        return Err(NoRoom::Full);
                    } else if self.log().is_freeing() {
                        freed.await;
                    } else if !self.drop_oldest().await {
                        return Err(NoRoom::Full);
                    }
                }
                NoRoom::Full if self.config.block_on_overflow => freed.await,
                no_room => return Err(no_room),
            }
        }
    }

    /// Logs that the queue has room again, and the data dropped meanwhile.
    fn drops_nothing(&self) {
        if let Some(ended) = self.dropping.over() {
            tracing::info!(
                directory = %self.log().directory().display(),
                lasted = ?ended.lasted,
                dropped_items = ended.items,
                "A stored queue has room again, and drops no data any more."
            );
        }
    }

    /// Whether less than a quarter of the queue would remain free after `units` more.
    pub(super) fn is_scarce(&self, units: usize) -> bool {
        let size = self.config.queue_size;
        self.held().saturating_add(units) > size - size / 4
    }

    fn try_place(self: &Arc<Self>, units: usize) -> Result<Place, NoRoom> {
        if self.closed.load(Relaxed) {
            return Err(NoRoom::Closed);
        }
        if units > self.config.queue_size {
            return Err(NoRoom::TooLarge);
        }
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.held().saturating_add(*reserved);
        if taken.saturating_add(units) > self.config.queue_size {
            self.log().make_room();
            return Err(NoRoom::Full);
        }
        *reserved += units;
        Ok(Place {
            stored: self.clone(),
            units,
        })
    }

    /// Drops the oldest record. Returns false if there was none.
    async fn drop_oldest(self: &Arc<Self>) -> bool {
        let Ok(Read::Records(records)) = self.next(1).await else {
            return false;
        };
        for (mut kept, record) in records {
            self.ledger.dropped(record.items, DropReason::QueueFull);
            if self.dropping.occurs(record.items) {
                tracing::error!(
                    directory = %self.log().directory().display(),
                    "A stored queue is full and drops its oldest data until it has room: check the next hop, or raise \
                     `sending_queue.queue_size`."
                );
            }
            kept.begin();
        }
        true
    }

    /// Returns the units that a record of this size takes.
    pub(super) fn units(&self, items: usize, bytes: usize) -> usize {
        match self.config.sizer() {
            Sizer::Requests => 1,
            // An empty request has a cost too.
            Sizer::Items => items.max(1),
            Sizer::Bytes => Log::bytes_for(bytes),
        }
    }

    /// Encodes a batch as a record. The two share their bytes.
    pub(super) fn record(&self, batch: &mut Batch) -> NewRecord {
        record::encode(batch, &self.headers)
    }

    /// Appends a record. The record is durable when this returns.
    pub(super) async fn append(&self, record: NewRecord) -> Result<(), AppendError> {
        let outcome = self.log().append(record).await;
        self.show();
        outcome
    }

    /// Adds a batch to the dead letters of this queue and returns their directory. The dead letters are opened for each
    /// batch, so that an operator can drain them while the collector runs.
    pub(super) async fn bury(&self, mut batch: Batch) -> Result<PathBuf, String> {
        let record = self.record(&mut batch);
        let _one_at_a_time = self.burying.lock().await;
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
    async fn next(self: &Arc<Self>, most: usize) -> io::Result<Read> {
        if let Some(read) = self.read(most, false)? {
            return Ok(read);
        }
        let stored = self.clone();
        let reading = tokio::task::spawn_blocking(move || stored.read(most, true));
        // Fails only if the runtime shuts down.
        let read = reading.await.unwrap_or(Ok(None))?;
        Ok(read.unwrap_or(Read::Ended))
    }

    /// Returns `None` if the read would need the disk and `from_disk` is false.
    fn read(self: &Arc<Self>, most: usize, from_disk: bool) -> io::Result<Option<Read>> {
        Ok(Some(match self.lease.next(most, from_disk)? {
            Next::Records(records) => {
                let records = records.into_iter();
                Read::Records(
                    records
                        .map(|record| (Kept::new(self, &record), record))
                        .collect(),
                )
            }
            Next::Empty => Read::Empty,
            Next::Ended => Read::Ended,
            Next::OnDisk => return Ok(None),
        }))
    }

    /// Returns the bytes of read-ahead that a record takes. Records in memory cannot be dropped in favour of new ones,
    /// so with `drop_oldest` at least half of the queue stays on disk.
    fn ahead_of(&self, record: &Record) -> usize {
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
    fn held(&self) -> usize {
        let usage = self.log().usage();
        count(match self.config.sizer() {
            Sizer::Requests => usage.records,
            Sizer::Items => usage.items,
            Sizer::Bytes => usage.bytes,
        })
    }

    /// Updates the queue metrics and counts records that turned out to be lost.
    fn show(&self) {
        let lost = self.log().take_lost_items();
        if lost > 0 {
            self.ledger.damaged(count(lost));
        }
        if self.lease.reads() {
            self.gauge.set(self.held() as f64);
        }
    }

    /// Whether there is nothing left to do: all data is delivered, or another exporter has taken over.
    pub(super) fn idle(&self) -> bool {
        self.under_way.load(Relaxed) == 0
            && (self.log().usage().records == 0 || !self.lease.reads())
    }

    /// Whether this queue delivers the records of the log.
    pub(super) fn reads(&self) -> bool {
        !self.closed.load(Relaxed) && self.lease.reads()
    }

    /// Refuses new records and wakes senders that wait.
    pub(super) fn stop(&self) {
        self.closed.store(true, Relaxed);
        self.log().wake();
    }

    /// Releases the log. The last user to do so writes everything and releases the lock before this returns.
    pub(super) async fn close(self: &Arc<Self>) {
        let stored = self.clone();
        let closed = tokio::task::spawn_blocking(move || stored.lease.close()).await;
        if matches!(closed, Ok(true)) {
            // Closing the log detects lost records.
            self.show();
            let left = self.log().usage().items;
            self.ledger.metrics.kept(count(left));
            self.gauge.set(0.0);
            if left > 0 {
                tracing::info!(
                    directory = %self.log().directory().display(), items = left,
                    "A stored queue is closed. What it holds is sent when it is opened again."
                );
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut reserved = self
            .stored
            .reserved
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *reserved -= self.units;
        drop(reserved);
        self.stored.log().room_given_back();
    }
}

impl Kept {
    /// A record dropped before [`begin`](Self::begin) returns to the log.
    fn new(stored: &Arc<Stored>, record: &Record) -> Self {
        stored.under_way.fetch_add(1, Relaxed);
        Kept {
            stored: stored.clone(),
            record: Marked {
                sequence: record.sequence,
                items: record.items,
                place: record.place,
            },
            credit: Mutex::new(None),
            given_back: AtomicBool::new(true),
            settled: AtomicUsize::new(0),
        }
    }

    /// From now on, dropping the record acknowledges it, unless [`give_back`](Self::give_back) is called first.
    fn begin(&mut self) {
        *self.given_back.get_mut() = false;
    }

    /// Returns the number of items in the record.
    pub(super) fn items(&self) -> usize {
        self.record.items
    }

    /// Returns the record to the log, whose next reader sends it again.
    pub(super) fn give_back(&self) {
        self.given_back.store(true, Relaxed);
    }

    /// Counts items that were delivered or dropped.
    pub(super) fn settle(&self, items: usize) {
        self.settled.fetch_add(items, Relaxed);
    }

    /// Releases the read-ahead credit, because the content is not in memory. Other records may be read instead.
    pub(super) fn unloaded(&self) {
        self.credit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// Reads the content again. Returns `None` if the record is damaged.
    pub(super) async fn reload(&self) -> Option<Batch> {
        loop {
            let log = self.stored.log().clone();
            let Marked {
                sequence, place, ..
            } = self.record;
            let read = tokio::task::spawn_blocking(move || log.reread(sequence, place)).await;
            match read {
                Ok(Ok(record)) => {
                    let record = record?;
                    let permit = self.stored.ahead.memory(record.bytes());
                    let mut batch = record::decode(record.parts, record.items)?;
                    batch.hold(permit);
                    return Some(batch);
                }
                Ok(Err(error)) => {
                    tracing::error!(%error, "A stored queue cannot be read. It is tried again.");
                    sleep(PAUSE).await;
                }
                Err(_) => return None,
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Marked {
            sequence,
            items,
            place,
        } = self.record;
        let log = self.stored.log();
        if *self.given_back.get_mut() {
            // These items are counted again when they are sent again.
            self.stored
                .ledger
                .metrics
                .recovered(*self.settled.get_mut());
            log.give_back(sequence, place);
        } else {
            log.acknowledge(sequence, items);
        }
        self.stored.under_way.fetch_sub(1, Relaxed);
        self.stored.show();
    }
}

/// Saturates above the size of any memory.
fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
