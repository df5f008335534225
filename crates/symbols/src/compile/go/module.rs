//! Finds the tables of a Go binary: `.gopclntab`, and the runtime's module record that points to it.

use object::elf::{R_AARCH64_RELATIVE, R_X86_64_RELATIVE, SHF_EXECINSTR, SHT_RELA};
use object::read::elf::SectionHeader as _;

use super::table::{Tables, Version};
use crate::elf::{ENDIAN, Elf};
use crate::file::format::u64_at;

/// Fields of the runtime's module record (`moduledata` of `runtime/symtab.go`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Module {
    /// Start address of the code.
    pub(super) text: Option<u64>,
    /// Start address of function data, since Go 1.18.
    pub(super) function_data: Option<u64>,
}

/// Location of `.gopclntab`.
pub(super) struct TableLocation<'data> {
    pub(super) address: u64,
    /// Bytes from the start of the table, up to its end or, if the end is unknown, beyond it.
    pub(super) data: &'data [u8],
    /// End address of the table, if known.
    pub(super) end: Option<u64>,
}

/// Finds the table by its section name, or by its magic number if there are no section names.
pub(super) fn find_table<'data>(elf: &Elf<'data>) -> Option<TableLocation<'data>> {
    let named = [".gopclntab", ".data.rel.ro.gopclntab"];
    let named = named.into_iter().find_map(|name| {
        let section = elf.section(name)?;
        let data = section.data(ENDIAN, elf.data).ok()?;
        let address = section.sh_addr(ENDIAN);
        Some(TableLocation {
            address,
            data,
            end: address.checked_add(data.len() as u64),
        })
    });
    named.or_else(|| {
        let segments = elf.segments().into_iter();
        segments
            .filter(|segment| !segment.executable)
            .find_map(|segment| {
                let data = elf.at(segment.address)?;
                let mut magics = memchr::memmem::find_iter(data, &[0xff, 0xff, 0xff]);
                magics.find_map(|at| {
                    // Little-endian: the searched byte is the second byte.
                    let at = at.checked_sub(1)?;
                    let table = data.get(at..)?;
                    // The linker aligns the table, mostly to a page.
                    let aligned = at % 8 == 0;
                    let data = (aligned && Tables::parse(table).is_some()).then_some(table)?;
                    Some(TableLocation {
                        address: segment.address.checked_add(at as u64)?,
                        data,
                        end: None,
                    })
                })
            })
    })
}

/// Returns the address of the section with Go code.
pub(super) fn text_section(elf: &Elf<'_>) -> Option<u64> {
    let section = elf.section(".text")?;
    let code = section.sh_flags(ENDIAN).contains(SHF_EXECINSTR);
    code.then(|| section.sh_addr(ENDIAN))
}

impl Module {
    /// Finds the module record. The record begins with a pointer to the table; in a position-independent binary a
    /// relocation writes the pointer.
    ///
    /// `end` is the end of the table, if known.
    pub(super) fn find(elf: &Elf<'_>, table: u64, end: Option<u64>, version: Version) -> Self {
        // Offsets of the code start and of the candidates for function data. The first candidate belongs to Go 1.20 to
        // 1.26. The second candidate belongs to Go 1.27, which lays out types and interface tables differently, with
        // the same version of the table.
        let (text, function_data): (u64, &[u64]) = match version {
            Version::Go116 => (176, &[]),
            Version::Go118 => (176, &[304]),
            Version::Go120 => (176, &[320, 344]),
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
            // Slices follow the pointer to the table; the first slice, of the names, points into the table.
            let names = field(*address, 8).and_then(|names| names.checked_sub(table));
            let length = field(*address, 16);
            names.is_some_and(|names| names < 1 << 32) && length == field(*address, 24)
        };
        let Some(address) = candidates.into_iter().find(is_module) else {
            return Module::default();
        };
        // Since Go 1.26 function data is at the end of the table, and the next field is the end of the table.
        let before_end = end.filter(|_| version >= Version::Go120).and_then(|end| {
            let mut places = (function_data.first().copied()?..LAST_FIELD).step_by(8);
            places.find(|offset| field(address, offset + 8) == Some(end))
        });
        let is_data = |place: &u64| {
            let mut segments = elf.segments().into_iter();
            segments.any(|segment| {
                let skipped = place.checked_sub(segment.address);
                !segment.executable && skipped.is_some_and(|skipped| skipped < segment.file_size)
            })
        };
        // Data that precedes function data in memory precedes it in this record too: read-only data or types, but not
        // sizes and offsets.
        let read_data = |offset: u64| {
            let before = field(address, offset.checked_sub(8)?)?;
            field(address, offset).filter(|place| *place >= before && is_data(place))
        };
        let mut places = before_end.into_iter().chain(function_data.iter().copied());
        Module {
            text: field(address, text),
            function_data: places.find_map(read_data),
        }
    }
}

/// Maximum offset of a field that is read.
const LAST_FIELD: u64 = 512;

/// Returns addresses that hold the address of the table.
fn candidates(elf: &Elf<'_>, table: u64, relocations: &[(u64, u64)]) -> Vec<u64> {
    /// Maximum number of candidates. If more addresses look like the record, the first candidates are enough.
    const MAX_CANDIDATES: usize = 64;
    let by_relocation = relocations.iter().filter(|(_, value)| *value == table);
    let mut found: Vec<_> = by_relocation
        .map(|(at, _)| *at)
        .take(MAX_CANDIDATES)
        .collect();
    for segment in elf
        .segments()
        .into_iter()
        .filter(|segment| !segment.executable)
    {
        let data = elf.at(segment.address).unwrap_or_default();
        let pattern = table.to_le_bytes();
        let places = memchr::memmem::find_iter(data, &pattern);
        let places = places.filter(|at| at % 8 == 0).take(MAX_CANDIDATES);
        found.extend(places.filter_map(|at| segment.address.checked_add(at as u64)));
    }
    found
}

/// Returns relative relocations, sorted: the address to write, and the value.
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
