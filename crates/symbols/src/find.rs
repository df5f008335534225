//! Where the file of a build id is: directories of this machine, a prefix of an object store, debuginfod servers.
//!
//! A source is asked for a build id and for nothing else. No URL and no path is ever made of anything else that came with
//! telemetry.

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
use super::cache::{Cache, Scratch};
use super::failure::Failure;
use super::worker::Compiler;
use futures_util::future::BoxFuture;

/// A place where files of binaries are.
pub trait Source: Send + Sync + 'static {
    /// Its name in metrics.
    fn name(&self) -> &'static str;

    /// Whether asking it goes over the network.
    fn is_remote(&self) -> bool;

    /// The files of a build id, whatever they say of themselves.
    fn find<'a>(
        &'a self,
        id: &'a BuildId,
        tools: &'a Tools,
    ) -> BoxFuture<'a, Result<Found, Failure>>;
}

/// What a source needs besides.
#[derive(Clone)]
pub struct Tools {
    /// Where downloads go.
    pub cache: Arc<Cache>,
    /// What reads strangers' files.
    pub compiler: Arc<dyn Compiler>,
    /// The turns at compiling.
    pub compiling: Arc<Semaphore>,
}

/// How many binaries this process compiles at once: more would only take the processors, and so much memory more, from
/// the pipelines. Who sizes a machine counts on that.
const COMPILED_AT_ONCE: usize = 1;

impl Tools {
    /// Tools that share their turns with all others of this process.
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

/// Does what waits for a disk on a thread for that.
///
/// # Errors
/// What the work says; `Local` when the runtime ends.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(Failure::Local("the collector ends".to_owned())))
}

/// The files of a binary.
#[derive(Debug, Default)]
pub struct Found {
    /// The best one: the one with debug information, if there is one.
    pub binary: PathBuf,
    /// What belongs to it.
    pub supplementary: Vec<PathBuf>,
    /// Those of them that were downloaded: deleted with this.
    downloads: Vec<Scratch>,
}

impl Found {
    /// A file that is there.
    pub fn file(binary: PathBuf) -> Self {
        Found {
            binary,
            ..Found::default()
        }
    }

    /// A file that was downloaded.
    pub fn download(scratch: Scratch) -> Self {
        Found {
            binary: scratch.path().to_owned(),
            downloads: vec![scratch],
            ..Found::default()
        }
    }

    /// Adds what belongs to it.
    pub fn add(&mut self, other: Found) {
        self.supplementary.push(other.binary);
        self.supplementary.extend(other.supplementary);
        self.downloads.extend(other.downloads);
    }

    /// All of them, the binary first.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.binary].into_iter().chain(&self.supplementary)
    }

    /// Leaves the binary alone. False if it is that already.
    pub fn leave_alone(&mut self) -> bool {
        let had = !self.supplementary.is_empty();
        self.supplementary.clear();
        had
    }

    /// What tells these files from others, without reading them: names, sizes and times. Downloads have none. Blocks.
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

/// What tells a file from others, and from itself after a change. Blocks.
fn stamp(file: &Path, hash: &mut Xxh3) -> Option<()> {
    let metadata = std::fs::metadata(file).ok()?;
    let modified = metadata.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    hash.update(file.as_os_str().as_encoded_bytes());
    hash.update(&metadata.len().to_le_bytes());
    hash.update(&modified.as_nanos().to_le_bytes());
    Some(())
}
