//! What the writer does beside writing: the fsync that is due, segments that nobody needs, the position.

use std::io;
use std::time::Instant;

use tracing::error;

use super::{Active, Failed, POSITION_EVERY, Writer};
use crate::lock::Lock;
use crate::position::Position;
use crate::read::lose;
use crate::registry::make;
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
                // Again after another interval.
                active.unsynced_since = Some(Instant::now());
            }
        }
    }

    /// Removes segments that nobody needs. What they had must be known as acknowledged before: a segment that is
    /// missing looks like one that was lost.
    pub(super) fn remove_finished(&mut self, options: &Options, closing: bool) {
        let (wanted, finished) = {
            let mut state = self.shared.lock();
            // Who looks is told all the while that there will be more room: by this first, then by what is being removed.
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
                // Who waits for it has to look for something else.
                self.shared.freed.notify_waiters();
            }
            return;
        }
        // Where that fails the first one goes all the same: on a full disk nothing else makes room for it.
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
                    // At once: a crash before it is written takes what is removed for lost.
                    if !noted {
                        noted = self.write_position(options);
                    }
                    self.shared.lock().segments.removed(&segment);
                }
            }
        }
        self.shared.lock().stuck = !self.unremoved.is_empty();
        if options.fsync != Fsync::Never {
            // If that fails it is there after a power failure, and removed then.
            let _ = self.disk.sync_directory(&self.shared.directory);
        }
        self.shared.show(&self.shared.lock());
        self.shared.freed.notify_waiters();
    }

    /// Nothing is added any more to a segment whose file somebody has removed. Returns true if that was so.
    ///
    /// What it had and nobody has read is lost, and is counted when it is read or when the log is closed.
    pub(super) fn leave_removed(&mut self) -> bool {
        let removed = |active: &Active| matches!(active.output.has_name(), Ok(false));
        if !self.active.as_ref().is_some_and(removed) {
            return false;
        }
        error!(
            directory = %self.shared.directory.display(),
            "The files of this stored queue were removed while it was in use. What was in them and not delivered is \
             lost; the queue goes on with new files."
        );
        self.seal();
        self.drop_spare();
        self.shared.lock().moved = true;
        true
    }

    /// What was in files that somebody has removed cannot be read by the next start.
    pub(super) fn lose_removed(&mut self) {
        let segments: Vec<_> = self.shared.lock().segments.iter().cloned().collect();
        for segment in segments {
            let missing = self.shared.path(segment.name).try_exists();
            if segment.records > 0 && matches!(missing, Ok(false)) {
                lose(&self.shared, segment.first, segment.end);
            }
        }
    }

    /// Makes the log's directory again if somebody has removed it, with a lock of its own. Returns true if it did.
    pub(super) fn remake_directory(&mut self, options: &Options) -> Result<bool, Failed> {
        if !matches!(self.shared.directory.try_exists(), Ok(false)) {
            return Ok(false);
        }
        make(&self.shared.directory, options.file_mode)
            .map_err(|error| ("make the directory", error))?;
        let lock = Lock::take(
            &self.shared.directory,
            options.lock_timeout,
            options.file_mode,
        );
        self.lock = lock.map_err(|error| ("lock", io::Error::other(error.to_string())))?;
        error!(
            directory = %self.shared.directory.display(),
            "The directory of this stored queue was removed. It is made again; what was in it and not delivered is lost."
        );
        Ok(true)
    }

    pub(super) fn save_position(&mut self, options: &Options, closing: bool) {
        let moved = self.shared.lock().moved;
        let due = self
            .saved
            .is_none_or(|saved| saved.elapsed() >= POSITION_EVERY);
        // At the end in any case: the next start knows by it how many records there must be.
        if closing || (moved && due) {
            self.write_position(options);
        }
    }

    /// Whether the position is written; if not, it is tried again later.
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
        // Also after a failure: not with every acknowledgement.
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
