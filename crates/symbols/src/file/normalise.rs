//! From an address in a process to one in its binary.

use super::SymbolFile;
use super::format::{EXECUTABLE, OFFSETS_UNKNOWN, SEGMENT, Section, u64_at};
use crate::elf::Segment;

/// Where a part of a binary is in the memory of a process, as a profile says it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MappingRange {
    /// The first address.
    pub memory_start: u64,
    /// The address behind the last one; 0 if it is not known.
    pub memory_limit: u64,
    /// The place in the file that is at the first address.
    pub file_offset: u64,
}

/// Mappings are of whole pages, and arm64 has some of 64 KiB.
const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

impl SymbolFile {
    /// The address in the binary that a program had at `address`: the one that [`Cursor::frames`](super::Cursor::frames) takes.
    ///
    /// Two conventions are in use. Most profilers write what the program counter was; the eBPF profiler writes addresses of
    /// the binary, and mappings to match. Both come out right by the same rule, for the mapping says how far apart they are.
    /// A mapping that says nothing (all zero, or all addresses), and an address outside of its mapping, mean an address of
    /// the binary; so does a mapping of what the binary's headers do not have, for there are debug files with few of them.
    /// `None` for an address that cannot be one.
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
        // By the address itself, in case several segments share a page of the file; else by what the loader maps in whole pages.
        // Of those with code alone: in debug files with few headers another one may be where the code is in the binary.
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

    /// What the loader maps of the binary.
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

/// Whether the loader has this place in the file mapped with the segment, because it maps whole pages.
fn in_pages(segment: &Segment, offset: u64) -> bool {
    let page = PAGES[0];
    let start = segment.offset & !(page - 1);
    let end = segment.offset.saturating_add(segment.file_size);
    (start..end.checked_next_multiple_of(page).unwrap_or(u64::MAX)).contains(&offset)
}

/// Debug files have addresses and sizes of the segments, but not where they are in the binary. Mostly there is one with code,
/// and it is as large as the mapping.
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
