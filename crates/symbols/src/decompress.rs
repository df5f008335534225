//! Sections that are compressed. What they will be is checked against a budget before memory is taken for it.

use std::cell::Cell;
use std::io::Read as _;

use object::elf::{CompressionType, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};

use super::elf::ElfError;

/// Deflate cannot do better (zlib's technical notes): who says more is wrong.
const BEST_DEFLATE: u64 = 1032;

/// A section with `SHF_COMPRESSED`, which says how large it is.
pub(super) fn section(
    data: &[u8],
    kind: CompressionType,
    size: u64,
    budget: &Cell<u64>,
) -> Result<Vec<u8>, ElfError> {
    match kind {
        ELFCOMPRESS_ZLIB => zlib(data, size, budget),
        ELFCOMPRESS_ZSTD => zstd(data, size, budget),
        _ => Err(ElfError::Malformed),
    }
}

/// A section `.zdebug_*`, which GNU tools made before there was a flag: `ZLIB`, the size as eight bytes, most significant first.
pub(super) fn zdebug(data: &[u8], budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    let rest = data.strip_prefix(b"ZLIB").ok_or(ElfError::Malformed)?;
    let (size, rest) = rest.split_first_chunk().ok_or(ElfError::Malformed)?;
    zlib(rest, u64::from_be_bytes(*size), budget)
}

/// A section `.gnu_debugdata`: xz, which does not say how large it is.
pub(super) fn xz(data: &[u8], budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    /// In KiB: the dictionary of `xz -9` and something.
    const DECODER: u32 = 80 << 10;
    let reader = lzma_rust2::XzReader::new_mem_limit(data, false, DECODER);
    let mut output = Vec::new();
    let most = budget.get();
    let read = reader.take(most.saturating_add(1)).read_to_end(&mut output);
    read.map_err(|_| ElfError::Malformed)?;
    spend(output.len() as u64, budget)?;
    Ok(output)
}

fn zlib(data: &[u8], size: u64, budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    if size / BEST_DEFLATE > data.len() as u64 {
        return Err(ElfError::TooLarge);
    }
    let mut output = room(size, budget)?;
    let mut decompressor = libdeflater::Decompressor::new();
    let written = decompressor.zlib_decompress(data, &mut output);
    exactly(output, written.ok())
}

fn zstd(data: &[u8], size: u64, budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    let mut output = room(size, budget)?;
    let written = zstd::bulk::decompress_to_buffer(data, &mut output[..]);
    exactly(output, written.ok())
}

fn room(size: u64, budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    spend(size, budget)?;
    // Zeros of the system: pages that nothing is written to take no memory.
    let size = usize::try_from(size).map_err(|_| ElfError::TooLarge)?;
    Ok(vec![0; size])
}

fn spend(size: u64, budget: &Cell<u64>) -> Result<(), ElfError> {
    let left = budget.get().checked_sub(size);
    budget.set(left.ok_or(ElfError::TooLarge)?);
    Ok(())
}

fn exactly(output: Vec<u8>, written: Option<usize>) -> Result<Vec<u8>, ElfError> {
    match written == Some(output.len()) {
        true => Ok(output),
        false => Err(ElfError::Malformed),
    }
}
