//! State of a log, shared between its writer thread and its users.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tracing::error;

use super::format::{Marker, segment_name};
use super::recent::Recent;
use super::record::RecordLocation;
use super::scan::Unreadable;
use super::state::Segments;
use super::{AppendError, NewRecord, Options};
use crate::metrics::StorageMetrics;

/// State shared between the writer thread and the users of the log.
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) marker: Marker,
    pub(super) metrics: StorageMetrics,
    pub(super) state: Mutex<State>,
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
    pub(super) again: BTreeMap<u64, RecordLocation>,
    pub(super) recent: Recent,
    /// Whether the position on disk is outdated.
    pub(super) moved: bool,
    pub(super) closing: bool,
    /// Whether the last segment should be removed if possible.
    pub(super) room_wanted: bool,
    /// Whether the removal of finished segments fails, so that no space is freed.
    pub(super) stuck: bool,
    /// Whether the writer sleeps until a wake-up.
    pub(super) is_idle: bool,
}

/// A record that waits for the writer.
pub(super) struct Append {
    pub(super) record: NewRecord,
    pub(super) answer: oneshot::Sender<Result<(), AppendError>>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock. After a panic, the state would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the writer if it is idle. A busy writer finds the work without a system call.
    pub(super) fn wake_writer(&self, mut state: MutexGuard<'_, State>) {
        let is_idle = std::mem::take(&mut state.is_idle);
        drop(state);
        if is_idle {
            self.work.notify_one();
        }
    }

    pub(super) fn path(&self, segment: u64) -> PathBuf {
        self.directory.join(segment_name(segment))
    }

    pub(super) fn update_metrics(&self, state: &State) {
        self.metrics.bytes.set(state.segments.usage().bytes as f64);
        self.metrics.segments.set(state.segments.len() as f64);
    }

    /// Counts the records `first..end` as lost, and stops waiting for their acknowledgement.
    pub(super) fn lose(&self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        let mut state = self.lock();
        let lost = state.segments.lose(first, end);
        if lost > 0 {
            state.moved = true;
            self.metrics.lost_records.increment(lost);
            error!(
                directory = %self.directory.display(),
                records = lost,
                "Records of a queue on disk were lost, because their blocks are damaged or their files were \
                 removed. Check the disk."
            );
            self.wake_writer(state);
        } else {
            drop(state);
        }
        self.freed.notify_waiters();
    }
}
