//! Names the stubs of the procedure linkage table, which call functions of other binaries: `name@plt`, as in objdump.
//!
//! No symbol table names the stubs. Each stub jumps to the address in a slot, and a relocation names the function
//! of the slot. The slot is decoded from the instructions of the stub, because linkers use several layouts, not all
//! in the order of the relocations.

use std::collections::HashMap;

use object::elf::{
    R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, SHT_RELA,
};
use object::read::elf::{Rela as _, SectionHeader as _, Sym as _};

use super::CompileError;
use super::model::{Model, Range, SourcePosition, remove_overlaps};
use crate::elf::{ENDIAN, Elf};
use crate::file::NameSource;
use crate::file::format::u32_at;

/// A stub: its offset in the section, and the address of its slot.
struct Stub {
    start: usize,
    length: usize,
    slot: u64,
}

/// Names the stubs of a binary, as sorted and disjoint ranges.
pub(super) fn read(elf: &Elf<'_>, model: &mut Model) -> Result<Vec<Range>, CompileError> {
    let slots = names_by_slot(elf, model)?;
    let mut ranges = Vec::new();
    for name in [".plt", ".plt.sec", ".plt.got"] {
        let section = elf.section(name);
        let Some((section, Ok(code))) =
            section.map(|section| (section, section.data(ENDIAN, elf.data)))
        else {
            continue;
        };
        let address = section.sh_addr(ENDIAN);
        let stubs = match elf.is_arm64() {
            true => arm64(code, address),
            false => x86_64(code, address, section.sh_entsize(ENDIAN)),
        };
        model.spend(stubs.len() as u64)?;
        for stub in stubs {
            if let Some(name) = slots.get(&stub.slot)
                && let Some(start) = address.checked_add(stub.start as u64)
                && let Some(end) = start.checked_add(stub.length as u64)
            {
                ranges.push(Range {
                    start,
                    end,
                    context: model.symbol(&[name, b"@plt".as_slice()].concat()),
                    place: SourcePosition::default(),
                    source: NameSource::DynamicSymbols,
                });
            }
        }
    }
    remove_overlaps(&mut ranges);
    Ok(ranges)
}

fn names_by_slot<'data>(
    elf: &Elf<'data>,
    model: &mut Model,
) -> Result<HashMap<u64, &'data [u8]>, CompileError> {
    let kinds = match elf.is_arm64() {
        true => [R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT],
        false => [R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT],
    };
    let mut slots = HashMap::new();
    for section in elf.sections.iter() {
        if section.sh_type(ENDIAN) != SHT_RELA {
            continue;
        }
        let Ok(Some((relocations, symbols))) = section.rela(ENDIAN, elf.data) else {
            continue;
        };
        let symbols = elf
            .sections
            .symbol_table_by_index(ENDIAN, elf.data, symbols);
        let Ok(symbols) = symbols else {
            continue;
        };
        model.spend(relocations.len() as u64)?;
        for relocation in relocations {
            if kinds.contains(&relocation.r_type(ENDIAN, false))
                && let Some(index) = relocation.symbol(ENDIAN, false)
                && let Ok(symbol) = symbols.symbol(index)
                && let Ok(name) = symbol.name(ENDIAN, symbols.strings())
                && !name.is_empty()
            {
                slots.insert(relocation.r_offset.get(ENDIAN), name);
            }
        }
    }
    Ok(slots)
}

/// Decodes stubs of the form `jmp *slot(%rip)`, usually preceded by `endbr64` or `bnd`.
fn x86_64(code: &[u8], address: u64, entry_size: u64) -> Vec<Stub> {
    let length = match entry_size {
        8 => 8,
        _ => 16,
    };
    let stubs = code.chunks_exact(length).enumerate();
    let stub = |(number, stub): (usize, &[u8])| {
        let start = number * length;
        let jump = memchr::memmem::find(stub, &[0xff, 0x25])?;
        let distance = u32_at(stub, jump + 2)? as i32;
        let behind = address.checked_add((start + jump + 6) as u64)?;
        Some(Stub {
            start,
            length,
            slot: behind.wrapping_add_signed(distance.into()),
        })
    };
    stubs.filter_map(stub).collect()
}

/// Decodes stubs of the form `adrp x16, page; ldr x17, [x16, slot in it]; add; br x17`, preceded by `bti c` with
/// branch protection.
fn arm64(code: &[u8], address: u64) -> Vec<Stub> {
    const WORD: usize = 4;
    let (words, _) = code.as_chunks::<WORD>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let stub = |(number, pair): (usize, &[u32])| {
        let [adrp, ldr] = *pair else {
            return None;
        };
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            return None;
        }
        // 21-bit signed immediate.
        let pages = (adrp >> 5 & 0x7_ffff) << 2 | adrp >> 29 & 3;
        let pages = i64::from((pages << 11) as i32 >> 11);
        let page = address.checked_add((number * WORD) as u64)? & !0xfff;
        let start = number * WORD;
        Some(Stub {
            start,
            length: 4 * WORD,
            slot: page
                .wrapping_add_signed(pages << 12)
                .wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8),
        })
    };
    let pairs = words.windows(2).enumerate();
    pairs.filter_map(stub).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm64_stub_has_its_slot_in_its_code() {
        // adrp x16, #0x11000; ldr x17, [x16, #0xf98]; add x16, x16, #0xf98; br x17; by llvm-mc.
        let stub = [0xb000_0090_u32, 0xf947_ce11, 0x913e_6210, 0xd61f_0220];
        let bti = [0xd503_245f];
        let words = [&stub[..], &bti, &stub].concat();
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found: Vec<_> = arm64(&code, 0x2_0020)
            .iter()
            .map(|stub| (stub.start, stub.length, stub.slot))
            .collect();
        assert_eq!(found, [(0, 16, 0x3_1f98), (20, 16, 0x3_1f98)]);
        // One page back: adrp x16, #-0x1000.
        let back = [0xf0ff_fff0_u32, 0xf947_ce11];
        let code: Vec<u8> = back.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = arm64(&code, 0x2_0020);
        assert_eq!(found.first().map(|stub| stub.slot), Some(0x1_ff98));
    }
}
