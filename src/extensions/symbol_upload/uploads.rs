//! Directory of uploaded files.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tributary_storage::own_files;
use tributary_symbols::BuildId;
use tributary_symbols::failure::Failure;
use tributary_symbols::worker::Compiler;

/// Files by build id, with a limit on their total size.
pub(super) struct Uploads {
    directory: PathBuf,
    max_bytes: u64,
    used: Arc<Used>,
    reader: Arc<dyn Compiler>,
}

/// Kind of a file that belongs to a binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Debug information.
    DebugInfo,
    /// The binary itself.
    Executable,
}

/// A file that is being uploaded. It is deleted on drop, unless it is kept.
pub(super) struct Incoming {
    path: PathBuf,
    pub(super) file: File,
    /// Bytes charged to the file.
    claimed: u64,
    used: Arc<Used>,
}

/// Bytes in use.
#[derive(Default)]
struct Used {
    /// Bytes of kept files.
    kept: AtomicU64,
    /// Locked while kept files are counted or added.
    counting: Mutex<()>,
    /// Bytes of files that are being uploaded.
    coming: AtomicU64,
}

/// Reason why a file is not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("the file is not an ELF file with a build id; link with --build-id")]
    NoBuildId,
    #[error("the build id of the file is {0}")]
    OtherBuildId(BuildId),
    #[error("the upload directory of this server is full")]
    Full,
    #[error("cannot check the file: {0}")]
    NotChecked(#[from] Failure),
    #[error("cannot store the file: {0}")]
    Io(#[from] io::Error),
}

/// Age at which files of a crashed process are deleted: a younger file may still be uploaded, to
/// the instance before a reload or to another process.
const LEFT_BEHIND: Duration = Duration::from_secs(6 * 60 * 60);

/// Name prefix of files that are being uploaded.
const COMING: &str = ".upload-";

impl Uploads {
    /// Opens the directory, and creates it if missing. Incomplete files of a crash are deleted
    /// after some hours.
    pub(super) fn open(
        directory: &Path,
        max_bytes: u64,
        reader: Arc<dyn Compiler>,
    ) -> io::Result<Self> {
        let root = directory.join(".build-id");
        own_files::create_directories(&root, 0o755)?;
        for entry in fs::read_dir(directory)?.flatten() {
            let name = entry.file_name();
            let coming = name.as_encoded_bytes().starts_with(COMING.as_bytes());
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let age = modified.ok().and_then(|time| time.elapsed().ok());
            if coming && age.is_some_and(|age| age > LEFT_BEHIND) {
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok(Uploads {
            directory: directory.to_owned(),
            max_bytes,
            used: Arc::default(),
            reader,
        })
    }

    /// Creates a file for an upload. Counts the kept files again, since some may have been removed.
    /// Blocks.
    pub(super) fn begin(&self) -> io::Result<Incoming> {
        {
            let _counting = self.used.counting.lock();
            let kept = size_of(&self.directory.join(".build-id"))?;
            self.used.kept.store(kept, Relaxed);
        }
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let path = self.directory.join(format!("{COMING}{process}-{number}"));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o644);
        Ok(Incoming {
            file: options.open(&path)?,
            path,
            claimed: 0,
            used: self.used.clone(),
        })
    }

    /// Reserves bytes for a file.
    pub(super) fn claim(&self, incoming: &mut Incoming, bytes: u64) -> Result<(), Refused> {
        let coming = &self.used.coming;
        let coming = coming.fetch_add(bytes, Relaxed).saturating_add(bytes);
        incoming.claimed += bytes;
        let kept = self.used.kept.load(Relaxed);
        match kept.saturating_add(coming) > self.max_bytes {
            true => Err(Refused::Full),
            false => Ok(()),
        }
    }

    /// Keeps a file if it belongs to this binary.
    pub(super) async fn keep(
        &self,
        incoming: Incoming,
        id: &BuildId,
        kind: Kind,
    ) -> Result<(), Refused> {
        let description = self.reader.describe(&incoming.path).await?;
        match description.build_id {
            None => return Err(Refused::NoBuildId),
            Some(other) if other != *id => return Err(Refused::OtherBuildId(other)),
            Some(_) => {}
        }
        let id = id.to_string();
        let (first, rest) = id.split_at(2);
        let directory = self.directory.join(".build-id").join(first);
        let name = match kind {
            Kind::DebugInfo => format!("{rest}.debug"),
            Kind::Executable => rest.to_owned(),
        };
        let store = move || {
            fs::create_dir_all(&directory)?;
            incoming.move_to(&directory.join(name))?;
            File::open(&directory)?.sync_all()?;
            Ok(())
        };
        let stored = tokio::task::spawn_blocking(store).await;
        stored.unwrap_or_else(|_| {
            Err(Refused::Io(io::Error::other(
                "the collector is shutting down",
            )))
        })
    }
}

impl Incoming {
    /// Moves the file to its final path, and replaces an existing file. The file is synced first,
    /// because the upload will be acknowledged.
    fn move_to(self, path: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        let _counting = self.used.counting.lock();
        fs::rename(&self.path, path)?;
        // A replaced file is counted until the next upload starts.
        self.used.kept.fetch_add(self.claimed, Relaxed);
        Ok(())
    }
}

impl Used {}

impl Drop for Incoming {
    fn drop(&mut self) {
        // A kept file is no longer at this path.
        let _ = fs::remove_file(&self.path);
        self.used.coming.fetch_sub(self.claimed, Relaxed);
    }
}

/// Returns the size of all files below a directory in the build-id layout.
fn size_of(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for directory in fs::read_dir(root)? {
        for entry in fs::read_dir(directory?.path()).into_iter().flatten() {
            bytes += entry?.metadata()?.size();
        }
    }
    Ok(bytes)
}
