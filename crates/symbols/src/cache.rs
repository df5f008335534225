//! Compiled symbol files on disk, one per build id, in a directory that is bounded in bytes.
//!
//! ```text
//! DIRECTORY/v3/ab/cdef0123.sym     symbol file; v3 is the version of the format
//! DIRECTORY/v3/ab/cdef0123.absent  note: the reason for a missing symbol file, and the expiry of the note
//! DIRECTORY/v3/ab/cdef0123.better  note: the same for a symbol file with more information than the present one
//! DIRECTORY/tmp/PID-N              file that is being written
//! ```
//!
//! A file is written under another name and then renamed, so no reader sees a partial file. Several processes may share
//! a directory; at worst two of them compile the same file. A deleted file stays readable for processes that have it
//! open.
//!
//! To make room, notes are deleted before symbol files, since a note only saves a lookup. Symbol files are deleted in
//! the order of their last use. The modification time records the last use, because many file systems are mounted
//! without access times. The modification time of a note is its expiry.
//!
//! The cache decides the names of addresses and its files are mapped, so no other user may write to the directory.

mod note;
mod verified;

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

pub use self::note::{Absence, SymbolKind};
pub use self::verified::open_verified;

use super::build_id::BuildId;
use super::file::{SymbolFile, SymbolFileError};

/// Directory of the current format. Opening a cache deletes other versions. Raise the version also if compiling the
/// same binary would give a different result.
const VERSION: &str = "v3";

/// Minimum time between two updates of a file's last use; more updates would only write metadata.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

/// Age at which a temporary file is deleted as the leftover of a crashed process.
const STALE_AFTER: Duration = Duration::from_secs(6 * 60 * 60);

/// Number of notes that remain after a deletion of notes. Each note takes a disk block, mostly 4 KiB.
const MAX_NOTES: usize = 8192;
/// Number of notes that triggers a cleanup. The slack avoids reading the directory for every new note.
const TOO_MANY_NOTES: usize = MAX_NOTES + MAX_NOTES / 4;

/// A cache in one directory.
#[derive(Debug)]
pub struct Cache {
    files: PathBuf,
    scratch: PathBuf,
    max_bytes: u64,
    /// Size in bytes after the last trim.
    bytes: AtomicU64,
    /// Upper bound of the number of notes, unless other processes write notes too.
    notes: AtomicUsize,
}

/// Contents of a cache for a build id.
#[derive(Debug)]
pub enum Cached {
    /// The symbols.
    File(Arc<SymbolFile>),
    /// A symbol file exists, but its first verification would take long.
    Unverified,
    /// The reason why there are no symbols.
    Absent(Absence),
}

/// Result of a trim.
#[derive(Debug, Default)]
pub struct Trimmed {
    /// Build ids of the deleted symbol files.
    pub deleted: Vec<BuildId>,
    /// Remaining size in bytes.
    pub bytes: u64,
}

impl Cache {
    /// Opens the cache in a directory. If the directory is missing, creates it with access for the owner only.
    /// Deletes leftovers of crashed processes and other versions, and trims the cache to `max_bytes`.
    ///
    /// # Errors
    /// Fails if the directory cannot be created or written to, belongs to another user, or is writable by other users.
    pub fn open(directory: &Path, max_bytes: u64) -> io::Result<Self> {
        let cache = Cache {
            files: directory.join(VERSION),
            scratch: directory.join("tmp"),
            max_bytes,
            bytes: AtomicU64::new(0),
            notes: AtomicUsize::new(0),
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for directory in [directory, &cache.files, &cache.scratch] {
            builder.create(directory)?;
            check_ownership(directory)?;
        }
        drop(cache.scratch()?.create()?);
        cache.sweep(directory);
        cache.trim()?;
        Ok(cache)
    }

    /// Looks up a build id. A damaged symbol file is deleted, so that it is compiled again.
    pub fn find(&self, id: &BuildId) -> Option<Cached> {
        let mut all = u64::MAX;
        self.find_within(id, &mut all)
    }

    /// Looks up a build id, but verifies at most `bytes` of files that are new to this process. Subtracts the
    /// verified bytes from `bytes`.
    pub fn find_within(&self, id: &BuildId, bytes: &mut u64) -> Option<Cached> {
        let path = self.path(id, "sym");
        match verified::open_within(&path, bytes) {
            Ok(None) => return Some(Cached::Unverified),
            Ok(Some(file)) if file.build_id() == Some(id) => {
                touch(&path, SystemTime::now());
                return Some(Cached::File(Arc::new(file)));
            }
            // The file may be valid: if the process has too many open files, every open fails.
            Err(SymbolFileError::Io(_)) => {}
            Ok(Some(_))
            | Err(
                SymbolFileError::NotSymbolFile
                | SymbolFileError::Version(_)
                | SymbolFileError::Damaged,
            ) => {
                delete(&path);
            }
        }
        self.absence(id, SymbolKind::Any).map(Cached::Absent)
    }

    /// Returns the note about missing symbols, unless the note has expired.
    pub fn absence(&self, id: &BuildId, wanted: SymbolKind) -> Option<Absence> {
        let path = self.path(id, wanted.extension());
        let absence = Absence::read(&path)?;
        if absence.until <= SystemTime::now() {
            delete(&path);
            return None;
        }
        Some(absence)
    }

    /// Maximum size in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Size in bytes after the last trim.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Directory of the compiled files, which identifies the cache.
    pub fn directory(&self) -> &Path {
        &self.files
    }

    /// Records the last use of a file that is already open.
    pub fn touch(&self, id: &BuildId, used: SystemTime) {
        touch(&self.path(id, "sym"), used);
    }

    /// Creates a path for a temporary file.
    ///
    /// # Errors
    /// Fails if the directory of temporary files is gone and cannot be created.
    pub fn scratch(&self) -> io::Result<TemporaryFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        fs::create_dir_all(&self.scratch)?;
        Ok(TemporaryFile(self.scratch.join(name)))
    }

    /// Stores and opens a compiled file, replacing the cache entry of the build id.
    ///
    /// # Errors
    /// Fails if the file cannot be written or read.
    pub fn store(&self, id: &BuildId, compiled: TemporaryFile) -> io::Result<SymbolFile> {
        let path = self.place(id, "sym")?;
        // Without the sync, a crash of the machine may leave an empty file of this name. An empty file would be
        // detected and compiled again.
        File::open(&compiled.0)?.sync_all()?;
        fs::rename(&compiled.0, &path)?;
        for wanted in [SymbolKind::Any, SymbolKind::Better] {
            delete(&self.path(id, wanted.extension()));
        }
        open_verified(&path).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Stores the reason why there are no symbols.
    ///
    /// # Errors
    /// Fails if the note cannot be written.
    pub fn store_absence(
        &self,
        id: &BuildId,
        wanted: SymbolKind,
        absence: &Absence,
    ) -> io::Result<()> {
        let scratch = self.scratch()?;
        let mut file = scratch.create()?;
        file.write_all(absence.note().as_bytes())?;
        file.set_modified(absence.until)?;
        fs::rename(&scratch.0, self.place(id, wanted.extension())?)?;
        if self.notes.fetch_add(1, Relaxed) >= TOO_MANY_NOTES {
            self.trim()?;
        }
        Ok(())
    }

    /// Deletes expired notes. If the cache is still too large, deletes more notes, and then the least recently used
    /// files. The most recently used file always stays, because its creator is about to use it.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn trim(&self) -> io::Result<Trimmed> {
        let (mut files, mut notes) = (Vec::new(), Vec::new());
        let mut trimmed = Trimmed::default();
        let now = SystemTime::now();
        for directory in fs::read_dir(&self.files)? {
            let Ok(entries) = fs::read_dir(directory?.path()) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                let (path, modified) = (entry.path(), metadata.modified()?);
                let is_file = path.extension().is_some_and(|extension| extension == "sym");
                if !is_file && modified <= now {
                    delete(&path);
                    continue;
                }
                let size = on_disk(&metadata);
                trimmed.bytes += size;
                let kind = if is_file { &mut files } else { &mut notes };
                kind.push((modified, size, path));
            }
        }
        notes.sort_unstable();
        files.sort_unstable();
        files.pop();
        let mut left = notes.len();
        for (_, size, path) in notes {
            if trimmed.bytes <= self.max_bytes && left <= MAX_NOTES {
                break;
            }
            delete(&path);
            trimmed.bytes -= size;
            left -= 1;
        }
        self.notes.store(left, Relaxed);
        for (_, size, path) in files {
            if trimmed.bytes <= self.max_bytes {
                break;
            }
            delete(&path);
            trimmed.bytes -= size;
            trimmed.deleted.extend(id_of(&path));
        }
        self.bytes.store(trimmed.bytes, Relaxed);
        Ok(trimmed)
    }

    /// Returns the path of a build id's file. An id consists of hexadecimal digits, so the path cannot leave the
    /// directory.
    fn path(&self, id: &BuildId, extension: &str) -> PathBuf {
        let id = id.to_string();
        let (directory, name) = id.split_at(2);
        self.files
            .join(directory)
            .join(format!("{name}.{extension}"))
    }

    fn place(&self, id: &BuildId, extension: &str) -> io::Result<PathBuf> {
        let path = self.path(id, extension);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory)?;
        }
        Ok(path)
    }

    /// Deletes leftovers in a directory. Failure is harmless.
    fn sweep(&self, directory: &Path) {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries(&self.scratch) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > STALE_AFTER) {
                delete(&entry.path());
            }
        }
        for entry in entries(directory) {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let version = name.strip_prefix('v').is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            });
            if version && name != VERSION {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Path of a temporary file. Dropping the path deletes the file, unless the file was renamed.
#[derive(Debug)]
pub struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates the file with access for the owner only.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be created.
    pub fn create(&self) -> io::Result<File> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(&self.0)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        delete(&self.0);
    }
}

fn on_disk(metadata: &Metadata) -> u64 {
    // POSIX leaves the unit of `st_blocks` open; all supported systems use 512 bytes.
    metadata.blocks() * 512
}

/// If another process removed the file, the deletion counts as a success.
fn delete(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Sets the time of last use. Failure is harmless: the file stays in the cache with an older time.
fn touch(path: &Path, used: SystemTime) {
    let Ok(modified) = fs::metadata(path).and_then(|metadata| metadata.modified()) else {
        return;
    };
    let later = used.duration_since(modified);
    if later.is_ok_and(|later| later >= TOUCH_INTERVAL)
        && let Ok(file) = File::options().write(true).open(path)
    {
        let _ = file.set_modified(used);
    }
}

fn id_of(path: &Path) -> Option<BuildId> {
    let first = path.parent()?.file_name()?.to_str()?;
    let rest = path.file_stem()?.to_str()?;
    format!("{first}{rest}").parse().ok()
}

/// Refuses a directory that belongs to another user or that other users may write to.
fn check_ownership(directory: &Path) -> io::Result<()> {
    /// Write permission of the group and of other users.
    const OTHERS_WRITE: u32 = 0o022;
    let metadata = fs::metadata(directory)?;
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let place = directory.display();
    if owner != own {
        return Err(io::Error::other(format!(
            "{place} belongs to the user {owner}, and this process is the user {own}"
        )));
    }
    match metadata.mode() & OTHERS_WRITE {
        0 => Ok(()),
        _ => Err(io::Error::other(format!(
            "other users may write to {place}; run `chmod go-w {place}`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::failure::FailureKind;
    use crate::library::testing::InProcess;
    use crate::testing::{compiled, id};
    use crate::worker::Compiler as _;

    fn cache(max_bytes: u64) -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(&directory.path().join("a/b"), max_bytes).unwrap();
        (directory, cache)
    }

    fn store(cache: &Cache, id: &BuildId) {
        let scratch = cache.scratch().unwrap();
        compiled(id, scratch.path());
        cache.store(id, scratch).unwrap();
    }

    fn absence(until: SystemTime) -> Absence {
        Absence {
            kind: FailureKind::NotFound,
            until,
            limits: InProcess.limits(),
            rejected: vec![7, u64::MAX],
        }
    }

    fn is_file(cached: Option<Cached>) -> bool {
        matches!(cached, Some(Cached::File(_)))
    }

    #[test]
    fn stored_file_is_found_and_leaves_no_temporary_file() {
        let (_directory, cache) = cache(1 << 20);
        let id = id(1);
        assert!(cache.find(&id).is_none());
        store(&cache, &id);
        let other = Cache::open(cache.files.parent().unwrap(), 1 << 20).unwrap();
        assert!(is_file(other.find(&id)));
        assert_eq!(fs::read_dir(&cache.scratch).unwrap().count(), 0);
        let mode = fs::metadata(&cache.files).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700, "nobody else looks into it");
    }

    #[test]
    fn directory_writable_by_other_users_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        Cache::open(directory.path(), 1 << 20).unwrap();
        for (place, mode, refused) in [
            ("", 0o755, false),
            ("", 0o777, true),
            ("", 0o700, false),
            (VERSION, 0o720, true),
        ] {
            let path = directory.path().join(place);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let opened = Cache::open(directory.path(), 1 << 20);
            assert_eq!(opened.is_err(), refused, "{mode:o}");
            let error = opened.err().map(|error| error.to_string());
            assert!(error.is_none_or(|error| error.contains("chmod go-w")));
        }
    }

    #[test]
    fn unreadable_file_is_not_deleted() {
        let (directory, cache) = cache(1 << 20);
        let path = cache.place(&id(1), "sym").unwrap();
        // A directory can be opened, but not mapped.
        std::os::unix::fs::symlink(directory.path(), &path).unwrap();
        assert!(cache.find(&id(1)).is_none());
        assert!(path.is_symlink());
    }

    #[test]
    fn damage_on_disk_is_detected_at_first_open() {
        let (_directory, cache) = cache(1 << 20);
        // A build id that no other test uses.
        let id = id(77);
        // Compiled by another process, so not verified by this process.
        let place = cache.place(&id, "sym").unwrap();
        File::create(&place).unwrap();
        compiled(&id, &place);
        let mut bytes = fs::read(&place).unwrap();
        let last = bytes.last_mut().unwrap();
        *last = !*last;
        fs::write(&place, bytes).unwrap();
        assert!(matches!(
            cache.find_within(&id, &mut 10),
            Some(Cached::Unverified)
        ));
        assert!(cache.find(&id).is_none());
        assert!(!place.exists());
        store(&cache, &id);
        let found = cache.find_within(&id, &mut 0);
        assert!(is_file(found), "it was read when it was made");
    }

    #[test]
    fn notes_are_bounded_and_deleted_before_files() {
        let (_directory, cache) = cache(1 << 30);
        let ids: Vec<BuildId> = (0..TOO_MANY_NOTES as u32 + 1)
            .map(|number| BuildId::from_bytes(&number.to_be_bytes()).unwrap())
            .collect();
        for (seconds, id) in (100..).zip(&ids) {
            let until = SystemTime::now() + Duration::from_secs(seconds);
            let absence = absence(until);
            cache.store_absence(id, SymbolKind::Any, &absence).unwrap();
        }
        let there = ids.iter().filter(|id| cache.find(id).is_some()).count();
        assert_eq!(there, MAX_NOTES);
        let last = ids.last().unwrap();
        assert!(
            cache.find(last).is_some(),
            "those that count for longest stay"
        );
        store(&cache, &id(1));
        let over = absence(SystemTime::now());
        cache
            .store_absence(&id(2), SymbolKind::Better, &over)
            .unwrap();
        cache.trim().unwrap();
        assert!(!cache.path(&id(2), "better").exists());
        let smaller = Cache {
            max_bytes: 1 << 14,
            ..cache
        };
        let left = smaller.trim().unwrap();
        assert!(left.bytes <= 1 << 14 && left.deleted.is_empty());
        assert!(is_file(smaller.find(&id(1))));
    }

    #[test]
    fn damaged_or_foreign_file_is_deleted() {
        let (_directory, cache) = cache(1 << 20);
        let (one, other) = (id(1), id(2));
        store(&cache, &one);
        let path = cache.path(&one, "sym");
        let copy = cache.place(&other, "sym").unwrap();
        fs::copy(&path, &copy).unwrap();
        assert!(cache.find(&other).is_none());
        assert!(!copy.exists());
        let bytes = fs::read(&path).unwrap();
        for damage in [0, bytes.len() / 2] {
            fs::write(&path, &bytes[..damage]).unwrap();
            assert!(cache.find(&one).is_none());
            assert!(!path.exists());
        }
    }

    #[test]
    fn absence_ends_at_expiry_or_when_a_file_is_stored() {
        let (_directory, cache) = cache(1 << 20);
        let id = id(1);
        let now = SystemTime::now();
        let absence = |until| absence(UNIX_EPOCH + Duration::from_secs(until));
        let seconds = now.duration_since(UNIX_EPOCH).unwrap().as_secs();
        cache
            .store_absence(&id, SymbolKind::Any, &absence(seconds - 1))
            .unwrap();
        assert!(cache.find(&id).is_none());
        let later = absence(seconds + 60);
        cache.store_absence(&id, SymbolKind::Any, &later).unwrap();
        assert!(matches!(cache.find(&id), Some(Cached::Absent(found)) if found == later));
        store(&cache, &id);
        assert!(is_file(cache.find(&id)));
        assert!(!cache.path(&id, "absent").exists());
    }

    #[test]
    fn trim_deletes_least_recently_used_file_first() {
        let (_directory, cache) = cache(1 << 30);
        let ids = [id(1), id(2), id(3)];
        let hours_ago = |hours: u64| SystemTime::now() - Duration::from_secs(3600 * hours);
        for (id, hours) in ids.iter().zip([3, 2, 1]) {
            store(&cache, id);
            let file = File::options().write(true).open(cache.path(id, "sym"));
            file.unwrap().set_modified(hours_ago(hours)).unwrap();
        }
        let all = cache.trim().unwrap().bytes;
        assert!(is_file(cache.find(&ids[0])), "that is a use");
        let smaller = Cache {
            max_bytes: all - 1,
            ..cache
        };
        let trimmed = smaller.trim().unwrap();
        assert_eq!(trimmed.bytes, all / 3 * 2);
        assert_eq!(trimmed.deleted, [ids[1].clone()]);
        let left = ids.map(|id| is_file(smaller.find(&id)));
        assert_eq!(left, [true, false, true]);
    }

    #[test]
    fn open_deletes_leftovers_and_other_versions_only() {
        let (_directory, cache) = cache(1 << 20);
        let root = cache.files.parent().unwrap();
        let (old, new) = (cache.scratch().unwrap(), cache.scratch().unwrap());
        let file = old.create().unwrap();
        file.set_modified(SystemTime::now() - 2 * STALE_AFTER)
            .unwrap();
        new.create().unwrap();
        fs::create_dir_all(root.join("v0/ab")).unwrap();
        fs::create_dir_all(root.join("videos")).unwrap();
        Cache::open(root, 1 << 20).unwrap();
        let there = [
            old.path(),
            new.path(),
            &root.join("v0"),
            &root.join("videos"),
        ];
        assert_eq!(there.map(Path::exists), [false, true, false, true]);
    }
}
