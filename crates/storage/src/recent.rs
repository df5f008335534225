//! Recently written blocks, which save a fast reader the reads from disk.

use std::collections::VecDeque;
use std::sync::Arc;

use super::NewRecord;
use super::format::BlockHeader;
use super::record::{Record, RecordLocation};

#[derive(Debug, Default)]
pub(super) struct Recent {
    /// Ordered by sequence number, without gaps.
    blocks: VecDeque<RecentBlock>,
    bytes: usize,
    /// Maximum size in bytes, uncompressed. The limit is half while the reader is behind, since the
    /// reader then reads files first.
    limit: usize,
    /// Sequence number behind the last block.
    end: u64,
    /// Sequence number of the next record that the reader has not received from these blocks.
    read: u64,
}

/// A recently written block. It shares the bytes of the appended records.
#[derive(Debug, Clone)]
pub(super) struct RecentBlock {
    pub(super) header: BlockHeader,
    pub(super) records: Arc<[NewRecord]>,
    pub(super) location: RecordLocation,
}

impl RecentBlock {
    fn bytes(&self) -> usize {
        self.records.iter().map(NewRecord::bytes_in_memory).sum()
    }

    /// Returns the records of the block for the reader.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        let numbered = (self.header.first..).zip(&*self.records);
        numbered.map(|(sequence, record)| Record {
            sequence,
            items: record.items,
            parts: record.parts.clone(),
            location: self.location,
            memory: record.memory.clone(),
        })
    }
}

impl Recent {
    pub(super) fn new(limit: usize) -> Self {
        Recent {
            limit,
            ..Recent::default()
        }
    }

    pub(super) fn limit_to(&mut self, bytes: usize) {
        self.limit = bytes;
        self.evict();
    }

    /// Whether the reader's next records are only on disk.
    pub(super) fn is_behind(&self) -> bool {
        let front = self.blocks.front();
        front.map_or(self.end, |front| front.header.first) > self.read
    }

    pub(super) fn push(&mut self, block: RecentBlock) {
        if self
            .blocks
            .back()
            .is_some_and(|last| last.header.end() != block.header.first)
        {
            self.clear();
        }
        self.bytes += block.bytes();
        self.end = block.header.end();
        self.blocks.push_back(block);
        self.evict();
    }

    /// Drops the oldest blocks until the rest is within the limits.
    fn evict(&mut self) {
        while self.bytes > self.limit || self.is_behind() && self.bytes > self.limit / 2 {
            self.pop();
        }
    }

    /// Records that the reader has received all records before `next`.
    pub(super) fn read_to(&mut self, next: u64) {
        self.read = next;
    }

    /// Returns the block that contains `sequence`, and drops the blocks before it.
    pub(super) fn take(&mut self, sequence: u64) -> Option<RecentBlock> {
        while self
            .blocks
            .front()
            .is_some_and(|block| block.header.end() <= sequence)
        {
            self.pop();
        }
        self.read_to(sequence);
        let front = self.blocks.front()?;
        (front.header.first <= sequence).then(|| front.clone())
    }

    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.bytes = 0;
    }

    fn pop(&mut self) {
        if let Some(block) = self.blocks.pop_front() {
            self.bytes -= block.bytes();
        }
    }
}
