//! Reads debug information: DWARF 2 to 5, including split units (`.dwo`, `.dwp`) and supplementary files of
//! dwz.
//!
//! Each unit is read once from its first entry to its last, instead of once per address. Functions and inlined calls
//! become spans, and the line program becomes rows. Spans and rows together become ranges. Each name is resolved once,
//! when a span refers to it.

mod functions;
mod lines;
mod skeletons;
mod unit;
mod unit_error;

use std::borrow::Cow;
use std::ops;

use gimli::{
    Dwarf, DwarfPackage, DwarfPackageSections, DwarfSections, EndianSlice, LittleEndian, SectionId,
};

use self::functions::Functions;
pub use self::skeletons::SplitUnit;
pub(crate) use self::skeletons::split_units;
use super::CompileError;
use super::model::{Model, Range};
use crate::elf::Elf;
use crate::elf_error::ElfError;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

pub(super) struct Sections<'data>(DwarfSections<Cow<'data, [u8]>>);

/// Companion files of the file with the debug information: split units as `.dwo` files or as a `.dwp` package, and
/// the supplementary file of dwz.
#[derive(Default)]
pub(super) struct CompanionFiles<'data> {
    pub(super) supplementary: Option<Sections<'data>>,
    pub(super) units: Vec<Sections<'data>>,
    pub(super) package: Option<DwarfPackageSections<Cow<'data, [u8]>>>,
}

#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) ranges: Vec<Range>,
    /// Number of units with code that were read.
    pub(super) units: u64,
    pub(super) damaged: u64,
    /// Number of units whose split part is missing.
    pub(super) missing: u64,
}

impl<'data> Sections<'data> {
    /// Loads the needed sections of a binary, debug file or supplementary file.
    pub(super) fn load(elf: &Elf<'data>) -> Result<Self, ElfError> {
        let load = |id: SectionId| match needed(id) {
            true => elf.section_data(id.name()),
            false => Ok(Cow::Borrowed(&[][..])),
        };
        DwarfSections::load(load).map(Sections)
    }

    /// Loads the needed sections of a `.dwo` file.
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

/// Loads the sections of a `.dwp` file.
pub(super) fn load_package<'data>(
    elf: &Elf<'data>,
) -> Result<DwarfPackageSections<Cow<'data, [u8]>>, ElfError> {
    // All sections, because the package index is validated for unused sections too.
    DwarfPackageSections::load(|id: SectionId| match id.dwo_name() {
        Some(name) => elf.section_data(name),
        None => Ok(Cow::Borrowed(&[][..])),
    })
}

/// Whether a section is needed. Variables, macros, types and lookup indices are not.
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

/// Reads the debug information of a file into unsorted ranges that may overlap. `code` holds the address ranges of the
/// binary's code; other addresses belong to functions that the linker dropped. `is_wanted` selects units by language.
pub(super) fn read(
    sections: &Sections<'_>,
    others: &CompanionFiles<'_>,
    code: &[ops::Range<u64>],
    is_wanted: impl Fn(Option<gimli::DwLang>) -> bool,
    model: &mut Model,
) -> Result<Read, CompileError> {
    let supplementary = others.supplementary.as_ref().map(|sections| &sections.0);
    let mut dwarf = sections.0.borrow_with_sup(supplementary, bytes);
    // A malicious file may have many units that share one large table of abbreviations.
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
