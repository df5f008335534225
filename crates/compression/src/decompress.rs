//! Decompression of request bodies from outside. Memory is bounded and accounted for before it is used.

mod deflate;
mod output;

use std::io::{self, Read};

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

use self::deflate::{gzip, zlib};
pub use self::output::DecompressError;
use self::output::{Output, corrupt, truncated};
use super::Codec;
use tributary_memory::Permit;

/// Decompresses a complete body to at most `limit` bytes.
///
/// `permit` grows before every allocation. On return it has grown by the capacity of the returned vector; after an
/// error it has its previous size. Sizes declared by the body are believed only within `limit`. Truncated input and
/// trailing data are errors.
///
/// # Errors
/// See [`DecompressError`].
pub fn decompress(
    codec: Codec,
    input: &[u8],
    limit: usize,
    permit: &mut Permit,
) -> Result<Vec<u8>, DecompressError> {
    let held = permit.bytes();
    let mut output = Output {
        bytes: Vec::new(),
        limit,
        permit,
    };
    let done = match codec {
        Codec::Gzip => gzip(input, &mut output),
        Codec::Zlib => zlib(input, &mut output),
        Codec::Zstd => zstd(input, &mut output),
        Codec::SnappyBlock => snappy_block(input, &mut output),
        Codec::SnappyFramed => snappy_framed(input, &mut output),
        Codec::Lz4 => lz4(input, &mut output),
    };
    let Output { mut bytes, .. } = output;
    if let Err(error) = done {
        permit.shrink_to(held);
        return Err(error);
    }
    // Doubling may leave more than half of the capacity unused, and the bytes may be buffered for long.
    if bytes.len() < bytes.capacity() / 2 {
        bytes.shrink_to_fit();
    }
    permit.shrink_to(held + bytes.capacity());
    Ok(bytes)
}

/// Whether `input` begins like a framed snappy stream. Senders disagree about the format that `snappy` names.
pub fn is_framed_snappy(input: &[u8]) -> bool {
    input.starts_with(SNAPPY_STREAM_IDENTIFIER)
}

/// Decompresses zstd (RFC 8878): one or more frames. Skippable frames are skipped.
fn zstd(bytes: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    if bytes.is_empty() {
        return Err(truncated());
    }
    output.scratch(ZSTD_STATE)?;
    let mut decoder = Decoder::new().map_err(corrupt)?;
    decoder
        .set_parameter(DParameter::WindowLogMax(ZSTD_MAX_WINDOW_LOG))
        .map_err(corrupt)?;
    let mut input = InBuffer::around(bytes);
    let mut window_held = 0;
    while input.pos() < bytes.len() {
        let rest = bytes.get(input.pos()..).unwrap_or_default();
        let window = zstd_frame(rest, output)?;
        if window > window_held {
            output.scratch(window - window_held)?;
            window_held = window;
        }
        loop {
            output.room()?;
            let before = output.bytes.len();
            let mut buffer = OutBuffer::around_pos(&mut output.bytes, before);
            let hint = decoder.run(&mut input, &mut buffer).map_err(corrupt)?;
            if output.bytes.len() > output.limit {
                return Err(DecompressError::TooLarge(output.limit));
            }
            if hint == 0 {
                break;
            }
            if input.pos() == bytes.len() && output.bytes.len() == before {
                return Err(truncated());
            }
        }
    }
    Ok(())
}

/// Parses the header of a frame. Makes room for the content if its size is declared, and returns the memory that the
/// decoder needs for its window, in bytes.
fn zstd_frame(frame: &[u8], output: &mut Output<'_>) -> Result<usize, DecompressError> {
    let [0x28, 0xb5, 0x2f, 0xfd, descriptor, window, ..] = *frame else {
        return Ok(0); // A skippable frame, or an error that the decoder will name.
    };
    if let Ok(Some(content)) = zstd_safe::get_frame_content_size(frame) {
        let left = output.limit - output.bytes.len().min(output.limit);
        let Some(content) = usize::try_from(content).ok().filter(|size| *size <= left) else {
            return Err(DecompressError::TooLarge(output.limit));
        };
        zstd_safe::find_frame_compressed_size(frame).map_err(|_| truncated())?;
        // With the whole frame as input and an output for the whole content, the decoder needs no window.
        output.reserve(output.bytes.len() + content + 1)?;
        return Ok(0);
    }
    let single_segment = descriptor & 0x20 != 0;
    if single_segment {
        return Err(corrupt("a zstd frame without a window and without a size"));
    }
    let base = 1_u64 << (10 + (window >> 3));
    let size = base + (base / 8) * u64::from(window & 7);
    match usize::try_from(size) {
        Ok(size) if size <= output.limit.max(ZSTD_USUAL_WINDOW) => Ok(size + ZSTD_BLOCKS),
        _ => Err(corrupt(format!(
            "the zstd frame needs a window of {size} bytes, which is above the limit of {} bytes",
            output.limit.max(ZSTD_USUAL_WINDOW)
        ))),
    }
}

fn snappy_block(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    let declared = snap::raw::decompress_len(input).map_err(corrupt)?;
    if declared > output.limit {
        return Err(DecompressError::TooLarge(output.limit));
    }
    if declared > input.len().saturating_mul(SNAPPY_RATIO) {
        return Err(corrupt(format!(
            "the snappy block declares {declared} bytes, more than a block of its size can expand to"
        )));
    }
    output.reserve(declared)?;
    output.bytes.resize(declared, 0);
    let written = snap::raw::Decoder::new()
        .decompress(input, &mut output.bytes)
        .map_err(corrupt)?;
    output.bytes.truncate(written);
    Ok(())
}

fn snappy_framed(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    if input.is_empty() {
        return Ok(()); // The output of encoders for empty input.
    }
    if !is_framed_snappy(input) {
        return Err(corrupt("the body is not a framed snappy stream"));
    }
    output.scratch(SNAPPY_STATE)?;
    output.fill(&mut snap::read::FrameDecoder::new(input))
}

/// Decompresses one LZ4 frame. Further frames are refused: they may have larger blocks, and no OTLP sender writes two.
fn lz4(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    // Frame descriptor: magic (4), flags (1), block size code (1). The decoder keeps one compressed block, and one
    // decompressed block with the 64 KiB before it.
    let block = match input.get(5).map(|code| (code >> 4) & 7) {
        None => return Err(truncated()),
        Some(code @ 4..=7) => 1_usize << (2 * code + 8),
        Some(_) => return Err(corrupt("the lz4 frame has an unknown block size")),
    };
    output.scratch(3 * block + (128 << 10))?;
    let mut decoder = lz4_flex::frame::FrameDecoder::new(Watched {
        rest: input,
        was_exhausted: false,
    });
    output.fill(&mut decoder)?;
    // The decoder takes a missing block header for the end mark. A complete frame never requests more bytes than it
    // has.
    if decoder.get_ref().was_exhausted {
        return Err(truncated());
    }
    if !decoder.get_ref().rest.is_empty() {
        return Err(corrupt("there is data after the end of the lz4 frame"));
    }
    Ok(())
}

/// A slice that records whether more bytes were requested than it has.
struct Watched<'a> {
    rest: &'a [u8],
    was_exhausted: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        self.was_exhausted |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

/// Maximum window of RFC 1951, 32 KiB.
const WINDOW_BITS: u8 = 15;
/// Memory of a decoder without its window, in bytes.
const ZSTD_STATE: usize = 160 << 10;
/// Two blocks of the maximum size, which the decoder keeps beside the window.
const ZSTD_BLOCKS: usize = 256 << 10;
/// RFC 8878, 3.1.1.1.2 recommends that decoders support at least 8 MiB.
const ZSTD_USUAL_WINDOW: usize = 8 << 20;
/// 128 MiB, zstd's own default. Windows above the caller's limit are refused earlier.
const ZSTD_MAX_WINDOW_LOG: u32 = 27;
/// A copy of 64 bytes takes at least 3 bytes (snappy's format description).
const SNAPPY_RATIO: usize = 22;
/// A compressed and a decompressed chunk.
const SNAPPY_STATE: usize = 160 << 10;
/// Stream identifier chunk (snappy's framing format, 4.1).
const SNAPPY_STREAM_IDENTIFIER: &[u8] = b"\xff\x06\x00\x00sNaPpY";

#[cfg(test)]
mod tests;
