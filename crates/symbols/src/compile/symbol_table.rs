//! Reads symbol tables: function names, mostly with sizes.

use std::cmp::Reverse;
use std::ops;

use object::elf::{
    SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STB_GLOBAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE,
};
use object::read::elf::{SectionHeader as _, Sym as _};

use super::CompileError;
use super::model::{Model, Range, SourcePosition};
use super::spans::{self, Span};
use crate::elf::{ENDIAN, Elf};
use crate::file::NameSource;

struct Symbol<'data> {
    start: u64,
    size: u64,
    name: &'data [u8],
    is_function: bool,
    /// 2 for a global symbol, 1 for a weak symbol, 0 for a local symbol.
    binding: u8,
}

impl Symbol<'_> {
    /// Sort key of symbols at one address; the best symbol comes first. The rules are those of Linux's perf
    /// (`choose_best_symbol`), in order: a function before a label, a symbol with a size, a global symbol, fewer
    /// underscores, a longer name.
    fn rank(&self) -> impl Ord {
        let underscores = self.name.iter().take_while(|byte| **byte == b'_');
        (
            !self.is_function,
            self.size == 0,
            Reverse(self.binding),
            underscores.count(),
            Reverse(self.size),
            Reverse(self.name.len()),
        )
    }
}

/// Reads `.symtab` or `.dynsym` into sorted, disjoint ranges.
pub(super) fn read(
    elf: &Elf<'_>,
    source: NameSource,
    code: &[ops::Range<u64>],
    model: &mut Model,
) -> Result<Vec<Range>, CompileError> {
    let mut symbols = symbols(elf, source, code, model)?;
    symbols.sort_by(|one, other| (one.start, one.rank()).cmp(&(other.start, other.rank())));
    symbols.dedup_by_key(|symbol| symbol.start);
    let mut spans = Vec::with_capacity(symbols.len());
    for (symbol, next) in symbols
        .iter()
        .zip(symbols.iter().skip(1).map(Some).chain([None]))
    {
        let Some(code) = range_containing(code, symbol.start) else {
            continue;
        };
        let end = match symbol.size {
            // Hand-written assembler code has no sizes: the symbol extends to the next symbol.
            0 => next.map_or(code.end, |next| next.start),
            size => symbol.start.saturating_add(size),
        };
        let context = model.symbol(symbol.name);
        let (start, end) = (symbol.start, end.min(code.end));
        spans.push(Span {
            start,
            end,
            depth: 0,
            context,
        });
    }
    let mut ranges = Vec::with_capacity(spans.len());
    spans::for_each_range(&mut spans, &[], &mut |piece| {
        ranges.push(Range {
            start: piece.start,
            end: piece.end,
            context: piece.context,
            place: SourcePosition::default(),
            source,
        });
    });
    Ok(ranges)
}

fn symbols<'data>(
    elf: &Elf<'data>,
    source: NameSource,
    code: &[ops::Range<u64>],
    model: &mut Model,
) -> Result<Vec<Symbol<'data>>, CompileError> {
    let kind = match source {
        NameSource::DynamicSymbols => SHT_DYNSYM,
        _ => SHT_SYMTAB,
    };
    // An unreadable table counts as missing.
    let table = elf
        .sections
        .iter()
        .find(|section| section.sh_type(ENDIAN) == kind);
    let table = table.and(elf.sections.symbols(ENDIAN, elf.data, kind).ok());
    let Some(table) = table else {
        return Ok(Vec::new());
    };
    model.spend(table.len() as u64)?;
    let mut symbols = Vec::new();
    for symbol in table.iter() {
        let kind = symbol.st_type();
        let is_function = [STT_FUNC, STT_GNU_IFUNC].contains(&kind);
        if symbol.st_shndx(ENDIAN) == SHN_UNDEF || !(is_function || kind == STT_NOTYPE) {
            continue;
        }
        let start = symbol.st_value(ENDIAN);
        let Ok(name) = symbol.name(ENDIAN, table.strings()) else {
            continue;
        };
        // `$x` and `$d` mark code and data on arm64.
        let is_label = name.is_empty() || name.starts_with(b"$") || name.starts_with(b".L");
        if (is_label && !is_function) || name.is_empty() || range_containing(code, start).is_none()
        {
            continue;
        }
        symbols.push(Symbol {
            start,
            size: symbol.st_size(ENDIAN),
            name,
            is_function,
            binding: match symbol.st_bind() {
                STB_GLOBAL => 2,
                STB_WEAK => 1,
                _ => 0,
            },
        });
    }
    Ok(symbols)
}

pub(super) fn range_containing(code: &[ops::Range<u64>], address: u64) -> Option<&ops::Range<u64>> {
    let behind = code.partition_point(|range| range.start <= address);
    let range = code.get(behind.checked_sub(1)?)?;
    range.contains(&address).then_some(range)
}
