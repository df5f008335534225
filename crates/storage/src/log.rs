//! The public interface of an open log.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{Notify, oneshot};
use tracing::{error, warn};

use super::disk::Disk;
use super::format::{BLOCK_HEADER, MAX_RECORD_BYTES, RECORD_HEADER, segment_number};
use super::lock::Lock;
use super::read::Reader;
use super::recent::Recent;
use super::record::{ReadResult, Record, RecordLocation};
use super::recovery::{Recovered, recover};
use super::shared::{Append, Shared, State};
use super::writer::Writer;
use super::{AppendError, NewRecord, OpenError, Options, Usage};
use crate::metrics::StorageMetrics;

/// A durable queue of records. Owned through [`Lease`](super::Lease)s.
pub struct Log {
    pub(super) shared: Arc<Shared>,
    reader: Mutex<Reader>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
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
        let segment_bytes = options.segment_bytes;
        let known = recovered.damaged.iter().filter_map(|(path, at, _)| {
            let name = path.file_name()?.to_str()?;
            Some(RecordLocation {
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
                recent: Recent::new(usize::try_from(segment_bytes).unwrap_or(usize::MAX)),
                moved: true,
                closing: false,
                room_wanted: false,
                stuck: false,
                is_idle: false,
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

    /// Appends a record, and waits until the record is as durable as the options require.
    ///
    /// If the future is dropped, the record may be appended anyway.
    ///
    /// # Errors
    /// The record cannot be written. A refused record is never handed out.
    pub async fn append(&self, record: NewRecord) -> Result<(), AppendError> {
        let len = record.len();
        if len > MAX_RECORD_BYTES {
            return Err(AppendError::TooLarge(len));
        }
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if state.closing {
                return Err(AppendError::Closed);
            }
            state.waiting.push_back(Append { record, answer });
            self.shared.wake_writer(state);
        }
        answered.await.unwrap_or(Err(AppendError::Closed))
    }

    /// Returns the maximum size on disk of a record of `len` bytes.
    pub fn bytes_for(len: usize) -> usize {
        len + RECORD_HEADER + BLOCK_HEADER
    }

    /// Acknowledges a record, so that it is not handed out again. Call it once for each record that was handed out and
    /// not returned by `requeue`.
    pub fn acknowledge(&self, sequence: u64, items: usize) {
        let mut state = self.shared.lock();
        if !state.segments.acknowledge(sequence, items as u64) {
            return;
        }
        if !state.moved || state.segments.has_finished() {
            state.moved = true;
            self.shared.wake_writer(state);
        } else {
            drop(state);
        }
        self.shared.freed.notify_waiters();
    }

    /// Returns up to `most` bytes of the next records, and at least one record if any is left. With `from_disk`, the
    /// call may block on the disk.
    ///
    /// # Errors
    /// Files cannot be read. Damaged content is not an error.
    pub(super) fn next(&self, lease: u64, most: usize, from_disk: bool) -> io::Result<ReadResult> {
        self.shared.next(&self.reader, lease, most, from_disk)
    }

    /// Reads a record again that was handed out before. Returns `None` if the record is now damaged.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn reread(&self, sequence: u64, location: RecordLocation) -> io::Result<Option<Record>> {
        self.shared.reread(sequence, location)
    }

    /// Returns a record to the log, which hands it out again.
    pub fn requeue(&self, sequence: u64, location: RecordLocation) {
        self.shared.lock().again.insert(sequence, location);
        self.shared.readable.notify_waiters();
    }

    /// Removes a completely acknowledged last segment, and the file for reuse by the next segment. Without this call,
    /// the last segment stays until it reaches the segment size.
    pub fn make_room(&self) {
        let mut state = self.shared.lock();
        if state.segments.last_is_done() || state.segments.has_spare() {
            state.room_wanted = true;
            self.shared.wake_writer(state);
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

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().is_idle
    }

    /// Returns the size of the unacknowledged part.
    pub fn usage(&self) -> Usage {
        self.shared.lock().segments.usage()
    }

    /// Returns the items in damaged blocks found since the last call. Until this call they counted as part of the
    /// usage.
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
    #[cfg(test)]
    pub(super) fn keeps_up(&self) -> bool {
        !self.shared.lock().recent.is_behind()
    }

    /// Limits the recently written blocks in memory to `bytes`. Before the first call, the limit is the segment size.
    pub fn keep_recent(&self, bytes: usize) {
        self.shared.lock().recent.limit_to(bytes);
    }

    /// Wakes all tasks that wait for records or room, so that they check again.
    pub fn wake(&self) {
        self.shared.readable.notify_waiters();
        self.shared.freed.notify_waiters();
    }

    /// Wakes all tasks that wait for room, so that they check again.
    pub fn notify_room(&self) {
        self.shared.freed.notify_waiters();
    }

    /// Makes `lease` the only reader, with its options.
    pub(super) fn set_reader(&self, lease: u64, options: Options) {
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
        self.shared.wake_writer(state);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take() {
            // A panicked writer has released the lock too.
            let _ = thread.join();
        }
        self.shared.readable.notify_waiters();
        self.shared.freed.notify_waiters();
    }
}

/// Every opener logs these problems, before a write erases the evidence.
fn report(directory: &Path, found: &Recovered) {
    let directory = directory.display();
    for (file, offset, bytes) in &found.damaged {
        error!(
            file = %file.display(), offset, bytes,
            "Skipped a damaged block of a queue on disk."
        );
    }
    if found.lost_records > 0 {
        error!(
            %directory, records = found.lost_records,
            "Records of a queue on disk were lost, because their blocks are damaged. Check the disk."
        );
    }
    if found.position_lost {
        warn!(
            %directory,
            "Cannot read the position of a queue on disk. All records in its files are sent again, so some are \
             delivered twice."
        );
    }
    if found.cut_bytes > 0 {
        warn!(
            %directory, bytes = found.cut_bytes,
            "Removed an incomplete write from the end of a queue on disk; the write was never acknowledged."
        );
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Log").field(&self.shared.directory).finish()
    }
}
