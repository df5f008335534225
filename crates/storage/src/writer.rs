//! The writer thread of a log. It takes all waiting records, writes them, syncs once, and then acknowledges all of them
//! (group commit). The writer never waits for more records: records that arrive during an fsync share the next fsync.
//!
//! A failed write is cut off and refused. After a failed fsync, the state of the file is unknown, and the next fsync
//! would report success. Therefore unsynced data is written again to a new segment, which replaces the old data.
//! <https://wiki.postgresql.org/wiki/Fsync_Errors>

mod rescue;
mod segment;
mod upkeep;

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tracing::{error, info};

use super::block::Block;
use super::disk::{Disk, Output};
use super::format::{RECORD_HEADER, marker_of};
use super::lock::Lock;
use super::recent::RecentBlock;
use super::record::RecordLocation;
use super::shared::{Append, Shared, State};
use super::state::Segment;
use super::{AppendError, Fsync, NewRecord, Options};
use segment::Spare;

/// Size in bytes at which a new block begins. Small blocks limit the loss by damage; large blocks give LZ4 enough
/// repetition.
const BLOCK_BYTES: usize = 128 << 10;
/// Maximum number of bytes per fsync, unless a single record is larger. The size is below the memory kept for a reader
/// that keeps up.
const GROUP_BYTES: usize = 2 << 20;
/// Minimum interval between writes of the position. A crash repeats the records acknowledged since the last write.
const POSITION_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    lock: Lock,
    active: Option<Active>,
    /// Sequence number of the next record.
    next: u64,
    /// Number after the last record whose append succeeded.
    follows: u64,
    /// Larger than the name of every segment.
    next_name: u64,
    /// The file of a finished segment, for reuse by the next segment.
    spare: Option<Spare>,
    saved: Option<Instant>,
    /// Finished segments whose removal failed, and the time of the last attempt.
    unremoved: Vec<Segment>,
    tried: Option<Instant>,
    /// The last failure, so that a full disk is logged once instead of for every request.
    failing: Option<Failing>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    doing: &'static str,
    since: Instant,
    refused: usize,
}

struct Active {
    output: Box<dyn Output>,
    name: u64,
    began: Instant,
    /// Bytes of completely written blocks.
    len: u64,
    /// Bytes known to be on disk, and the first record after them.
    synced: u64,
    synced_next: u64,
    /// Time since which some bytes are not synced.
    unsynced_since: Option<Instant>,
    /// Whether an fsync failed. If so, the unsynced data must be written again before the next append.
    doubtful: bool,
}

struct Work {
    appends: Vec<Append>,
    options: Options,
    /// Whether to compress blocks. Blocks stay uncompressed while the reader keeps up, since they are removed soon.
    compress: bool,
    closing: bool,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        disk: Arc<dyn Disk>,
        lock: Lock,
        next: u64,
        follows: u64,
    ) -> Self {
        let last = shared.lock().segments.last_name();
        Writer {
            shared,
            disk,
            lock,
            active: None,
            next,
            follows,
            next_name: last.map_or(0, |last| last.saturating_add(1)),
            spare: None,
            saved: None,
            unremoved: Vec::new(),
            tried: None,
            failing: None,
        }
    }

    /// Runs until the log is closed.
    pub(super) fn run(mut self) {
        loop {
            let work = self.wait();
            let closing = work.closing && work.appends.is_empty();
            if !work.appends.is_empty() {
                self.write_group(work.appends, &work.options, work.compress);
            }
            self.sync_if_due(&work.options, closing);
            self.remove_finished(&work.options, closing);
            if closing {
                self.lose_removed();
            }
            self.save_position(&work.options, closing);
            if closing {
                break;
            }
        }
        // The segment closes before any task observes the closed log.
        self.close_active();
        self.drop_spare();
        drop(self.lock);
    }

    fn wait(&self) -> Work {
        let mut state = self.shared.lock();
        loop {
            let closing = state.closing;
            let due = self.due(&state);
            let now = Instant::now();
            if !state.waiting.is_empty()
                || closing
                || state.segments.has_finished()
                || state.room_wanted
                || due.is_some_and(|due| due <= now)
            {
                state.is_idle = false;
                return Work {
                    appends: take_group(&mut state),
                    compress: state.options.compress && state.recent.is_behind(),
                    options: state.options.clone(),
                    closing,
                };
            }
            let work = &self.shared.work;
            state.is_idle = true;
            state = match due {
                None => work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(due) => {
                    let waited = work.wait_timeout(state, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Returns the time of the next periodic work.
    fn due(&self, state: &State) -> Option<Instant> {
        let position = state.moved.then(|| {
            self.saved
                .map_or_else(Instant::now, |saved| saved + POSITION_EVERY)
        });
        let sync = match state.options.fsync {
            Fsync::Interval(interval) => {
                let since = self
                    .active
                    .as_ref()
                    .and_then(|active| active.unsynced_since);
                since.map(|since| since + interval)
            }
            Fsync::Always | Fsync::Never => None,
        };
        let remove = self.tried.map(|tried| tried + POSITION_EVERY);
        position.into_iter().chain(sync).chain(remove).min()
    }

    fn write_group(&mut self, appends: Vec<Append>, options: &Options, compress: bool) {
        let (records, answers): (Vec<_>, Vec<_>) = appends
            .into_iter()
            .map(|append| (append.record, append.answer))
            .unzip();
        let written = self.write(records, options, compress);
        let outcome = match written {
            Ok(blocks) => {
                if let Some(failing) = self.failing.take() {
                    info!(
                        directory = %self.shared.directory.display(),
                        outage = ?failing.since.elapsed(),
                        refused_requests = failing.refused,
                        "Writes to the queue on disk succeed again."
                    );
                }
                self.publish(blocks);
                Ok(())
            }
            Err((doing, error)) => {
                self.failed(doing, &error);
                if let Some(failing) = &mut self.failing {
                    failing.refused += answers.len();
                }
                Err(AppendError::Disk {
                    directory: self.shared.directory.clone(),
                    reason: format!("{doing}: {error}"),
                })
            }
        };
        for answer in answers {
            // The send fails if the appender stopped waiting.
            let _ = answer.send(outcome.clone());
        }
        self.shared.readable.notify_waiters();
    }

    fn write(
        &mut self,
        records: Vec<NewRecord>,
        options: &Options,
        compress: bool,
    ) -> Result<Vec<Block>, Failed> {
        self.leave_removed();
        self.make_ready(options)?;
        let name = self.active.as_ref().map_or(0, |active| active.name);
        let marker = marker_of(self.shared.marker, name);
        let Some(active) = &mut self.active else {
            return Err(("open a segment", io::ErrorKind::NotFound.into()));
        };
        let len = active.len;
        let mut blocks = Vec::new();
        let mut next = self.next;
        let write = || {
            for records in divide(records) {
                let block = Block::new(next, records, marker, compress);
                next = block.header.end();
                let mut slices: Vec<_> = block.slices().collect();
                active.output.write(&mut slices)?;
                blocks.push(block);
            }
            io::Result::Ok(())
        };
        if let Err(error) = write() {
            self.take_back(len, options);
            // On a full disk every file matters, so this segment is removed as soon as its records are acknowledged.
            self.seal_synced(options);
            return Err(("write", error));
        }
        active.len += blocks.iter().map(|block| block.header.len()).sum::<u64>();
        active.unsynced_since.get_or_insert_with(Instant::now);
        if options.fsync == Fsync::Always
            && let Err(error) = self.sync()
            && self.rescue(options).is_err()
        {
            self.take_back(len, options);
            return Err(("fsync", error));
        }
        if self.leave_removed() {
            return Err(("write", io::ErrorKind::NotFound.into()));
        }
        self.next = next;
        self.follows = next;
        Ok(blocks)
    }

    fn sync(&mut self) -> io::Result<()> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        let began = Instant::now();
        active.output.sync()?;
        self.shared
            .metrics
            .fsync_seconds
            .record(began.elapsed().as_secs_f64());
        active.synced = active.len;
        active.unsynced_since = None;
        Ok(())
    }

    /// Makes the blocks readable. Backlog readers are notified later.
    fn publish(&mut self, blocks: Vec<Block>) {
        let Some(active) = &mut self.active else {
            return;
        };
        if active.unsynced_since.is_none() {
            active.synced_next = self.next;
        }
        let mut at = active.len - blocks.iter().map(|block| block.header.len()).sum::<u64>();
        let mut state = self.shared.lock();
        let (mut records, mut items) = (0, 0);
        for Block {
            header,
            records: of_block,
            ..
        } in blocks
        {
            records += u64::from(header.records);
            items += header.items;
            let location = RecordLocation {
                segment: active.name,
                at,
            };
            at += header.len();
            state.recent.push(RecentBlock {
                header,
                records: of_block,
                location,
            });
        }
        state.segments.grow(active.len, records, items);
        self.shared.update_metrics(&state);
    }

    fn failed(&mut self, doing: &'static str, error: &io::Error) {
        self.shared.metrics.write_failures.increment(1);
        let known = self.failing;
        self.failing = Some(Failing {
            doing,
            ..known.unwrap_or(Failing {
                doing,
                since: Instant::now(),
                refused: 0,
            })
        });
        if known.is_none_or(|known| known.doing != doing) {
            error!(
                directory = %self.shared.directory.display(),
                %error,
                "The queue on disk cannot {doing}; retrying. Requests may be refused until the disk recovers. Check \
                 the disk."
            );
        }
    }
}

type Failed = (&'static str, io::Error);

fn bytes_of(record: &NewRecord) -> usize {
    record.len() + RECORD_HEADER
}

/// Divides records into blocks.
fn divide(records: Vec<NewRecord>) -> Vec<Vec<NewRecord>> {
    let mut blocks = Vec::new();
    let (mut block, mut bytes) = (Vec::new(), 0);
    for record in records {
        if bytes + bytes_of(&record) > BLOCK_BYTES && !block.is_empty() {
            blocks.push(std::mem::take(&mut block));
            bytes = 0;
        }
        bytes += bytes_of(&record);
        block.push(record);
    }
    blocks.push(block);
    blocks.retain(|block| !block.is_empty());
    blocks
}

fn take_group(state: &mut State) -> Vec<Append> {
    let mut bytes = 0;
    let mut group = Vec::new();
    while let Some(append) = state.waiting.front() {
        bytes += append.record.len();
        if bytes > GROUP_BYTES && !group.is_empty() {
            break;
        }
        // An appender that stopped waiting still has the data, so its record is skipped.
        group.extend(
            state
                .waiting
                .pop_front()
                .filter(|append| !append.answer.is_closed()),
        );
    }
    group
}
