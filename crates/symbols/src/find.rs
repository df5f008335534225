//! Sources of the files of a build id: directories of this machine, a prefix of an object store, debuginfod
//! servers.
//!
//! A query to a source consists of a build id. No other content of telemetry becomes part of a URL or path.

mod breaker;
pub mod debuginfod;
pub mod directories;
mod download;
mod layout;
pub mod object_store;
mod remembered;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::UNIX_EPOCH;

use tokio::sync::Semaphore;
use xxhash_rust::xxh3::Xxh3;

use super::build_id::BuildId;
use super::cache::{Cache, TemporaryFile};
use super::failure::Failure;
use super::worker::Compiler;
use futures_util::future::BoxFuture;

/// A source of binaries.
pub trait BinarySource: Send + Sync + 'static {
    /// Name of the source in metrics.
    fn name(&self) -> &'static str;

    /// Whether queries to the source use the network.
    fn is_remote(&self) -> bool;

    /// Finds the files of a build id. The caller verifies the build id in the files.
    fn find<'a>(
        &'a self,
        id: &'a BuildId,
        tools: &'a Tools,
    ) -> BoxFuture<'a, Result<BinaryFiles, Failure>>;
}

/// Shared tools of all sources.
#[derive(Clone)]
pub struct Tools {
    /// Cache in which downloads are stored temporarily.
    pub cache: Arc<Cache>,
    /// Reader of untrusted files.
    pub compiler: Arc<dyn Compiler>,
    /// Limits parallel compilations.
    pub compiling: Arc<Semaphore>,
}

/// Parallel compilations of this process. A higher number would take processors and memory from the pipelines. The
/// documented memory requirements assume one compilation.
const COMPILED_AT_ONCE: usize = 1;

impl Tools {
    /// Creates tools that share the compilation limit of this process.
    pub fn new(cache: Cache, compiler: Arc<dyn Compiler>) -> Self {
        static COMPILING: LazyLock<Arc<Semaphore>> =
            LazyLock::new(|| Arc::new(Semaphore::new(COMPILED_AT_ONCE)));
        Tools {
            cache: Arc::new(cache),
            compiler,
            compiling: COMPILING.clone(),
        }
    }
}

/// Runs blocking disk work on a thread for blocking tasks.
///
/// # Errors
/// Returns the error of the work, or `Local` if the runtime shuts down.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Failure::Local("the collector is shutting down".to_owned())))
}

/// Files of a binary.
#[derive(Debug, Default)]
pub struct BinaryFiles {
    /// The best file: a file with debug information, if found.
    pub binary: PathBuf,
    /// Companion files of the binary.
    pub supplementary: Vec<PathBuf>,
    /// Downloaded files among the found files; deleted on drop.
    downloads: Vec<TemporaryFile>,
}

impl BinaryFiles {
    /// A file that already exists on disk.
    pub fn file(binary: PathBuf) -> Self {
        BinaryFiles {
            binary,
            ..BinaryFiles::default()
        }
    }

    /// A downloaded file.
    pub fn download(scratch: TemporaryFile) -> Self {
        BinaryFiles {
            binary: scratch.path().to_owned(),
            downloads: vec![scratch],
            ..BinaryFiles::default()
        }
    }

    /// Adds companion files.
    pub fn add(&mut self, other: BinaryFiles) {
        self.supplementary.push(other.binary);
        self.supplementary.extend(other.supplementary);
        self.downloads.extend(other.downloads);
    }

    /// Returns all files, the binary first.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.binary].into_iter().chain(&self.supplementary)
    }

    /// Removes the companion files. Returns false if there are none.
    pub fn drop_companions(&mut self) -> bool {
        let had = !self.supplementary.is_empty();
        self.supplementary.clear();
        had
    }

    /// Fingerprint of the names, sizes and times of the files, without reading their content. `None` for downloads. The
    /// function blocks.
    pub fn fingerprint(&self) -> Option<u64> {
        if !self.downloads.is_empty() {
            return None;
        }
        let mut hash = Xxh3::new();
        for file in self.files() {
            stamp(file, &mut hash)?;
        }
        Some(hash.digest())
    }
}

/// Hashes the name, size and time of a file, so that a changed file has another hash. Blocks.
fn stamp(file: &Path, hash: &mut Xxh3) -> Option<()> {
    let metadata = std::fs::metadata(file).ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    hash.update(file.as_os_str().as_encoded_bytes());
    hash.update(&metadata.len().to_le_bytes());
    hash.update(&modified.as_nanos().to_le_bytes());
    Some(())
}
