//! Reads files within bounds and notices that files have changed: secrets and certificates are renewed while the
//! collector runs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

/// Polling interval. Polling detects changes that file system events miss: symbolic links swapped anywhere on the path
/// (Kubernetes), network file systems, and mounts over a directory.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Time for which a file must be unchanged before it counts as completely written.
const WRITE_PAUSE: Duration = Duration::from_millis(50);

/// Maximum size of a file of certificates, keys or revocations, in bytes: room for a revocation list of a
/// million serial numbers.
pub(crate) const MAX_PEM_FILE: u64 = 64 << 20;

/// Watches files by their metadata.
#[derive(Debug)]
pub struct FileWatch {
    files: Vec<(PathBuf, Option<FileStamp>)>,
}

/// Metadata that changes when a file is written, replaced or pointed elsewhere. Links are followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    /// Seconds and nanoseconds. The inode change time is included because tools that copy files preserve the
    /// modification time.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileWatch {
    /// Starts to watch these files. Call this before reading the files, so that no change is missed.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let stamped = |path: PathBuf| {
            let stamp = FileStamp::of(&path);
            (path, stamp)
        };
        FileWatch {
            files: paths.into_iter().map(stamped).collect(),
        }
    }

    /// Waits until a file has changed and is completely written. The removal of a file is a change too. Never completes
    /// without files.
    pub async fn changed(&mut self) {
        if self.files.is_empty() {
            return std::future::pending().await;
        }
        while !self.has_changed().await {
            sleep(POLL_INTERVAL).await;
        }
        loop {
            sleep(WRITE_PAUSE).await;
            if !self.has_changed().await {
                return;
            }
        }
    }

    /// Whether a file has changed since the previous check. Runs on a blocking thread, because a file system may be
    /// slow.
    async fn has_changed(&mut self) -> bool {
        let paths: Vec<PathBuf> = self.files.iter().map(|(path, _)| path.clone()).collect();
        let stamps = move || {
            paths
                .iter()
                .map(|path| FileStamp::of(path))
                .collect::<Vec<_>>()
        };
        // Fails only if the runtime shuts down.
        let Ok(stamps) = tokio::task::spawn_blocking(stamps).await else {
            return false;
        };
        let mut differs = false;
        for ((_, seen), stamp) in self.files.iter_mut().zip(stamps) {
            differs |= *seen != stamp;
            *seen = stamp;
        }
        differs
    }
}

impl FileStamp {
    /// Returns the stamp of the current file, or `None` if it cannot be read. Costs one stat(2).
    pub fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        Some(FileStamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Opens a regular file for reading. Never blocks on a FIFO: the file is opened with `O_NONBLOCK`, and its type is
/// read from the opened descriptor.
///
/// # Errors
/// The file cannot be opened, or is a FIFO, a device, a socket or a directory; the error names the path.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let named = |error: io::Error| {
        io::Error::new(
            error.kind(),
            format!("cannot read {}: {error}", path.display()),
        )
    };
    let file = options.open(path).map_err(named)?;
    let kind = file.metadata().map_err(named)?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let kind = match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "a special file",
    };
    let message = format!("{} is {kind}, not a regular file", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Reads a regular file of at most `max_bytes`. The bound also holds for a file that grows during the read.
///
/// # Errors
/// As [`open_regular`]; or the file is larger than the bound.
pub fn read_regular(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?
        .take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let message = format!("{} is larger than {max_bytes} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;
    use tokio::time::{Instant, timeout};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    async fn notices(watch: &mut FileWatch) -> bool {
        timeout(LONG, watch.changed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn every_kind_of_file_change_is_reported_once() {
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let link = |to: &str, name: &str| {
            std::os::unix::fs::symlink(path(to), path("new")).unwrap();
            fs::rename(path("new"), path(name)).unwrap();
        };
        fs::write(path("one"), "1").unwrap();
        fs::write(path("two"), "2").unwrap();
        link("one", "file");
        let mut watch = FileWatch::new([path("file")]);
        assert!(!notices(&mut watch).await, "nothing has changed");

        let began = Instant::now();
        link("two", "file");
        assert!(notices(&mut watch).await, "the link points elsewhere");
        assert!(began.elapsed() <= Duration::from_secs(3));
        fs::write(path("two"), "longer").unwrap();
        assert!(notices(&mut watch).await, "it was written");
        fs::write(path("three"), "longer").unwrap();
        fs::rename(path("three"), path("two")).unwrap();
        assert!(notices(&mut watch).await, "it was replaced by an equal one");
        fs::remove_file(path("two")).unwrap();
        assert!(notices(&mut watch).await, "it is gone");
        assert!(!notices(&mut watch).await, "it is as gone as before");
        fs::write(path("two"), "back").unwrap();
        assert!(notices(&mut watch).await, "it is back");
        assert!(!notices(&mut watch).await);
    }

    #[tokio::test(start_paused = true)]
    async fn change_before_the_wait_is_reported() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut watch = FileWatch::new([file.path().to_owned()]);
        fs::write(file.path(), "changed").unwrap();
        assert!(notices(&mut watch).await);
        assert!(!notices(&mut FileWatch::new([])).await);
    }

    #[test]
    fn only_bounded_regular_files_are_read() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "1234").unwrap();
        assert_eq!(read_regular(&path, 4).unwrap(), b"1234");
        let error = read_regular(&path, 3).unwrap_err().to_string();
        assert!(error.ends_with("file is larger than 3 bytes"), "{error}");

        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        for (path, kind) in [
            (fifo.as_path(), "fifo is a FIFO"),
            (Path::new("/dev/zero"), "/dev/zero is a device"),
            (directory.path(), "is a directory"),
        ] {
            let error = read_regular(path, 4).unwrap_err().to_string();
            assert!(error.contains(kind), "{error}");
        }
    }
}
