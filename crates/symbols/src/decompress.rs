//! Decompresses sections. The decompressed size is checked against a budget before memory is allocated.

use std::cell::Cell;
use std::io::Read as _;

use object::elf::{CompressionType, ELFCOMPRESS_ZLIB, ELFCOMPRESS_ZSTD};

use crate::elf_error::ElfError;

/// Best possible ratio of deflate (zlib's technical notes); a larger declared size is invalid.
const BEST_DEFLATE: u64 = 1032;

/// Decompresses a section with `SHF_COMPRESSED`, which declares its size.
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

/// Decompresses a `.zdebug_*` section of older GNU tools: `ZLIB`, the size in eight bytes (big-endian), the
/// data.
pub(super) fn zdebug(data: &[u8], budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    let rest = data.strip_prefix(b"ZLIB").ok_or(ElfError::Malformed)?;
    let (size, rest) = rest.split_first_chunk().ok_or(ElfError::Malformed)?;
    zlib(rest, u64::from_be_bytes(*size), budget)
}

/// Decompresses a `.gnu_debugdata` section: xz, without a declared size.
pub(super) fn xz(data: &[u8], budget: &Cell<u64>) -> Result<Vec<u8>, ElfError> {
    /// Memory limit of the decoder in KiB: the dictionary of `xz -9` and some reserve.
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
    // Zeroed pages of the system take no memory until they are written.
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
