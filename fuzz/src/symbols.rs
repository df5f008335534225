//! Fuzz targets for symbol files: arbitrary bytes as a binary, as Go's table, and as a compiled
//! file.

use tributary::fuzzing::symbols::{HEADER, VERSION, compile};
use tributary_symbols::{MappingRange, Names, SymbolFile};

/// Any input compiles to a valid file, and lookups do not depend on their order.
pub fn symbols_compile(input: &[u8]) {
    let (first, second) = match input.split_first() {
        // With a companion file.
        Some((cut @ 1..=128, rest)) => rest.split_at(rest.len() * usize::from(*cut) / 128),
        _ => (input.get(1..).unwrap_or_default(), &[][..]),
    };
    let files: &[&[u8]] = if second.is_empty() {
        &[first]
    } else {
        &[first, second]
    };
    if let Ok((summary, bytes)) = compile(files) {
        assert_eq!(summary.bytes, bytes.len() as u64);
        sound(bytes);
    }
}

/// Like [`symbols_compile`], for Go's table in the smallest binary that can have one.
pub fn gopclntab(input: &[u8]) {
    let mut binary = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let word = |value: u64| value.to_le_bytes();
    binary.extend([word(0), word(64), word(0)].concat());
    // No flags; sizes of headers; two segments; no sections.
    binary.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
    let size = input.len() as u64;
    for (flags, offset, address, size) in [(4, 176, 0x10_0000, size), (5, 0, 0x1000, 0x1_0000)] {
        binary.extend([1, 0, 0, 0, flags, 0, 0, 0]);
        binary.extend([offset, address, address, size, size, 8].map(word).concat());
    }
    binary.extend_from_slice(input);
    if let Ok((_, bytes)) = compile(&[&binary]) {
        sound(bytes);
    }
}

fn sound(bytes: Vec<u8>) {
    let file = SymbolFile::from_bytes(bytes).expect("it was just made");
    file.verify().expect("it was just made");
    let addresses: Vec<u64> = (0..64).map(|number| 0x1000 + 7 * number).collect();
    let (mut ascending, mut names) = (file.cursor(), file.names());
    for address in addresses {
        let frames: Vec<_> = ascending.frames(address).collect();
        assert_eq!(frames, file.cursor().frames(address).collect::<Vec<_>>());
        for frame in frames {
            let name = |mut names: Names<'_>| {
                names
                    .of(frame.function)
                    .map(|function| function.name.to_owned())
            };
            let named = names
                .of(frame.function)
                .expect("it was just made")
                .name
                .to_owned();
            assert_eq!(name(file.names()), Some(named));
        }
    }
}

/// Lookups in a compiled file that is damaged behind its header end in bounded time.
pub fn symbols_file(input: &[u8]) {
    let bytes = SymbolFile::from_bytes(input.to_vec()).or_else(|_| {
        // The header fits the input, because its checksum would reject every other input.
        let mut bytes = input.to_vec();
        if bytes.len() > HEADER {
            bytes[..8].copy_from_slice(b"tribsyms");
            bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
            let length = bytes.len() as u64;
            bytes[16..24].copy_from_slice(&length.to_le_bytes());
            let sum = crc32fast::hash(&bytes[16..HEADER]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        }
        SymbolFile::from_bytes(bytes)
    });
    let Ok(file) = bytes else {
        return;
    };
    let _ = file.verify();
    let (mut cursor, mut names) = (file.cursor(), file.names());
    for number in 0..64_u64 {
        for address in [0x1000 + 7 * number, number << 58, u64::MAX - number] {
            let frames: Vec<_> = cursor.frames(address).collect();
            assert!(frames.len() <= 256);
            for frame in frames.iter().take(4) {
                let _ = names.of(frame.function);
            }
            let mapping = MappingRange {
                memory_start: number << 20,
                memory_limit: number << 52,
                file_offset: number << 12,
            };
            let _ = file.normalise(address, &mapping);
        }
    }
}
