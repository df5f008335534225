//! A compiled symbol file, memory-mapped.
//!
//! Opening it checks the header and nothing else, which takes microseconds; nothing that a damaged file says can do more than
//! give wrong names or none, for every index is checked where it is used. [`SymbolFile::verify`] reads all of it.

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
    /// No other one that this process has opened has it.
    number: u64,
}

#[derive(Debug)]
enum Data {
    Mapped(Map),
    Owned(Vec<u8>),
}

/// Why a file cannot be used; all but [`Io`](Self::Io) mean that it has to be compiled again.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system says so.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("it is no compiled symbol file")]
    NotSymbolFile,
    /// It has another version than this program reads.
    #[error(
        "it is a compiled symbol file of version {0}, and this program reads version {VERSION}"
    )]
    Version(u32),
    /// It was cut off or overwritten.
    #[error("it is a damaged symbol file")]
    Damaged,
}

/// Where names and lines of an address come from, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Debug information: functions with what was inlined into them, files, lines, columns.
    Dwarf,
    /// The table that Go's runtime reads: functions with what was inlined into them, files, lines.
    GoPclntab,
    /// `.symtab`: functions.
    SymbolTable,
    /// `.dynsym`: functions that other binaries may call.
    DynamicSymbols,
    /// `.gnu_debugdata`: functions.
    MiniDebugInfo,
}

impl Source {
    /// All, the best first.
    pub const ALL: [Source; 5] = [
        Source::Dwarf,
        Source::GoPclntab,
        Source::SymbolTable,
        Source::DynamicSymbols,
        Source::MiniDebugInfo,
    ];

    /// A name for metrics and people.
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
    /// Maps a file. It must not be written to or shortened while it is open, only replaced as a whole.
    ///
    /// # Errors
    /// When it cannot be read, or is no symbol file of this version, or its header is damaged.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::map(&File::open(path)?)
    }

    /// The same for a file that is open.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn map(file: &File) -> Result<Self, OpenError> {
        Self::new(Data::Mapped(Map::of(file)?))
    }

    /// A symbol file in memory.
    ///
    /// # Errors
    /// When it is no symbol file of this version, or its header is damaged.
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

    /// The build id of the binary that this is made of.
    pub fn build_id(&self) -> Option<&BuildId> {
        self.layout.build_id.as_ref()
    }

    /// Whether most of what it names has lines: it was made with debug information, or is Go's. Without, another file of
    /// the same build may say more.
    pub fn has_lines(&self) -> bool {
        self.layout.flags & format::HAS_LINES != 0
    }

    /// The checksum of its header, which has the checksums of all sections.
    pub(super) fn header_sum(&self) -> u32 {
        format::u32_at(self.data.bytes(), 12).unwrap_or_default()
    }

    /// How large the file is.
    pub fn bytes(&self) -> u64 {
        self.data.bytes().len() as u64
    }

    /// How many ranges of addresses there are.
    pub fn ranges(&self) -> u64 {
        self.layout.ranges
    }

    /// Reads the whole file and compares the checksums of its sections.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] when one differs.
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

    /// Looks addresses up: fastest in ascending order.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::new(self)
    }

    /// What the functions of frames are called.
    pub fn names(&self) -> Names<'_> {
        Names::new(self, None)
    }

    /// The same, with what was read before in mind.
    pub fn names_with<'a>(&'a self, recent: &'a RecentNames) -> Names<'a> {
        Names::new(self, Some(recent))
    }

    fn section(&self, section: Section) -> &[u8] {
        let (place, _) = &self.layout.sections[section as usize];
        // Checked when it was opened; a file that has become shorter since has ended the process.
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
