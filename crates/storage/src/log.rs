//! The public interface of an open log.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{Notify, oneshot};
use tracing::{error, warn};

use super::disk::Disk;
use super::format::{
    BLOCK_HEADER, BlockHeader, LARGEST_RECORD, Marker, RECORD_HEADER, segment_name, segment_number,
};
use super::lock::Lock;
use super::read::{Place, Reader, Record};
use super::recovery::{Recovered, recover};
use super::scan::Unreadable;
use super::state::Segments;
use super::writer::Writer;
use super::{AppendError, NewRecord, OpenError, Options, Usage};
use crate::metrics::StorageMetrics;

/// Maximum size of recently written blocks in memory, in bytes, uncompressed. A reader that keeps up reads from them.
/// The size exceeds the bytes in flight from which upstream senders wait (see `queue/pace`).
const RECENT_BYTES: usize = 10 << 20;
/// The same limit while the reader is behind. The reader needs these blocks only after it has read the files.
const RECENT_BYTES_BEHIND: usize = 4 << 20;

/// A durable queue of records. Owned through [`Lease`](super::Lease)s.
pub struct Log {
    pub(super) shared: Arc<Shared>,
    pub(super) reader: Mutex<Reader>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// State shared between the writer thread and the users of the log.
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) marker: Marker,
    pub(super) metrics: StorageMetrics,
    state: Mutex<State>,
    pub(super) unreadable: Arc<Unreadable>,
    /// Wakes the writer.
    pub(super) work: Condvar,
    /// Notified when there are records to read, or when the reading lease changes.
    pub(super) readable: Notify,
    /// Notified when records are acknowledged or removed.
    pub(super) freed: Notify,
}

pub(super) struct State {
    pub(super) segments: Segments,
    pub(super) waiting: VecDeque<Append>,
    pub(super) options: Options,
    /// Number of the lease that reads.
    pub(super) lease: u64,
    /// Returned records, ordered by sequence number.
    pub(super) again: BTreeMap<u64, Place>,
    pub(super) recent: Recent,
    /// Whether the position on disk is outdated.
    pub(super) moved: bool,
    pub(super) closing: bool,
    /// Whether the last segment should be removed if possible.
    pub(super) room_wanted: bool,
    /// Whether the removal of finished segments fails, so that no space is freed.
    pub(super) stuck: bool,
    /// Number of waiting appends at which the idle writer must be woken. Other work wakes it as well. 0 while the
    /// writer is busy.
    pub(super) wanted: usize,
}

/// A record that waits for the writer.
pub(super) struct Append {
    pub(super) record: NewRecord,
    pub(super) answer: oneshot::Sender<Result<(), AppendError>>,
}

/// Recently written blocks.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Ordered by sequence number, without gaps.
    blocks: VecDeque<RecentBlock>,
    bytes: usize,
    /// Maximum size in bytes, if that is less than the constants.
    limit: usize,
    /// Sequence number behind the last block.
    end: u64,
    /// Sequence number of the next record that the reader has not received from a block here.
    read: u64,
}

/// A recently written block. It shares the bytes of the appended records.
#[derive(Debug, Clone)]
pub(super) struct RecentBlock {
    pub(super) header: BlockHeader,
    pub(super) records: Arc<[NewRecord]>,
    pub(super) place: Place,
}

impl Log {
    /// Opens the log in an existing directory.
    pub(super) fn open(
        directory: &Path,
        options: Options,
        disk: Arc<dyn Disk>,
        metrics: StorageMetrics,
    ) -> Result<(Self, Recovered), OpenError> {
        let lock = Lock::take(directory, options.lock_timeout, options.file_mode)?;
        let plan = recover(directory, Some(&*disk))?;
        let recovered = plan.recovered;
        report(directory, &recovered);
        metrics
            .damaged_blocks
            .increment(recovered.damaged.len() as u64);
        metrics.lost_records.increment(recovered.lost_records);
        metrics.recovered_records.increment(recovered.records);
        let start = plan.segments.acknowledged.watermark();
        let known = recovered.damaged.iter().filter_map(|(path, at, _)| {
            let name = path.file_name()?.to_str()?;
            Some(Place {
                segment: segment_number(name)?,
                at: *at,
            })
        });
        let known = known.collect();
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            marker: plan.marker,
            metrics,
            state: Mutex::new(State {
                segments: plan.segments,
                waiting: VecDeque::new(),
                options,
                lease: 0,
                again: BTreeMap::new(),
                recent: Recent {
                    limit: RECENT_BYTES,
                    ..Recent::default()
                },
                moved: true,
                closing: false,
                room_wanted: false,
                stuck: false,
                wanted: 0,
            }),
            unreadable: Arc::default(),
            work: Condvar::new(),
            readable: Notify::new(),
            freed: Notify::new(),
        });
        let writer = Writer::new(shared.clone(), disk, lock, plan.next, plan.follows);
        let thread = std::thread::Builder::new()
            .name("storage".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| OpenError::Io {
                doing: "start a thread for",
                path: directory.to_owned(),
                error,
            })?;
        let log = Log {
            reader: Mutex::new(Reader::new(start, known)),
            shared,
            writer: Mutex::new(Some(thread)),
        };
        Ok((log, recovered))
    }

    /// Returns the directory of the log.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Appends a record. Waits until the record is as durable as the options say.
    ///
    /// If the future is dropped, the record may be appended anyway.
    ///
    /// # Errors
    /// The record cannot be written. It is never handed out then.
    pub async fn append(&self, record: NewRecord) -> Result<(), AppendError> {
        let len = record.len();
        if len > LARGEST_RECORD {
            return Err(AppendError::TooLarge(len));
        }
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.closing {
                return Err(AppendError::Closed);
            }
            state.waiting.push_back(Append { record, answer });
            if state.waiting.len() >= state.wanted {
                self.shared.tell_writer(state);
            }
        }
        answered.await.unwrap_or(Err(AppendError::Closed))
    }

    /// Returns the maximum size on disk of a record of `len` bytes.
    pub fn bytes_for(len: usize) -> usize {
        len + RECORD_HEADER + BLOCK_HEADER
    }

    /// Acknowledges a record, so that it is not handed out again. Call it once for each record that was handed out and
    /// not given back.
    pub fn acknowledge(&self, sequence: u64, items: usize) {
        let mut state = self.shared.lock();
        if !state.segments.acknowledge(sequence, items as u64) {
            return;
        }
        if !state.moved || state.segments.has_finished() {
            state.moved = true;
            self.shared.tell_writer(state);
        } else {
            drop(state);
        }
        self.shared.freed.notify_waiters();
    }

    /// Returns a record to the log, which hands it out again.
    pub fn give_back(&self, sequence: u64, place: Place) {
        self.shared.lock().again.insert(sequence, place);
        self.shared.readable.notify_waiters();
    }

    /// Removes the last segment too, if all of it is acknowledged, and the file kept for the next segment. Without this
    /// call, the last segment stays until it reaches the segment size.
    pub fn make_room(&self) {
        let mut state = self.shared.lock();
        if state.segments.last_is_done() || state.segments.has_spare() {
            state.room_wanted = true;
            self.shared.tell_writer(state);
        }
    }

    /// Whether the removal of finished segments fails, so that no space is freed.
    pub fn is_stuck(&self) -> bool {
        self.shared.lock().stuck
    }

    /// Whether segments are about to be removed, so that space is freed soon. This includes removals requested by
    /// [`make_room`](Self::make_room).
    pub fn is_freeing(&self) -> bool {
        let state = self.shared.lock();
        state.room_wanted || state.segments.has_spare() || state.segments.is_freeing()
    }

    /// Returns the number of appends that the writer has not started.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Whether the writer has nothing to do.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().wanted > 0
    }

    /// Returns the size of the unacknowledged part.
    pub fn usage(&self) -> Usage {
        self.shared.lock().segments.usage()
    }

    /// Returns the items in damaged blocks found since the last call. Until then they counted as part of the usage.
    pub fn take_lost_items(&self) -> u64 {
        self.shared.lock().segments.take_lost_items()
    }

    /// Completes when records are acknowledged or removed after this call.
    pub fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.shared.freed.notified()
    }

    /// Completes when there may be new records to read after this call.
    pub fn readable(&self) -> tokio::sync::futures::Notified<'_> {
        self.shared.readable.notified()
    }

    /// Whether the reader finds its next records in memory.
    pub fn keeps_up(&self) -> bool {
        !self.shared.lock().recent.is_behind()
    }

    /// Limits the recently written blocks in memory to `bytes`.
    pub fn keep_recent(&self, bytes: usize) {
        let mut state = self.shared.lock();
        state.recent.limit = bytes;
        state.recent.let_go();
    }

    /// Wakes all tasks that wait for records or room, so that they check again.
    pub fn wake(&self) {
        self.shared.readable.notify_waiters();
        self.shared.freed.notify_waiters();
    }

    /// Wakes all tasks that wait for room, so that they check again.
    pub fn room_given_back(&self) {
        self.shared.freed.notify_waiters();
    }

    /// Makes `lease` the only reader, with its options.
    pub(super) fn hand_over_to(&self, lease: u64, options: Options) {
        let mut state = self.shared.lock();
        state.lease = lease;
        state.options = options;
        drop(state);
        self.shared.readable.notify_waiters();
    }

    pub(super) fn reads(&self, lease: u64) -> bool {
        self.shared.lock().lease == lease
    }

    /// Writes waiting records and the position, and releases the lock. Blocks until that is done.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.tell_writer(state);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take() {
            // A writer that panicked has released the lock too.
            let _ = thread.join();
        }
        self.shared.readable.notify_waiters();
        self.shared.freed.notify_waiters();
    }
}

/// Logs problems found at the start. This happens for every opener, and before a write that erases the evidence.
fn report(directory: &Path, found: &Recovered) {
    let directory = directory.display();
    for (file, offset, bytes) in &found.damaged {
        error!(
            file = %file.display(), offset, bytes,
            "A block of a stored queue is damaged. It is skipped."
        );
    }
    if found.lost_records > 0 {
        error!(
            %directory, records = found.lost_records,
            "Records of a stored queue were in damaged blocks. They are lost."
        );
    }
    if found.position_lost {
        warn!(
            %directory,
            "What of a stored queue was delivered cannot be read. All that is there is sent again."
        );
    }
    if found.cut_bytes > 0 {
        warn!(
            %directory, bytes = found.cut_bytes,
            "The last write to a stored queue was not finished. It is cut off."
        );
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.shared.directory).finish()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock. If it did, the state would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the writer if it is idle. A busy writer checks for work without the system call.
    pub(super) fn tell_writer(&self, mut state: MutexGuard<'_, State>) {
        let wanted = std::mem::take(&mut state.wanted);
        drop(state);
        if wanted > 0 {
            self.work.notify_one();
        }
    }

    pub(super) fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(segment_name(segment))
    }

    /// Updates the disk usage metrics.
    pub(super) fn show(&self, state: &State) {
        self.metrics.bytes.set(state.segments.usage().bytes as f64);
        self.metrics.segments.set(state.segments.len() as f64);
    }
}

impl RecentBlock {
    /// Returns the approximate memory use in bytes.
    fn bytes(&self) -> usize {
        self.records.iter().map(NewRecord::bytes_in_memory).sum()
    }

    /// Returns the records of the block for the reader.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        let numbered = (self.header.first..).zip(&*self.records);
        numbered.map(|(sequence, record)| Record {
            sequence,
            items: record.items,
            parts: record.parts.clone(),
            place: self.place,
            permit: record.permit.clone(),
            memory: record.memory.clone(),
        })
    }
}

impl Recent {
    /// Whether the reader's next records are only on disk.
    pub(super) fn is_behind(&self) -> bool {
        let front = self.blocks.front();
        front.map_or(self.end, |front| front.header.first) > self.read
    }

    /// Adds the newest block.
    pub(super) fn push(&mut self, block: RecentBlock) {
        if self
            .blocks
            .back()
            .is_some_and(|last| last.header.end() != block.header.first)
        {
            self.clear();
        }
        self.bytes += block.bytes();
        self.end = block.header.end();
        self.blocks.push_back(block);
        self.let_go();
    }

    /// Drops the oldest blocks until the rest is within the limits.
    fn let_go(&mut self) {
        let (most, behind) = (
            self.limit.min(RECENT_BYTES),
            (self.limit / 2).min(RECENT_BYTES_BEHIND),
        );
        while self.bytes > most || self.is_behind() && self.bytes > behind {
            self.pop();
        }
    }

    /// Records that the reader has received all records before `next`.
    pub(super) fn read_to(&mut self, next: u64) {
        self.read = next;
    }

    /// Returns the block that contains `sequence`. Blocks before it have been read and are dropped.
    pub(super) fn take(&mut self, sequence: u64) -> Option<RecentBlock> {
        while self
            .blocks
            .front()
            .is_some_and(|block| block.header.end() <= sequence)
        {
            self.pop();
        }
        self.read_to(sequence);
        let front = self.blocks.front()?;
        (front.header.first <= sequence).then(|| front.clone())
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.bytes = 0;
    }

    fn pop(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            self.bytes -= block.bytes();
        }
    }
}
