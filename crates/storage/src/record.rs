//! A record in the form that a reader receives.

use bytes::Bytes;

use tributary_memory::Permits;

/// A record that was appended.
#[derive(Debug, Clone)]
pub struct Record {
    /// Sequence number, larger than that of every record appended before.
    pub sequence: u64,
    /// Number of items, as stated at the append.
    pub items: usize,
    /// The content, as the concatenation of these parts: the appended parts, or one part if it was read from a file.
    pub parts: Vec<Bytes>,
    /// Location in the log.
    pub location: RecordLocation,
    /// The memory permits that were appended with the record; none if the record was read from a file. The permits keep
    /// the content counted in the memory budget.
    pub memory: Permits,
}

impl Record {
    /// Returns the size of the content in bytes.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// Location of a record in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordLocation {
    pub(super) segment: u64,
    /// Offset of the block in the segment.
    pub(super) at: u64,
}

/// Result of a read.
#[derive(Debug)]
pub enum ReadResult {
    /// Records, in order.
    Records(Vec<Record>),
    /// There are records, but reading them waits for the disk. Call again on a thread that may block.
    OnDisk,
    /// There are no records now.
    Empty,
    /// Another lease reads the records from now on.
    Ended,
}
