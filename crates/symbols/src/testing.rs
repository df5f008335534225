//! Small ELF files with symbols, for tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "helpers for tests of this crate and others: a panic is a finding"
)]

use std::fs::File;
use std::path::Path;

use super::build_id::BuildId;
use super::compile::{CompileLimits, Inputs, compile};
use super::file::format::{HAS_LINES, HEADER, SUMMED_FROM};

/// Address of the first function of [`elf`]. The other functions follow, [`SIZE`] bytes each.
pub const CODE: u64 = 0x1000;
/// Size of a function of [`elf`], in bytes.
pub const SIZE: u64 = 0x10;

/// Returns the build id with this number.
pub fn id(number: u8) -> BuildId {
    BuildId::from_bytes(&[number; 20]).unwrap()
}

/// Returns an x86-64 binary with these functions, mapped so that addresses equal file offsets.
pub fn elf(id: &BuildId, functions: &[&str]) -> Vec<u8> {
    elf_with(id, functions, &[])
}

/// Like [`elf`], with more sections by name.
pub fn elf_with(id: &BuildId, functions: &[&str], more: &[(&str, &[u8])]) -> Vec<u8> {
    let mut note = Vec::new();
    for word in [4, id.as_bytes().len() as u32, 3] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(id.as_bytes());
    note.resize(note.len().next_multiple_of(4), 0);
    let (mut symbols, mut strings) = (vec![0; 24], vec![0]);
    for (at, name) in (0..).zip(functions) {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // Global function in section 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((CODE + at * SIZE).to_le_bytes());
        symbols.extend(SIZE.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let code = vec![0xc3; functions.len() * SIZE as usize];
    let mut file = vec![0; CODE as usize];
    let mut sections: Vec<Section<'_>> = vec![
        (".text", 1, 6, CODE, 0, 0, &code),
        (".note.gnu.build-id", 7, 2, 0, 0, 0, &note),
        (".symtab", 2, 0, 0, 24, 4, &symbols),
        (".strtab", 3, 0, 0, 0, 0, &strings),
    ];
    sections.extend(
        more.iter()
            .map(|(name, content)| (*name, 1, 0, 0, 0, 0, *content)),
    );
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    let mut header = |file: &mut Vec<u8>, section: Section<'_>| {
        let (name, kind, flags, address, entry, link, content) = section;
        let name_at = names.len() as u32;
        names.extend(name.as_bytes());
        names.push(0);
        let content = if name == ".shstrtab" { &names } else { content };
        headers.extend(name_at.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for word in [flags, address, file.len() as u64, content.len() as u64] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(link.to_le_bytes());
        headers.extend(u32::from(kind == 2).to_le_bytes());
        headers.extend(4u64.to_le_bytes());
        headers.extend(entry.to_le_bytes());
        file.extend(content);
        file.resize(file.len().next_multiple_of(8), 0);
    };
    let count = sections.len() as u16 + 2;
    for section in sections {
        header(&mut file, section);
    }
    header(&mut file, (".shstrtab", 3, 0, 0, 0, 0, &[]));
    let end = file.len() as u64;
    file.extend(headers);
    let mut head = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [3u16, 62] {
        head.extend(half.to_le_bytes());
    }
    head.extend(1u32.to_le_bytes());
    for word in [CODE, 64, end] {
        head.extend(word.to_le_bytes());
    }
    head.extend(0u32.to_le_bytes());
    for half in [64, 56, 1, 64, count, count - 1] {
        head.extend(half.to_le_bytes());
    }
    // The only segment: the whole file, readable and executable.
    for word in [1u32, 5] {
        head.extend(word.to_le_bytes());
    }
    for word in [0, 0, 0, end, end, 0x1000u64] {
        head.extend(word.to_le_bytes());
    }
    file[..head.len()].copy_from_slice(&head);
    file
}

/// Writes a compiled file of a binary with one function, `main`.
pub fn compiled(id: &BuildId, path: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let binary = directory.path().join("binary");
    std::fs::write(&binary, elf(id, &["main"])).unwrap();
    let inputs = Inputs {
        binary: &binary,
        supplementary: &[],
    };
    compile(
        &inputs,
        &CompileLimits::default(),
        &mut File::create(path).unwrap(),
    )
    .unwrap();
}

/// Like [`compiled`], but sets the header flag for lines.
pub fn compiled_with_lines(id: &BuildId, path: &Path, lines: bool) {
    compiled(id, path);
    let mut bytes = std::fs::read(path).unwrap();
    let flags = 28 + BuildId::MAX_LENGTH;
    bytes[flags] = if lines { HAS_LINES as u8 } else { 0 };
    let sum = crc32fast::hash(&bytes[SUMMED_FROM..HEADER]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// Name, type, flags, address, entry size, linked section, content.
type Section<'a> = (&'a str, u32, u64, u64, u64, u32, &'a [u8]);
