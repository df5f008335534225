//! gzip and zlib.

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::Decompressor;
use memchr::memmem;

use super::WINDOW_BITS;
use super::output::{DecompressError, Output, corrupt, truncated};

/// Decompresses gzip (RFC 1952): one or more members.
pub(super) fn gzip(mut input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    output.scratch(INFLATE_STATE)?;
    if let [.., a, b, c, d] = *input {
        let declared = u32::from_le_bytes([a, b, c, d]);
        output.expect(u64::from(declared), input.len(), DEFLATE_RATIO)?;
        if whole_gzip(input, declared as usize, output) {
            return Ok(());
        }
    }
    loop {
        let consumed = inflate(Decompress::new_gzip(WINDOW_BITS), input, output)?;
        input = input.get(consumed..).unwrap_or_default();
        if input.is_empty() {
            return Ok(());
        }
    }
}

/// Decompresses a single gzip member in one call, which is much faster than a stream and works for nearly all bodies.
/// Returns false, without output, if the input may have several members or is invalid.
fn whole_gzip(input: &[u8], declared: usize, output: &mut Output<'_>) -> bool {
    // The declared size was plausible if the output has room for one byte more.
    if output.bytes.capacity() <= declared || !output.bytes.is_empty() {
        return false;
    }
    output.bytes.resize(declared, 0);
    let decoded = Decompressor::new().gzip_decompress(input, &mut output.bytes);
    let whole = decoded.is_ok_and(|size| size == declared)
        && input.last_chunk::<TRAILER>().is_some_and(|trailer| {
            // The decoder silently stops after the first member, whose trailer (checksum and size) it has verified. The
            // member is the only one if the same trailer ends the input and occurs nowhere earlier.
            let [a, b, c, d, ..] = *trailer;
            libdeflater::crc32(&output.bytes) == u32::from_le_bytes([a, b, c, d])
                && memmem::find(input, trailer) == Some(input.len() - TRAILER)
        });
    if !whole {
        output.bytes.clear();
    }
    whole
}

/// Decompresses zlib (RFC 1950), or the bare deflate (RFC 1951) that some clients send as `deflate`.
pub(super) fn zlib(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    output.scratch(INFLATE_STATE)?;
    let wrapped = match *input {
        [cmf, flg, ..] => cmf & 0x0f == 8 && u16::from_be_bytes([cmf, flg]).is_multiple_of(31),
        _ => return Err(truncated()),
    };
    let consumed = inflate(Decompress::new(wrapped), input, output)?;
    if consumed < input.len() {
        return Err(corrupt("there is data after the end of the stream"));
    }
    Ok(())
}

/// Decompresses one stream and returns its length in the input.
fn inflate(
    mut state: Decompress,
    input: &[u8],
    output: &mut Output<'_>,
) -> Result<usize, DecompressError> {
    loop {
        output.room()?;
        let consumed = state.total_in() as usize;
        let before = output.bytes.len();
        let rest = input.get(consumed..).unwrap_or_default();
        let status = state
            .decompress_vec(rest, &mut output.bytes, FlushDecompress::None)
            .map_err(|error| corrupt(inflate_reason(&error)))?;
        if output.bytes.len() > output.limit {
            return Err(DecompressError::TooLarge(output.limit));
        }
        let now = state.total_in() as usize;
        match status {
            Status::StreamEnd => return Ok(now),
            Status::Ok | Status::BufError => {
                if now == consumed && output.bytes.len() == before {
                    return Err(truncated());
                }
            }
        }
    }
}

/// Describes the error. If the decoder gives no details, the input is not deflate.
fn inflate_reason(error: &flate2::DecompressError) -> &str {
    let message = error.message();
    message
        .filter(|message| !message.starts_with("repeated call"))
        .unwrap_or("the data is not deflate")
}

/// Memory in bytes: a window of 32 KiB, and the decoder's tables.
const INFLATE_STATE: usize = 64 << 10;

/// Size in bytes of a member's trailer: checksum and content size modulo 2^32 (RFC 1952).
const TRAILER: usize = 8;
/// Maximum ratio of deflate (zlib's technical notes).
const DEFLATE_RATIO: usize = 1032;
