//! Names of the files with the split parts of units, as recorded in the binary.

use std::path::{Component, Path, PathBuf};

use gimli::{UnitHeader, UnitType};

use super::{Bytes, Sections};
use crate::elf::Elf;
use crate::elf_error::ElfError;

/// The `.dwo` file of a unit. Both paths are relative and contain no parent components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitUnit {
    /// Directory of the compilation, relative to the root; may be empty.
    pub directory: String,
    /// Path of the file, relative to the directory.
    pub name: String,
}

/// Maximum number of units that are returned. A build with more units can use a package (`.dwp`).
const MAX_UNITS: usize = 1024;
/// Maximum size of a directory or name, in bytes.
const MAX_NAME_BYTES: usize = 1024;
const MAX_TOTAL_BYTES: usize = 128 << 10;

impl SplitUnit {
    /// Creates the file `name` of a unit compiled in `directory`; `None` if no file can have this name.
    pub(crate) fn new(directory: &str, name: &str) -> Option<Self> {
        let below = parts(Path::new(name), PathBuf::new());
        let from = match Path::new(name).is_absolute() {
            true => PathBuf::new(),
            false => parts(Path::new(directory), PathBuf::new()),
        };
        let whole = parts(Path::new(name), from);
        let directory = whole.ancestors().nth(below.components().count())?;
        let unit = SplitUnit {
            directory: directory.to_str()?.to_owned(),
            name: below.to_str()?.to_owned(),
        };
        let plain =
            |text: &str| text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control);
        let good = !unit.name.is_empty() && plain(&unit.directory) && plain(&unit.name);
        good.then_some(unit)
    }

    /// Size of both paths in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.directory.len() + self.name.len()
    }
}

/// Appends `path` to `from` without file system access. A parent component at the root has no effect.
fn parts(path: &Path, mut from: PathBuf) -> PathBuf {
    for part in path.components() {
        match part {
            Component::Normal(name) => from.push(name),
            Component::ParentDir => {
                from.pop();
            }
            _ => {}
        }
    }
    from
}

/// Returns the readable split units of a file: at most 1,024, with 128 KiB of paths.
///
/// # Errors
/// Fails if the sections are damaged or exceed the limit for decompression.
pub(crate) fn split_units(elf: &Elf<'_>) -> Result<Vec<SplitUnit>, ElfError> {
    // Split units need the addresses in this section. A file without the section has no split units, and needs no
    // decompression.
    if !elf.has_section(".debug_addr") {
        return Ok(Vec::new());
    }
    let sections = Sections::load(elf)?;
    let mut dwarf = sections.borrow();
    dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
    let mut found = Vec::new();
    let mut bytes = 0;
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Some(unit) = split_unit(&dwarf, header) else {
            continue;
        };
        bytes += unit.bytes();
        if found.len() == MAX_UNITS || bytes > MAX_TOTAL_BYTES {
            break;
        }
        found.push(unit);
    }
    Ok(found)
}

fn split_unit(dwarf: &gimli::Dwarf<Bytes<'_>>, header: UnitHeader<Bytes<'_>>) -> Option<SplitUnit> {
    if !matches!(
        header.type_(),
        UnitType::Skeleton(_) | UnitType::Compilation
    ) {
        return None;
    }
    let unit = dwarf.unit(header).ok()?;
    let name = dwarf.attr_string(&unit, unit.dwo_name().ok()??).ok()?;
    let text = |bytes: Bytes<'_>| bytes.to_string().ok().map(str::to_owned);
    let directory = match unit.comp_dir {
        Some(directory) => text(directory)?,
        None => String::new(),
    };
    SplitUnit::new(&directory, &text(name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_path_stays_below_root() {
        for (directory, name, expected) in [
            ("/src/build", "a.dwo", Some(("src/build", "a.dwo"))),
            (
                "/src/build",
                "obj/./a.dwo",
                Some(("src/build", "obj/a.dwo")),
            ),
            ("/src/build", "../obj/a.dwo", Some(("src", "obj/a.dwo"))),
            ("/src/build", "obj/../../a.dwo", Some(("src", "a.dwo"))),
            ("/src", "../../../../etc/shadow", Some(("", "etc/shadow"))),
            ("/../..", "../../a.dwo", Some(("", "a.dwo"))),
            ("/src", "/other/a.dwo", Some(("", "other/a.dwo"))),
            ("", "a.dwo", Some(("", "a.dwo"))),
            ("/src", "", None),
            ("/src", "..", None),
            ("/src", "a\nbuild-id 00000000", None),
            ("/sr\tc", "a.dwo", None),
        ] {
            let unit = SplitUnit::new(directory, name);
            let unit = unit.as_ref().map(|unit| (&*unit.directory, &*unit.name));
            assert_eq!(unit, expected, "{directory} {name}");
        }
        assert_eq!(SplitUnit::new("/", &"a".repeat(MAX_NAME_BYTES + 1)), None);
    }
}
