//! A durable queue of records in files: a log that is written in order, read once, and deleted as it is read.
//!
//! ```text
//! append -> writer thread: [ all that wait ] -> blocks -> one fsync -> all are answered
//! next   <- blocks, from where the last reader stopped
//! acknowledge -> position; a segment whose records are all acknowledged is deleted
//! ```
//!
//! A log is a directory: segments (`NNN.segment`), the position of the reader (`position`), and a `lock` against a
//! second process. The formats are in `format`. What a record means is the business of whoever appends it.
//!
//! What is promised: once [`Log::append`] has answered, the record is as durable as [`Fsync`] says, and it is given out
//! until it is acknowledged. After a crash some that were acknowledged are given out again, because the position is
//! only written so often: delivery is at least once. After [`Lease::close`] none are. A damaged block costs its own
//! records, is reported, and nothing else.
//!
//! While the reader keeps up, the file of a segment that nobody needs is written over by the next one: an fsync of what has
//! its place on the disk already costs half as much as one of a file that grows.
//!
//! A segment is never compacted and never written to again after a failure. It would not help: what is delivered out of
//! order is rare, and a segment with one record left is bounded by the number of records under way.

mod acknowledged;
mod block;
mod direct;
mod disk;
mod format;
mod inspect;
mod lock;
mod log;
mod metrics;
mod position;
mod queues;
mod read;
mod recovery;
mod registry;
mod scan;
mod state;
mod streaming;
mod writer;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use tributary_memory::Permits;

pub use inspect::{Contents, Waiting, inspect, reader};
pub use log::Log;
pub use metrics::StorageMetrics;
pub use queues::{QueueName, Storage, has_dead_letters, list, unused};
pub use read::{Next, Place, Record};
pub use recovery::Recovered;
pub use registry::{Lease, Logs};

/// How a log is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// When appended records are forced to the disk.
    pub fsync: Fsync,
    /// Whether blocks are compressed with LZ4. One that does not shrink is stored as it is, and so is what a reader that
    /// keeps up is about to acknowledge.
    pub compress: bool,
    /// From how many bytes on a segment is followed by the next one.
    pub segment_bytes: u64,
    /// The same with `fsync: always` for one that has so many in less than a second, if it is more: a new one costs several
    /// fsyncs.
    pub busy_segment_bytes: u64,
    /// How long to wait for the lock of another process.
    pub lock_timeout: Duration,
    /// Permissions of files that are made.
    pub file_mode: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            fsync: Fsync::Always,
            compress: true,
            segment_bytes: 16 << 20,
            busy_segment_bytes: 64 << 20,
            lock_timeout: Duration::ZERO,
            file_mode: 0o600,
        }
    }
}

/// When appended records are forced to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before they are answered: they survive a power failure.
    Always,
    /// This long after they were written, at most: a power failure costs that much, a crash of the process nothing.
    Interval(Duration),
    /// When the operating system thinks fit: a crash of the process costs nothing.
    Never,
}

/// What is appended.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    /// The content: the concatenation of these.
    pub parts: Vec<Bytes>,
    /// Items in it, for the accounts.
    pub items: usize,
    /// Kept as long as the log has the content in memory. Whoever is given it from there is given this, too.
    pub permit: Option<Arc<OwnedSemaphorePermit>>,
    /// Keeps the content counted in the memory budget for the same time.
    pub memory: Permits,
}

impl NewRecord {
    /// Bytes of the content.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// What it takes in memory, about.
    fn bytes_in_memory(&self) -> usize {
        /// The lists of its parts, and the first of them, which is made for it.
        const BESIDE_CONTENT: usize = 256;
        self.len() + BESIDE_CONTENT
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a log holds that is not acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records.
    pub records: u64,
    /// Items in them.
    pub items: u64,
    /// Bytes on the disk, acknowledged records included whose segment is not deleted yet.
    pub bytes: u64,
}

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error(
        "{} is in use by another process{owner}: two collectors must not share a queue; give one of them another \
         directory, or stop it",
        directory.display()
    )]
    Locked {
        /// The log's directory.
        directory: PathBuf,
        /// Who, if that is known.
        owner: String,
    },
    /// Another version wrote it.
    #[error("{} has version {version}, which this program cannot read: use the one that wrote it", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The file system refuses.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}

/// Why a record was not appended. Nothing of it is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The disk is full, read-only or broken. Trying again may help.
    #[error("cannot write to {}: {reason}", directory.display())]
    Disk {
        /// The log's directory.
        directory: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// No record may be this large: it would not help to try again.
    #[error("a record of {0} bytes is above the largest one, {largest}", largest = format::LARGEST_RECORD)]
    TooLarge(usize),
    /// The log is closed, or its writer has ended.
    #[error("the log is closed")]
    Closed,
}
