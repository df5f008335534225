//! The logs that are open in this process, so that a reload can pass them to the new components.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) use super::directory::make;
use super::disk::Local;
use super::log::Log;
use super::record::ReadResult;
use super::{OpenError, Options, Recovered};
use crate::metrics::StorageMetrics;

/// Opens logs by directory.
///
/// A reload builds the new components while the old ones still run. Both then share one log and its lock until the last
/// component closes its lease. Only one lease reads: the last lease that called [`become_reader`](Lease::become_reader).
#[derive(Debug, Clone, Default)]
pub struct LogRegistry(Arc<Mutex<HashMap<PathBuf, Opened>>>);

#[derive(Debug)]
struct Opened {
    log: Arc<Log>,
    leases: usize,
    next: u64,
}

/// The right to use a log. When the last lease is dropped, the log is closed and its lock is released. Clones of the
/// [`log`](Self::log) do not keep the log open.
#[derive(Debug)]
pub struct Lease {
    logs: LogRegistry,
    log: Arc<Log>,
    key: PathBuf,
    number: u64,
    options: Options,
    /// Whether the lease was closed explicitly, before its drop.
    gone: AtomicBool,
}

impl LogRegistry {
    /// Opens the log in a directory, which is created if necessary. The second value describes the recovered data,
    /// unless the log was already open. Scans all existing data before it returns.
    ///
    /// # Errors
    /// Another process has the log open, or the file system returns an error.
    pub fn open(
        &self,
        directory: &Path,
        options: &Options,
        metrics: StorageMetrics,
    ) -> Result<(Lease, Option<Recovered>), OpenError> {
        let key = make(directory, options.file_mode).map_err(|error| OpenError::Io {
            doing: "create the directory",
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
    /// Returns the log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// Makes this lease the only reader, with its options. Options apply only from this call on,
    /// because a configuration that fails to start must not change the running one.
    pub fn become_reader(&self) {
        self.log.set_reader(self.number, self.options.clone());
    }

    /// Whether this lease reads.
    pub fn reads(&self) -> bool {
        self.log.reads(self.number)
    }

    /// Returns up to `most` bytes of the next records, and at least one record if any is left. With `from_disk`, the
    /// call may block on the disk.
    ///
    /// # Errors
    /// Files cannot be read. Damaged content is not an error.
    pub fn next(&self, most: usize, from_disk: bool) -> io::Result<ReadResult> {
        self.log.next(self.number, most, from_disk)
    }

    /// Closes the lease. The last lease also writes waiting records and releases the lock before this returns. Returns
    /// true for the last lease. Like the drop of a lease, this may block on the disk.
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
            // Closed under the lock, so that a later open finds the log closed.
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
