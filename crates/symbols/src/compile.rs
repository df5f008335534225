//! Compiles ELF files into a symbol file.

mod demangle;
mod dwarf;
mod go;
mod linkage_table;
mod model;
mod names;
mod parts;
mod spans;
mod strings;
mod symbol_table;
mod write;

use std::cell::Cell;
use std::io::{self, Seek, Write};
use std::ops;
use std::path::{Path, PathBuf};

use object::read::elf::SectionHeader as _;

use self::dwarf::Sections;
pub use self::dwarf::SplitUnit;
pub(super) use self::dwarf::split_units;
use self::model::{Model, NO_CONTEXT, Range};
use self::parts::Parts;
use self::write::FileMetadata;
use super::build_id::BuildId;
use super::decompress;
use super::elf::{ENDIAN, Elf};
use super::file::NameSource;
use super::map::Map;
use crate::elf_error::ElfError;
use tributary_net::files::open_regular;

/// Input files of a compilation.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The binary, or its separate debug file if there is no binary.
    pub binary: &'a Path,
    /// Companion files in any order: the separate debug file, `.dwo` files or a `.dwp` package, the supplementary
    /// file of dwz. The kind of each file is detected.
    pub supplementary: &'a [PathBuf],
}

/// Limits of a compilation. Each limit is checked before the memory is allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompileLimits {
    /// Size of all input files together, in bytes. The files are mapped, so the system can reclaim pages.
    pub input_bytes: u64,
    /// Total size of all decompressed sections, in bytes. Decompressed sections stay in memory.
    pub decompressed_bytes: u64,
    /// Size of the compiled file before its names are compressed, in bytes. The content stays in memory until the file
    /// is written.
    pub output_bytes: u64,
    /// Total number of functions, inlined calls, address ranges and line rows. One entry takes up to 48 bytes of
    /// memory.
    pub entries: u64,
}

impl Default for CompileLimits {
    /// 2 GiB of files, 4 GiB decompressed, 512 MiB compiled, 64 million entries: enough for a browser.
    fn default() -> Self {
        CompileLimits {
            input_bytes: 2 << 30,
            decompressed_bytes: 4 << 30,
            output_bytes: 512 << 20,
            entries: 64 << 20,
        }
    }
}

/// The reason why a compilation failed.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// A file is not ELF.
    #[error("{0} is not an ELF file")]
    NotElf(PathBuf),
    /// A file is for an unsupported machine.
    #[error("{0} is an ELF file for an unsupported machine; x86-64 and arm64 are supported")]
    Unsupported(PathBuf),
    /// A file belongs to another binary.
    #[error("{0} belongs to another binary: the build ids differ")]
    Mismatch(PathBuf),
    /// The file has no names for code.
    #[error("the file has no debug information, no symbols and no Go function table")]
    NoSymbols,
    /// A limit is exceeded.
    #[error("the file exceeds the limit of {0}")]
    Limit(&'static str),
    /// The file contradicts itself.
    #[error("{0} is damaged")]
    Malformed(PathBuf),
    /// An I/O error of the system.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Statistics of a compilation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompileSummary {
    /// Build id of the binary.
    pub build_id: Option<BuildId>,
    /// Size of the compiled file in bytes.
    pub bytes: u64,
    /// Number of address ranges with different frames.
    pub ranges: u64,
    /// Bytes of code named by each source, in the order of [`NameSource::ALL`].
    pub covered: [u64; NameSource::ALL.len()],
    /// Bytes of code in the binary.
    pub code: u64,
    /// Number of DWARF units read.
    pub units: u64,
    /// Number of damaged DWARF units; their readable parts are used.
    pub damaged_units: u64,
    /// Number of DWARF units whose split part (`.dwo`) is not among the inputs.
    pub missing_units: u64,
}

impl CompileSummary {
    /// Whether most of the named code has lines too.
    fn has_lines(&self) -> bool {
        let with_lines =
            |source: &NameSource| matches!(source, NameSource::Dwarf | NameSource::GoPclntab);
        let (with, without): (Vec<_>, Vec<_>) = NameSource::ALL.into_iter().partition(with_lines);
        let bytes = |sources: Vec<NameSource>| -> u64 {
            let covered = sources.iter().map(|source| self.covered[*source as usize]);
            covered.fold(0, u64::saturating_add)
        };
        bytes(with) > bytes(without)
    }
}

/// Compiles a binary into a symbol file, which is written to `output` from its current position.
///
/// # Errors
/// Fails if the inputs are not supported binaries, contain no names, or exceed a limit. The bytes written by a
/// failed compilation are not a symbol file.
pub fn compile(
    inputs: &Inputs<'_>,
    limits: &CompileLimits,
    output: &mut (impl Write + Seek),
) -> Result<CompileSummary, CompileError> {
    let paths = [inputs.binary].into_iter();
    let paths = paths.chain(inputs.supplementary.iter().map(PathBuf::as_path));
    let mut maps = Vec::new();
    let mut left = limits.input_bytes;
    for path in paths {
        let file = open_regular(path)?;
        let size = file.metadata()?.len();
        left = left.checked_sub(size).ok_or(CompileError::Limit("input"))?;
        maps.push((path, Map::of(&file)?));
    }
    let files: Vec<_> = maps.iter().map(|(path, map)| (*path, &map[..])).collect();
    compile_bytes(&files, limits, output)
}

/// Compiles files in memory: the binary and its companion files.
pub(super) fn compile_bytes(
    files: &[(&Path, &[u8])],
    limits: &CompileLimits,
    output: &mut (impl Write + Seek),
) -> Result<CompileSummary, CompileError> {
    let budget = Cell::new(limits.decompressed_bytes);
    let parts = Parts::parse(files, &budget)?;
    let mut model = Model::new(limits);
    let mut summary = CompileSummary {
        build_id: parts.build_id(),
        ..CompileSummary::default()
    };
    let code = parts.code();
    let symbols = symbols(&parts, &code, &mut model)?;
    let go = go::read(&parts.binary, &mut model)?;
    let mut debug = debug_information(&parts, &code, !go.is_empty(), &mut model, &mut summary)?;
    model::remove_overlaps(&mut debug);
    name_functions(&symbols, &mut model);
    // Assembler code has lines but no functions; its labels are symbols.
    let debug = name_lines(debug, &symbols, &model);
    let ranges = model::fill_gaps(model::fill_gaps(go, &debug), &symbols);
    drop((debug, symbols));
    if ranges.is_empty() {
        return Err(CompileError::NoSymbols);
    }
    for range in &ranges {
        summary.covered[range.source as usize] += range.end - range.start;
    }
    // Some debug files do not mark the sections with code.
    let code = code
        .iter()
        .map(|range| range.end - range.start)
        .fold(0, u64::saturating_add);
    summary.code = code.max(summary.covered.into_iter().fold(0, u64::saturating_add));
    model.infer_files(&ranges);
    let about = FileMetadata {
        build_id: summary.build_id.clone(),
        segments: parts.binary.segments(),
        offsets_known: !parts.binary.is_debug_file(),
        has_lines: summary.has_lines(),
    };
    (summary.ranges, summary.bytes) = write::write(&model, &ranges, about, limits, output)?;
    Ok(summary)
}

/// Returns the ranges of the symbol tables, best source first.
fn symbols(
    parts: &Parts<'_>,
    code: &[ops::Range<u64>],
    model: &mut Model,
) -> Result<Vec<Range>, CompileError> {
    let mut symbols = Vec::new();
    for source in [NameSource::SymbolTable, NameSource::DynamicSymbols] {
        for elf in parts.debug.iter().chain([&parts.binary]) {
            let table = symbol_table::read(elf, source, code, model)?;
            symbols = model::fill_gaps(symbols, &table);
        }
    }
    symbols = model::fill_gaps(symbols, &linkage_table::read(&parts.binary, model)?);
    let Some(section) = parts.binary.section(".gnu_debugdata") else {
        return Ok(symbols);
    };
    let budget = parts.binary.budget();
    // An unreadable section provides no names. Oversized sections still fail, since another source may match.
    let data = section.data(ENDIAN, parts.binary.data);
    let data = data.map_err(|_| ElfError::Malformed);
    let nested = match data.and_then(|data| decompress::xz(data, budget)) {
        Ok(nested) => nested,
        Err(ElfError::TooLarge) => return Err(CompileError::Limit("decompressed bytes")),
        Err(_) => return Ok(symbols),
    };
    if let Ok(nested) = Elf::parse(&nested, budget) {
        let mut table = symbol_table::read(&nested, NameSource::SymbolTable, code, model)?;
        for range in &mut table {
            range.source = NameSource::MiniDebugInfo;
        }
        symbols = model::fill_gaps(symbols, &table);
    }
    Ok(symbols)
}

/// Returns the ranges of the debug information; units of Go are skipped if `without_go`.
fn debug_information(
    parts: &Parts<'_>,
    code: &[ops::Range<u64>],
    without_go: bool,
    model: &mut Model,
    summary: &mut CompileSummary,
) -> Result<Vec<Range>, CompileError> {
    let Some((path, elf)) = parts.with_debug_information() else {
        return Ok(Vec::new());
    };
    let sections = Sections::load(elf).map_err(|error| CompileError::new(error, path))?;
    let is_wanted = |language| !without_go || language != Some(gimli::DW_LANG_Go);
    let read = dwarf::read(&sections, &parts.others, code, is_wanted, model)?;
    summary.units = read.units;
    summary.damaged_units = read.damaged;
    summary.missing_units = read.missing;
    Ok(read.ranges)
}

/// Adds linkage names to functions whose debug information lacks them. C++ compilers omit the linkage name of a
/// function with internal linkage, and the remaining name has no namespace. The name comes from the symbol at the
/// function's entry. Another part of the function, which the linker may have placed before the entry, has a separate
/// symbol.
fn name_functions(symbols: &[Range], model: &mut Model) {
    for (address, context) in std::mem::take(&mut model.entries) {
        let symbol = symbols.binary_search_by_key(&address, |symbol| symbol.start);
        if let Some(symbol) = symbol.ok().and_then(|found| symbols.get(found)) {
            model.name_after_symbol(context, symbol.context);
        }
    }
}

/// Names lines without a function or with an unnamed function. Lines without a name afterwards are dropped.
fn name_lines(ranges: Vec<Range>, symbols: &[Range], model: &Model) -> Vec<Range> {
    let mut named = Vec::with_capacity(ranges.len());
    let mut symbols = symbols.iter().peekable();
    for range in ranges {
        if range.context != NO_CONTEXT && model.is_named(range.context) {
            named.push(range);
            continue;
        }
        while symbols
            .next_if(|symbol| symbol.end <= range.start)
            .is_some()
        {}
        let mut here = symbols.clone();
        while let Some(symbol) = here.next_if(|symbol| symbol.start < range.end) {
            named.push(Range {
                start: symbol.start.max(range.start),
                end: symbol.end.min(range.end),
                context: symbol.context,
                source: symbol.source,
                ..range
            });
        }
    }
    named
}

impl CompileError {
    /// Formats the error as a sentence about the binary at `path`. Some kinds of errors name the affected file
    /// themselves.
    pub fn about(&self, path: &Path) -> String {
        match self {
            CompileError::NotElf(_)
            | CompileError::Unsupported(_)
            | CompileError::Mismatch(_)
            | CompileError::Malformed(_) => self.to_string(),
            _ => format!("{}: {self}", path.display()),
        }
    }

    pub(super) fn new(error: ElfError, path: &Path) -> Self {
        let path = path.to_owned();
        match error {
            ElfError::NotElf => CompileError::NotElf(path),
            ElfError::Unsupported => CompileError::Unsupported(path),
            ElfError::Malformed => CompileError::Malformed(path),
            ElfError::TooLarge => CompileError::Limit("decompressed bytes"),
        }
    }
}
