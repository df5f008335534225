//! A compiled symbol file, memory-mapped.
//!
//! Opening checks the header only, which takes microseconds. Every index is checked where it is used, so a damaged
//! file gives wrong names or none and cannot do other harm. [`SymbolFile::verify`] reads and checks the whole file.

mod cursor;
pub(crate) mod format;
mod frames;
mod names;
mod normalise;
mod recent;

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::cursor::Cursor;
pub use self::frames::{Frame, Frames, FunctionId};
pub use self::names::{Function, Names};
pub use self::normalise::MappingRange;
pub use self::recent::RecentNames;

use self::format::{HEADER, Layout, MAGIC, SUMMED_FROM, Section, VERSION};
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

/// The reason why a symbol file cannot be used. For every reason except [`Io`](Self::Io), the binary must be
/// compiled again.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system cannot read the file.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// The file is not a symbol file.
    #[error("it is no compiled symbol file")]
    NotSymbolFile,
    /// The file has a version that this program does not read.
    #[error(
        "it is a compiled symbol file of version {0}, and this program reads version {VERSION}"
    )]
    Version(u32),
    /// The file is truncated or overwritten.
    #[error("it is a damaged symbol file")]
    Damaged,
}

/// Source of the names and lines of an address, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
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

impl Source {
    /// All sources, best first.
    pub const ALL: [Source; 5] = [
        Source::Dwarf,
        Source::GoPclntab,
        Source::SymbolTable,
        Source::DynamicSymbols,
        Source::MiniDebugInfo,
    ];

    /// Name of the source for metrics and users.
    pub fn name(self) -> &'static str {
        match self {
            Source::Dwarf => "dwarf",
            Source::GoPclntab => "gopclntab",
            Source::SymbolTable => "symtab",
            Source::DynamicSymbols => "dynsym",
            Source::MiniDebugInfo => "minidebuginfo",
        }
    }
}

impl SymbolFile {
    /// Maps a file. While the file is open, it must not be modified or truncated, only replaced as a whole.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a symbol file of this version, or has a damaged header.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::map(&File::open(path)?)
    }

    /// Maps an open file.
    ///
    /// # Errors
    /// Fails like [`open`](Self::open).
    pub fn map(file: &File) -> Result<Self, OpenError> {
        Self::new(Data::Mapped(Map::of(file)?))
    }

    /// Reads a symbol file from memory.
    ///
    /// # Errors
    /// Fails if the bytes are not a symbol file of this version, or the header is damaged.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, OpenError> {
        Self::new(Data::Owned(bytes))
    }

    fn new(data: Data) -> Result<Self, OpenError> {
        let bytes = data.bytes();
        let rest = bytes.strip_prefix(&MAGIC).ok_or(OpenError::NotSymbolFile)?;
        let version = format::u32_at(rest, 0).ok_or(OpenError::Damaged)?;
        if version != VERSION {
            return Err(OpenError::Version(version));
        }
        let header = bytes.get(..HEADER).ok_or(OpenError::Damaged)?;
        let sum = crc32fast::hash(&header[SUMMED_FROM..]);
        if format::u32_at(header, 12) != Some(sum) {
            return Err(OpenError::Damaged);
        }
        let layout = Layout::read(header, bytes.len()).ok_or(OpenError::Damaged)?;
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
    /// Returns [`OpenError::Damaged`] if a checksum differs.
    pub fn verify(&self) -> Result<(), OpenError> {
        let good = Section::ALL.iter().all(|section| {
            let (_, sum) = self.layout.sections[*section as usize];
            crc32fast::hash(self.section(*section)) == sum
        });
        match good {
            true => Ok(()),
            false => Err(OpenError::Damaged),
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
        // The range was checked when the file was opened. If the file was truncated since, the access raises SIGBUS
        // and ends the process.
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
