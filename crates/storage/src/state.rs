//! In-memory index of a log's segments. Its size does not depend on the number of records.

use std::collections::VecDeque;

use super::Usage;
use super::acknowledged::Acknowledged;

/// A segment that may have unacknowledged records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// Number in the segment's name.
    pub(super) name: u64,
    /// First sequence number, and the number after the last.
    pub(super) first: u64,
    pub(super) end: u64,
    /// Readable bytes of the file: the bytes that are as durable as the options require.
    pub(super) bytes: u64,
    /// Size of the file on disk. A reused file may be longer than `bytes`.
    pub(super) file: u64,
    pub(super) records: u64,
    pub(super) items: u64,
    pub(super) sealed: bool,
}

/// All segments of a log, and the acknowledged records.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Ordered by sequence number.
    list: VecDeque<Segment>,
    pub(super) acknowledged: Acknowledged,
    usage: Usage,
    /// Items of damaged records that were never handed out.
    lost_items: u64,
    /// Number of segments whose files can be removed.
    finished: usize,
    /// Number of segments that were taken out and still have files.
    removing: usize,
    /// Size of the file that is kept for the next segment.
    spare: u64,
}

impl Segments {
    pub(super) fn new(acknowledged: Acknowledged) -> Self {
        Segments {
            acknowledged,
            ..Segments::default()
        }
    }

    pub(super) fn usage(&self) -> Usage {
        self.usage
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.list.iter()
    }

    pub(super) fn last_name(&self) -> Option<u64> {
        self.list.back().map(|segment| segment.name)
    }

    /// Returns the number after the last readable sequence number.
    pub(super) fn end(&self) -> u64 {
        self.list.back().map_or(0, |segment| segment.end)
    }

    pub(super) fn push(&mut self, segment: Segment) {
        self.usage.bytes += segment.file;
        self.usage.records += segment.records;
        self.usage.items += segment.items;
        self.finished += usize::from(segment.is_finished());
        self.list.push_back(segment);
    }

    /// Returns the segment that contains `sequence`; for an unused number, the segment behind it.
    pub(super) fn find(&self, sequence: u64) -> Option<&Segment> {
        let at = self.list.partition_point(|segment| segment.end <= sequence);
        self.list.get(at)
    }

    /// Grows the last segment to `bytes` by these records.
    pub(super) fn grow(&mut self, bytes: u64, records: u64, items: u64) {
        let Some(last) = self.list.back_mut() else {
            return;
        };
        self.usage.bytes += bytes - last.file.min(bytes);
        last.bytes = bytes;
        last.file = last.file.max(bytes);
        last.end += records;
        last.records += records;
        last.items += items;
        self.usage.records += records;
        self.usage.items += items;
    }

    /// Completes the last segment. `is_cut` states that its file ends with its records.
    pub(super) fn seal(&mut self, is_cut: bool) {
        if let Some(last) = self.list.back_mut().filter(|last| !last.sealed) {
            last.sealed = true;
            if is_cut {
                self.usage.bytes -= last.file - last.bytes;
                last.file = last.bytes;
            }
            self.finished += usize::from(last.is_finished());
        }
    }

    /// Moves the records of the last segment from `new.first` on to a new segment. `records` and `items` are the
    /// unacknowledged part of the moved records. `kept` is the remaining size of the last segment, in bytes.
    pub(super) fn split_last(&mut self, kept: u64, records: u64, items: u64, mut new: Segment) {
        let Some(last) = self.list.back_mut() else {
            return;
        };
        new.end = last.end;
        last.end = new.first;
        (new.records, new.items) = (records.min(last.records), items.min(last.items));
        last.records -= new.records;
        last.items -= new.items;
        last.sealed = true;
        self.finished += usize::from(last.is_finished());
        self.usage.bytes += new.file;
        last.bytes = kept;
        self.list.push_back(new);
    }

    /// Acknowledges a record. Returns true if it was not acknowledged before.
    pub(super) fn acknowledge(&mut self, sequence: u64, items: u64) -> bool {
        let new = self
            .acknowledged
            .insert(sequence, sequence.saturating_add(1));
        self.settle(sequence, new, items);
        new > 0
    }

    /// Records that `first..end` are lost. Returns the number of unacknowledged records among them.
    pub(super) fn lose(&mut self, first: u64, end: u64) -> u64 {
        let mut lost = 0;
        let mut from = first;
        // A gap lies within one segment, or outside of all segments.
        while from < end {
            let to = self
                .find(from)
                .map_or(end, |segment| segment.end.min(end).max(from + 1));
            let new = self.acknowledged.insert(from, to);
            self.settle(from, new, 0);
            lost += new;
            from = to;
        }
        lost
    }

    fn settle(&mut self, sequence: u64, records: u64, items: u64) {
        if records == 0 {
            return;
        }
        let at = self.list.partition_point(|segment| segment.end <= sequence);
        let Some(segment) = self.list.get_mut(at) else {
            return;
        };
        let records = records.min(segment.records);
        segment.records -= records;
        self.usage.records -= records;
        let mut items = items.min(segment.items);
        segment.items -= items;
        if segment.records == 0 {
            // Items without a known record were in damaged records.
            self.lost_items += segment.items;
            items += std::mem::take(&mut segment.items);
            self.finished += usize::from(records > 0 && segment.sealed);
        }
        self.usage.items -= items.min(self.usage.items);
    }

    /// Returns the items lost since the last call.
    pub(super) fn take_lost_items(&mut self) -> u64 {
        std::mem::take(&mut self.lost_items)
    }

    pub(super) fn has_finished(&self) -> bool {
        self.finished > 0
    }

    pub(super) fn is_freeing(&self) -> bool {
        self.finished + self.removing > 0
    }

    /// Records that the file of a finished segment is removed. Until then the file counts in the usage.
    pub(super) fn removed(&mut self, segment: &Segment) {
        self.removing -= 1;
        self.usage.bytes -= segment.file.min(self.usage.bytes);
    }

    /// Records the size of the file for reuse by the next segment, or 0 without such a file. The file counts in the
    /// usage.
    pub(super) fn keep_spare(&mut self, bytes: u64) {
        self.usage.bytes = self.usage.bytes - self.spare + bytes;
        self.spare = bytes;
    }

    pub(super) fn has_spare(&self) -> bool {
        self.spare > 0
    }

    /// Whether all records of the last segment are acknowledged.
    pub(super) fn last_is_done(&self) -> bool {
        self.list.back().is_some_and(|last| last.records == 0)
    }

    /// Removes and returns the complete segments whose records are all acknowledged.
    pub(super) fn take_finished(&mut self) -> Vec<Segment> {
        let mut finished = Vec::new();
        let mut kept = VecDeque::with_capacity(self.list.len());
        for segment in self.list.drain(..) {
            if segment.is_finished() {
                finished.push(segment);
            } else {
                kept.push_back(segment);
            }
        }
        self.list = kept;
        self.finished = 0;
        self.removing += finished.len();
        finished
    }
}

impl Segment {
    fn is_finished(&self) -> bool {
        self.sealed && self.records == 0
    }
}
