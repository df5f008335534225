//! A durable queue of records in files: an append-only log that is read in order and deleted segment by segment.
//!
//! The crate persists the sending queues of exporters. The content of a record is opaque to it.
//!
//! ```text
//! append -> writer thread: [ all waiting records ] -> blocks -> one fsync -> all are acknowledged
//! next   <- blocks, from the position of the reader
//! acknowledge -> position; a segment whose records are all acknowledged is deleted
//! ```
//!
//! A log is a directory with segments (`NNN.segment`), the position of the reader (`position`), and a `lock` against a
//! second process. The module `format` documents the file formats.
//!
//! # Invariants
//!
//! * When [`Log::append`] returns, the record is as durable as [`Fsync`] says. The log hands it out until it is
//!   acknowledged.
//! * Delivery is at least once. The position is written periodically, so a crash repeats records that were acknowledged
//!   after the last write. A call of [`Lease::close`] avoids repetitions.
//! * A damaged block loses only its own records, and the loss is reported.
//! * A segment is never compacted, and never written to again after a failure. Compaction would save little:
//!   out-of-order acknowledgements are rare, and the number of records in flight bounds the segments with few records
//!   left.
//! * While the reader keeps up, the file of a finished segment is overwritten by a later segment. An fsync of allocated
//!   blocks needs no change of the file's metadata on disk.
//!
//! # Example
//!
//! ```
//! use tributary_storage::{LogRegistry, NewRecord, ReadResult, Options, StorageMetrics};
//!
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path();
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! let logs = LogRegistry::default();
//! let (lease, _) = logs.open(directory, &Options::default(), StorageMetrics::new(&[]))?;
//! lease.become_reader();
//! let record = NewRecord { parts: vec!["spans".into()], items: 1, ..NewRecord::default() };
//! lease.log().append(record).await?;
//! // The record is on disk, and is handed out until it is acknowledged.
//! let ReadResult::Records(records) = lease.next(1 << 20, true)? else { panic!("a record waits") };
//! for record in records {
//!     assert_eq!(record.parts.concat(), b"spans");
//!     lease.log().acknowledge(record.sequence, record.items);
//! }
//! assert_eq!(lease.log().usage().records, 0);
//! # lease.close();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! [`LogRegistry::open`] opens a log and returns a [`Lease`], through which an exporter reads. `writer` is the writer thread,
//! `read` the reader, `recovery` the start after a crash, and [`inspect()`] the read-only view for operators.

mod acknowledged;
mod block;
mod directory;
mod disk;
mod format;
mod inspect;
mod lock;
mod log;
mod metrics;
pub mod own_files;
mod position;
mod queues;
mod read;
mod recent;
mod record;
mod recovery;
mod registry;
mod scan;
mod shared;
mod state;
mod writer;

#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;

pub use inspect::{Backlog, LogContents, backlog, inspect};
pub use lock::Lock;
pub use log::Log;
pub use metrics::StorageMetrics;
pub use queues::{QueueName, Storage, has_dead_letters, list, unused};
pub use record::{ReadResult, Record, RecordLocation};
pub use recovery::Recovered;
pub use registry::{Lease, LogRegistry};
use tributary_memory::Permits;

/// Settings of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Time at which appended records are forced to disk.
    pub fsync: Fsync,
    /// Whether blocks are compressed with LZ4. A block is stored uncompressed if LZ4 does not shrink it. While the
    /// reader keeps up, blocks are uncompressed too, since they are acknowledged soon.
    pub compress: bool,
    /// Size in bytes at which a new segment begins.
    pub segment_bytes: u64,
    /// Value of `segment_bytes` for `fsync: always` and a segment that fills up in less than a
    /// second, if this value is larger. A new segment costs several fsyncs.
    pub busy_segment_bytes: u64,
    /// Maximum wait for the lock while another process holds it.
    pub lock_timeout: Duration,
    /// Permissions of new files.
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

/// Time at which appended records are forced to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fsync {
    /// Before records are acknowledged: acknowledged records survive a power failure.
    Always,
    /// At most this long after the write: a power failure loses this much, a crash of the process loses nothing.
    Interval(Duration),
    /// At the discretion of the operating system: a crash of the process loses nothing.
    Never,
}

/// A record to append.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    /// The content, as the concatenation of these parts.
    pub parts: Vec<Bytes>,
    /// Number of items in the record, for the counters.
    pub items: usize,
    /// Keeps the content counted in the memory budget while the log has the content in memory. A reader that gets the
    /// content from memory shares these permits.
    pub memory: Permits,
}

impl NewRecord {
    /// Returns the size of the content in bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    fn bytes_in_memory(&self) -> usize {
        /// Size of the lists of parts, and of the first part, which is created for the record.
        const BESIDE_CONTENT: usize = 256;
        self.len() + BESIDE_CONTENT
    }

    /// Whether there is no content.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Size of the unacknowledged part of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Records.
    pub records: u64,
    /// Items in the records.
    pub items: u64,
    /// Bytes on disk. Acknowledged records count until their segment is deleted.
    pub bytes: u64,
}

/// Reason why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the log open.
    #[error(
        "{} is in use by another process{owner}: two collectors must not share a queue; stop one of them, or set \
         another directory",
        directory.display()
    )]
    Locked {
        /// The log's directory.
        directory: PathBuf,
        /// Description of the other process, or empty if unknown.
        owner: String,
    },
    /// Another version of this program wrote the file.
    #[error("{} has the format version {version}, which this program cannot read: use the program version that \
             wrote the queue", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        version: u32,
    },
    /// The file system returned an error.
    #[error("cannot {doing} {}: {error}", path.display())]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The path of the operation.
        path: PathBuf,
        /// The error from the operating system.
        error: std::io::Error,
    },
}

/// Reason why a record was not appended. No part of the record is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The disk is full, read-only or broken. A retry may help.
    #[error("cannot write to {}: {reason}", directory.display())]
    Disk {
        /// The log's directory.
        directory: PathBuf,
        /// The error from the operating system.
        reason: String,
    },
    /// The record is above the size limit. A retry does not help.
    #[error("a record of {0} bytes exceeds the maximum of {largest} bytes", largest = format::MAX_RECORD_BYTES)]
    TooLarge(usize),
    /// The log is closed, or its writer has ended.
    #[error("the queue is closed")]
    Closed,
}
