//! Reading of records in order: from memory while the reader keeps up, otherwise from the segments.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tracing::error;

use super::block;
use super::format::{BlockHeader, marker_of};
use super::record::{ReadResult, Record, RecordLocation};
use super::scan::{Found, Scan};
use super::shared::Shared;
use tributary_memory::Permits;

#[derive(Debug)]
pub(super) struct Reader {
    /// Next record to hand out, acknowledged or not.
    sequence: u64,
    /// Records before `sequence` that were read with their block.
    pending: VecDeque<Record>,
    scan: Option<(u64, Scan)>,
    /// Location behind the last block that was handed out from memory. After the blocks in memory,
    /// the reader continues there.
    read_on: Option<RecordLocation>,
    /// Locations of damage that was reported before the reader reached them.
    known_damage: HashSet<RecordLocation>,
}

impl Reader {
    pub(super) fn new(start: u64, known_damage: HashSet<RecordLocation>) -> Self {
        Reader {
            sequence: start,
            pending: VecDeque::new(),
            scan: None,
            read_on: None,
            known_damage,
        }
    }
}

enum Step {
    /// The reader has advanced, or records are pending.
    On,
    Stop(ReadResult),
}

impl Shared {
    pub(super) fn next(
        &self,
        reader: &Mutex<Reader>,
        lease: u64,
        most: usize,
        from_disk: bool,
    ) -> io::Result<ReadResult> {
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(records) = self.take_pending(&mut reader, lease, most) {
                return Ok(ReadResult::Records(records));
            }
            let step = match self.next_returned(lease, from_disk)? {
                Some(step) => step,
                None => self.forward(&mut reader, from_disk)?,
            };
            if let Step::Stop(next) = step {
                return Ok(next);
            }
        }
    }

    pub(super) fn reread(
        &self,
        sequence: u64,
        location: RecordLocation,
    ) -> io::Result<Option<Record>> {
        let known = self.lock().segments.find(sequence).cloned();
        let Some(segment) = known else {
            return Ok(None);
        };
        let mut scan = match self.scan(segment.name, segment.bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match self.still_ends_at(segment.name, segment.end) {
                    true => Ok(None),
                    false => self.reread(sequence, location),
                };
            }
            scan => scan?,
        };
        if segment.name == location.segment {
            scan.seek(location.at);
        }
        while let Some(found) = scan.next()? {
            let Found::Block { at, header, stored } = found else {
                continue;
            };
            if header.end() <= sequence {
                continue;
            }
            let location = RecordLocation {
                segment: segment.name,
                at,
            };
            let raw = block::expand(&header, stored).unwrap_or_default();
            let found = records(&header, &raw, location).find(|record| record.sequence == sequence);
            return match found {
                None if !self.still_ends_at(segment.name, segment.end) => {
                    self.reread(sequence, location)
                }
                found => Ok(found),
            };
        }
        match self.still_ends_at(segment.name, segment.end) {
            true => Ok(None),
            false => self.reread(sequence, location),
        }
    }

    fn take_pending(
        &self,
        reader: &mut MutexGuard<'_, Reader>,
        lease: u64,
        most: usize,
    ) -> Option<Vec<Record>> {
        if reader.pending.is_empty() {
            return None;
        }
        // Returned records come first, because they are older than unread records.
        let state = self.lock();
        if state.lease != lease || !state.again.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let mut taken = Vec::new();
        while let Some(record) = reader.pending.front() {
            bytes += record.bytes();
            if bytes > most && !taken.is_empty() {
                break;
            }
            taken.extend(reader.pending.pop_front());
        }
        Some(taken)
    }

    /// Returns the oldest of the returned records, if there is any.
    fn next_returned(&self, lease: u64, from_disk: bool) -> io::Result<Option<Step>> {
        let (sequence, location) = {
            let mut state = self.lock();
            if state.lease != lease || state.closing {
                return Ok(Some(Step::Stop(ReadResult::Ended)));
            }
            match state.again.first_key_value() {
                None => return Ok(None),
                Some(_) if !from_disk => return Ok(Some(Step::Stop(ReadResult::OnDisk))),
                Some((sequence, location)) => {
                    let found = (*sequence, *location);
                    state.again.remove(&found.0);
                    found
                }
            }
        };
        match self.reread(sequence, location) {
            Ok(Some(record)) => {
                self.metrics.resent_records.increment(1);
                Ok(Some(Step::Stop(ReadResult::Records(vec![record]))))
            }
            Ok(None) => {
                self.lose(sequence, sequence + 1);
                Ok(Some(Step::On))
            }
            Err(error) => {
                self.lock().again.insert(sequence, location);
                Err(error)
            }
        }
    }

    fn forward(&self, reader: &mut Reader, from_disk: bool) -> io::Result<Step> {
        if !reader.pending.is_empty() {
            return Ok(Step::On);
        }
        let (segment, recent) = {
            let mut state = self.lock();
            let sequence = state.segments.acknowledged.next_absent(reader.sequence);
            reader.sequence = sequence;
            let recent = state.recent.take(sequence);
            if sequence >= state.segments.end() {
                return Ok(Step::Stop(ReadResult::Empty));
            }
            (state.segments.find(sequence).cloned(), recent)
        };
        if let Some(recent) = recent {
            reader.read_on = Some(RecordLocation {
                segment: recent.location.segment,
                at: recent.location.at + recent.header.len(),
            });
            self.read_block(reader, &recent.header, recent.records());
            return Ok(Step::On);
        }
        if !from_disk {
            return Ok(Step::Stop(ReadResult::OnDisk));
        }
        let Some(segment) = segment else {
            return Ok(Step::Stop(ReadResult::Empty));
        };
        let mut scan = match reader.scan.take() {
            Some((name, mut scan)) if name == segment.name => {
                scan.extend(segment.bytes);
                scan
            }
            _ => match self.scan(segment.name, segment.bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if self.still_ends_at(segment.name, segment.end) {
                        self.lose(reader.sequence, segment.end);
                        reader.sequence = reader.sequence.max(segment.end);
                    }
                    return Ok(Step::On);
                }
                scan => scan?,
            },
        };
        if let Some(location) = reader.read_on.take()
            && location.segment == segment.name
            && location.at > scan.at()
        {
            scan.seek(location.at);
        }
        let read = self.read_segment(reader, &mut scan, segment.name, segment.end);
        // If the read failed, the next read continues at the same offset.
        reader.scan = Some((segment.name, scan));
        read.map(|()| Step::On)
    }

    fn scan(&self, segment: u64, bytes: u64) -> io::Result<Scan> {
        let marker = marker_of(self.marker, segment);
        let scan = Scan::open(&self.path(segment), marker, bytes)?;
        Ok(scan.with_retries(segment, &self.unreadable))
    }

    /// Whether a segment still ends at `end`. After a failed fsync, its last records move to another segment.
    fn still_ends_at(&self, segment: u64, end: u64) -> bool {
        let state = self.lock();
        let mut segments = state.segments.iter();
        segments.any(|one| one.name == segment && one.end >= end)
    }

    /// Reads up to the next block that has unacknowledged records.
    fn read_segment(
        &self,
        reader: &mut Reader,
        scan: &mut Scan,
        segment: u64,
        end: u64,
    ) -> io::Result<()> {
        loop {
            match scan.next()? {
                Some(Found::Block { at, header, stored }) => {
                    if header.end() <= reader.sequence {
                        continue;
                    }
                    let location = RecordLocation { segment, at };
                    if header.first > reader.sequence {
                        if !self.still_ends_at(segment, end) {
                            return Ok(());
                        }
                        self.lose(reader.sequence, header.first);
                        reader.sequence = header.first;
                    }
                    let raw = block::expand(&header, stored).unwrap_or_default();
                    self.read_block(reader, &header, records(&header, &raw, location));
                    return Ok(());
                }
                Some(Found::Damaged(damage)) => {
                    if !self.still_ends_at(segment, end) {
                        return Ok(());
                    }
                    let at = damage.at;
                    if reader.known_damage.remove(&RecordLocation { segment, at }) {
                        continue;
                    }
                    self.metrics.damaged_blocks.increment(1);
                    error!(
                        file = %self.path(segment).display(),
                        offset = damage.at,
                        bytes = damage.bytes,
                        "Skipped a damaged block of a queue on disk."
                    );
                }
                None => {
                    if !self.still_ends_at(segment, end) {
                        return Ok(());
                    }
                    self.lose(reader.sequence, end);
                    reader.sequence = end;
                    return Ok(());
                }
            }
        }
    }

    fn read_block(
        &self,
        reader: &mut Reader,
        header: &BlockHeader,
        records: impl Iterator<Item = Record>,
    ) {
        let mut end = header.first;
        {
            let mut state = self.lock();
            state.recent.read_to(header.end());
            for record in records {
                end = record.sequence + 1;
                let wanted = record.sequence >= reader.sequence
                    && !state.segments.acknowledged.contains(record.sequence);
                if wanted {
                    reader.pending.push_back(record);
                }
            }
        }
        // A block with a correct checksum contains all its records; otherwise the writer had a bug.
        self.lose(end.max(reader.sequence), header.end());
        reader.sequence = header.end();
    }
}

/// Returns the records of a block for the reader.
pub(super) fn records(
    header: &BlockHeader,
    raw: &Bytes,
    location: RecordLocation,
) -> impl Iterator<Item = Record> {
    block::records(header, raw).map(move |(sequence, items, data)| Record {
        sequence,
        items,
        parts: vec![data],
        location,
        memory: Permits::new(),
    })
}
