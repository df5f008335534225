//! Reading of records in order: from memory while the reader keeps up, otherwise from the segments.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tracing::error;

use super::block;
use super::format::{BlockHeader, marker_of};
use super::log::{Log, Shared};
use super::scan::{Found, Scan};
use tributary_memory::Permits;

/// A record that was appended.
#[derive(Debug, Clone)]
pub struct Record {
    /// Sequence number, larger than that of every record appended before.
    pub sequence: u64,
    /// Number of items, as given by the appender.
    pub items: usize,
    /// The content, as the concatenation of these parts: the appended parts, or one part if it was read from a file.
    pub parts: Vec<Bytes>,
    /// Location in the log.
    pub place: Place,
    /// The permit that was appended with the record; `None` if it was read from a file.
    pub permit: Option<Arc<OwnedSemaphorePermit>>,
    /// The memory permits that were appended with the record. They keep the content counted in the memory budget.
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
pub struct Place {
    /// Name of the segment.
    pub(super) segment: u64,
    /// Offset of the block in the segment.
    pub(super) at: u64,
}

/// Result of a read.
#[derive(Debug)]
pub enum Next {
    /// Records, in order.
    Records(Vec<Record>),
    /// There are records, but reading them waits for the disk. Ask again on a thread that may block.
    OnDisk,
    /// There are no records now.
    Empty,
    /// Another lease reads the records from now on.
    Ended,
}

/// Progress of the reader.
#[derive(Debug)]
pub(super) struct Reader {
    /// Next record to hand out. It may be acknowledged already.
    sequence: u64,
    /// Records before `sequence` that were read with their block.
    pending: VecDeque<Record>,
    /// The segment that is being read.
    scan: Option<(u64, Scan)>,
    /// Location behind the last block that was handed out from memory.
    read_on: Option<Place>,
    /// Locations of damage that was reported before the reader got there.
    known_damage: HashSet<Place>,
}

impl Reader {
    pub(super) fn new(start: u64, known_damage: HashSet<Place>) -> Self {
        Reader {
            sequence: start,
            pending: VecDeque::new(),
            scan: None,
            read_on: None,
            known_damage,
        }
    }
}

/// Result of one step of the reader.
enum Step {
    /// The reader has advanced, or records are pending.
    On,
    Stop(Next),
}

impl Log {
    /// Returns up to `most` bytes of the next records, but at least one record if there is any. With `from_disk` it may
    /// block on the disk.
    ///
    /// # Errors
    /// Files cannot be read. Damaged content is not an error.
    pub(super) fn next(&self, lease: u64, most: usize, from_disk: bool) -> io::Result<Next> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(records) = self.take_pending(&mut reader, lease, most) {
                return Ok(Next::Records(records));
            }
            let step = match self.again(lease, from_disk)? {
                Some(step) => step,
                None => self.forward(&mut reader, from_disk)?,
            };
            if let Step::Stop(next) = step {
                return Ok(next);
            }
        }
    }

    /// Reads a record again that was handed out before. Returns `None` if it is damaged by now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn reread(&self, sequence: u64, place: Place) -> io::Result<Option<Record>> {
        let shared = &*self.shared;
        let known = shared.lock().segments.find(sequence).cloned();
        let Some(segment) = known else {
            return Ok(None);
        };
        let mut scan = match self.scan(segment.name, segment.bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return match self.is_as_it_was(segment.name, segment.end) {
                    // The file was removed.
                    true => Ok(None),
                    false => self.reread(sequence, place),
                };
            }
            scan => scan?,
        };
        if segment.name == place.segment {
            scan.seek(place.at);
        }
        while let Some(found) = scan.next()? {
            let Found::Block { at, header, stored } = found else {
                continue;
            };
            if header.end() <= sequence {
                continue;
            }
            let place = Place {
                segment: segment.name,
                at,
            };
            let raw = block::expand(&header, stored).unwrap_or_default();
            let found = records(&header, &raw, place).find(|record| record.sequence == sequence);
            return match found {
                None if !self.is_as_it_was(segment.name, segment.end) => {
                    self.reread(sequence, place)
                }
                found => Ok(found),
            };
        }
        match self.is_as_it_was(segment.name, segment.end) {
            true => Ok(None),
            false => self.reread(sequence, place),
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
        // Returned records come first, because they are older.
        let state = self.shared.lock();
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

    /// Returns the oldest of the returned records, if there is one.
    fn again(&self, lease: u64, from_disk: bool) -> io::Result<Option<Step>> {
        let (sequence, place) = {
            let mut state = self.shared.lock();
            if state.lease != lease || state.closing {
                return Ok(Some(Step::Stop(Next::Ended)));
            }
            match state.again.first_key_value() {
                None => return Ok(None),
                Some(_) if !from_disk => return Ok(Some(Step::Stop(Next::OnDisk))),
                Some((sequence, place)) => {
                    let found = (*sequence, *place);
                    state.again.remove(&found.0);
                    found
                }
            }
        };
        match self.reread(sequence, place) {
            Ok(Some(record)) => {
                self.shared.metrics.resent_records.increment(1);
                Ok(Some(Step::Stop(Next::Records(vec![record]))))
            }
            Ok(None) => {
                lose(&self.shared, sequence, sequence + 1);
                Ok(Some(Step::On))
            }
            Err(error) => {
                self.shared.lock().again.insert(sequence, place);
                Err(error)
            }
        }
    }

    fn forward(&self, reader: &mut Reader, from_disk: bool) -> io::Result<Step> {
        if !reader.pending.is_empty() {
            // Returned records are read first.
            return Ok(Step::On);
        }
        let (segment, recent) = {
            let mut state = self.shared.lock();
            let sequence = state.segments.acknowledged.next_absent(reader.sequence);
            reader.sequence = sequence;
            let recent = state.recent.take(sequence);
            if sequence >= state.segments.end() {
                return Ok(Step::Stop(Next::Empty));
            }
            (state.segments.find(sequence).cloned(), recent)
        };
        if let Some(recent) = recent {
            reader.read_on = Some(Place {
                segment: recent.place.segment,
                at: recent.place.at + recent.header.len(),
            });
            self.read_block(reader, &recent.header, recent.records());
            return Ok(Step::On);
        }
        if !from_disk {
            return Ok(Step::Stop(Next::OnDisk));
        }
        let Some(segment) = segment else {
            return Ok(Step::Stop(Next::Empty));
        };
        let mut scan = match reader.scan.take() {
            Some((name, mut scan)) if name == segment.name => {
                scan.extend(segment.bytes);
                scan
            }
            _ => match self.scan(segment.name, segment.bytes) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if self.is_as_it_was(segment.name, segment.end) {
                        // The file was removed.
                        lose(&self.shared, reader.sequence, segment.end);
                        reader.sequence = reader.sequence.max(segment.end);
                    }
                    return Ok(Step::On);
                }
                scan => scan?,
            },
        };
        if let Some(place) = reader.read_on.take()
            && place.segment == segment.name
            && place.at > scan.at()
        {
            scan.seek(place.at);
        }
        let read = self.read_segment(reader, &mut scan, segment.name, segment.end);
        // If the read failed, the next read continues at the same offset.
        reader.scan = Some((segment.name, scan));
        read.map(|()| Step::On)
    }

    fn scan(&self, segment: u64, bytes: u64) -> io::Result<Scan> {
        let shared = &*self.shared;
        let marker = marker_of(shared.marker, segment);
        let scan = Scan::open(&shared.path(segment), marker, bytes)?;
        Ok(scan.patient(segment, &shared.unreadable))
    }

    /// Whether a segment still ends where it did before. After a failed fsync, its last records move to another
    /// segment.
    fn is_as_it_was(&self, segment: u64, end: u64) -> bool {
        let state = self.shared.lock();
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
                    let place = Place { segment, at };
                    if header.first > reader.sequence {
                        if !self.is_as_it_was(segment, end) {
                            return Ok(());
                        }
                        lose(&self.shared, reader.sequence, header.first);
                        reader.sequence = header.first;
                    }
                    let raw = block::expand(&header, stored).unwrap_or_default();
                    self.read_block(reader, &header, records(&header, &raw, place));
                    return Ok(());
                }
                Some(Found::Damaged(damage)) => {
                    if !self.is_as_it_was(segment, end) {
                        return Ok(());
                    }
                    let at = damage.at;
                    if reader.known_damage.remove(&Place { segment, at }) {
                        continue;
                    }
                    self.shared.metrics.damaged_blocks.increment(1);
                    error!(
                        file = %self.shared.path(segment).display(),
                        offset = damage.at,
                        bytes = damage.bytes,
                        "A block of a stored queue is damaged. It is skipped."
                    );
                }
                None => {
                    if !self.is_as_it_was(segment, end) {
                        return Ok(());
                    }
                    lose(&self.shared, reader.sequence, end);
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
            let mut state = self.shared.lock();
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
        // A block with a correct checksum contains all its records, unless the writer had a bug.
        lose(&self.shared, end.max(reader.sequence), header.end());
        reader.sequence = header.end();
    }
}

/// Returns the records of a block for the reader.
pub(super) fn records(
    header: &BlockHeader,
    raw: &Bytes,
    place: Place,
) -> impl Iterator<Item = Record> {
    block::records(header, raw).map(move |(sequence, items, data)| Record {
        sequence,
        items,
        parts: vec![data],
        place,
        permit: None,
        memory: Permits::new(),
    })
}

/// Counts the records `first..end` as lost and no longer waits for their acknowledgement.
pub(super) fn lose(shared: &Shared, first: u64, end: u64) {
    if first >= end {
        return;
    }
    let mut state = shared.lock();
    let lost = state.segments.lose(first, end);
    if lost > 0 {
        state.moved = true;
        shared.metrics.lost_records.increment(lost);
        error!(
            directory = %shared.directory.display(),
            records = lost,
            "Records of a stored queue were in damaged blocks or removed files. They are lost."
        );
        shared.tell_writer(state);
    } else {
        drop(state);
    }
    shared.freed.notify_waiters();
}
