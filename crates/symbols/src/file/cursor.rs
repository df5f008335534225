//! Looks up the range of an address.

use super::format::{BLOCK, BLOCK_ENTRY, Section, Varints, tag, u32_at, u64_at};
use super::frames::{Frames, FunctionPosition};
use super::{NameSource, SymbolFile};

/// Looks up addresses in a symbol file. The cursor keeps its position, so lookups in ascending order are cheapest.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    blocks: &'a [u8],
    ranges: &'a [u8],
    contexts: &'a [u8],
    /// Current block, and its addresses.
    block: usize,
    block_end: u64,
    /// Unread part of the block, from behind the address of the next range.
    rest: Varints<'a>,
    /// Current range, which ends where the next range begins.
    start: u64,
    next: u64,
    range: Option<Range>,
    /// Base values of differences.
    last: Range,
}

#[derive(Debug, Clone, Copy)]
struct Range {
    context: u32,
    file: Option<u32>,
    line: u32,
    column: u32,
    source: NameSource,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(file: &'a SymbolFile) -> Self {
        Cursor {
            blocks: file.section(Section::Blocks),
            ranges: file.section(Section::Ranges),
            contexts: file.section(Section::Contexts),
            block: usize::MAX,
            block_end: 0,
            rest: Varints(&[]),
            start: u64::MAX,
            next: u64::MAX,
            range: None,
            last: NOTHING,
        }
    }

    /// Returns the frames at an address in the binary (see [`SymbolFile::normalise`]), innermost first; empty if the
    /// address is unknown.
    pub fn frames(&mut self, address: u64) -> Frames<'a> {
        if address == u64::MAX {
            return Frames::none();
        }
        if address < self.start || address >= self.block_end {
            self.enter(address);
        }
        while self.next <= address {
            self.step();
        }
        match self.range {
            Some(range) if self.start <= address => Frames::new(
                self.contexts,
                range.source,
                range.context,
                FunctionPosition {
                    file: range.file,
                    line: range.line,
                    column: range.column,
                },
            ),
            _ => Frames::none(),
        }
    }

    /// Moves to the block with the address, before its first range.
    fn enter(&mut self, address: u64) {
        let count = self.blocks.len() / BLOCK_ENTRY;
        let starts_at = |block: usize| u64_at(self.blocks, block.checked_mul(BLOCK_ENTRY)?);
        // With ascending addresses, the block is usually the next block or a few blocks further.
        let following = self.block.wrapping_add(1);
        let (mut low, mut high) = (0, count);
        if following < count && address >= self.block_end {
            let mut step = 1;
            low = following;
            while let Some(start) = starts_at(low.saturating_add(step))
                && start <= address
            {
                low += step;
                step *= 2;
            }
            high = low.saturating_add(step).min(count);
        }
        while low < high {
            let middle = low.midpoint(high);
            match starts_at(middle) {
                Some(start) if start <= address => low = middle + 1,
                _ => high = middle,
            }
        }
        let block = low.checked_sub(1);
        let begin = block.and_then(|block| starts_at(block).zip(self.data(block)));
        self.range = None;
        self.last = NOTHING;
        let Some(((start, data), block)) = begin.zip(block) else {
            // Before the first block; the next lookup starts from the beginning.
            self.block = usize::MAX;
            (self.block_end, self.start, self.next) = (0, u64::MAX, u64::MAX);
            self.rest = Varints(&[]);
            return;
        };
        self.block = block;
        self.block_end = starts_at(low).unwrap_or(u64::MAX);
        self.rest = Varints(data);
        (self.start, self.next) = (start, start);
    }

    /// Returns the bytes of a block.
    fn data(&self, block: usize) -> Option<&'a [u8]> {
        let at = |block: usize| {
            let at = block.checked_mul(BLOCK_ENTRY)?.checked_add(8)?;
            u32_at(self.blocks, at).map(|at| at as usize)
        };
        let start = at(block)?;
        let end = at(block + 1).unwrap_or(self.ranges.len());
        // Bounded by the maximum size of a block, for damaged files.
        self.ranges
            .get(start..end.min(start.saturating_add(MAX_BLOCK_BYTES)))
    }

    /// Reads the next range.
    fn step(&mut self) {
        self.start = self.next;
        // An unreadable range ends the block; the rest of the block is unknown.
        self.next = u64::MAX;
        self.range = None;
        let mut rest = self.rest;
        if let Some(range) = read(&mut rest, &mut self.last) {
            self.range = range;
            if let Some(length) = rest.next() {
                self.next = self.start.saturating_add(length);
            }
        }
        self.rest = rest;
    }
}

/// Maximum size of a block in bytes: a range is a tag and at most five numbers.
const MAX_BLOCK_BYTES: usize = BLOCK * 51;

const NOTHING: Range = Range {
    context: 0,
    file: None,
    line: 0,
    column: 0,
    source: NameSource::Dwarf,
};

/// Decodes a range up to the address of the next range; `Some(None)` for a gap.
#[inline]
fn read(rest: &mut Varints<'_>, last: &mut Range) -> Option<Option<Range>> {
    let tag = rest.byte()?;
    match tag & tag::CONTEXT_MASK {
        tag::GAP => return Some(None),
        tag::SAME_CONTEXT => {}
        tag::OTHER_CONTEXT => {
            let context = i64::from(last.context).checked_add(rest.signed()?)?;
            last.context = u32::try_from(context).ok()?;
        }
        _ => return None,
    }
    last.file = match tag & tag::FILE {
        0 => None,
        _ => Some(rest.next_u32()?),
    };
    if tag & tag::LINE != 0 {
        let line = i64::from(last.line).checked_add(rest.signed()?)?;
        last.line = u32::try_from(line).ok()?;
    }
    if tag & tag::COLUMN != 0 {
        last.column = rest.next_u32()?;
    }
    last.source = *NameSource::ALL.get(usize::from(tag >> tag::SOURCE_SHIFT))?;
    Some(Some(*last))
}
