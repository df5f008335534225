//! Inspects the debug information and symbols of a binary, without compiling them.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use object::read::elf::SectionHeader as _;

use super::build_id::BuildId;
use super::compile::{CompileError, SplitUnit, split_units};
use super::elf::{ENDIAN, Elf};
use super::map::Map;
use tributary_net::files::open_regular;

/// Debug information and symbols that a binary offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Machine of the binary: `x86-64` or `arm64`.
    pub machine: &'static str,
    /// Whether the file is a separate debug file.
    pub is_debug_file: bool,
    /// GNU build id.
    pub build_id: Option<BuildId>,
    /// Go build id.
    pub go_build_id: Option<String>,
    /// Sections with names, and their sizes in the file in bytes.
    pub sections: Vec<(&'static str, u64)>,
    /// Name of the separate debug file (`.gnu_debuglink`).
    pub debug_link: Option<PathBuf>,
    /// Path of the supplementary file of dwz (`.gnu_debugaltlink`), which the debug information needs.
    pub alternative_link: Option<PathBuf>,
    /// The `.dwo` files of split debug information, except those in sections that need decompression.
    pub units: Vec<SplitUnit>,
}

const SECTIONS: [&str; 12] = [
    ".debug_info",
    ".zdebug_info",
    ".debug_info.dwo",
    ".debug_cu_index",
    ".debug_line",
    ".zdebug_line",
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".symtab",
    ".dynsym",
    ".gnu_debugdata",
    ".debug_str",
];

/// Inspects a binary.
///
/// # Errors
/// Fails if the file cannot be read, or is not ELF for x86-64 or arm64.
pub fn inspect(path: &Path) -> Result<Inspection, CompileError> {
    let map = Map::of(&open_regular(path)?)?;
    let budget = Cell::new(0);
    let elf = Elf::parse(&map, &budget).map_err(|error| CompileError::new(error, path))?;
    let size = |name| elf.section(name).map(|section| section.sh_size(ENDIAN));
    let sections = SECTIONS.into_iter();
    let link = |name| {
        let section = elf.section(name)?.data(ENDIAN, elf.data).ok()?;
        let name = section.split(|byte| *byte == 0).next()?;
        Some(PathBuf::from(String::from_utf8_lossy(name).into_owned()))
    };
    Ok(Inspection {
        machine: elf.machine(),
        is_debug_file: elf.is_debug_file(),
        build_id: elf.build_id(),
        go_build_id: elf.go_build_id().map(str::to_owned),
        sections: sections
            .filter_map(|name| Some((name, size(name)?)))
            .collect(),
        debug_link: link(".gnu_debuglink"),
        alternative_link: link(".gnu_debugaltlink"),
        units: split_units(&elf).unwrap_or_default(),
    })
}
