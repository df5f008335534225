//! One output file, with its operations, which run one at a time.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tracing::warn;
use tributary_storage::own_files;

use super::backups::{prune, set_aside};
use super::config::FileRotation;
use super::ending::{Ending, Framing, ending};

/// An output file. The process has one output for each path, so that the exporter of a new configuration and the
/// replaced exporter do not interfere.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Open>,
    /// Closed files with written data that is not synced yet.
    closed: Vec<Arc<File>>,
    /// Whether data was written since the last sync.
    dirty: bool,
    rotation: Option<FileRotation>,
    /// Time of the last search for old files.
    pruned: Option<Instant>,
}

/// Interval between searches for old files while no file is added. One hour suffices: ages are given in days.
const PRUNE: Duration = Duration::from_secs(3600);

/// The file while it is open.
#[derive(Debug)]
struct Open {
    file: Arc<File>,
    /// Device and inode of a regular file; `None` for other files, which can only be appended to.
    identity: Option<(u64, u64)>,
    /// Bytes of whole requests.
    len: u64,
    /// Whether a part of a request may follow these bytes.
    torn: bool,
    framing: Framing,
}

/// Side effects of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// The request began a new file, and the previous file was renamed.
    pub(super) rotated: bool,
}

impl Output {
    pub(super) fn of(path: &Path) -> Arc<Self> {
        static ALL: LazyLock<Mutex<HashMap<PathBuf, Weak<Output>>>> = LazyLock::new(Mutex::default);
        let mut all = ALL.lock();
        all.retain(|_, output| output.strong_count() > 0);
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        if let Some(known) = all.get(&path).and_then(Weak::upgrade) {
            return known;
        }
        let output = Arc::new(Output {
            path: path.clone(),
            state: Mutex::default(),
        });
        all.insert(path, Arc::downgrade(&output));
        output
    }

    #[cfg(test)]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the file can be written. Creates an empty file if it is missing.
    pub(super) fn probe(&self) -> io::Result<()> {
        open(&self.path).map(drop)
    }

    /// Begins to write. At the first use in this process, the file is emptied unless `append` is set. Later uses keep
    /// the data, because this process has acknowledged the data.
    pub(super) fn begin(
        &self,
        is_continued: bool,
        rotation: Option<FileRotation>,
    ) -> io::Result<()> {
        let mut state = self.lock();
        state.rotation = rotation;
        state.pruned = None;
        if is_first_use(&self.path) && !is_continued {
            let (file, metadata) = open(&self.path)?;
            if metadata.is_file() {
                file.set_len(0)?;
            }
        }
        Ok(())
    }

    /// Writes a complete request.
    ///
    /// # Errors
    ///
    /// The request is not in the file, or only a part of the request, which the next write removes.
    pub(super) fn write(&self, framing: Framing, request: &[u8]) -> io::Result<Written> {
        let mut state = self.lock();
        let mut written = Written::default();
        state.make_ready(&self.path, framing)?;
        if state.is_full(request.len() as u64) {
            state.set_aside(&self.path)?;
            written.rotated = true;
            state.make_ready(&self.path, framing)?;
        }
        state.append(request)?;
        Ok(written)
    }

    /// Syncs written data to disk without blocking writers.
    pub(super) fn sync(&self) -> io::Result<()> {
        let files = {
            let mut state = self.lock();
            let mut files = std::mem::take(&mut state.closed);
            let is_dirty = std::mem::take(&mut state.dirty);
            let open = state.open.as_ref().filter(|open| open.identity.is_some());
            files.extend(open.filter(|_| is_dirty).map(|open| open.file.clone()));
            files
        };
        let mut outcome = Ok(());
        for file in files {
            outcome = outcome.and(file.sync_data());
        }
        if outcome.is_err() {
            self.lock().dirty = true;
        }
        outcome
    }

    /// Deletes old files beyond the maximum number or age: at the first call, and then once an hour. Writers do not
    /// wait.
    pub(super) fn prune(&self) {
        let mut state = self.lock();
        let is_due = state.pruned.is_none_or(|last| last.elapsed() >= PRUNE);
        if is_due && let Some(rotation) = state.rotation.clone() {
            state.pruned = Some(Instant::now());
            drop(state);
            prune_or_warn(&self.path, &rotation);
        }
    }

    /// Returns a message about an error, with the path of the file.
    pub(super) fn describe(&self, what: &str, error: &io::Error) -> String {
        format!("{what} {}: {error}", self.path.display())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    /// Opens the file if it is not open or has been moved, and makes it ready for the next request.
    fn make_ready(&mut self, path: &Path, framing: Framing) -> io::Result<()> {
        if let Some(open) = &mut self.open
            && let Some(identity) = open.identity
        {
            match fs::metadata(path) {
                Ok(metadata) if identity_of(&metadata) == identity => {
                    if open.torn {
                        open.file.set_len(open.len)?;
                        open.torn = false;
                    } else {
                        // Another program may have emptied the file.
                        open.len = metadata.len();
                    }
                }
                _ => self.close(),
            }
        }
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.framing != framing)
        {
            // The configuration has changed. Readers cannot distinguish two formats in one file.
            match self.open.as_ref().and_then(|open| open.identity) {
                Some(_) => self.set_aside(path)?,
                None => self.close(),
            }
        }
        match &mut self.open {
            None => {
                let open = self.open_whole(path, framing)?;
                self.open = Some(open);
            }
            Some(open) if open.torn && framing == Framing::Lines => {
                (&*open.file).write_all(b"\n")?;
                open.torn = false;
            }
            Some(open) if open.torn => {
                return Err(io::Error::other(
                    "a message was written in part, and only a regular file can be truncated to remove the rest",
                ));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Opens the file. Removes an incomplete request at its end, or renames a file of another format.
    fn open_whole(&self, path: &Path, framing: Framing) -> io::Result<Open> {
        let (file, metadata) = open(path)?;
        let mut open = Open {
            file: Arc::new(file),
            identity: metadata.is_file().then(|| identity_of(&metadata)),
            len: metadata.len(),
            torn: false,
            framing,
        };
        if open.identity.is_none() {
            return Ok(open);
        }
        // The open file cannot be read: it is opened for appending.
        match ending(&File::open(path)?, open.len, framing)? {
            Ending::Whole => Ok(open),
            Ending::Unended => {
                (&*open.file).write_all(b"\n")?;
                open.len += 1;
                Ok(open)
            }
            Ending::Part(at) => {
                warn!(
                    path = %path.display(),
                    bytes = open.len - at,
                    "Removed an incomplete request from the end of a file, left by a crash; the request was never \
                     acknowledged"
                );
                open.file.set_len(at)?;
                open.len = at;
                Ok(open)
            }
            Ending::Foreign => {
                let name = set_aside(path, self.localtime())?;
                warn!(
                    path = %path.display(),
                    renamed = %name.display(),
                    "Renamed an existing file, because it has no complete request in the configured format"
                );
                self.open_whole(path, framing)
            }
        }
    }

    fn localtime(&self) -> bool {
        self.rotation
            .as_ref()
            .is_some_and(|rotation| rotation.localtime)
    }

    fn is_full(&self, more: u64) -> bool {
        let (Some(open), Some(rotation)) = (&self.open, &self.rotation) else {
            return false;
        };
        open.identity.is_some()
            && open.len > 0
            && open.len.saturating_add(more) > rotation.max_bytes()
    }

    /// Renames the file; the next request begins a new file.
    fn set_aside(&mut self, path: &Path) -> io::Result<()> {
        set_aside(path, self.localtime())?;
        self.close();
        if let Some(rotation) = &self.rotation {
            prune_or_warn(path, rotation);
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take()
            && open.identity.is_some()
        {
            self.closed.push(open.file);
        }
    }

    fn append(&mut self, request: &[u8]) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Err(io::Error::other("the file is not open"));
        };
        if let Err(error) = (&*open.file).write_all(request) {
            let cut = open.identity.is_some() && open.file.set_len(open.len).is_ok();
            open.torn = !cut;
            return Err(error);
        }
        open.len += request.len() as u64;
        self.dirty = true;
        Ok(())
    }
}

/// Whether this is the first output of the process with that path. Keeps only hashes of the paths, because `group_by`
/// may have many.
fn is_first_use(path: &Path) -> bool {
    static USED: LazyLock<Mutex<HashSet<u128>>> = LazyLock::new(Mutex::default);
    let mut used = USED.lock();
    used.insert(xxhash_rust::xxh3::xxh3_128(path.as_os_str().as_bytes()))
}

fn prune_or_warn(path: &Path, rotation: &FileRotation) {
    if let Err(error) = prune(path, rotation) {
        warn!(path = %path.display(), %error, "Cannot delete old files; check the permissions of the directory");
    }
}

fn identity_of(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    use std::os::unix::fs::FileTypeExt as _;
    // Opening a pipe without read access would wait for a reader.
    let pipe = fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(pipe).mode(0o600);
    let file = own_files::open(&options, path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn output(directory: &TempDir) -> (Arc<Output>, PathBuf) {
        let path = directory.path().join("data.json");
        (Output::of(&path), path)
    }

    fn others(directory: &TempDir) -> usize {
        fs::read_dir(directory.path()).unwrap().count() - 1
    }

    #[test]
    fn incomplete_line_of_crash_is_removed() {
        let directory = TempDir::new().unwrap();
        let (output, path) = output(&directory);
        fs::write(&path, "{\"a\":1}\n{\"b\"").unwrap();
        output.write(Framing::Lines, b"{\"c\":1}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"c\":1}\n");
        assert_eq!(others(&directory), 0);
    }

    #[test]
    fn failed_write_is_removed_before_next_line() {
        let directory = TempDir::new().unwrap();
        let (output, path) = output(&directory);
        output.write(Framing::Lines, b"{\"a\":1}\n").unwrap();
        // The state after a write that failed halfway and could not be undone.
        OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"b")
            .unwrap();
        output.lock().open.as_mut().unwrap().torn = true;
        output.write(Framing::Lines, b"{\"c\":1}\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"c\":1}\n");
    }

    #[test]
    fn full_device_causes_error() {
        let output = Output::of(Path::new("/dev/full"));
        let error = output.write(Framing::Lines, b"{}\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn moved_or_deleted_file_is_created_again() {
        let directory = TempDir::new().unwrap();
        let (output, path) = output(&directory);
        output.write(Framing::Lines, b"1\n").unwrap();
        let moved = directory.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        output.write(Framing::Lines, b"2\n").unwrap();
        fs::remove_file(&path).unwrap();
        output.write(Framing::Lines, b"3\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "1\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "3\n");
        output.sync().unwrap();
    }

    #[test]
    fn files_are_rotated_at_maximum_size_without_loss() {
        let directory = TempDir::new().unwrap();
        let (output, path) = output(&directory);
        let rotation = FileRotation {
            max_megabytes: 1,
            ..FileRotation::default()
        };
        output.begin(true, Some(rotation)).unwrap();
        let line = format!("\"{}\"\n", "x".repeat(400_000));
        let rotated = (0..5).filter(|_| {
            output
                .write(Framing::Lines, line.as_bytes())
                .unwrap()
                .rotated
        });
        assert_eq!(rotated.count(), 2);
        let sizes: u64 = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .inspect(|size| assert!(*size <= 1 << 20))
            .sum();
        assert_eq!(sizes, 5 * line.len() as u64);
        assert_eq!(others(&directory), 2);
        // A request larger than the maximum size gets its own file.
        let large = format!("\"{}\"\n", "x".repeat(3 << 20));
        output.write(Framing::Lines, large.as_bytes()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), large.len() as u64);
    }

    #[test]
    fn old_backups_are_deleted_without_rotation() {
        let directory = TempDir::new().unwrap();
        let (output, _path) = output(&directory);
        let old = directory.path().join("data-2022-09-14T05-02-14.173.json");
        let rotation = FileRotation {
            max_days: 1,
            ..FileRotation::default()
        };
        fs::write(&old, "x").unwrap();
        output.begin(true, Some(rotation.clone())).unwrap();
        output.prune();
        assert!(!old.exists());
        fs::write(&old, "x").unwrap();
        output.prune();
        assert!(old.exists(), "looked again before an hour was over");
        output.begin(true, Some(rotation)).unwrap();
        output.prune();
        assert!(!old.exists());
    }

    #[test]
    fn formats_are_not_mixed_in_a_file() {
        let directory = TempDir::new().unwrap();
        let (output, path) = output(&directory);
        output.write(Framing::Lines, b"{}\n").unwrap();
        output.write(Framing::Lengths, b"\0\0\0\x01a").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"\0\0\0\x01a");
        assert_eq!(others(&directory), 1);
    }

    #[test]
    fn outputs_of_one_path_are_shared() {
        let directory = TempDir::new().unwrap();
        let (one, path) = output(&directory);
        let other = Output::of(&path);
        assert!(Arc::ptr_eq(&one, &other));
        fs::write(&path, "{}\n").unwrap();
        one.begin(false, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        one.write(Framing::Lines, b"{}\n").unwrap();
        other.begin(false, None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"{}\n");
    }
}
