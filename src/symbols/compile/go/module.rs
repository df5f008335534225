//! Where a Go binary has its tables: `.gopclntab`, and the runtime's record of the module, which points to it.

use object::elf::{R_AARCH64_RELATIVE, R_X86_64_RELATIVE, SHF_EXECINSTR, SHT_RELA};
use object::read::elf::SectionHeader as _;

use super::table::{Tables, Version};
use crate::symbols::elf::{ENDIAN, Elf};
use crate::symbols::file::format::u64_at;

/// What the runtime's record of the module says (`moduledata` of `runtime/symtab.go`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// Where code begins.
    pub(super) text: Option<u64>,
    /// Where function data begins, since Go 1.18.
    pub(super) function_data: Option<u64>,
}

/// `.gopclntab` and its address: by its name, or by what it begins with where there are no names of sections.
pub(super) fn find_table<'data>(elf: &Elf<'data>) -> Option<(u64, &'data [u8])> {
    let named = [".gopclntab", ".data.rel.ro.gopclntab"];
    let named = named.into_iter().find_map(|name| {
        let section = elf.section(name)?;
        let data = section.data(ENDIAN, elf.data).ok()?;
        Some((section.sh_addr(ENDIAN), data))
    });
    named.or_else(|| {
        let segments = elf.segments().into_iter();
        segments
            .filter(|segment| !segment.executable)
            .find_map(|segment| {
                let data = elf.at(segment.address)?;
                let mut magics = memchr::memmem::find_iter(data, &[0xff, 0xff, 0xff]);
                magics.find_map(|at| {
                    // The lowest byte comes first.
                    let at = at.checked_sub(1)?;
                    let table = data.get(at..)?;
                    // Pages begin with it.
                    let aligned = at % 8 == 0;
                    let table = (aligned && Tables::parse(table).is_some()).then_some(table)?;
                    Some((segment.address.checked_add(at as u64)?, table))
                })
            })
    })
}

/// The section with the code of Go.
pub(super) fn text_section(elf: &Elf<'_>) -> Option<u64> {
    let section = elf.section(".text")?;
    let code = section.sh_flags(ENDIAN).contains(SHF_EXECINSTR);
    code.then(|| section.sh_addr(ENDIAN))
}

impl Module {
    /// Looks for the record: it begins with a pointer to the table, which a relocation writes in a position-independent binary.
    pub(super) fn find(elf: &Elf<'_>, table: u64, version: Version) -> Self {
        // Where text and the end of the read-only data are among its fields.
        let (text, function_data) = match version {
            Version::Go116 => (176, None),
            Version::Go118 => (176, Some(304)),
            Version::Go120 => (176, Some(320)),
        };
        let by_relocation = relocations(elf);
        let read = |address: u64| match by_relocation.binary_search_by_key(&address, |(at, _)| *at)
        {
            Ok(found) => by_relocation.get(found).map(|(_, value)| *value),
            Err(_) => u64_at(elf.at(address)?, 0),
        };
        let candidates = candidates(elf, table, &by_relocation);
        let field = |address: u64, offset: u64| read(address.checked_add(offset)?);
        let is_module = |address: &u64| {
            // Behind the pointer to the table are slices; the first is that of the names, which are in the table.
            let names = field(*address, 8).and_then(|names| names.checked_sub(table));
            let length = field(*address, 16);
            names.is_some_and(|names| names < 1 << 32) && length == field(*address, 24)
        };
        let Some(address) = candidates.into_iter().find(is_module) else {
            return Module::default();
        };
        Module {
            text: field(address, text),
            function_data: function_data.and_then(|offset| field(address, offset)),
        }
    }
}

/// Places with the address of the table.
fn candidates(elf: &Elf<'_>, table: u64, relocations: &[(u64, u64)]) -> Vec<u64> {
    /// Where things look like the record and are not it, the first ones are enough.
    const MOST: usize = 64;
    let by_relocation = relocations.iter().filter(|(_, value)| *value == table);
    let mut found: Vec<_> = by_relocation.map(|(at, _)| *at).take(MOST).collect();
    for segment in elf
        .segments()
        .into_iter()
        .filter(|segment| !segment.executable)
    {
        let data = elf.at(segment.address).unwrap_or_default();
        let pattern = table.to_le_bytes();
        let places = memchr::memmem::find_iter(data, &pattern);
        let places = places.filter(|at| at % 8 == 0).take(MOST);
        found.extend(places.filter_map(|at| segment.address.checked_add(at as u64)));
    }
    found
}

/// Places that are relative to where the binary is loaded, and what is written there, sorted.
fn relocations(elf: &Elf<'_>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for section in elf.sections.iter() {
        if section.sh_type(ENDIAN) != SHT_RELA {
            continue;
        }
        let Ok(Some((entries, _))) = section.rela(ENDIAN, elf.data) else {
            continue;
        };
        for entry in entries {
            let kind = entry.r_type(ENDIAN, false);
            if kind == R_X86_64_RELATIVE || kind == R_AARCH64_RELATIVE {
                let value = entry.r_addend.get(ENDIAN);
                found.push((entry.r_offset.get(ENDIAN), value as u64));
            }
        }
    }
    found.sort_unstable();
    found
}
