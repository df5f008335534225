//! A log that is open: what its owner sees of it.

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

/// Blocks that were just written are kept in memory, uncompressed, up to this many bytes: who keeps up reads them from here.
/// More than may be under way before senders wait (see `queue/pace`).
const RECENT_BYTES: usize = 10 << 20;
/// The same while the reader does not keep up, and has no use for them before it has read the files.
const RECENT_BYTES_BEHIND: usize = 4 << 20;

/// A durable queue of records. Owned through [`Lease`](super::Lease)s.
pub struct Log {
    pub(super) shared: Arc<Shared>,
    pub(super) reader: Mutex<Reader>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// What the writer's thread and everybody else share.
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) marker: Marker,
    pub(super) metrics: StorageMetrics,
    state: Mutex<State>,
    pub(super) unreadable: Arc<Unreadable>,
    /// For the writer.
    pub(super) work: Condvar,
    /// There is something to give out, or the reader is another one.
    pub(super) readable: Notify,
    /// Something was acknowledged or removed.
    pub(super) freed: Notify,
}

pub(super) struct State {
    pub(super) segments: Segments,
    pub(super) waiting: VecDeque<Append>,
    pub(super) options: Options,
    /// Who is given records.
    pub(super) lease: u64,
    /// Records that were given back, in their order.
    pub(super) again: BTreeMap<u64, Place>,
    pub(super) recent: Recent,
    /// The position on the disk is not what it should be.
    pub(super) moved: bool,
    pub(super) closing: bool,
    /// The last segment should be removed if it can be.
    pub(super) room_wanted: bool,
    /// Files that nobody needs cannot be removed: nothing makes room.
    pub(super) stuck: bool,
    /// The writer has nothing to do before so many appends wait, and has to be told when they do, or when there is
    /// something else to do; 0 while it is at work.
    pub(super) wanted: usize,
}

/// A record that waits for the writer.
pub(super) struct Append {
    pub(super) record: NewRecord,
    pub(super) answer: oneshot::Sender<Result<(), AppendError>>,
}

/// Blocks that were just written.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// In the order of their records, without gaps between them.
    blocks: VecDeque<RecentBlock>,
    bytes: usize,
    /// Most bytes, if that is less than the constants say.
    limit: usize,
    /// The record behind the last block.
    end: u64,
    /// The next record that the reader has not been given with its block.
    read: u64,
}

/// Shares the bytes of what was appended.
#[derive(Debug, Clone)]
pub(super) struct RecentBlock {
    pub(super) header: BlockHeader,
    pub(super) records: Arc<[NewRecord]>,
    pub(super) place: Place,
}

impl Log {
    /// Opens the log in a directory that exists.
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

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// Adds a record; waits until it is as durable as the options say.
    ///
    /// When the caller gives up waiting the record may be there all the same.
    ///
    /// # Errors
    /// When it cannot be written. Nothing of it is given out then.
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

    /// The most bytes that a record of `len` bytes takes on the disk.
    pub fn bytes_for(len: usize) -> usize {
        len + RECORD_HEADER + BLOCK_HEADER
    }

    /// A record was dealt with: it is not given out any more. To be said once for each record that was given out,
    /// unless that was given back.
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

    /// A record that was given out is to be given out again.
    pub fn give_back(&self, sequence: u64, place: Place) {
        self.shared.lock().again.insert(sequence, place);
        self.shared.readable.notify_waiters();
    }

    /// Removes the last segment, too, if all of it is acknowledged, which otherwise waits until it is as large as segments
    /// are; and the file that is kept for the next one.
    pub fn make_room(&self) {
        let mut state = self.shared.lock();
        if state.segments.last_is_done() || state.segments.has_spare() {
            state.room_wanted = true;
            self.shared.tell_writer(state);
        }
    }

    /// Whether files that nobody needs cannot be removed, so that nothing makes room.
    pub fn is_stuck(&self) -> bool {
        self.shared.lock().stuck
    }

    /// Whether files are about to be removed, so that there will be more room; those that [`make_room`](Self::make_room)
    /// asks for count.
    pub fn is_freeing(&self) -> bool {
        let state = self.shared.lock();
        state.room_wanted || state.segments.has_spare() || state.segments.is_freeing()
    }

    /// How many appends the writer has not begun with.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Whether the writer has nothing to do.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.shared.lock().wanted > 0
    }

    /// What it holds.
    pub fn usage(&self) -> Usage {
        self.shared.lock().segments.usage()
    }

    /// Items that were in damaged blocks and were counted as held until now. Each is told once.
    pub fn take_lost_items(&self) -> u64 {
        self.shared.lock().segments.take_lost_items()
    }

    /// Completes when something was acknowledged or removed after this was called.
    pub fn freed(&self) -> tokio::sync::futures::Notified<'_> {
        self.shared.freed.notified()
    }

    /// Completes when there may be something to give out that was not there when this was called.
    pub fn readable(&self) -> tokio::sync::futures::Notified<'_> {
        self.shared.readable.notified()
    }

    /// Whether the reader finds in memory what it reads next.
    pub fn keeps_up(&self) -> bool {
        !self.shared.lock().recent.is_behind()
    }

    /// Keeps at most so many bytes of what was just written in memory.
    pub fn keep_recent(&self, bytes: usize) {
        let mut state = self.shared.lock();
        state.recent.limit = bytes;
        state.recent.let_go();
    }

    /// Makes all who wait look again.
    pub fn wake(&self) {
        self.shared.readable.notify_waiters();
        self.shared.freed.notify_waiters();
    }

    /// Makes those look again who wait for room.
    pub fn room_given_back(&self) {
        self.shared.freed.notify_waiters();
    }

    /// From now on records are given to this lease, and to no other, and its options hold.
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

    /// Writes what waits, and where the reader is; lets go of the lock. Blocks until that is done.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        state.closing = true;
        self.shared.tell_writer(state);
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = writer.take() {
            // One that has panicked has let go of the lock, too.
            let _ = thread.join();
        }
        self.shared.readable.notify_waiters();
        self.shared.freed.notify_waiters();
    }
}

/// Says what is not as it should be, whoever opens the log, and before anything is written that forgets it.
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
        // Nothing under the lock panics; if it did, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to do. Nobody who is at work needs a system call to see that.
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

    /// Shows how much is on the disk.
    pub(super) fn show(&self, state: &State) {
        self.metrics.bytes.set(state.segments.usage().bytes as f64);
        self.metrics.segments.set(state.segments.len() as f64);
    }
}

impl RecentBlock {
    /// What it takes, about.
    fn bytes(&self) -> usize {
        self.records.iter().map(NewRecord::bytes_in_memory).sum()
    }

    /// The records as they are given out.
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
    /// Whether the reader does not keep up: what it has to read next is only on the disk.
    pub(super) fn is_behind(&self) -> bool {
        let front = self.blocks.front();
        front.map_or(self.end, |front| front.header.first) > self.read
    }

    /// A block was written behind all others.
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

    /// Drops the oldest blocks until the rest is within the bounds.
    fn let_go(&mut self) {
        let (most, behind) = (
            self.limit.min(RECENT_BYTES),
            (self.limit / 2).min(RECENT_BYTES_BEHIND),
        );
        while self.bytes > most || self.is_behind() && self.bytes > behind {
            self.pop();
        }
    }

    /// The reader has everything before this record.
    pub(super) fn read_to(&mut self, next: u64) {
        self.read = next;
    }

    /// The block with a record. Blocks before it have been read, and are let go of.
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
