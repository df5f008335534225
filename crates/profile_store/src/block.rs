//! Block files: written once, read section by section.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::disk::{Disk, Input, Output};
use super::format::{Entry, Index, MAGIC, Section, TRAILER, compress, decompress, trailer};
use super::heat::Cells;
use super::series::{Labels, SeriesTable};

pub(crate) fn block_name(number: u64) -> String {
    format!("{number:016x}.block")
}

pub(crate) fn journal_name(number: u64) -> String {
    format!("{number:016x}.journal")
}

/// Extension of a file that is not complete.
pub(crate) const UNFINISHED: &str = ".new";
/// Extension of a file that cannot be read.
pub(crate) const DAMAGED: &str = ".damaged";

/// A complete block file.
pub(crate) struct Block {
    pub(crate) number: u64,
    pub(crate) index: Index,
    pub(crate) size: u64,
    disk: Arc<dyn Disk>,
    /// Whether the drop of the last reference removes the file.
    is_removed_when_unused: AtomicBool,
    /// Whether the file is renamed then instead of removed.
    is_set_aside: AtomicBool,
    is_damaged: AtomicBool,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.index.entries.len();
        write!(f, "{} ({entries} entries)", block_name(self.number))
    }
}

#[derive(Debug)]
pub(crate) enum ReadError {
    Damaged,
    Io(io::Error),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // The file is shorter than stated in its index.
            io::ErrorKind::UnexpectedEof => ReadError::Damaged,
            _ => ReadError::Io(error),
        }
    }
}

impl Block {
    /// Opens a block file: reads and checks its index, not its sections.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        number: u64,
        series: &SeriesTable,
    ) -> Result<Self, ReadError> {
        let file = disk.open(&block_name(number))?;
        let size = file.len()?;
        let least = (MAGIC.len() + TRAILER) as u64;
        if size < least || file.read(0, MAGIC.len())? != MAGIC {
            return Err(ReadError::Damaged);
        }
        let end = size - TRAILER as u64;
        let found = trailer(&file.read(end, TRAILER)?).ok_or(ReadError::Damaged)?;
        if found.at.checked_add(found.stored.into()) != Some(end) {
            return Err(ReadError::Damaged);
        }
        let raw = read_section(&*file, &found)?;
        let index = Index::decode(&raw, found.at, |labels| series.intern(labels));
        Ok(Block {
            number,
            index: index.ok_or(ReadError::Damaged)?,
            size,
            disk: disk.clone(),
            is_removed_when_unused: AtomicBool::new(false),
            is_set_aside: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
        })
    }

    pub(crate) fn reader(&self) -> Result<Reader, ReadError> {
        Ok(Reader(self.disk.open(&block_name(self.number))?))
    }

    /// Removes the file when no query reads it any more. The caller must ensure that the removal loses no data: another
    /// file replaces this file, or its profiles are too old.
    pub(crate) fn remove_when_unused(&self) {
        self.is_removed_when_unused.store(true, Relaxed);
    }

    /// Renames the file when no query reads it any more. Returns the new name.
    pub(crate) fn set_aside(&self) -> String {
        self.is_set_aside.store(true, Relaxed);
        self.remove_when_unused();
        block_name(self.number) + DAMAGED
    }

    /// Records that a section is damaged. Returns false if the damage was known.
    pub(crate) fn note_damage(&self) -> bool {
        !self.is_damaged.swap(true, Relaxed)
    }

    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Relaxed)
    }

    /// End of the last window, in seconds since 1970.
    pub(crate) fn end(&self) -> u64 {
        let last = self.index.entries.iter().map(|entry| entry.window).max();
        last.unwrap_or_default()
            .saturating_add(self.index.window_len())
    }

    pub(crate) fn samples(&self) -> u64 {
        self.index.entries.iter().map(|entry| entry.samples).sum()
    }

    /// Memory of the index, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let entries = self.index.entries.capacity() * size_of::<Entry>();
        let numbers = self.index.replaces.capacity() * size_of::<u64>();
        (entries + numbers + size_of::<Self>()) as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if *self.is_removed_when_unused.get_mut() {
            let name = block_name(self.number);
            // If the removal fails, the next start removes the file, since another file replaces it.
            let _ = match *self.is_set_aside.get_mut() {
                true => self.disk.rename(&name, &format!("{name}{DAMAGED}")),
                false => self.disk.remove(&name),
            };
        }
    }
}

pub(crate) struct Reader(Box<dyn Input>);

impl Reader {
    pub(crate) fn section(&self, section: &Section) -> Result<Vec<u8>, ReadError> {
        read_section(&*self.0, section)
    }

    /// Reads a section in its stored form, and verifies it.
    pub(crate) fn stored(&self, section: &Section) -> Result<Vec<u8>, ReadError> {
        let stored = self.0.read(section.at, section.stored as usize)?;
        match crc32c::crc32c(&stored) == section.crc {
            true => Ok(stored),
            false => Err(ReadError::Damaged),
        }
    }
}

fn read_section(file: &dyn Input, section: &Section) -> Result<Vec<u8>, ReadError> {
    let stored = file.read(section.at, section.stored as usize)?;
    decompress(&stored, section).ok_or(ReadError::Damaged)
}

/// A block file that is being written.
#[derive(Debug)]
pub(crate) struct Builder {
    disk: Arc<dyn Disk>,
    number: u64,
    output: Box<dyn Output>,
    at: u64,
    index: Index,
}

/// The profile of a series in a window, before the write.
pub(crate) struct Unwritten<'u> {
    pub(crate) series: &'u Arc<Labels>,
    pub(crate) window: u64,
    /// Encoded request with one profile.
    pub(crate) request: &'u [u8],
    pub(crate) total: i64,
    pub(crate) samples: u64,
    pub(crate) has_links: bool,
}

impl Builder {
    /// Begins a file under a temporary name. `index` has no entries.
    pub(crate) fn begin(disk: &Arc<dyn Disk>, number: u64, index: Index) -> io::Result<Self> {
        let name = block_name(number) + UNFINISHED;
        // A failed attempt may have left its file.
        let _ = disk.remove(&name);
        let mut output = disk.create(&name)?;
        output.write(&MAGIC)?;
        Ok(Builder {
            disk: disk.clone(),
            number,
            output,
            at: MAGIC.len() as u64,
            index,
        })
    }

    /// Adds a profile and the cells of its heat map.
    pub(crate) fn push(&mut self, from: &Unwritten<'_>, heat: &Cells) -> io::Result<()> {
        let (stored, profile) = compress(from.request, self.at)?;
        self.write(&stored)?;
        let heat = match heat.is_empty() {
            true => Section::default(),
            false => {
                let (stored, section) = compress(&heat.encode(), self.at)?;
                self.write(&stored)?;
                section
            }
        };
        self.index.entries.push(Entry {
            series: from.series.clone(),
            window: from.window,
            profile,
            heat,
            total: from.total,
            samples: from.samples,
            has_links: from.has_links,
        });
        Ok(())
    }

    /// Copies an entry of another file, with a new window, heat map and position.
    pub(crate) fn copy(
        &mut self,
        from: &Entry,
        window: u64,
        profile: &[u8],
        heat: &[u8],
    ) -> io::Result<()> {
        let mut entry = from.clone();
        entry.window = window;
        entry.profile.at = self.at;
        self.write(profile)?;
        match heat.is_empty() {
            true => entry.heat = Section::default(),
            false => {
                entry.heat.at = self.at;
                self.write(heat)?;
            }
        }
        self.index.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.output.write(bytes)
    }

    /// Completes the file if its entries were written and there are any. Otherwise discards the file.
    pub(crate) fn finish_after(self, written: io::Result<()>) -> io::Result<Option<Block>> {
        if written.is_err() || self.index.entries.is_empty() {
            self.abandon();
            return written.map(|()| None);
        }
        self.finish().map(Some)
    }

    /// Completes the file. On return, the file is durable under its name.
    fn finish(mut self) -> io::Result<Block> {
        self.index.entries.shrink_to_fit();
        if let Err(error) = self.publish() {
            self.abandon();
            return Err(error);
        }
        Ok(Block {
            number: self.number,
            size: self.at,
            index: self.index,
            disk: self.disk,
            is_removed_when_unused: AtomicBool::new(false),
            is_set_aside: AtomicBool::new(false),
            is_damaged: AtomicBool::new(false),
        })
    }

    fn publish(&mut self) -> io::Result<()> {
        let index = self.index.encode(self.at)?;
        self.write(&index)?;
        self.output.sync()?;
        let name = block_name(self.number);
        self.disk.rename(&format!("{name}{UNFINISHED}"), &name)?;
        self.disk.sync_directory()
    }

    fn abandon(self) {
        let _ = self.disk.remove(&(block_name(self.number) + UNFINISHED));
    }
}
