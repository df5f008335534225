//! Direct I/O: overwrites allocated blocks of a file without the page cache.
//!
//! An fsync needs the bytes on disk at once, so the page cache does its work in vain: pages are looked up, filled,
//! marked dirty, found again and written. With direct I/O, the disk reads from one buffer. Writes must consist of whole
//! blocks, so a partial last block is written again together with the following data. The page cache does the same.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::streaming;

/// Alignment of the offset, length and memory of a direct write. Disks and file systems require 512 or 4096 bytes.
const BLOCK: usize = 4096;
/// Maximum size of one write: a typical group of records with its headers, and the partial block before it. A multiple
/// of [`BLOCK`].
const MOST: usize = (2 << 20) + (64 << 10);

/// A file that is overwritten from its beginning with direct I/O.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// Write buffer. From `start` on, its address is a multiple of [`BLOCK`].
    buffer: Vec<u8>,
    start: usize,
    /// Bytes in the buffer, and how many of them are already written: the content of the partial last block.
    filled: usize,
    tail: usize,
    /// File offset of the buffer.
    at: u64,
    /// End of the allocated blocks. Behind it the file grows, where the page cache is faster.
    end: u64,
}

impl Direct {
    /// Opens a file to be overwritten. Fails if the file system does not support direct I/O.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = options.write(true).custom_flags(flags).open(path)?;
        let len = file.metadata()?.len();
        Ok(Direct {
            file,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            tail: 0,
            at: 0,
            end: len - len % BLOCK as u64,
        })
    }

    /// Returns the metadata of the file.
    pub(super) fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// Appends a piece, which may stay in the buffer. Returns false if the file has no allocated blocks left for the
    /// piece.
    ///
    /// # Errors
    /// Any part of the buffered data may have been written. The file must not be written to any more.
    pub(super) fn write(&mut self, mut piece: &[u8]) -> io::Result<bool> {
        let all = self.filled + piece.len();
        if (self.at + all as u64).next_multiple_of(BLOCK as u64) > self.end {
            return Ok(false);
        }
        self.grow(all.min(MOST));
        while !piece.is_empty() {
            let free = &mut self.buffer[self.start + self.filled..];
            let copied = streaming::copy(piece, free);
            self.filled += copied;
            piece = &piece[copied..];
            if self.filled == MOST {
                self.flush()?;
            }
        }
        Ok(true)
    }

    /// Writes the buffered data.
    ///
    /// # Errors
    /// See [`Self::write`].
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.filled == self.tail {
            return Ok(());
        }
        let end = self.start + self.filled;
        let whole = self.start + self.filled.next_multiple_of(BLOCK);
        self.buffer[end..whole].fill(0);
        self.file
            .write_all_at(&self.buffer[self.start..whole], self.at)?;
        self.tail = self.filled % BLOCK;
        self.at += (self.filled - self.tail) as u64;
        self.buffer.copy_within(end - self.tail..end, self.start);
        self.filled = self.tail;
        Ok(())
    }

    /// Forces the written data to disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    /// Returns the file for writes through the page cache. Buffered data is not written.
    pub(super) fn leave(self) -> io::Result<File> {
        let flags = fcntl_getfl(&self.file)?;
        fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        Ok(self.file)
    }

    /// Grows the buffer to hold `bytes` bytes.
    fn grow(&mut self, bytes: usize) {
        let room = self.buffer.len() - self.start;
        // Space to pad the last block.
        let needed = bytes.next_multiple_of(BLOCK);
        if needed <= room {
            return;
        }
        let room = needed.max(2 * room).min(MOST);
        let mut buffer = vec![0; BLOCK + room];
        let start = buffer.as_ptr().align_offset(BLOCK);
        buffer.truncate(start + room);
        buffer[start..][..self.filled].copy_from_slice(&self.buffer[self.start..][..self.filled]);
        (self.buffer, self.start) = (buffer, start);
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::super::disk::{Disk as _, Local};
    use super::*;

    /// Writes pieces of any size through `Local`, with the page cache behind the old end of the file.
    #[test]
    fn what_is_written_is_what_the_file_has_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let mut random = fastrand::Rng::with_seed(3);
        let most = [1, 100, 5000, 9 * BLOCK, MOST + 3 * BLOCK];
        for most in most.into_iter().cycle().take(60) {
            let before = random.usize(..2 * MOST);
            std::fs::write(&path, vec![0xff; before]).unwrap();
            let mut output = Local { mode: 0o600 }.reuse(&path, true).unwrap();
            let mut content = Vec::new();
            for _ in 0..10 {
                let start = content.len();
                for _ in 0..random.usize(..5) {
                    let len = random.usize(..most);
                    content.extend(std::iter::repeat_with(|| random.u8(..)).take(len));
                }
                let new = &content[start..];
                let (one, other) = new.split_at(random.usize(..=new.len()));
                let mut slices = [IoSlice::new(one), IoSlice::new(other)];
                output.write(&mut slices).unwrap();
                if random.bool() {
                    output.flush().unwrap();
                    assert!(std::fs::read(&path).unwrap().starts_with(&content));
                }
            }
            output.sync().unwrap();
            let there = std::fs::read(&path).unwrap();
            assert_eq!(there.len(), before.max(content.len()));
            assert!(there.starts_with(&content), "{most}");
            // Only the last block is padded.
            let behind = content.len().next_multiple_of(BLOCK).min(there.len());
            assert!(there[behind..].iter().all(|byte| *byte == 0xff));
            // After a cut in the middle of a block, writing continues there.
            let cut = content.len() / 3 * 2;
            output.truncate(cut as u64).unwrap();
            output.write(&mut [IoSlice::new(b"more")]).unwrap();
            output.flush().unwrap();
            let there = std::fs::read(&path).unwrap();
            assert_eq!(there, [&content[..cut], b"more"].concat());
        }
    }

    #[test]
    fn only_what_has_its_place_on_the_disk_is_written_directly() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        std::fs::write(&path, [0; 3 * BLOCK + 100]).unwrap();
        let Ok(mut direct) = Direct::open(&path) else {
            // The file system for temporary files does not support direct I/O.
            return;
        };
        for (len, written) in [
            (1, true),
            (BLOCK, true),
            (2 * BLOCK, false),
            (2 * BLOCK - 1, true),
            (1, false),
        ] {
            let piece = &[7; 2 * BLOCK][..len];
            assert_eq!(direct.write(piece).unwrap(), written, "{len}");
        }
    }
}
