//! Reads a segment from its beginning to its end, over whatever is damaged in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use memchr::memmem::Finder;

use super::format::{BLOCK_HEADER, BlockHeader, Marker, SEGMENT_HEADER, crc};

/// How many bytes are read at once.
const WINDOW: usize = 256 << 10;
/// What a disk cannot read goes by this many bytes.
const PAGE: usize = 4096;

/// A segment that is being read.
#[derive(Debug)]
pub(super) struct Scan {
    file: File,
    marker: Marker,
    /// Where the segment ends for this reader.
    end: u64,
    /// Where the next block is looked for.
    at: u64,
    /// What has been read of the file, from `start` on.
    window: Vec<u8>,
    start: u64,
}

/// What is in a segment.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// A block, with its payload as it is stored.
    Block {
        at: u64,
        header: BlockHeader,
        stored: &'a [u8],
    },
    /// Bytes that are no block.
    Damaged(Damage),
}

/// Bytes of a segment that are no block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// Nothing follows: a write that was not finished looks like this.
    pub(super) at_end: bool,
}

impl Scan {
    /// Opens a segment to be read from its first block on, up to `end`.
    pub(super) fn open(path: &Path, marker: Marker, end: u64) -> io::Result<Self> {
        Ok(Self::of(File::open(path)?, marker, end))
    }

    /// The same for a file that is open.
    pub(super) fn of(file: File, marker: Marker, end: u64) -> Self {
        Scan {
            file,
            marker,
            end,
            at: SEGMENT_HEADER as u64,
            window: Vec::new(),
            start: 0,
        }
    }

    /// Where the next block is looked for.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Goes on from there.
    pub(super) fn seek(&mut self, at: u64) {
        self.at = at;
    }

    /// The segment ends later than was said before.
    pub(super) fn extend(&mut self, end: u64) {
        if end > self.end {
            self.end = end;
            // What was behind the end may have been written since it was read.
            self.window.clear();
        }
    }

    /// The next block, or damage up to the next one. `None` at the end.
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
        self.at = at + header.len();
        let ends = self.at >= self.end;
        let stored = self.bytes(at + BLOCK_HEADER as u64, header.stored as usize)?;
        if stored.len() != header.stored as usize || crc(stored) != header.payload_crc {
            return Ok(Some(Found::Damaged(Damage {
                at,
                bytes: header.len(),
                at_end: ends,
            })));
        }
        Ok(Some(Found::Block { at, header, stored }))
    }

    /// Where the next intact block header is, from `at` on.
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
                // A marker may lie across the end of what was looked at.
                None => at += (len - marker.len() + 1) as u64,
            }
        }
    }

    /// Bytes of the file; fewer where it ends.
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
        let (mut filled, mut failures) = (0, 0);
        while let Some(rest) = self
            .window
            .get_mut(filled..)
            .filter(|rest| !rest.is_empty())
        {
            match self.file.read_at(rest, at + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Once more; after that what is there is as lost as what was overwritten.
                Err(error) if error.raw_os_error() == Some(EIO) => {
                    failures += 1;
                    if failures % 2 == 0 {
                        filled = (filled + PAGE).min(len);
                    }
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
