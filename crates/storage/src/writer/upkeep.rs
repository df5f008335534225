//! Periodic work of the writer: delayed fsync, removal of finished segments, and the position.

use std::io;
use std::time::Instant;

use tracing::error;

use super::{Active, Failed, POSITION_EVERY, Writer};
use crate::directory::make;
use crate::lock::Lock;
use crate::position::Position;
use crate::{Fsync, Options};

impl Writer {
    pub(super) fn sync_if_due(&mut self, options: &Options, closing: bool) {
        let Some(active) = &self.active else {
            return;
        };
        let due = match (options.fsync, active.unsynced_since) {
            (Fsync::Never, _) | (_, None) => false,
            (Fsync::Always, Some(_)) => true,
            (Fsync::Interval(interval), Some(since)) => closing || since.elapsed() >= interval,
        };
        if !due {
            return;
        }
        let outcome = match active.doubtful {
            true => self.rescue(options),
            false => match self.sync() {
                Ok(()) => {
                    if let Some(active) = &mut self.active {
                        active.synced_next = self.next;
                    }
                    Ok(())
                }
                Err(error) => {
                    self.failed("fsync", &error);
                    self.rescue(options)
                }
            },
        };
        if let Err((doing, error)) = outcome {
            self.failed(doing, &error);
            if let Some(active) = &mut self.active {
                active.unsynced_since = Some(Instant::now());
            }
        }
    }

    /// Removes finished segments. The acknowledgement of their records must be persisted first, because a missing
    /// segment looks like a loss.
    pub(super) fn remove_finished(&mut self, options: &Options, closing: bool) {
        let (wanted, finished) = {
            let mut state = self.shared.lock();
            // Observers must see at all times that space is being freed: first by this flag, then
            // by the removal.
            let wanted = std::mem::take(&mut state.room_wanted);
            if (closing || wanted) && state.segments.last_is_done() {
                self.active = None;
                state.segments.seal(false);
            }
            let again = closing
                || self
                    .tried
                    .is_some_and(|tried| tried.elapsed() >= POSITION_EVERY);
            let mut finished = Vec::new();
            if state.segments.has_finished() || (again && !self.unremoved.is_empty()) {
                finished = state.segments.take_finished();
                finished.append(&mut self.unremoved);
            }
            (wanted, finished)
        };
        if wanted {
            self.drop_spare();
        }
        if finished.is_empty() {
            if wanted {
                // Backlog tasks have to make room in another way.
                self.shared.freed.notify_waiters();
            }
            return;
        }
        // The first segment is removed even after a failure: on a full disk, the position needs its
        // space.
        let mut noted = self.write_position(options);
        self.tried = None;
        for segment in finished {
            let outcome = match !closing && !wanted && noted && self.keep_spare(&segment, options) {
                true => Ok(()),
                false => self.disk.remove(&self.shared.path(segment.name)),
            };
            match outcome {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    self.failed("remove a segment", &error);
                    self.unremoved.push(segment);
                    self.tried = Some(Instant::now());
                }
                _ => {
                    // The position is written at once: a crash before the write would report the removed records as
                    // lost.
                    if !noted {
                        noted = self.write_position(options);
                    }
                    self.shared.lock().segments.removed(&segment);
                }
            }
        }
        self.shared.lock().stuck = !self.unremoved.is_empty();
        if options.fsync != Fsync::Never {
            // If the sync fails, the file may reappear after a power failure, and is removed then.
            let _ = self.disk.sync_directory(&self.shared.directory);
        }
        self.shared.update_metrics(&self.shared.lock());
        self.shared.freed.notify_waiters();
    }

    /// Completes the segment if its file was removed by another process. Returns true if the segment was completed.
    ///
    /// Unread records of the file are lost. They are counted by the read that misses them, or when the log is closed.
    pub(super) fn leave_removed(&mut self) -> bool {
        let removed = |active: &Active| matches!(active.output.has_name(), Ok(false));
        if !self.active.as_ref().is_some_and(removed) {
            return false;
        }
        error!(
            directory = %self.shared.directory.display(),
            "The files of this queue on disk were removed while it was in use. Their undelivered records are lost; \
             continuing with new files."
        );
        self.seal();
        self.drop_spare();
        self.shared.lock().moved = true;
        true
    }

    pub(super) fn lose_removed(&mut self) {
        let segments: Vec<_> = self.shared.lock().segments.iter().cloned().collect();
        for segment in segments {
            let missing = self.shared.path(segment.name).try_exists();
            if segment.records > 0 && matches!(missing, Ok(false)) {
                self.shared.lose(segment.first, segment.end);
            }
        }
    }

    /// Creates the log's directory again if it was removed, with a new lock. Returns true if the directory was created.
    pub(super) fn remake_directory(&mut self, options: &Options) -> Result<bool, Failed> {
        if !matches!(self.shared.directory.try_exists(), Ok(false)) {
            return Ok(false);
        }
        make(&self.shared.directory, options.file_mode)
            .map_err(|error| ("create the directory", error))?;
        let lock = Lock::take(
            &self.shared.directory,
            options.lock_timeout,
            options.file_mode,
        );
        self.lock = lock.map_err(|error| ("lock", io::Error::other(error.to_string())))?;
        error!(
            directory = %self.shared.directory.display(),
            "The directory of this queue on disk was removed while it was in use. Its undelivered records are lost; \
             creating it again."
        );
        Ok(true)
    }

    pub(super) fn save_position(&mut self, options: &Options, closing: bool) {
        let moved = self.shared.lock().moved;
        let due = self
            .saved
            .is_none_or(|saved| saved.elapsed() >= POSITION_EVERY);
        // The position is always written at the end: the next start derives the expected number of records from it.
        if closing || (moved && due) {
            self.write_position(options);
        }
    }

    /// Writes the position. Returns false if that failed, and retries later.
    fn write_position(&mut self, options: &Options) -> bool {
        let position = {
            let mut state = self.shared.lock();
            state.moved = false;
            Position {
                marker: self.shared.marker,
                next: self.follows.max(self.next),
                acknowledged: state.segments.acknowledged.clone(),
            }
        };
        // A failure sets the time too, so that not every acknowledgement retries.
        self.saved = Some(Instant::now());
        let durable = options.fsync != Fsync::Never;
        let outcome = position.save(&*self.disk, &self.shared.directory, durable);
        if let Err(error) = &outcome {
            self.failed("write the position", error);
            self.shared.lock().moved = true;
        }
        outcome.is_ok()
    }
}
