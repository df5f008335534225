//! What is known of a log's segments and records, in memory. The same for a log of any size: nothing is kept per
//! record.

use std::collections::VecDeque;

use super::Usage;
use super::acknowledged::Acknowledged;

/// A segment that may have records to give out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    /// The number in its name.
    pub(super) name: u64,
    /// The first record, and one above the last.
    pub(super) first: u64,
    pub(super) end: u64,
    /// Bytes of the file that may be read: all of them, once they are as durable as asked for.
    pub(super) bytes: u64,
    /// What the file takes on the disk: more while there is something behind these that it had before.
    pub(super) file: u64,
    /// Records that are not acknowledged, and items in them.
    pub(super) records: u64,
    pub(super) items: u64,
    /// Nothing is added any more.
    pub(super) sealed: bool,
}

/// All segments, and what of them is acknowledged.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// In the order of their records.
    list: VecDeque<Segment>,
    pub(super) acknowledged: Acknowledged,
    usage: Usage,
    /// Items of records that are gone and were never given out: they were in damaged blocks.
    lost_items: u64,
    /// How many have files that could be removed.
    finished: usize,
    /// How many were taken out, and have files still.
    removing: usize,
    /// What the file takes that is kept for the next segment.
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

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.list.iter()
    }

    /// The name of the last one.
    pub(super) fn last_name(&self) -> Option<u64> {
        self.list.back().map(|segment| segment.name)
    }

    /// One above the last record that can be given out.
    pub(super) fn end(&self) -> u64 {
        self.list.back().map_or(0, |segment| segment.end)
    }

    /// A new segment behind all others.
    pub(super) fn push(&mut self, segment: Segment) {
        self.usage.bytes += segment.file;
        self.usage.records += segment.records;
        self.usage.items += segment.items;
        self.finished += usize::from(segment.is_finished());
        self.list.push_back(segment);
    }

    /// The segment with a record; for a number that no record has, the one behind it.
    pub(super) fn find(&self, sequence: u64) -> Option<&Segment> {
        let at = self.list.partition_point(|segment| segment.end <= sequence);
        self.list.get(at)
    }

    /// The last segment has grown to `bytes` by these records.
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

    /// Nothing is added to the last segment any more. `is_cut` says that its file has nothing behind its records.
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

    /// From `sequence` on, the records of the last segment are in a new one: `records` and `items` of them are not
    /// acknowledged. `kept` is how many bytes the last segment has left.
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
        // The file stays as it is, longer than that.
        self.usage.bytes += new.file;
        last.bytes = kept;
        self.list.push_back(new);
    }

    /// A record need not be given out any more. Whether that is news.
    pub(super) fn acknowledge(&mut self, sequence: u64, items: u64) -> bool {
        let new = self
            .acknowledged
            .insert(sequence, sequence.saturating_add(1));
        self.settle(sequence, new, items);
        new > 0
    }

    /// The records `first..end` cannot be given out. Returns how many that are.
    pub(super) fn lose(&mut self, first: u64, end: u64) -> u64 {
        let mut lost = 0;
        let mut from = first;
        // A gap does not span segments, but for what no segment has at all.
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
            // What no record has had was in damaged ones.
            self.lost_items += segment.items;
            items += std::mem::take(&mut segment.items);
            self.finished += usize::from(records > 0 && segment.sealed);
        }
        self.usage.items -= items.min(self.usage.items);
    }

    /// Items that turned out to be lost since this was last asked.
    pub(super) fn take_lost_items(&mut self) -> u64 {
        std::mem::take(&mut self.lost_items)
    }

    /// Whether a file could be removed.
    pub(super) fn has_finished(&self) -> bool {
        self.finished > 0
    }

    /// Whether files are about to be removed.
    pub(super) fn is_freeing(&self) -> bool {
        self.finished + self.removing > 0
    }

    /// The file of a segment that was taken out is gone. It counts as long as it is there.
    pub(super) fn removed(&mut self, segment: &Segment) {
        self.removing -= 1;
        self.usage.bytes -= segment.file.min(self.usage.bytes);
    }

    /// A file of so many bytes, or none, is kept for the next segment. It counts as well.
    pub(super) fn keep_spare(&mut self, bytes: u64) {
        self.usage.bytes = self.usage.bytes - self.spare + bytes;
        self.spare = bytes;
    }

    /// Whether a file is kept for the next segment.
    pub(super) fn has_spare(&self) -> bool {
        self.spare > 0
    }

    /// Whether all records of the last segment are acknowledged.
    pub(super) fn last_is_done(&self) -> bool {
        self.list.back().is_some_and(|last| last.records == 0)
    }

    /// Takes out the segments whose records are all acknowledged, and to which nothing is added.
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
