//! Converts an address in a process to an address in the binary.

use super::SymbolFile;
use super::format::{EXECUTABLE, OFFSETS_UNKNOWN, SEGMENT, Section, u64_at};
use crate::elf::Segment;

/// A mapping of a binary into a process, from a profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingRange {
    /// First address.
    pub memory_start: u64,
    /// Address behind the last one; 0 if unknown.
    pub memory_limit: u64,
    /// File offset of the first address.
    pub file_offset: u64,
}

/// Page sizes; arm64 supports 4, 16 and 64 KiB.
const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

impl SymbolFile {
    /// Converts the address of a program counter to an address in the binary, for
    /// [`Cursor::frames`](super::Cursor::frames).
    ///
    /// Two conventions are in use. Most profilers write the program counter; the eBPF profiler writes addresses in
    /// the binary, with matching mappings. One rule covers both, because the mapping gives the distance. An address
    /// already counts as an address in the binary in three cases: the mapping is empty (all zero, or all
    /// addresses), the address is outside of the mapping, or the headers do not contain the mapping, as in debug
    /// files with few headers. `None` for an impossible address.
    pub fn normalise(&self, address: u64, mapping: &MappingRange) -> Option<u64> {
        let segments = self.segments();
        let limit = match mapping.memory_limit {
            0 => u64::MAX,
            limit => limit,
        };
        let fake = mapping.memory_start == 0 && mapping.file_offset == 0 && limit == u64::MAX;
        if fake || address < mapping.memory_start || address >= limit {
            return Some(address);
        }
        let distance = address - mapping.memory_start;
        if self.layout.flags & OFFSETS_UNKNOWN != 0 {
            return by_size(&segments, distance, limit - mapping.memory_start).or(Some(address));
        }
        let offset = mapping.file_offset.checked_add(distance)?;
        // Segments that contain the offset come first, in case several segments share a page of the file; then segments
        // that contain the offset after rounding to pages. Only segments with code are considered, because in debug
        // files with few headers another segment may cover the offset of the code.
        let holds = |segment: &&Segment| offset.wrapping_sub(segment.offset) < segment.file_size;
        let code = || segments.iter().filter(|segment| segment.executable);
        let segment = code().find(holds);
        let segment = segment.or_else(|| code().find(|segment| in_pages(segment, offset)));
        let Some(segment) = segment else {
            return Some(address);
        };
        let distance = offset.wrapping_sub(segment.offset);
        Some(segment.address.wrapping_add(distance))
    }

    fn segments(&self) -> Vec<Segment> {
        let entries = self.section(Section::Segments).chunks_exact(SEGMENT);
        entries
            .filter_map(|entry| {
                Some(Segment {
                    offset: u64_at(entry, 0)?,
                    address: u64_at(entry, 8)?,
                    file_size: u64_at(entry, 16)?,
                    memory_size: u64_at(entry, 24)?,
                    executable: u64_at(entry, 32)? & EXECUTABLE != 0,
                })
            })
            .collect()
    }
}

/// Whether the loader maps this file offset with the segment, because it maps whole pages.
fn in_pages(segment: &Segment, offset: u64) -> bool {
    let page = PAGES[0];
    let start = segment.offset & !(page - 1);
    let end = segment.offset.saturating_add(segment.file_size);
    (start..end.checked_next_multiple_of(page).unwrap_or(u64::MAX)).contains(&offset)
}

/// Finds the address by segment size. Debug files have the addresses and sizes of segments, but not their file offsets
/// in the binary. Usually a single segment has code, and its size equals the size of the mapping.
fn by_size(segments: &[Segment], distance: u64, size: u64) -> Option<u64> {
    let mut matching = segments.iter().filter_map(|segment| {
        let fits = |page: &u64| {
            let start = segment.address & !(page - 1);
            let end = segment.address.saturating_add(segment.memory_size);
            let end = end.checked_next_multiple_of(*page);
            end.is_some() && end == start.checked_add(size)
        };
        let page = PAGES.into_iter().find(fits)?;
        segment.executable.then_some(segment.address & !(page - 1))
    });
    let start = matching.next()?;
    matching
        .next()
        .is_none()
        .then(|| start.wrapping_add(distance))
}
