//! Scan of an existing log, at its start and for inspection.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::OpenError;
use super::acknowledged::Acknowledged;
use super::block;
use super::disk::Disk;
use super::format::{
    BadHeader, BlockHeader, Marker, SEGMENT_HEADER, SegmentHeader, UNFINISHED, marker_of,
    segment_name, segment_number,
};
use super::position::Position;
use super::scan::{Damage, Found, Scan};
use super::state::{Segment, Segments};

/// Result of opening a log.
#[derive(Debug, Clone, Default)]
pub struct Recovered {
    /// Number of unacknowledged records.
    pub records: u64,
    /// Number of items in the unacknowledged records.
    pub items: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Time of writing of the oldest block with an unacknowledged record, in milliseconds since 1970.
    pub oldest: Option<u64>,
    /// Damaged ranges: file, offset, bytes.
    pub damaged: Vec<(PathBuf, u64, u64)>,
    /// Records lost in damaged blocks or missing files.
    pub lost_records: u64,
    /// Bytes of an unfinished write at the end, which the recovery cut off.
    pub cut_bytes: u64,
    /// Whether the position was damaged. If so, acknowledged records are handed out again.
    pub position_lost: bool,
    /// Duration of the scan.
    pub took: Duration,
}

/// Initial state of a log after the scan.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) marker: Marker,
    pub(super) segments: Segments,
    pub(super) next: u64,
    /// Number after the sequence number of the last existing record.
    pub(super) follows: u64,
    pub(super) recovered: Recovered,
}

/// The file of a segment.
struct Candidate {
    name: u64,
    path: PathBuf,
    bytes: u64,
    header: Option<SegmentHeader>,
}

/// Scans all files in `directory`. If `disk` is given, unfinished writes are cut off.
pub(super) fn recover(directory: &Path, disk: Option<&dyn Disk>) -> Result<Plan, OpenError> {
    let began = Instant::now();
    let failed = |doing: &'static str, path: &Path| {
        let path = path.to_owned();
        move |error| OpenError::Io { doing, path, error }
    };
    let position = Position::load(directory).map_err(failed("read the position in", directory))?;
    let candidates = candidates(directory, disk)?;
    let mut recovered = Recovered {
        position_lost: match &position {
            Some(position) => position.is_none(),
            None => !candidates.is_empty() && candidates.iter().all(|one| one.name != 0),
        },
        ..Recovered::default()
    };
    let position = position.flatten();
    let marker = candidates
        .iter()
        .find_map(|one| one.header.map(|header| header.marker))
        .or(position.as_ref().map(|position| position.marker))
        .unwrap_or_else(|| fastrand::u64(..).to_le_bytes());
    let first = candidates.first().map_or(0, Candidate::first);
    // Without a position, missing earlier records count as acknowledged, because only acknowledged
    // segments are removed.
    let acknowledged = match &position {
        Some(position) => position.acknowledged.clone(),
        None => Acknowledged::new(first, []),
    };
    let written = position.map_or(0, |position| position.next);
    let mut segments = Segments::new(acknowledged);
    // Number after the last record that was found or is known to be lost.
    let mut expected = segments.acknowledged.watermark().min(first);
    for (at, one) in candidates.iter().enumerate() {
        let mut later = candidates.iter().skip(at + 1);
        let is_last = at + 1 == candidates.len();
        let limit = later.find_map(|later| later.header.map(|header| header.follows));
        if let Some(header) = one.header {
            // These sequence numbers were never used.
            segments
                .acknowledged
                .insert(header.follows.min(header.first), header.first);
            recovered.lost_records += segments.lose(expected, header.follows);
            expected = expected.max(header.first);
        }
        let scanned = scan(
            one,
            marker,
            limit,
            &mut expected,
            &mut segments,
            &mut recovered,
        )
        .map_err(failed("read", &one.path))?;
        let mut bytes = one.bytes;
        match scanned.unfinished {
            Some(damage) if is_last => {
                // Data of the file's previous segment does not belong to this segment.
                let reused = one.header.map_or(0, |header| header.reused);
                let end = damage.at + damage.bytes;
                recovered.cut_bytes = end - reused.clamp(damage.at, end);
                // Unreadable data may be intact, so it is not cut off.
                if let Some(disk) = disk
                    && !scanned.unreadable
                {
                    disk.cut(&one.path, damage.at)
                        .map_err(failed("cut", &one.path))?;
                    bytes = damage.at;
                }
            }
            Some(damage) if limit.is_none_or(|limit| expected < limit) => {
                recovered
                    .damaged
                    .push((one.path.clone(), damage.at, damage.bytes));
            }
            // The write did not finish. Its records were refused or are in the next segment.
            _ => {}
        }
        recovered.bytes += one.bytes;
        recovered.records += scanned.records;
        recovered.items += scanned.items;
        segments.push(Segment {
            name: one.name,
            first: scanned.first,
            end: expected,
            bytes,
            file: bytes,
            records: scanned.records,
            items: scanned.items,
            sealed: true,
        });
    }
    let follows = expected;
    let next = follows.max(written).max(segments.acknowledged.end());
    recovered.lost_records += segments.lose(expected, written);
    segments.acknowledged.insert(follows, next);
    recovered.took = began.elapsed();
    Ok(Plan {
        marker,
        segments,
        next,
        follows,
        recovered,
    })
}

struct Scanned {
    first: u64,
    records: u64,
    items: u64,
    unfinished: Option<Damage>,
    /// Whether the disk could not read a part of the segment.
    unreadable: bool,
}

fn scan(
    one: &Candidate,
    marker: Marker,
    limit: Option<u64>,
    expected: &mut u64,
    segments: &mut Segments,
    recovered: &mut Recovered,
) -> io::Result<Scanned> {
    let mut scanned = Scanned {
        first: *expected,
        records: 0,
        items: 0,
        unfinished: None,
        unreadable: false,
    };
    let mut headless = one.header.is_none();
    // In a reused file, old data follows an unfinished write.
    let is_used = one.header.is_some_and(|header| header.reused > 0);
    let mut since_last: Vec<Damage> = Vec::new();
    let report = |recovered: &mut Recovered, damage: Damage| {
        let found = (one.path.clone(), damage.at, damage.bytes);
        recovered.damaged.push(found);
    };
    let mut scan = Scan::open(&one.path, marker_of(marker, one.name), one.bytes)?;
    while let Some(found) = scan.next()? {
        let (at, header, stored) = match found {
            Found::Damaged(damage) if damage.at_end => {
                let at = since_last.first().map_or(damage.at, |first| first.at);
                since_last.clear();
                scanned.unfinished = Some(Damage {
                    at,
                    bytes: damage.at + damage.bytes - at,
                    ..damage
                });
                continue;
            }
            Found::Damaged(damage) if is_used => {
                since_last.push(damage);
                continue;
            }
            Found::Damaged(damage) => {
                report(recovered, damage);
                continue;
            }
            Found::Block { at, header, stored } => (at, header, stored),
        };
        since_last
            .drain(..)
            .for_each(|damage| report(recovered, damage));
        if limit.is_some_and(|limit| header.first >= limit) {
            // These records were refused when they were written, or are repeated in the next segment.
            break;
        }
        if std::mem::take(&mut headless) {
            // A file without a block was being created when the process ended.
            recovered
                .damaged
                .push((one.path.clone(), 0, SEGMENT_HEADER as u64));
        }
        if header.first < *expected {
            recovered.damaged.push((one.path.clone(), at, header.len()));
            continue;
        }
        recovered.lost_records += segments.lose(*expected, header.first);
        *expected = header.end();
        let (records, items) = waiting(&header, stored, &segments.acknowledged);
        if records > 0 {
            let oldest = recovered.oldest.unwrap_or(u64::MAX);
            recovered.oldest = Some(oldest.min(header.written));
        }
        scanned.records += records;
        scanned.items += items;
    }
    scanned.unreadable = scan.has_given_up();
    Ok(scanned)
}

/// Returns the number of unacknowledged records of a block, and the number of their items.
pub(super) fn waiting(
    header: &BlockHeader,
    stored: &[u8],
    acknowledged: &Acknowledged,
) -> (u64, u64) {
    let absent = acknowledged.absent_in(header.first, header.end());
    if absent == 0 || absent == u64::from(header.records) {
        return (absent, if absent == 0 { 0 } else { header.items });
    }
    // Decompresses the block to find the items of the unacknowledged records only.
    let Ok(raw) = block::expand(header, stored) else {
        return (absent, 0);
    };
    let left = block::records(header, &raw).filter(|record| !acknowledged.contains(record.0));
    (absent, left.map(|record| record.1 as u64).sum())
}

fn candidates(directory: &Path, disk: Option<&dyn Disk>) -> Result<Vec<Candidate>, OpenError> {
    let failed = |doing, path: &Path, error| OpenError::Io {
        doing,
        path: path.to_owned(),
        error,
    };
    let entries = fs::read_dir(directory).map_err(|error| failed("list", directory, error))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed("list", directory, error))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            continue;
        };
        names.extend(segment_number(name));
        let unfinished = name.strip_suffix(UNFINISHED).and_then(segment_number);
        if let (Some(_), Some(disk)) = (unfinished, disk) {
            disk.remove(&entry.path())
                .map_err(|error| failed("remove", &entry.path(), error))?;
        }
    }
    names.sort_unstable();
    let candidate = |name| {
        let path = directory.join(segment_name(name));
        let read = || -> io::Result<(u64, Vec<u8>)> {
            use io::Read as _;
            let file = fs::File::open(&path)?;
            let mut head = Vec::with_capacity(SEGMENT_HEADER);
            let bytes = file.metadata()?.len();
            file.take(SEGMENT_HEADER as u64).read_to_end(&mut head)?;
            Ok((bytes, head))
        };
        let (bytes, head) = read().map_err(|error| failed("read", &path, error))?;
        let header = match SegmentHeader::decode(&head) {
            Ok(header) => Some(header),
            Err(BadHeader::Damaged) => None,
            Err(BadHeader::Version(version)) => {
                return Err(OpenError::Version { path, version });
            }
        };
        Ok(Candidate {
            name,
            path,
            bytes,
            header,
        })
    };
    names.into_iter().map(candidate).collect()
}

impl Candidate {
    fn first(&self) -> u64 {
        self.header.map_or(self.name, |header| header.first)
    }
}
