//! A compiled symbol file, memory-mapped.
//!
//! Opening checks only the header, which takes microseconds. Every index is checked at its use, so a damaged file can
//! only give wrong or missing names. [`SymbolFile::verify`] reads and checks the whole file.

mod cursor;
pub(crate) mod format;
mod frames;
mod known;
mod names;
mod normalise;
mod recent;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::cursor::Cursor;
use self::format::{HEADER, Layout, MAGIC, SUMMED_FROM, Section, VERSION};
pub use self::frames::{Frame, Frames, FunctionId};
pub use self::names::{FunctionNames, Names};
pub use self::normalise::MappingRange;
pub use self::recent::RecentNames;
use super::build_id::BuildId;
use super::map::Map;

/// A compiled symbol file.
#[derive(Debug)]
pub struct SymbolFile {
    data: Data,
    layout: Layout,
    /// Unique number among the files opened by this process.
    number: u64,
}

#[derive(Debug)]
enum Data {
    Mapped(Map),
    Owned(Vec<u8>),
}

/// Reason why a symbol file cannot be used. For every reason except [`Io`](Self::Io), the binary must be compiled
/// again.
#[derive(Debug, thiserror::Error)]
pub enum SymbolFileError {
    /// The system cannot read the file.
    #[error("cannot read the symbol file: {0}")]
    Io(#[from] io::Error),
    /// The file is not a symbol file.
    #[error("not a compiled symbol file")]
    NotSymbolFile,
    /// The file has a version that this program does not read.
    #[error("symbol file of version {0}; this program reads version {VERSION}")]
    Version(u32),
    /// The file is truncated or overwritten.
    #[error("the symbol file is damaged")]
    Damaged,
}

/// Source of the names and lines of an address, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameSource {
    /// DWARF debug information: functions with inlined calls, files, lines, columns.
    Dwarf,
    /// Function table of Go's runtime: functions with inlined calls, files, lines.
    GoPclntab,
    /// `.symtab`: functions.
    SymbolTable,
    /// `.dynsym`: exported functions.
    DynamicSymbols,
    /// `.gnu_debugdata`: functions.
    MiniDebugInfo,
}

impl NameSource {
    /// All sources, best first.
    pub const ALL: [NameSource; 5] = [
        NameSource::Dwarf,
        NameSource::GoPclntab,
        NameSource::SymbolTable,
        NameSource::DynamicSymbols,
        NameSource::MiniDebugInfo,
    ];

    /// Name of the source for metrics and users.
    pub fn name(self) -> &'static str {
        match self {
            NameSource::Dwarf => "dwarf",
            NameSource::GoPclntab => "gopclntab",
            NameSource::SymbolTable => "symtab",
            NameSource::DynamicSymbols => "dynsym",
            NameSource::MiniDebugInfo => "minidebuginfo",
        }
    }
}

impl SymbolFile {
    /// Maps a file. While the file is open, it must not be modified or truncated, only replaced as a whole.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a symbol file of this version, or has a damaged header.
    pub fn open(path: &Path) -> Result<Self, SymbolFileError> {
        Self::map(&File::open(path)?)
    }

    /// Maps an open file.
    ///
    /// # Errors
    /// Fails like [`open`](Self::open).
    pub fn map(file: &File) -> Result<Self, SymbolFileError> {
        Self::new(Data::Mapped(Map::of(file)?))
    }

    /// Reads a symbol file from memory.
    ///
    /// # Errors
    /// Fails if the bytes are not a symbol file of this version, or the header is damaged.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, SymbolFileError> {
        Self::new(Data::Owned(bytes))
    }

    fn new(data: Data) -> Result<Self, SymbolFileError> {
        let bytes = data.bytes();
        let rest = bytes
            .strip_prefix(&MAGIC)
            .ok_or(SymbolFileError::NotSymbolFile)?;
        let version = format::u32_at(rest, 0).ok_or(SymbolFileError::Damaged)?;
        if version != VERSION {
            return Err(SymbolFileError::Version(version));
        }
        let header = bytes.get(..HEADER).ok_or(SymbolFileError::Damaged)?;
        let sum = crc32fast::hash(&header[SUMMED_FROM..]);
        if format::u32_at(header, 12) != Some(sum) {
            return Err(SymbolFileError::Damaged);
        }
        let layout = Layout::read(header, bytes.len()).ok_or(SymbolFileError::Damaged)?;
        static OPENED: AtomicU64 = AtomicU64::new(0);
        Ok(SymbolFile {
            data,
            layout,
            number: OPENED.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Build id of the compiled binary.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.layout.build_id.as_ref()
    }

    /// Whether most of the named code has lines: the file was compiled from debug information or from a Go binary.
    /// Without lines, another file of the same build may have more information.
    pub fn has_lines(&self) -> bool {
        self.layout.flags & format::HAS_LINES != 0
    }

    /// Checksum of the header, which contains the checksums of all sections.
    pub(super) fn header_sum(&self) -> u32 {
        format::u32_at(self.data.bytes(), 12).unwrap_or_default()
    }

    /// Size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.data.bytes().len() as u64
    }

    /// Number of address ranges.
    pub fn ranges(&self) -> u64 {
        self.layout.ranges
    }

    /// Reads the whole file and compares the checksums of its sections.
    ///
    /// # Errors
    /// Returns [`SymbolFileError::Damaged`] if a checksum differs.
    pub fn verify(&self) -> Result<(), SymbolFileError> {
        let good = Section::ALL.iter().all(|section| {
            let (_, sum) = self.layout.sections[*section as usize];
            crc32fast::hash(self.section(*section)) == sum
        });
        match good {
            true => Ok(()),
            false => Err(SymbolFileError::Damaged),
        }
    }

    /// Returns a cursor for looking up addresses, fastest in ascending order.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// Returns a reader of function names.
    pub fn names(&self) -> Names<'_> {
        Names::new(self, None)
    }

    /// Returns a reader of function names that shares `recent` names with other readers.
    pub fn names_with<'a>(&'a self, recent: &'a RecentNames) -> Names<'a> {
        Names::new(self, Some(recent))
    }

    fn section(&self, section: Section) -> &[u8] {
        let (place, _) = &self.layout.sections[section as usize];
        // The range was checked when the file was opened. If the file was truncated later, the access raises SIGBUS and
        // ends the process.
        self.data.bytes().get(place.clone()).unwrap_or_default()
    }
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Data::Mapped(map) => map,
            Data::Owned(bytes) => bytes,
        }
    }
}
