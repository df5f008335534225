//! Compiled symbol files on disk, one per build id, in a directory that is bounded in bytes.
//!
//! ```text
//! DIRECTORY/v2/ab/cdef0123.sym     a compiled file; v2 is the version of its format
//! DIRECTORY/v2/ab/cdef0123.absent  why there is none, and until when that counts
//! DIRECTORY/v2/ab/cdef0123.better  the same for one that says more than the one that is there
//! DIRECTORY/tmp/PID-N              what is being written
//! ```
//!
//! A file is written beside and renamed, so nobody sees a half of it, and several processes may share a directory: at worst
//! two of them make the same file. A file that is deleted stays readable for those who have it open. What was not used for
//! longest goes first; the time of the last change says when it was used, because file systems are mounted without the
//! time of the last access.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::build_id::BuildId;
use super::failure::Kind;
use super::file::SymbolFile;

/// The directory of a format; others are deleted when a cache is opened. To be raised when compiling the same binary
/// would give something else, too.
const VERSION: &str = "v2";

/// A file counts as used again after this long at the earliest: less would only write metadata.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// What a process that has crashed left behind is deleted after this long.
const LEFT_BEHIND: Duration = Duration::from_secs(6 * 60 * 60);

/// The most bytes of a note why there is no file.
const NOTE_BYTES: u64 = 4096;

/// The cache of a directory.
#[derive(Debug)]
pub struct Cache {
    files: PathBuf,
    scratch: PathBuf,
    max_bytes: u64,
}

/// What there is none of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Any symbols.
    Any,
    /// Symbols with lines, where there are some without.
    Better,
}

impl Wanted {
    fn extension(self) -> &'static str {
        match self {
            Wanted::Any => "absent",
            Wanted::Better => "better",
        }
    }
}

/// Why there is no symbol file for a build id, and until when that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Why.
    pub kind: Kind,
    /// Until when nobody need ask again.
    pub until: SystemTime,
    /// What was found and was of no use, by fingerprints: the same need not be tried again.
    pub rejected: Vec<u64>,
}

/// What a cache knows of a build id.
#[derive(Debug)]
pub enum Cached {
    /// Its symbols.
    File(Arc<SymbolFile>),
    /// Why there are none.
    Absent(Absence),
}

impl Cache {
    /// The cache in a directory, which is made if there is none, for nobody else to look into. What crashed processes and
    /// other versions left there is deleted.
    ///
    /// # Errors
    /// When the directory cannot be made or written to.
    pub fn open(directory: &Path, max_bytes: u64) -> io::Result<Self> {
        let cache = Cache {
            files: directory.join(VERSION),
            scratch: directory.join("tmp"),
            max_bytes,
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&cache.files)?;
        builder.create(&cache.scratch)?;
        drop(cache.scratch()?.create()?);
        cache.sweep(directory);
        Ok(cache)
    }

    /// What is known of a build id. What cannot be read is deleted, so that it is made again.
    pub fn find(&self, id: &BuildId) -> Option<Cached> {
        let path = self.path(id, "sym");
        match SymbolFile::open(&path) {
            Ok(file) if file.build_id() == Some(id) => {
                touch(&path);
                return Some(Cached::File(Arc::new(file)));
            }
            Ok(_) => delete(&path),
            Err(_) if path.exists() => delete(&path),
            Err(_) => {}
        }
        self.absence(id, Wanted::Any).map(Cached::Absent)
    }

    /// Why there are no such symbols, if that is known and still counts.
    pub fn absence(&self, id: &BuildId, wanted: Wanted) -> Option<Absence> {
        let path = self.path(id, wanted.extension());
        let absence = Absence::read(&path)?;
        if absence.until <= SystemTime::now() {
            delete(&path);
            return None;
        }
        Some(absence)
    }

    /// Where the compiled files are: what tells this cache from others.
    pub fn directory(&self) -> &Path {
        &self.files
    }

    /// Notes that a file that somebody has open is in use.
    pub fn touch(&self, id: &BuildId) {
        touch(&self.path(id, "sym"));
    }

    /// A place for a file that is being made.
    ///
    /// # Errors
    /// When the directory for it is gone and cannot be made.
    pub fn scratch(&self) -> io::Result<Scratch> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        fs::create_dir_all(&self.scratch)?;
        Ok(Scratch(self.scratch.join(name)))
    }

    /// Keeps a compiled file, in the place of what was known of this build id, and opens it.
    ///
    /// # Errors
    /// When it cannot be written or read.
    pub fn store(&self, id: &BuildId, compiled: Scratch) -> io::Result<SymbolFile> {
        let path = self.place(id, "sym")?;
        // Without this a crash of the machine may leave an empty file with this name. It would be noticed and made again.
        File::open(&compiled.0)?.sync_all()?;
        fs::rename(&compiled.0, &path)?;
        for wanted in [Wanted::Any, Wanted::Better] {
            delete(&self.path(id, wanted.extension()));
        }
        SymbolFile::open(&path).map_err(|error| io::Error::other(error.to_string()))
    }

    /// Keeps why there is none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn store_absence(&self, id: &BuildId, wanted: Wanted, absence: &Absence) -> io::Result<()> {
        let scratch = self.scratch()?;
        scratch.create()?.write_all(absence.note().as_bytes())?;
        fs::rename(&scratch.0, self.place(id, wanted.extension())?)
    }

    /// Deletes what was not used for longest, until the rest fits. Returns how many bytes that has.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn trim(&self) -> io::Result<u64> {
        let mut files = Vec::new();
        let mut bytes = 0;
        for directory in fs::read_dir(&self.files)? {
            let Ok(entries) = fs::read_dir(directory?.path()) else {
                continue;
            };
            for entry in entries.flatten() {
                let Ok(metadata) = entry.metadata() else {
                    continue;
                };
                let size = on_disk(&metadata);
                bytes += size;
                files.push((metadata.modified()?, size, entry.path()));
            }
        }
        files.sort_unstable();
        for (_, size, path) in files {
            if bytes <= self.max_bytes {
                break;
            }
            delete(&path);
            bytes -= size;
        }
        Ok(bytes)
    }

    /// Where the file of a build id is. The id is digits: it cannot lead out of the directory.
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

    /// Deletes what is of no use to anybody. Nothing depends on its success.
    fn sweep(&self, directory: &Path) {
        let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        for entry in entries(&self.scratch) {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|time| time.elapsed().ok());
            if age.is_some_and(|age| age > LEFT_BEHIND) {
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

impl Absence {
    fn note(&self) -> String {
        let until = self.until.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut note = format!("{} {}", self.kind.name(), until.as_secs());
        for fingerprint in &self.rejected {
            note.push_str(&format!(" {fingerprint:x}"));
        }
        note
    }

    fn read(path: &Path) -> Option<Self> {
        let mut note = String::new();
        let file = File::open(path).ok()?;
        file.take(NOTE_BYTES).read_to_string(&mut note).ok()?;
        let mut words = note.split(' ');
        let kind = Kind::from_name(words.next()?)?;
        let until = Duration::from_secs(words.next()?.parse().ok()?);
        let rejected = words.map(|word| u64::from_str_radix(word, 16));
        Some(Absence {
            kind,
            until: UNIX_EPOCH.checked_add(until)?,
            rejected: rejected.collect::<Result<_, _>>().ok()?,
        })
    }
}

/// A place for a file that is being made. What is there is deleted with this, unless it was renamed.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the file, for its owner only.
    ///
    /// # Errors
    /// When that is not possible, or it is there already.
    pub fn create(&self) -> io::Result<File> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        options.open(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        delete(&self.0);
    }
}

fn on_disk(metadata: &Metadata) -> u64 {
    // POSIX leaves the unit open; everywhere it is 512 bytes.
    metadata.blocks() * 512
}

/// Whoever finds it gone has what is wanted.
fn delete(path: &Path) {
    let _ = fs::remove_file(path);
}

/// Whether this works or not, the file is there.
fn touch(path: &Path) {
    let Ok(metadata) = fs::metadata(path) else {
        return;
    };
    let age = metadata
        .modified()
        .ok()
        .and_then(|time| time.elapsed().ok());
    if age.is_some_and(|age| age >= TOUCH_EVERY)
        && let Ok(file) = File::options().write(true).open(path)
    {
        let _ = file.set_modified(SystemTime::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::testing::{compiled, id};

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

    fn is_file(cached: Option<Cached>) -> bool {
        matches!(cached, Some(Cached::File(_)))
    }

    #[test]
    fn what_is_stored_is_found_by_every_process_and_leaves_nothing_beside_it() {
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
    fn a_file_that_is_damaged_or_of_another_binary_is_deleted() {
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
    fn the_absence_of_a_file_counts_for_its_time_and_no_longer_than_until_there_is_one() {
        let (_directory, cache) = cache(1 << 20);
        let id = id(1);
        let now = SystemTime::now();
        let absence = |until| Absence {
            kind: Kind::NotFound,
            until: UNIX_EPOCH + Duration::from_secs(until),
            rejected: vec![7, u64::MAX],
        };
        let seconds = now.duration_since(UNIX_EPOCH).unwrap().as_secs();
        cache
            .store_absence(&id, Wanted::Any, &absence(seconds - 1))
            .unwrap();
        assert!(cache.find(&id).is_none());
        let later = absence(seconds + 60);
        cache.store_absence(&id, Wanted::Any, &later).unwrap();
        assert!(matches!(cache.find(&id), Some(Cached::Absent(found)) if found == later));
        store(&cache, &id);
        assert!(is_file(cache.find(&id)));
        assert!(!cache.path(&id, "absent").exists());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let (_directory, cache) = cache(1 << 30);
        let ids = [id(1), id(2), id(3)];
        let hours_ago = |hours: u64| SystemTime::now() - Duration::from_secs(3600 * hours);
        for (id, hours) in ids.iter().zip([3, 2, 1]) {
            store(&cache, id);
            let file = File::options().write(true).open(cache.path(id, "sym"));
            file.unwrap().set_modified(hours_ago(hours)).unwrap();
        }
        let all = cache.trim().unwrap();
        assert!(is_file(cache.find(&ids[0])), "that is a use");
        let smaller = Cache {
            max_bytes: all - 1,
            ..cache
        };
        assert_eq!(smaller.trim().unwrap(), all / 3 * 2);
        let left = ids.map(|id| is_file(smaller.find(&id)));
        assert_eq!(left, [true, false, true]);
    }

    #[test]
    fn what_crashed_processes_and_other_versions_left_is_deleted_and_nothing_else() {
        let (_directory, cache) = cache(1 << 20);
        let root = cache.files.parent().unwrap();
        let (old, new) = (cache.scratch().unwrap(), cache.scratch().unwrap());
        let file = old.create().unwrap();
        file.set_modified(SystemTime::now() - 2 * LEFT_BEHIND)
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
