//! Writing past the page cache, over what a file has on the disk already.
//!
//! An fsync has to have the bytes on the disk, so what the page cache does for a later write to the disk is done at once
//! and for nothing: its pages are looked up, filled, marked, found again and written. Past it the disk reads from one piece
//! of memory. What it must be given are whole blocks, so the last one, while it is not full, is written again with what
//! follows; the page cache does that too.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// What disks and file systems want the beginning, the length and the memory of a write to be a multiple of: 512 bytes or
/// this.
const BLOCK: usize = 4096;
/// The most bytes that are written at once: a group with its headers, and the block before it.
const MOST: usize = (2 << 20) + (64 << 10);
/// The first buffer has room for so many, each that follows for twice as many.
const FEWEST: usize = 64 << 10;

/// A file is written past the page cache from its beginning on.
#[derive(Debug)]
pub(super) struct Direct {
    /// What is written, behind `start` bytes: from there on the memory is a multiple of [`BLOCK`].
    buffer: Vec<u8>,
    start: usize,
    /// How many bytes of the last block are written. They are the first ones in the buffer.
    tail: usize,
    /// How far the file has its place on the disk. Behind it the page cache is better: the file grows.
    end: u64,
}

impl Direct {
    /// A file to be written over, if its file system can do that.
    pub(super) fn open(path: &Path) -> io::Result<(File, Self)> {
        let mut options = OpenOptions::new();
        let flags = OFlags::DIRECT.bits().cast_signed();
        let file = options.write(true).custom_flags(flags).open(path)?;
        let len = file.metadata()?.len();
        let direct = Direct {
            buffer: Vec::new(),
            start: 0,
            tail: 0,
            end: len - len % BLOCK as u64,
        };
        Ok((file, direct))
    }

    /// Makes writes to the file go through the page cache again.
    pub(super) fn leave(file: &File) -> io::Result<()> {
        let flags = fcntl_getfl(file)?;
        Ok(fcntl_setfl(file, flags - OFlags::DIRECT)?)
    }

    /// Writes to `at`, which is where the last write ended, unless so much has no place yet. After an error nothing more
    /// may be written this way.
    pub(super) fn write(
        &mut self,
        file: &File,
        at: u64,
        slices: &[IoSlice<'_>],
    ) -> io::Result<bool> {
        let new: usize = slices.iter().map(|slice| slice.len()).sum();
        if (at + new as u64).next_multiple_of(BLOCK as u64) > self.end {
            return Ok(false);
        }
        self.grow((self.tail + new).min(MOST));
        let (blocks, _) = self.buffer[self.start..].as_chunks_mut::<BLOCK>();
        let buffer = blocks.as_flattened_mut();
        let mut place = at - self.tail as u64;
        let mut filled = self.tail;
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                let room = &mut buffer[filled..];
                let (now, later) = rest.split_at(rest.len().min(room.len()));
                room[..now.len()].copy_from_slice(now);
                filled += now.len();
                rest = later;
                if filled == buffer.len() {
                    file.write_all_at(buffer, place)?;
                    place += filled as u64;
                    filled = 0;
                }
            }
        }
        let padded = filled.next_multiple_of(BLOCK);
        buffer[filled..padded].fill(0);
        file.write_all_at(&buffer[..padded], place)?;
        self.tail = filled % BLOCK;
        buffer.copy_within(filled - self.tail..filled, 0);
        Ok(true)
    }

    /// Makes room for so many bytes, and keeps those of the last block.
    fn grow(&mut self, bytes: usize) {
        if self.buffer.len() >= self.start + bytes.next_multiple_of(BLOCK) {
            return;
        }
        let room = bytes.next_power_of_two().clamp(FEWEST, MOST);
        let mut buffer = vec![0; BLOCK + room];
        let start = buffer.as_ptr().align_offset(BLOCK);
        let tail = &self.buffer[self.start..][..self.tail];
        buffer[start..][..self.tail].copy_from_slice(tail);
        (self.buffer, self.start) = (buffer, start);
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::{Disk as _, Local};
    use super::*;

    /// In pieces of any size, by way of `Local`: with the page cache behind the end of what was there.
    #[test]
    fn what_is_written_is_what_the_file_has_then() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let mut random = fastrand::Rng::with_seed(3);
        let most = [1, 100, 5000, 9 * BLOCK, MOST + 3 * BLOCK];
        for (round, most) in most.into_iter().cycle().take(60).enumerate() {
            let before = random.usize(..2 * MOST);
            std::fs::write(&path, vec![0xff; before]).unwrap();
            let mut output = Local { mode: 0o600 }.reuse(&path, true).unwrap();
            let mut content = Vec::new();
            for _ in 0..10 {
                let start = content.len();
                for _ in 0..random.usize(..5) {
                    let len = random.usize(..most);
                    content.extend((0..len).map(|at| (at + round) as u8));
                }
                let new = &content[start..];
                let (one, other) = new.split_at(random.usize(..=new.len()));
                let mut slices = [IoSlice::new(one), IoSlice::new(other)];
                output.write(&mut slices).unwrap();
            }
            output.sync().unwrap();
            let there = std::fs::read(&path).unwrap();
            assert_eq!(there.len(), before.max(content.len()));
            assert!(there.starts_with(&content), "round {round}");
            // Nothing but the last block is filled up.
            let behind = content.len().next_multiple_of(BLOCK).min(there.len());
            assert!(there[behind..].iter().all(|byte| *byte == 0xff));
            // Cut in the middle of a block, it goes on there.
            let cut = content.len() / 3 * 2;
            output.truncate(cut as u64).unwrap();
            output.write(&mut [IoSlice::new(b"more")]).unwrap();
            let there = std::fs::read(&path).unwrap();
            assert_eq!(there, [&content[..cut], b"more"].concat());
        }
    }

    #[test]
    fn only_what_has_its_place_on_the_disk_is_written_directly() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        std::fs::write(&path, [0; 3 * BLOCK + 100]).unwrap();
        let Ok((file, mut direct)) = Direct::open(&path) else {
            // The file system for temporary files cannot do it.
            return;
        };
        let mut at = 0;
        for (len, written) in [
            (1, true),
            (BLOCK, true),
            (2 * BLOCK, false),
            (2 * BLOCK - 1, true),
            (1, false),
        ] {
            let slices = [IoSlice::new(&[7; 2 * BLOCK][..len])];
            assert_eq!(direct.write(&file, at, &slices).unwrap(), written, "{len}");
            at += if written { len as u64 } else { 0 };
        }
    }
}
