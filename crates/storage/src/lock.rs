//! Exclusive use of a directory by one process.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::OpenError;

/// Name of the lock file in the log's directory. The file is never removed: two processes could lock a removed file and
/// its successor.
pub(super) const NAME: &str = "lock";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The lock of a directory that only one process uses. The kernel releases the lock when the
/// process ends, even after a crash.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of a directory, with this mode of its file. Waits up to `timeout` for another process.
    ///
    /// # Errors
    /// Another process has the lock, or the file system returns an error.
    pub fn take(directory: &Path, timeout: Duration, mode: u32) -> Result<Self, OpenError> {
        let path = directory.join(NAME);
        let failed = |doing, error| OpenError::Io {
            doing,
            path: path.clone(),
            error,
        };
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(mode);
        let mut file = options.open(&path).map_err(|error| failed("open", error))?;
        let give_up = Instant::now() + timeout;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if Instant::now() < give_up => {
                    std::thread::sleep(POLL_INTERVAL)
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(OpenError::Locked {
                        directory: directory.to_owned(),
                        owner: owner(&mut file),
                    });
                }
                Err(error) => return Err(failed("lock", error.into())),
            }
        }
        // The process id is only for the error message above. On a full disk the file stays empty.
        let _ = file.set_len(0);
        let _ = file.write_all(std::process::id().to_string().as_bytes());
        Ok(Lock { _file: file })
    }

    /// Whether a process holds the lock of the directory.
    pub(super) fn is_taken(directory: &Path) -> bool {
        let Ok(file) = File::open(directory.join(NAME)) else {
            return false;
        };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    }
}

fn owner(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(20).read_to_string(&mut text) {
        Ok(_) if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() => {
            format!(" (process {text})")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_lock_is_refused_naming_the_owner() {
        let directory = tempfile::tempdir().unwrap();
        let take = || Lock::take(directory.path(), Duration::ZERO, 0o600);
        assert!(!Lock::is_taken(directory.path()));
        let lock = take().unwrap();
        assert!(Lock::is_taken(directory.path()));
        let refused = take().unwrap_err().to_string();
        assert!(
            refused.contains(&format!("process {}", std::process::id())),
            "{refused}"
        );
        drop(lock);
        take().unwrap();
    }
}
