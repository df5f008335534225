//! The layout of a compiled symbol file, version 3. All numbers are little-endian.
//!
//! ```text
//! header      the magic number, version, checksums, build id, where the sections are
//! segments    the program headers of the binary: file offset, address, sizes, flags
//! blocks      for each 32 ranges: the first address, and where they are in `ranges`
//! ranges      from an address on: context, file, line, column, source; or nothing is known
//! contexts    a function, and where it was inlined to: parent context, file, line, column
//! groups      for each 8 functions: where they are in `functions`
//! functions   file, first line, system name, name; compressed (zstd), 8 at a time
//! dictionary  what they are compressed with: what they have in common
//! files       paths, each once: its length, its bytes
//! ```
//!
//! A range ends where the next begins. Ranges and contexts are varints (LEB128), most of them differences: that makes the file
//! a quarter of what arrays would be, and 32 ranges are read in less time than a cache miss of a binary search takes. A context
//! is named by its offset, and its parent has a smaller one, so no file has a circle. Contexts and functions are in the order in
//! which addresses need them first: who looks addresses up in order reads the file in order.
//!
//! Names are most of a file, and repeat themselves: the linker's name is nearly the other one, and so are those of the same
//! module. Compressed they take a sixth. A group of 8 is decompressed in 2 us, once for all addresses in it; what is read for
//! every address is not compressed. Groups of 16 are a tenth smaller and take 3 us; and without a dictionary that has zstd's
//! tables in it they take 5, most of it for tables. Arrays of strings, each once, made a file of half the size of its binary
//! where there is little debug information, as in release builds.

use std::ops::Range;

use crate::build_id::BuildId;

/// Of the first eight bytes.
pub(crate) const MAGIC: [u8; 8] = *b"tribsyms";
/// Files of other versions are made again, not converted.
pub(crate) const VERSION: u32 = 3;
/// So many ranges are a block.
pub(crate) const BLOCK: usize = 32;
/// So many functions are compressed together.
pub(crate) const GROUP: usize = 8;
/// The most bytes of a group before it is compressed. A name has at most 64 KiB; what is no text becomes three times as long.
pub(crate) const LARGEST_GROUP: usize = GROUP * (256 << 10);
/// No chain of inlined functions is longer: what is further out is left away.
pub(crate) const DEEPEST: usize = 256;

/// The sections, in their order.
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

/// Sizes of the entries of sections that are arrays, in bytes.
pub(crate) const SEGMENT: usize = 40;
pub(crate) const BLOCK_ENTRY: usize = 12;
pub(crate) const GROUP_ENTRY: usize = 4;

/// What the first byte of a range says; the three highest bits are the [source](crate::Source).
pub(crate) mod tag {
    /// Nothing is known here: nothing follows.
    pub(crate) const GAP: u8 = 0;
    /// The context of the range before.
    pub(crate) const SAME_CONTEXT: u8 = 1;
    /// The context follows, as a difference.
    pub(crate) const OTHER_CONTEXT: u8 = 2;
    /// The two bits of the above.
    pub(crate) const CONTEXT: u8 = 3;
    /// The file follows; without it, it is that of the function.
    pub(crate) const FILE: u8 = 1 << 2;
    /// The line follows, as a difference.
    pub(crate) const LINE: u8 = 1 << 3;
    /// The column follows.
    pub(crate) const COLUMN: u8 = 1 << 4;
    /// Where the source begins.
    pub(crate) const SOURCE_SHIFT: u32 = 5;
}

/// Segments that are executable have this flag.
pub(crate) const EXECUTABLE: u64 = 1;
/// The file offsets of the segments are those of a debug file, not of the binary: flag of the header.
pub(crate) const OFFSETS_UNKNOWN: u32 = 1;

/// Most of the code that has names has lines: flag of the header.
pub(crate) const HAS_LINES: u32 = 2;

/// Bytes of the header.
pub(crate) const HEADER: usize = 104 + 24 * Section::ALL.len();
/// Where the part of the header begins that its checksum is of.
pub(crate) const SUMMED_FROM: usize = 16;

/// What the header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) build_id: Option<BuildId>,
    pub(crate) flags: u32,
    /// How many ranges there are, gaps included.
    pub(crate) ranges: u64,
    /// Place and CRC-32 of each section.
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
        header.resize(28 + BuildId::LONGEST, 0);
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

    /// Reads a header whose magic number, version and checksum are right. `None` if it contradicts itself or the `length` of
    /// the file.
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
            flags: u32_at(header, 28 + BuildId::LONGEST)?,
            ranges: u64_at(header, 32 + BuildId::LONGEST)?,
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

/// Appends a varint.
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a signed varint, small numbers of either sign as small ones.
pub(crate) fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put(bytes, (value << 1 ^ value >> 63) as u64);
}

/// Reads varints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Varints<'a>(pub(crate) &'a [u8]);

impl<'a> Varints<'a> {
    /// So many bytes, as they are.
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
