//! Reads `.gopclntab`, the table by which Go's runtime resolves functions, files and lines. Every Go binary contains
//! the table, stripped or not. Go's profiles use the names of this table, so the table takes precedence over Go's debug
//! information.
//!
//! The layouts follow `runtime/symtab.go` and `cmd/link/internal/ld/pcln.go` from Go 1.16 on.

mod module;
mod table;
mod values;

use self::table::{FunctionEntry, Tables, Version};
use self::values::{Table, Values};
use super::CompileError;
use super::model::{
    Context, ContextId, Function, FunctionId, Model, NO_CONTEXT, Range, SourcePosition,
};
use crate::elf::Elf;
use crate::file::NameSource;
use crate::file::format::u32_at;

/// Reads the functions of a Go binary into sorted, disjoint ranges. Empty for other binaries and older versions of
/// Go.
///
/// The table defines the ranges of code, since some debug files of Go binaries have neither sections nor segments with
/// code.
pub(super) fn read(elf: &Elf<'_>, model: &mut Model) -> Result<Vec<Range>, CompileError> {
    let Some(table) = module::find_table(elf) else {
        return Ok(Vec::new());
    };
    let Some(tables) = Tables::parse(table.data) else {
        return Ok(Vec::new());
    };
    let module = module::Module::find(elf, table.address, table.end, tables.version);
    let text = match (tables.version, tables.text_start) {
        (Version::Go116, _) => 0,
        // From Go 1.26 on only the module record has the start of the code; the section is the fallback.
        (_, 0) => module
            .text
            .or_else(|| module::text_section(elf))
            .unwrap_or_default(),
        (_, text) => text,
    };
    let mut reading = Reading {
        elf,
        tables,
        function_data: module.function_data,
        model,
        ranges: Vec::new(),
        files: Table::default(),
        lines: Table::default(),
        inlined: Table::default(),
        known: Vec::new(),
    };
    for number in 0..reading.tables.count() {
        if let Some(function) = reading.tables.function(number)
            && let Some(start) = text.checked_add(function.start)
            && let Some(end) = text.checked_add(function.end)
        {
            reading.function(&function, start, end)?;
        }
    }
    let mut ranges = reading.ranges;
    super::model::remove_overlaps(&mut ranges);
    Ok(ranges)
}

struct Reading<'a, 'm> {
    elf: &'m Elf<'a>,
    tables: Tables<'a>,
    function_data: Option<u64>,
    model: &'m mut Model,
    ranges: Vec<Range>,
    files: Table,
    lines: Table,
    inlined: Table,
    /// Contexts of the current function, by their index in the inlining tree.
    known: Vec<(i32, ContextId)>,
}

/// An inlined call in the inlining tree of a function.
struct Inlined {
    name: u32,
    start_line: u32,
    /// Offset from the function's start of an address with the line of the call.
    call: u32,
}

impl<'a> Reading<'a, '_> {
    fn function(
        &mut self,
        entry: &FunctionEntry<'a>,
        start: u64,
        end: u64,
    ) -> Result<(), CompileError> {
        let quantum = self.tables.quantum;
        let values = |offset: Option<u32>| {
            let table = self.tables.values(offset.unwrap_or_default());
            Values::new(table, start, quantum)
        };
        // Many functions may share the same long table.
        for (table, offset) in [
            (&mut self.files, entry.file_values()),
            (&mut self.lines, entry.line_values()),
            (&mut self.inlined, entry.inline_values()),
        ] {
            let steps = table.read(values(offset), end);
            self.model.spend(steps)?;
        }
        self.known.clear();
        let unit = entry.unit().unwrap_or_default();
        let tree = entry.inline_tree().and_then(|tree| self.tree(tree));
        let file = self.place(unit, start).file;
        let Some(function) = self.named(entry.name(), file, entry.start_line()) else {
            return Ok(());
        };
        self.model.spend(1)?;
        let outer = self.model.context(Context {
            function,
            parent: NO_CONTEXT,
            call: SourcePosition::default(),
        });
        let mut ends: Vec<u64> = self
            .files
            .ends()
            .chain(self.lines.ends())
            .chain(self.inlined.ends())
            .collect();
        ends.push(end);
        ends.sort_unstable();
        ends.dedup();
        self.model.spend(ends.len() as u64)?;
        let mut at = start;
        for end in ends.into_iter().map(|next| next.min(end)) {
            if end <= at {
                continue;
            }
            let context = match self.inlined.at(at) {
                index @ 0.. => self.inlined_at(tree, index, outer, unit, start, 0)?,
                _ => outer,
            };
            let place = self.place(unit, at);
            self.ranges.push(Range {
                start: at,
                end,
                context,
                place,
                source: NameSource::GoPclntab,
            });
            at = end;
        }
        Ok(())
    }

    /// Returns the bytes from the start of a function's inlining tree.
    fn tree(&self, tree: u64) -> Option<&'a [u8]> {
        let address = match self.tables.version {
            Version::Go116 => tree,
            _ => self.function_data?.checked_add(tree)?,
        };
        self.elf.at(address)
    }

    /// Returns the context of an entry of the tree, or `outer` if there is no entry.
    fn inlined_at(
        &mut self,
        tree: Option<&[u8]>,
        index: i32,
        outer: ContextId,
        unit: u32,
        start: u64,
        depth: usize,
    ) -> Result<ContextId, CompileError> {
        /// Maximum depth of inlining: beyond the depth that the compiler reaches.
        const MAX_INLINE_DEPTH: usize = 64;
        if let Some((_, context)) = self.known.iter().find(|(known, _)| *known == index) {
            return Ok(*context);
        }
        let entry = tree
            .filter(|_| depth < MAX_INLINE_DEPTH)
            .and_then(|tree| inlined(tree, usize::try_from(index).ok()?, self.tables.version));
        let Some(entry) = entry else {
            return Ok(outer);
        };
        let call = start.saturating_add(entry.call.into());
        let parent = match self.inlined.at(call) {
            // A cycle in a damaged file.
            parent if parent == index => outer,
            parent @ 0.. => self.inlined_at(tree, parent, outer, unit, start, depth + 1)?,
            _ => outer,
        };
        let file = self.file_of(index, unit, start);
        let Some(function) = self.named(Some(entry.name), file, entry.start_line) else {
            return Ok(outer);
        };
        self.model.spend(1)?;
        let call = self.place(unit, call);
        let context = self.model.context(Context {
            function,
            parent,
            call,
        });
        self.known.push((index, context));
        Ok(context)
    }

    /// Returns the file of an inlined function: the file of its first code that is not inlined.
    fn file_of(&mut self, index: i32, unit: u32, start: u64) -> u32 {
        match self.inlined.first(index, start) {
            Some(address) => self.place(unit, address).file,
            None => 0,
        }
    }

    fn named(&mut self, name: Option<u32>, file: u32, start_line: u32) -> Option<FunctionId> {
        let name = self.model.strings.add(self.tables.name(name?)?);
        Some(self.model.function(Function {
            name,
            linkage_name: 0,
            file,
            start_line,
        }))
    }

    fn place(&mut self, unit: u32, address: u64) -> SourcePosition {
        let file = self.tables.file(unit, self.files.at(address));
        SourcePosition {
            file: file.map_or(0, |file| self.model.strings.add(file)),
            line: u32::try_from(self.lines.at(address)).unwrap_or_default(),
            column: 0,
        }
    }
}

/// Parses an entry of the tree: `inlinedCall` of `runtime/symtabinl.go`, and before Go 1.20 of `runtime/symtab.go`.
fn inlined(tree: &[u8], index: usize, version: Version) -> Option<Inlined> {
    let entry = |size: usize| tree.get(index.checked_mul(size)?..)?.get(..size);
    match version {
        Version::Go120 => {
            let entry = entry(16)?;
            Some(Inlined {
                name: u32_at(entry, 4)?,
                call: u32_at(entry, 8)?,
                start_line: u32_at(entry, 12)?,
            })
        }
        _ => {
            let entry = entry(20)?;
            Some(Inlined {
                name: u32_at(entry, 12)?,
                call: u32_at(entry, 16)?,
                start_line: 0,
            })
        }
    }
}
