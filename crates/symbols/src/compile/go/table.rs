//! Parses the header of `.gopclntab` and locates its tables.

use crate::file::format::{u32_at, u64_at};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Go116,
    Go118,
    Go120,
}

/// Tables of `.gopclntab`. Offsets are checked at their use.
#[derive(Debug, Clone)]
pub(super) struct Tables<'a> {
    pub(super) version: Version,
    /// Size of the shortest instruction in bytes.
    pub(super) quantum: u64,
    functions: u64,
    /// Base of function addresses. 0 if another source provides the base, and before Go 1.18.
    pub(super) text_start: u64,
    names: &'a [u8],
    units: &'a [u8],
    files: &'a [u8],
    values: &'a [u8],
    entries: &'a [u8],
}

/// A function: its start and its entry in the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct FunctionEntry<'a> {
    /// Offset from `text_start`.
    pub(super) start: u64,
    pub(super) end: u64,
    bytes: &'a [u8],
    version: Version,
}

/// `PCDATA_InlTreeIndex` of `internal/abi/symtab.go`.
const INLINE_INDEX: u32 = 2;
/// `FUNCDATA_InlTree` of `internal/abi/symtab.go`.
const INLINE_TREE: u32 = 3;

impl<'a> Tables<'a> {
    /// Reads the header of Go 1.16 or later, 64-bit, little-endian. `None` for any other header.
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        // Magic numbers from `internal/abi/symtab.go`.
        let version = match u32_at(data, 0)? {
            0xffff_fffa => Version::Go116,
            0xffff_fff0 => Version::Go118,
            0xffff_fff1 => Version::Go120,
            _ => return None,
        };
        let [0, 0, quantum @ (1 | 2 | 4), 8] = data.get(4..8)? else {
            return None;
        };
        let word = |number: usize| u64_at(data, 8 + 8 * number);
        let (text_start, tables) = match version {
            Version::Go116 => (0, 2),
            _ => (word(2)?, 3),
        };
        let table = |number: usize| {
            let offset = usize::try_from(word(tables + number)?).ok()?;
            data.get(offset..)
        };
        Some(Tables {
            version,
            quantum: (*quantum).into(),
            functions: word(0)?,
            text_start,
            names: table(0)?,
            units: table(1)?,
            files: table(2)?,
            values: table(3)?,
            entries: table(4)?,
        })
    }

    /// Number of functions, bounded by the size of the table.
    pub(super) fn count(&self) -> usize {
        let most = self.entries.len() / self.pair();
        usize::try_from(self.functions).map_or(most, |functions| functions.min(most))
    }

    /// Size of an address and offset pair, in bytes.
    fn pair(&self) -> usize {
        match self.version {
            Version::Go116 => 16,
            _ => 8,
        }
    }

    /// Returns a function by its number. The number after the last function returns the end of the code.
    pub(super) fn function(&self, number: usize) -> Option<FunctionEntry<'a>> {
        let pair = self.pair();
        let at = number.checked_mul(pair)?;
        let (start, offset, end) = match self.version {
            Version::Go116 => (
                u64_at(self.entries, at)?,
                u64_at(self.entries, at + 8)?,
                u64_at(self.entries, at + pair)?,
            ),
            _ => (
                u32_at(self.entries, at)?.into(),
                u32_at(self.entries, at + 4)?.into(),
                u32_at(self.entries, at + pair)?.into(),
            ),
        };
        let bytes = self.entries.get(usize::try_from(offset).ok()?..)?;
        Some(FunctionEntry {
            start,
            end,
            bytes,
            version: self.version,
        })
    }

    pub(super) fn name(&self, offset: u32) -> Option<&'a [u8]> {
        text(self.names, offset)
    }

    pub(super) fn file(&self, unit: u32, number: i32) -> Option<&'a [u8]> {
        let number = usize::try_from(number).ok()?;
        let at = usize::try_from(unit).ok()?.checked_add(number)?;
        match u32_at(self.units, at.checked_mul(4)?)? {
            u32::MAX => None,
            offset => text(self.files, offset),
        }
    }

    /// Returns the value table at an offset; 0 means no table.
    pub(super) fn values(&self, offset: u32) -> &'a [u8] {
        let table = (offset != 0).then(|| self.values.get(offset as usize..));
        table.flatten().unwrap_or_default()
    }
}

impl FunctionEntry<'_> {
    /// Returns a field after the address, which has eight bytes before Go 1.18 and four bytes in later versions.
    fn field(&self, number: usize) -> Option<u32> {
        let start = match self.version {
            Version::Go116 => 8,
            _ => 4,
        };
        u32_at(self.bytes, number.checked_mul(4)?.checked_add(start)?)
    }

    pub(super) fn name(&self) -> Option<u32> {
        self.field(0)
    }

    pub(super) fn file_values(&self) -> Option<u32> {
        self.field(4)
    }

    pub(super) fn line_values(&self) -> Option<u32> {
        self.field(5)
    }

    pub(super) fn unit(&self) -> Option<u32> {
        self.field(7)
    }

    /// Line of the keyword `func`; 0 before Go 1.20.
    pub(super) fn start_line(&self) -> u32 {
        match self.version {
            Version::Go120 => self.field(8).unwrap_or_default(),
            _ => 0,
        }
    }

    /// Index of the field with the flags and the number of function data entries.
    fn last_field(&self) -> usize {
        match self.version {
            Version::Go120 => 9,
            _ => 8,
        }
    }

    fn value_tables(&self) -> Option<u32> {
        self.field(6)
    }

    pub(super) fn inline_values(&self) -> Option<u32> {
        if self.value_tables()? <= INLINE_INDEX {
            return None;
        }
        self.field(self.last_field() + 1 + INLINE_INDEX as usize)
    }

    /// Returns the position of the inlining tree. From Go 1.18 on the position is an offset into function data. Before
    /// Go 1.18 it is an address stored as the second value.
    pub(super) fn inline_tree(&self) -> Option<u64> {
        let count = self.field(self.last_field())? >> 24;
        if count <= INLINE_TREE {
            return None;
        }
        let behind = self.last_field() + 1 + usize::try_from(self.value_tables()?).ok()?;
        match self.version {
            Version::Go116 => {
                let at = behind.checked_mul(4)?.checked_add(8)?.next_multiple_of(8);
                u64_at(self.bytes, at.checked_add(8 * INLINE_TREE as usize)?).filter(|at| *at != 0)
            }
            _ => {
                let offset = self.field(behind.checked_add(INLINE_TREE as usize)?)?;
                (offset != u32::MAX).then_some(offset.into())
            }
        }
    }
}

fn text(bytes: &[u8], offset: u32) -> Option<&[u8]> {
    let bytes = bytes.get(offset as usize..)?;
    bytes.get(..memchr::memchr(0, bytes)?)
}
