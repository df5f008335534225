//! The logs that are open in this process, so that a reload can hand one on.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::Local;
use super::log::Log;
use super::read::Next;
use super::{OpenError, Options, Recovered};
use crate::metrics::StorageMetrics;

/// Hands out logs by directory.
///
/// A reload builds the new components while the old ones still work. Both then hold the same log, under one lock, until
/// the last of them lets go. One at a time is given records: whoever asked for them last.
#[derive(Debug, Clone, Default)]
pub struct Logs(Arc<Mutex<HashMap<PathBuf, Opened>>>);

#[derive(Debug)]
struct Opened {
    log: Arc<Log>,
    leases: usize,
    next: u64,
}

/// The right to use a log. The log is closed, and its lock released, with the last lease; clones of what
/// [`log`](Self::log) returns do not keep it open.
#[derive(Debug)]
pub struct Lease {
    logs: Logs,
    log: Arc<Log>,
    key: PathBuf,
    number: u64,
    options: Options,
    /// It has let go: closed, and dropped later.
    gone: AtomicBool,
}

impl Logs {
    /// The log in that directory, which is made if it is not there. The second value is what was found, when it was not
    /// open. It reads all that is there before it returns.
    ///
    /// # Errors
    /// When another process has it, or the file system refuses.
    pub fn open(
        &self,
        directory: &Path,
        options: &Options,
        metrics: StorageMetrics,
    ) -> Result<(Lease, Option<Recovered>), OpenError> {
        let key = make(directory, options.file_mode).map_err(|error| OpenError::Io {
            doing: "make the directory",
            path: directory.to_owned(),
            error,
        })?;
        let mut open = self.lock();
        let (log, number, recovered) = match open.entry(key.clone()) {
            Entry::Occupied(mut opened) => {
                let opened = opened.get_mut();
                opened.leases += 1;
                opened.next += 1;
                (opened.log.clone(), opened.next, None)
            }
            Entry::Vacant(vacant) => {
                let disk = Arc::new(Local {
                    mode: options.file_mode,
                });
                let (log, recovered) = Log::open(&key, options.clone(), disk, metrics)?;
                let log = Arc::new(log);
                vacant.insert(Opened {
                    log: log.clone(),
                    leases: 1,
                    next: 1,
                });
                (log, 1, Some(recovered))
            }
        };
        let lease = Lease {
            logs: self.clone(),
            log,
            key,
            number,
            options: options.clone(),
            gone: AtomicBool::new(false),
        };
        Ok((lease, recovered))
    }

    /// Whether the log in that directory is open in this process.
    pub fn is_open(&self, directory: &Path) -> bool {
        let key = directory.canonicalize();
        key.is_ok_and(|key| self.lock().contains_key(&key))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Opened>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease {
    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// From now on records are given to this lease, and to no other, and the options it was opened with hold: a configuration
    /// that is not taken over in the end must not change what the running one promises.
    pub fn take_over(&self) {
        self.log.hand_over_to(self.number, self.options.clone());
    }

    /// Whether records are given to this lease.
    pub fn reads(&self) -> bool {
        self.log.reads(self.number)
    }

    /// Up to `most` bytes of the next records, at least one if there is any. With `from_disk` it may wait for the disk.
    ///
    /// # Errors
    /// When files cannot be read; what is damaged in them is no error.
    pub fn next(&self, most: usize, from_disk: bool) -> io::Result<Next> {
        self.log.next(self.number, most, from_disk)
    }

    /// Lets go of the log. If this is its last lease, what waits is written, and the lock released, before this
    /// returns. Whether it was the last. It may wait for the disk; so does dropping the lease.
    pub fn close(&self) -> bool {
        let mut open = self.logs.lock();
        if self.gone.swap(true, Relaxed) {
            return false;
        }
        let Some(opened) = open.get_mut(&self.key) else {
            return false;
        };
        opened.leases -= 1;
        let last = opened.leases == 0;
        if last {
            // Under the lock, so that who opens it again finds it closed.
            self.log.close();
            open.remove(&self.key);
        }
        last
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes the directory of a log, and makes that durable. Its path without links.
pub(super) fn make(directory: &Path, file_mode: u32) -> io::Result<PathBuf> {
    if !directory.is_dir() {
        // Who may read a file may look for it.
        let mode = file_mode | ((file_mode & 0o444) >> 2);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(mode)
            .create(directory)?;
        if let Some(parent) = directory.parent() {
            fs::File::open(parent)?.sync_all()?;
        }
    }
    directory.canonicalize()
}
