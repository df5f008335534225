//! Debug information: DWARF 2 to 5, also split (`.dwo`, `.dwp`) and with what dwz has put into a supplementary file.
//!
//! Each unit is read once, from its first entry to its last, and never again for a single address: functions and what was
//! inlined into them become spans, the line program becomes rows, and both together ranges. Names are looked for where a
//! span refers to them, each once.

mod functions;
mod lines;
mod skeletons;
mod unit;

use std::borrow::Cow;
use std::ops;

use gimli::{
    Dwarf, DwarfPackage, DwarfPackageSections, DwarfSections, EndianSlice, LittleEndian, SectionId,
};

pub use self::skeletons::SplitUnit;
pub(crate) use self::skeletons::split_units;

use self::functions::Functions;
use super::CompileError;
use super::model::{Model, Range};
use crate::elf::{Elf, ElfError};

/// Bytes of a section.
type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The sections of a file, decompressed.
pub(super) struct Sections<'data>(DwarfSections<Cow<'data, [u8]>>);

/// The files that belong to the one with the debug information: units, as `.dwo` files or a `.dwp` package, and what several
/// binaries share, by dwz.
#[derive(Default)]
pub(super) struct Others<'data> {
    pub(super) supplementary: Option<Sections<'data>>,
    pub(super) units: Vec<Sections<'data>>,
    pub(super) package: Option<DwarfPackageSections<Cow<'data, [u8]>>>,
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) ranges: Vec<Range>,
    /// Units with code that could be read.
    pub(super) units: u64,
    /// Units that are damaged.
    pub(super) damaged: u64,
    /// Units whose other part, in a `.dwo` file, is not there.
    pub(super) missing: u64,
}

impl<'data> Sections<'data> {
    /// The sections that are of use here, of a binary, a debug file or a supplementary file.
    pub(super) fn load(elf: &Elf<'data>) -> Result<Self, ElfError> {
        let load = |id: SectionId| match needed(id) {
            true => elf.section_data(id.name()),
            false => Ok(Cow::Borrowed(&[][..])),
        };
        DwarfSections::load(load).map(Sections)
    }

    /// Those of a `.dwo` file.
    pub(super) fn load_dwo(elf: &Elf<'data>) -> Result<Self, ElfError> {
        let load = |id: SectionId| match id.dwo_name() {
            Some(name) if needed(id) => elf.section_data(name),
            _ => Ok(Cow::Borrowed(&[][..])),
        };
        DwarfSections::load(load).map(Sections)
    }

    fn borrow(&self) -> Dwarf<Bytes<'_>> {
        self.0.borrow(bytes)
    }
}

/// The sections of a `.dwp` file.
pub(super) fn load_package<'data>(
    elf: &Elf<'data>,
) -> Result<DwarfPackageSections<Cow<'data, [u8]>>, ElfError> {
    // All of them: what the index says about those that are of no use here is checked, too.
    DwarfPackageSections::load(|id: SectionId| match id.dwo_name() {
        Some(name) => elf.section_data(name),
        None => Ok(Cow::Borrowed(&[][..])),
    })
}

/// Where variables are, what macros and types there are, and indices of what is read anyway are of no use here.
fn needed(id: SectionId) -> bool {
    use SectionId as Id;
    matches!(
        id,
        Id::DebugAbbrev
            | Id::DebugAddr
            | Id::DebugInfo
            | Id::DebugLine
            | Id::DebugLineStr
            | Id::DebugStr
            | Id::DebugStrOffsets
            | Id::DebugRanges
            | Id::DebugRngLists
    )
}

#[allow(clippy::ptr_arg, reason = "gimli lends sections as it keeps them")]
fn bytes<'a>(section: &'a Cow<'_, [u8]>) -> Bytes<'a> {
    EndianSlice::new(section, LittleEndian)
}

/// Reads the debug information of a file into ranges, which are neither sorted nor apart. `code` is where the binary has code;
/// what is said about other addresses is left over from functions that the linker has dropped. `is_wanted` says by its language
/// whether a unit is read.
pub(super) fn read(
    sections: &Sections<'_>,
    others: &Others<'_>,
    code: &[ops::Range<u64>],
    is_wanted: impl Fn(Option<gimli::DwLang>) -> bool,
    model: &mut Model,
) -> Result<Read, CompileError> {
    let supplementary = others.supplementary.as_ref().map(|sections| &sections.0);
    let mut dwarf = sections.0.borrow_with_sup(supplementary, bytes);
    // Hostile files have many units with the same large table of abbreviations.
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    let package = others.package.as_ref();
    let package: Option<DwarfPackage<Bytes<'_>>> =
        package.and_then(|sections| sections.borrow(bytes, EndianSlice::default()).ok());
    let mut units: Vec<_> = others.units.iter().map(Sections::borrow).collect();
    for unit in &mut units {
        unit.make_dwo(&dwarf);
    }
    let splits = unit::Splits::new(&units, package.as_ref());
    let functions = Functions::new(&dwarf);
    let mut reading = unit::Reading::new(code, model);
    reading.all(functions, &splits, is_wanted)?;
    Ok(reading.finish())
}
