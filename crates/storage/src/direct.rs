//! Writing past the page cache, over what a file has on the disk already.
//!
//! An fsync has to have the bytes on the disk, so what the page cache does for a later write to the disk is done at once
//! and for nothing: its pages are looked up, filled, marked, found again and written. Past it the disk reads from one piece
//! of memory. What it must be given are whole blocks, so the last one, while it is not full, is written again with what
//! follows; the page cache does that too.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::streaming;

/// What disks and file systems want the beginning, the length and the memory of a write to be a multiple of: 512 bytes or
/// this.
const BLOCK: usize = 4096;
/// The most bytes that are written at once: most groups with their headers, and the block before them. A multiple of
/// [`BLOCK`].
const MOST: usize = (2 << 20) + (64 << 10);

/// A file is written past the page cache from its beginning on.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// Memory for what is to be written. From `start` on its address is a multiple of [`BLOCK`].
    buffer: Vec<u8>,
    start: usize,
    /// How much is in it, and how much of that is written already: what the last block has.
    filled: usize,
    tail: usize,
    /// Where in the file it goes.
    at: u64,
    /// How far the file has its place on the disk. Behind it the page cache is better: the file grows.
    end: u64,
}

impl Direct {
    /// A file to be written over, if its file system can do that.
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

    /// What the system knows of the file.
    pub(super) fn metadata(&self) -> io::Result<std::fs::Metadata> {
        self.file.metadata()
    }

    /// Takes a piece to be written behind all before it, and may hold it back; unless the file has no place for it yet:
    /// then it says no.
    ///
    /// # Errors
    /// Any part of what was held back may have been written, and nothing more can be.
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

    /// Writes what was held back.
    ///
    /// # Errors
    /// As [`Self::write`].
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

    /// Forces what was written to the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.file.sync_data()
    }

    /// The file, to be written by way of the page cache from now on; what was held back is not written.
    pub(super) fn leave(self) -> io::Result<File> {
        let flags = fcntl_getfl(&self.file)?;
        fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        Ok(self.file)
    }

    /// Makes room for so many bytes, if there is less.
    fn grow(&mut self, bytes: usize) {
        let room = self.buffer.len() - self.start;
        // The last block is filled up.
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

    /// In pieces of any size, by way of `Local`: with the page cache behind the end of what was there.
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
            // Nothing but the last block is filled up.
            let behind = content.len().next_multiple_of(BLOCK).min(there.len());
            assert!(there[behind..].iter().all(|byte| *byte == 0xff));
            // Cut in the middle of a block, it goes on there.
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
            // The file system for temporary files cannot do it.
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
