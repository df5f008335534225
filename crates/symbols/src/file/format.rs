//! The layout of a compiled symbol file, version 3. All numbers are little-endian.
//!
//! ```text
//! header      magic number, version, checksums, build id, places of the sections
//! segments    program headers of the binary: file offset, address, sizes, flags
//! blocks      for each 32 ranges: the first address, and their place in `ranges`
//! ranges      from an address on: context, file, line, column, source; or unknown
//! contexts    a function and the call it was inlined into: parent context, file, line, column
//! groups      for each 8 functions: their place in `functions`
//! functions   file, first line, system name, name; compressed (zstd), 8 at a time
//! dictionary  the zstd dictionary of `functions`
//! files       distinct paths: length and bytes
//! ```
//!
//! A range ends where the next range begins. Ranges and contexts are varints (LEB128), mostly differences, which
//! makes the file a quarter of the size of fixed-width arrays. Decoding 32 ranges takes less time than one cache
//! miss of a binary search. A context is identified by its offset. A parent context has a smaller offset than its
//! children, so contexts cannot form a cycle. Contexts and functions are stored in the order in which ascending
//! addresses need them, so lookups in ascending order read the file sequentially.
//!
//! Names are most of a file and highly redundant: a linkage name resembles the display name, and names of one
//! module resemble each other. Compression reduces names to a sixth. Decompressing a group of 8 takes 2 us, once
//! for all addresses in the group; data read for every address is not compressed. Groups of 16 are a tenth smaller
//! and take 3 us. Without a dictionary that contains zstd's tables, a group takes 5 us, mostly for building tables.
//! An earlier format with deduplicated strings took half the size of the binary in release builds with little debug
//! information.

use std::ops::Range;

use crate::build_id::BuildId;

/// First eight bytes of a file.
pub(crate) const MAGIC: [u8; 8] = *b"tribsyms";
/// Version of the format. Files of other versions are compiled again, not converted.
pub(crate) const VERSION: u32 = 3;
pub(crate) const BLOCK: usize = 32;
/// Number of functions compressed together.
pub(crate) const GROUP: usize = 8;
/// Maximum size of a group before compression, in bytes. A name has at most 64 KiB, and replacing invalid UTF-8
/// triples its size at most.
pub(crate) const MAX_GROUP_BYTES: usize = GROUP * (256 << 10);
/// Maximum depth of inlined calls; frames further out are dropped.
pub(crate) const MAX_INLINE_DEPTH: usize = 256;

/// Sections of a file, in file order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Segments,
    Blocks,
    Ranges,
    Contexts,
    Groups,
    Functions,
    Dictionary,
    Files,
}

impl Section {
    pub(crate) const ALL: [Section; 8] = [
        Section::Segments,
        Section::Blocks,
        Section::Ranges,
        Section::Contexts,
        Section::Groups,
        Section::Functions,
        Section::Dictionary,
        Section::Files,
    ];
}

/// Sizes of the entries of array sections, in bytes.
pub(crate) const SEGMENT: usize = 40;
pub(crate) const BLOCK_ENTRY: usize = 12;
pub(crate) const GROUP_ENTRY: usize = 4;

/// Bits of the first byte of a range; the three highest bits are the [source](crate::NameSource).
pub(crate) mod tag {
    /// An unknown range of addresses, without further fields.
    pub(crate) const GAP: u8 = 0;
    /// Context of the range before.
    pub(crate) const SAME_CONTEXT: u8 = 1;
    /// A context follows, as a difference.
    pub(crate) const OTHER_CONTEXT: u8 = 2;
    pub(crate) const CONTEXT_MASK: u8 = 3;
    /// A file follows. Without the flag, the file of the function applies.
    pub(crate) const FILE: u8 = 1 << 2;
    /// A line follows, as a difference.
    pub(crate) const LINE: u8 = 1 << 3;
    pub(crate) const COLUMN: u8 = 1 << 4;
    /// Position of the source bits.
    pub(crate) const SOURCE_SHIFT: u32 = 5;
}

/// Segment flag: executable.
pub(crate) const EXECUTABLE: u64 = 1;
/// Header flag: the segments have the file offsets of a debug file instead of the binary's.
pub(crate) const OFFSETS_UNKNOWN: u32 = 1;

/// Header flag: most of the named code has lines.
pub(crate) const HAS_LINES: u32 = 2;

/// Size of the header in bytes.
pub(crate) const HEADER: usize = 104 + 24 * Section::ALL.len();
/// Offset of the part of the header that the header's checksum covers.
pub(crate) const SUMMED_FROM: usize = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) build_id: Option<BuildId>,
    pub(crate) flags: u32,
    /// Number of ranges, gaps included.
    pub(crate) ranges: u64,
    /// Range and CRC-32 of each section.
    pub(crate) sections: [(Range<usize>, u32); Section::ALL.len()],
}

impl Layout {
    pub(crate) fn write(&self, length: u64) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER);
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend([0; 4]);
        header.extend(length.to_le_bytes());
        let id = self.build_id.as_ref().map_or(&[][..], BuildId::as_bytes);
        header.extend((id.len() as u32).to_le_bytes());
        header.extend(id);
        header.resize(28 + BuildId::MAX_LENGTH, 0);
        header.extend(self.flags.to_le_bytes());
        header.extend(self.ranges.to_le_bytes());
        for (place, sum) in &self.sections {
            header.extend((place.start as u64).to_le_bytes());
            header.extend((place.len() as u64).to_le_bytes());
            header.extend(sum.to_le_bytes());
            header.extend([0; 4]);
        }
        let sum = crc32fast::hash(&header[SUMMED_FROM..]);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Reads a header whose magic number, version and checksum are valid. Returns `None` if the header contradicts
    /// itself or the `length` of the file.
    pub(crate) fn read(header: &[u8], length: usize) -> Option<Self> {
        if u64_at(header, 16)? != length as u64 {
            return None;
        }
        let build_id = match u32_at(header, 24)? as usize {
            0 => None,
            size => Some(BuildId::from_bytes(header.get(28..)?.get(..size)?).ok()?),
        };
        let mut sections = [const { (0..0, 0) }; Section::ALL.len()];
        for (section, at) in sections.iter_mut().zip((104..).step_by(24)) {
            let start = usize::try_from(u64_at(header, at)?).ok()?;
            let size = usize::try_from(u64_at(header, at + 8)?).ok()?;
            let end = start.checked_add(size).filter(|end| *end <= length)?;
            *section = (start..end, u32_at(header, at + 16)?);
        }
        Some(Layout {
            build_id,
            flags: u32_at(header, 28 + BuildId::MAX_LENGTH)?,
            ranges: u64_at(header, 32 + BuildId::MAX_LENGTH)?,
            sections,
        })
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let array = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*array))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let array = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*array))
}

pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a signed varint in zigzag encoding, so that small negative numbers stay short.
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put(bytes, (value << 1 ^ value >> 63) as u64);
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Varints<'a>(pub(crate) &'a [u8]);

impl<'a> Varints<'a> {
    /// Reads `length` raw bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    #[inline]
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(first.into());
        }
        let mut value = u64::from(first & 0x7f);
        for shift in (7..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[inline]
    pub(crate) fn next_u32(&mut self) -> Option<u32> {
        u32::try_from(self.next()?).ok()
    }

    #[inline]
    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.next()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
