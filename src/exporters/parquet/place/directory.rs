//! A local directory. A file is written under a temporary name, synced to disk, and renamed.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};
use tributary_storage::own_files;

use super::super::partition::unique;
use super::{Out, PlaceError};
use crate::telemetry::disk;
use crate::telemetry::disk::Watched;

/// The directory, and a directory of this process in it for unfinished files: `_unfinished/ID`. A
/// lock shows other processes that `ID` is in use. Directories without a lock are left over from a
/// crash and are removed.
#[derive(Debug)]
pub(in super::super) struct Directory {
    root: PathBuf,
    unfinished: PathBuf,
    file_mode: u32,
    _watched: Watched,
    /// Held until the directory is dropped.
    lock: Mutex<File>,
}

/// A file under a temporary name.
pub(in super::super) struct Unfinished {
    directory: Arc<Directory>,
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

/// Readers skip names that begin with `_` and files without `.parquet` at the end.
const UNFINISHED: &str = "_unfinished";
const LOCK: &str = "lock";

impl Directory {
    /// Creates the directory if missing, and removes leftovers of a crash.
    ///
    /// # Errors
    /// If the directory is not writable.
    pub(in super::super) fn open(root: &Path, file_mode: u32) -> Result<Self, PlaceError> {
        let unusable = |error| PlaceError::io("write to the directory", root, &error);
        let root = std::path::absolute(root).map_err(unusable)?;
        let all = root.join(UNFINISHED);
        let mode = directory_mode(file_mode);
        make_directories(&all, mode).map_err(unusable)?;
        // Other processes must not examine the new directory before it is locked.
        let beginning = lock_file(&all).map_err(unusable)?;
        if !is_locked(beginning.lock()).map_err(unusable)? {
            warn!(
                path = %root.display(),
                "The file system does not support locks: unfinished files of a crash are not removed, and only one \
                 collector may write to this directory"
            );
        }
        remove_leftovers(&all).map_err(unusable)?;
        let unfinished = all.join(unique());
        make_directories(&unfinished, mode).map_err(unusable)?;
        let lock = lock_file(&unfinished).map_err(unusable)?;
        is_locked(lock.lock()).map_err(unusable)?;
        let lock = Mutex::new(lock);
        Ok(Directory {
            unfinished,
            file_mode,
            lock,
            _watched: disk::watch(root.clone()),
            root,
        })
    }

    pub(in super::super) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the permissions of the directory's files.
    pub(in super::super) fn file_mode(&self) -> u32 {
        self.file_mode
    }

    /// Creates the directory of unfinished files again after it was removed. The files in it cannot be finished, and
    /// their batches are written again.
    fn remake(&self) -> io::Result<()> {
        let mut lock = self.lock.lock();
        if self.unfinished.join(LOCK).exists() {
            return Ok(());
        }
        make_directories(&self.unfinished, directory_mode(self.file_mode))?;
        let new = lock_file(&self.unfinished)?;
        is_locked(new.lock())?;
        *lock = new;
        warn!(path = %self.unfinished.display(), "The directory of unfinished files was removed; creating it again");
        Ok(())
    }

    pub(super) fn begin(self: &Arc<Self>, path: &str) -> Result<(Unfinished, Out), PlaceError> {
        let temporary = self.unfinished.join(unique());
        let unwritable = |error: io::Error| PlaceError::io("write", &temporary, &error);
        let create = || {
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(self.file_mode)
                .open(&temporary)
        };
        let file = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.remake().map_err(unwritable)?;
                create().map_err(unwritable)?
            }
            created => created.map_err(unwritable)?,
        };
        set_mode(&file, self.file_mode).map_err(unwritable)?;
        let out = file.try_clone().map_err(unwritable)?;
        let unfinished = Unfinished {
            directory: self.clone(),
            file,
            path: self.root.join(path),
            temporary,
        };
        // The Parquet library buffers the writes.
        Ok((unfinished, Box::new(out)))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.unfinished) {
            warn!(path = %self.unfinished.display(), %error, "Cannot remove the directory of unfinished files");
        }
    }
}

impl Unfinished {
    /// Syncs the file to disk and renames it; then syncs the directory.
    pub(super) fn finish(self) -> Result<u64, PlaceError> {
        let unwritable = |error: io::Error| PlaceError::io("finish", &self.path, &error);
        let bytes = self.file.metadata().map_err(unwritable)?.len();
        self.file.sync_all().map_err(unwritable)?;
        let parent = self.path.parent().unwrap_or(&self.directory.root);
        make_directories(parent, directory_mode(self.directory.file_mode)).map_err(unwritable)?;
        fs::rename(&self.temporary, &self.path).map_err(unwritable)?;
        if let Err(error) = sync_directory(parent) {
            // The batches of the file will be written again, so the file must not stay.
            let _ = fs::remove_file(&self.path);
            return Err(unwritable(error));
        }
        Ok(bytes)
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // A finished file already has its final name.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Returns the permissions of a directory: every user who may read a file may enter its directory.
fn directory_mode(file_mode: u32) -> u32 {
    0o700 | file_mode | ((file_mode & 0o444) >> 2)
}

/// Sets the permissions of a new file or directory regardless of the process's umask. The
/// permissions are a setting; the umask (0077 in a systemd unit) is meant for files without one.
/// File systems without permissions keep theirs.
pub(in super::super) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    let now = file.metadata()?.permissions().mode();
    if now & 0o777 == mode {
        return Ok(());
    }
    // A directory may inherit the group of its parent.
    let special = now & 0o7000;
    match file.set_permissions(Permissions::from_mode(special | mode)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            warn!(
                mode = format!("{mode:04o}"), %error,
                "Cannot set `file_permissions` on this file system; files keep its default permissions"
            );
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        outcome => outcome,
    }
}

/// Creates a directory and its parents. All of them are synced to disk when this returns.
fn make_directories(path: &Path, mode: u32) -> io::Result<()> {
    own_files::check(path)?;
    if path.is_dir() {
        return Ok(());
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        make_directories(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => {
            made?;
            set_mode(&File::open(path)?, mode)?;
        }
    }
    parent.map_or(Ok(()), sync_directory)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn lock_file(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    own_files::open(&options, &directory.join(LOCK))
}

/// Whether the lock was acquired; false if the file system does not support locks.
fn is_locked(outcome: io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
        // NFS without a lock manager.
        Err(error) if error.raw_os_error() == Some(libc::ENOLCK) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes directories without a lock.
fn remove_leftovers(all: &Path) -> io::Result<()> {
    for entry in fs::read_dir(all)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        match lock_file(&path).map(|lock| lock.try_lock()) {
            Ok(Ok(())) => {
                let files = fs::read_dir(&path)?.count().saturating_sub(1);
                fs::remove_dir_all(&path)?;
                info!(path = %path.display(), files, "Removed unfinished files of an earlier crash");
            }
            Ok(Err(TryLockError::WouldBlock)) => {}
            Ok(Err(TryLockError::Error(error))) | Err(error) => {
                warn!(path = %path.display(), %error, "Kept unfinished files of another running process");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tempfile::TempDir;

    use super::*;

    fn files(path: &Path) -> Vec<String> {
        let mut all = Vec::new();
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => all.extend(files(&entry.path())),
                false => all.push(entry.file_name().into_string().unwrap()),
            }
        }
        all.sort();
        all
    }

    #[test]
    fn file_gets_its_name_when_finished() {
        let temporary = TempDir::new().unwrap();
        let directory = Arc::new(Directory::open(temporary.path(), 0o640).unwrap());
        let (unfinished, mut out) = directory.begin("a=1/b=2/part.parquet").unwrap();
        out.write_all(b"content").unwrap();
        out.flush().unwrap();
        let path = temporary.path().join("a=1/b=2/part.parquet");
        assert!(!path.exists());
        assert_eq!(unfinished.finish().unwrap(), 7);
        assert_eq!(fs::read(&path).unwrap(), b"content");
        let (given_up, _) = directory.begin("a=1/b=2/other.parquet").unwrap();
        drop(given_up);
        drop(directory);
        assert_eq!(files(temporary.path()), [LOCK, "part.parquet"]);
    }

    #[test]
    fn file_permissions_do_not_depend_on_umask() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let temporary = TempDir::new().unwrap();
        // A usual umask removes the write permission of others.
        let directory = Arc::new(Directory::open(temporary.path(), 0o666).unwrap());
        let (unfinished, _out) = directory.begin("a=1/part.parquet").unwrap();
        unfinished.finish().unwrap();
        assert_eq!(mode(&temporary.path().join("a=1/part.parquet")), 0o666);
        assert_eq!(mode(&temporary.path().join("a=1")), 0o777);
    }

    #[test]
    fn unfinished_files_of_crashes_are_removed() {
        let temporary = TempDir::new().unwrap();
        let living = Arc::new(Directory::open(temporary.path(), 0o600).unwrap());
        let (unfinished, _out) = living.begin("part.parquet").unwrap();
        let dead = temporary.path().join(UNFINISHED).join("dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("1234"), "half").unwrap();
        drop(Directory::open(temporary.path(), 0o600).unwrap());
        assert!(!dead.exists());
        unfinished.finish().unwrap();
        assert!(temporary.path().join("part.parquet").exists());
    }

    #[test]
    fn removed_directory_of_unfinished_files_is_recreated() {
        let temporary = TempDir::new().unwrap();
        let directory = Arc::new(Directory::open(temporary.path(), 0o600).unwrap());
        let (lost, _) = directory.begin("lost.parquet").unwrap();
        fs::remove_dir_all(temporary.path().join(UNFINISHED)).unwrap();
        assert!(lost.finish().is_err());
        for name in ["a.parquet", "b.parquet"] {
            let (unfinished, _) = directory.begin(name).unwrap();
            unfinished.finish().unwrap();
        }
        drop(Directory::open(temporary.path(), 0o600).unwrap());
        let (unfinished, _) = directory.begin("c.parquet").unwrap();
        unfinished.finish().unwrap();
    }

    #[test]
    fn missing_lock_support_is_accepted_broken_disk_is_not() {
        let outcome = |kind| is_locked(Err(io::Error::from(kind)));
        assert!(!outcome(io::ErrorKind::Unsupported).unwrap());
        assert!(outcome(io::ErrorKind::PermissionDenied).is_err());
        assert!(is_locked(Ok(())).unwrap());
    }

    #[test]
    fn uncreatable_directory_is_named_in_error() {
        let error = Directory::open(Path::new("/proc/none"), 0o600).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot write to the directory /proc/none: ")
        );
    }
}
