//! Sequential reader of a segment that continues behind damaged ranges.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use memchr::memmem::Finder;

use super::format::{BLOCK_HEADER, BlockHeader, Marker, SEGMENT_HEADER, crc};

const WINDOW: usize = 256 << 10;
/// Granularity in which unreadable data is skipped, in bytes: a page.
const PAGE: u64 = 4096;
/// Maximum time for which reads of a page are retried before its data counts as lost. Network disks fail for seconds
/// and then recover.
const RETRY_TIME: Duration = Duration::from_mins(1);

/// Unreadable pages of a log, with the time of the first failure.
#[derive(Debug, Default)]
pub(super) struct Unreadable {
    pages: Mutex<HashMap<(u64, u64), Instant>>,
}

impl Unreadable {
    const MAX_PAGES: usize = 1024;

    /// Records that a page of a segment is unreadable. Returns true if the page counts as lost.
    fn is_lost(&self, segment: u64, page: u64, now: Instant) -> bool {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if pages.len() >= Self::MAX_PAGES && !pages.contains_key(&(segment, page)) {
            pages.clear();
        }
        let since = *pages.entry((segment, page)).or_insert(now);
        now.saturating_duration_since(since) >= RETRY_TIME
    }
}

#[derive(Debug)]
pub(super) struct Scan {
    file: File,
    marker: Marker,
    end: u64,
    /// Offset at which the next block is expected.
    at: u64,
    /// Buffered bytes of the file, from offset `start` on.
    window: Vec<u8>,
    start: u64,
    /// Name of the segment, and its unreadable pages. If `None`, unreadable pages count as lost at once.
    retries: Option<(u64, Arc<Unreadable>)>,
    /// Whether unreadable data was treated as damaged.
    has_given_up: bool,
}

#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A block, with its payload as stored.
    Block {
        at: u64,
        header: BlockHeader,
        stored: &'a [u8],
    },
    Damaged(Damage),
}

/// A range of a segment that is not a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Whether no block follows, as after an unfinished write.
    pub(super) at_end: bool,
}

impl Scan {
    /// Opens a segment with this marker, to be read from its first block up to `end`.
    pub(super) fn open(path: &Path, marker: Marker, end: u64) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?, marker, end))
    }

    /// Like [`open`](Self::open), for an open file.
    pub(super) fn of(file: File, marker: Marker, end: u64) -> Self {
        Scan {
            file,
            marker,
            end,
            at: SEGMENT_HEADER as u64,
            window: Vec::new(),
            start: 0,
            retries: None,
            has_given_up: false,
        }
    }

    /// Makes unreadable pages an error for some time before they count as damage.
    pub(super) fn with_retries(mut self, segment: u64, unreadable: &Arc<Unreadable>) -> Self {
        self.retries = Some((segment, unreadable.clone()));
        self
    }

    /// Whether unreadable data was skipped, which may be intact.
    pub(super) fn has_given_up(&self) -> bool {
        self.has_given_up
    }

    /// Returns the offset at which the next block is expected.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// Moves the end of the segment, which has grown.
    pub(super) fn extend(&mut self, end: u64) {
        if end > self.end {
            self.end = end;
            // Data beyond the old end may have been written since the window was read.
            self.window.clear();
        }
    }

    /// Returns the next block, or the damaged range before it. Returns `None` at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Found<'_>>> {
        let at = self.at;
        if at >= self.end {
            return Ok(None);
        }
        let (marker, end) = (self.marker, self.end);
        let header = BlockHeader::decode(self.bytes(at, BLOCK_HEADER)?, marker);
        let Some(header) = header.filter(|header| header.len() <= end - at) else {
            let next = self.find_block(at + 1)?;
            self.at = next.unwrap_or(self.end);
            return Ok(Some(Found::Damaged(Damage {
                at,
                bytes: self.at - at,
                at_end: next.is_none(),
            })));
        };
        let payload = at + BLOCK_HEADER as u64;
        // After an error, the next call reads the block again.
        self.bytes(payload, header.stored as usize)?;
        self.at = at + header.len();
        let ends = self.at >= self.end;
        let stored = self.bytes(payload, header.stored as usize)?;
        if stored.len() != header.stored as usize || crc(stored) != header.payload_crc {
            return Ok(Some(Found::Damaged(Damage {
                at,
                bytes: header.len(),
                at_end: ends,
            })));
        }
        Ok(Some(Found::Block { at, header, stored }))
    }

    /// Returns the offset of the next intact block header at or after `at`.
    fn find_block(&mut self, mut at: u64) -> io::Result<Option<u64>> {
        let marker = self.marker;
        let finder = Finder::new(&marker);
        loop {
            let window = self.bytes(at, WINDOW)?;
            let len = window.len();
            match finder.find(window) {
                Some(offset) => {
                    at += offset as u64;
                    let header = BlockHeader::decode(self.bytes(at, BLOCK_HEADER)?, marker);
                    if header.is_some() {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
                None if len < WINDOW => return Ok(None),
                // A marker may cross the end of the searched range.
                None => at += (len - marker.len() + 1) as u64,
            }
        }
    }

    /// Returns bytes of the file, fewer at its end.
    fn bytes(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let len = len.min(left);
        let offset = at
            .checked_sub(self.start)
            .and_then(|offset| usize::try_from(offset).ok());
        let offset = match offset {
            Some(offset) if offset.saturating_add(len) <= self.window.len() => offset,
            _ => {
                self.read(at, len.max(WINDOW.min(left)))?;
                0
            }
        };
        let end = self.window.len().min(offset + len);
        Ok(self.window.get(offset..end).unwrap_or_default())
    }

    fn read(&mut self, at: u64, len: usize) -> io::Result<()> {
        const EIO: i32 = 5;
        self.start = at;
        self.window.clear();
        self.window.resize(len, 0);
        let (mut filled, mut failures): (usize, u32) = (0, 0);
        while let Some(rest) = self
            .window
            .get_mut(filled..)
            .filter(|rest| !rest.is_empty())
        {
            match self.file.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Retried at least once. After the last retry, the data of the page is lost.
                Err(error) if error.raw_os_error() == Some(EIO) => {
                    failures += 1;
                    if !failures.is_multiple_of(2) {
                        continue;
                    }
                    let place = at + filled as u64;
                    let page = place - place % PAGE;
                    let is_lost = self.retries.as_ref().is_none_or(|(segment, unreadable)| {
                        unreadable.is_lost(*segment, page, Instant::now())
                    });
                    if !is_lost {
                        self.window.clear();
                        return Err(error);
                    }
                    self.has_given_up = true;
                    // Data after the page may be readable.
                    let skipped = usize::try_from(page + PAGE - place).unwrap_or(len);
                    filled = (filled + skipped).min(len);
                }
                Err(error) => {
                    self.window.clear();
                    return Err(error);
                }
            }
        }
        self.window.truncate(filled);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_page_is_skipped_after_a_minute() {
        let unreadable = Unreadable::default();
        let now = Instant::now();
        assert!(!unreadable.is_lost(1, 4096, now));
        assert!(!unreadable.is_lost(1, 8192, now + RETRY_TIME / 2));
        assert!(!unreadable.is_lost(1, 4096, now + RETRY_TIME / 2));
        assert!(unreadable.is_lost(1, 4096, now + RETRY_TIME));
        assert!(!unreadable.is_lost(2, 4096, now + RETRY_TIME));
    }
}
