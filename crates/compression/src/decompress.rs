//! Decompression of request bodies from outside. Memory is bounded and accounted for before it is used.

use std::io::{self, Read};

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::Decompressor;
use memchr::memmem;
use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

use super::Codec;
use tributary_memory::{NoRoom, Permit};

/// Reason why a body was not decompressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The decompressed body is larger than this many bytes. A retry cannot succeed.
    #[error("the decompressed body is larger than {0} bytes")]
    TooLarge(usize),
    /// The memory budget has no room for the body.
    #[error("no memory to decompress the body: {0}")]
    NoMemory(#[from] NoRoom),
    /// The body is invalid or incomplete.
    #[error("{0}")]
    Corrupt(String),
}

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
    // Doubling may have left more than half of the capacity unused, and the bytes may be kept for long.
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

struct Output<'p> {
    bytes: Vec<u8>,
    limit: usize,
    permit: &'p mut Permit,
}

impl Output<'_> {
    /// Makes room for at least one more byte. One byte above the limit may be written, to detect that there is more.
    fn room(&mut self) -> Result<(), DecompressError> {
        if self.bytes.len() > self.limit {
            return Err(DecompressError::TooLarge(self.limit));
        }
        if self.bytes.len() < self.bytes.capacity() {
            return Ok(());
        }
        let most = self.limit.saturating_add(1);
        self.reserve((self.bytes.capacity() * 2).clamp(SMALLEST.min(most), most))
    }

    /// Grows the capacity to at least `capacity`, which exceeds the limit by one at most.
    fn reserve(&mut self, capacity: usize) -> Result<(), DecompressError> {
        // While the bytes are moved, the old allocation exists beside the new one.
        let old = self.bytes.capacity();
        self.permit.grow(capacity)?;
        self.bytes.reserve_exact(capacity - self.bytes.len());
        self.permit.shrink_to(self.permit.bytes() - old);
        Ok(())
    }

    /// Allocates once for the declared size, if it is plausible. No data compresses better than `ratio`.
    fn expect(&mut self, declared: u64, input: usize, ratio: usize) -> Result<(), DecompressError> {
        let plausible = self.limit.min(input.saturating_mul(ratio));
        match usize::try_from(declared) {
            // One more byte, so that the decoder's last call needs no allocation.
            Ok(declared) if declared <= plausible => self.reserve(declared + 1),
            _ => Ok(()),
        }
    }

    /// Accounts for the decoder's own memory until the decompression is over.
    fn scratch(&mut self, bytes: usize) -> Result<(), DecompressError> {
        Ok(self.permit.grow(bytes)?)
    }

    fn fill(&mut self, reader: &mut impl Read) -> Result<(), DecompressError> {
        loop {
            self.room()?;
            let len = self.bytes.len();
            self.bytes
                .resize(self.bytes.capacity().min(len + READ_SIZE), 0);
            let read = reader.read(self.bytes.get_mut(len..).unwrap_or_default());
            self.bytes.truncate(len + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(truncated());
                }
                Err(error) => return Err(corrupt(error)),
            }
        }
    }
}

/// Decompresses gzip (RFC 1952): one or more members.
fn gzip(mut input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
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
    // The declared size was plausible if there is room for one byte more.
    if output.bytes.capacity() <= declared || !output.bytes.is_empty() {
        return false;
    }
    output.bytes.resize(declared, 0);
    let decoded = Decompressor::new().gzip_decompress(input, &mut output.bytes);
    let whole = decoded.is_ok_and(|size| size == declared)
        && input.last_chunk::<TRAILER>().is_some_and(|trailer| {
            // The decoder silently stops after the first member. It has verified that member's trailer (checksum and
            // size). So the member is the only one if the same trailer ends the input and occurs nowhere earlier.
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
fn zlib(input: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
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

/// Decompresses zstd (RFC 8878): one or more frames. Skippable frames are skipped.
fn zstd(bytes: &[u8], output: &mut Output<'_>) -> Result<(), DecompressError> {
    if bytes.is_empty() {
        return Err(truncated());
    }
    output.scratch(ZSTD_STATE)?;
    let mut decoder = Decoder::new().map_err(corrupt)?;
    decoder
        .set_parameter(DParameter::WindowLogMax(ZSTD_LARGEST_WINDOW_LOG))
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
        // With the whole frame as input and room for the whole content, the decoder needs no window.
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

/// Decompresses one LZ4 frame. A second frame may have larger blocks, and no OTLP sender writes two.
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
        ran_out: false,
    });
    output.fill(&mut decoder)?;
    // The decoder takes a missing block header for the end. A complete frame never requests one.
    if decoder.get_ref().ran_out {
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
    ran_out: bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        self.ran_out |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

fn corrupt(reason: impl std::fmt::Display) -> DecompressError {
    DecompressError::Corrupt(format!("the compressed body is corrupt: {reason}"))
}

fn truncated() -> DecompressError {
    DecompressError::Corrupt("the compressed body is truncated".to_owned())
}

/// First allocation in bytes, if the size is unknown.
const SMALLEST: usize = 8 << 10;
/// Bytes per read from a decoder that needs initialized memory.
const READ_SIZE: usize = 64 << 10;
/// Memory in bytes: a window of 32 KiB, and the decoder's tables.
const INFLATE_STATE: usize = 64 << 10;
/// Maximum window of RFC 1951, 32 KiB.
const WINDOW_BITS: u8 = 15;
/// Size in bytes of a member's trailer: checksum and content size modulo 2^32 (RFC 1952).
const TRAILER: usize = 8;
/// Maximum ratio of deflate (zlib's technical notes).
const DEFLATE_RATIO: usize = 1032;
/// Memory of a decoder without its window, in bytes.
const ZSTD_STATE: usize = 160 << 10;
/// Two blocks of the maximum size, which the decoder keeps beside the window.
const ZSTD_BLOCKS: usize = 256 << 10;
/// RFC 8878, 3.1.1.1.2 recommends that decoders support at least 8 MiB.
const ZSTD_USUAL_WINDOW: usize = 8 << 20;
/// 128 MiB, zstd's own default. Windows above the caller's limit are refused earlier.
const ZSTD_LARGEST_WINDOW_LOG: u32 = 27;
/// A copy of 64 bytes takes at least 3 bytes (snappy's format description).
const SNAPPY_RATIO: usize = 22;
/// One compressed and one decompressed chunk.
const SNAPPY_STATE: usize = 160 << 10;
/// Stream identifier chunk (snappy's framing format, 4.1).
const SNAPPY_STREAM_IDENTIFIER: &[u8] = b"\xff\x06\x00\x00sNaPpY";

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;
    use tributary_memory::Budget;

    const CODECS: [Codec; 6] = [
        Codec::Gzip,
        Codec::Zlib,
        Codec::Zstd,
        Codec::SnappyBlock,
        Codec::SnappyFramed,
        Codec::Lz4,
    ];
    const MIB: usize = 1 << 20;

    fn compress(codec: Codec, data: &[u8]) -> Vec<u8> {
        match codec {
            Codec::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Codec::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
            Codec::Zstd => zstd::bulk::compress(data, 1).unwrap(),
            Codec::SnappyBlock => snap::raw::Encoder::new().compress_vec(data).unwrap(),
            Codec::SnappyFramed => {
                let mut encoder = snap::write::FrameEncoder::new(Vec::new());
                encoder.write_all(data).unwrap();
                encoder.into_inner().unwrap()
            }
            Codec::Lz4 => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(data).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    /// Returns zstd as a stream, without the content size in the header.
    fn zstd_stream(data: &[u8]) -> Vec<u8> {
        zstd::stream::encode_all(data, 1).unwrap()
    }

    fn run(codec: Codec, input: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
        let budget = Budget::new(64 * MIB);
        run_within(&budget, codec, input, limit)
    }

    fn run_within(
        budget: &Arc<Budget>,
        codec: Codec,
        input: &[u8],
        limit: usize,
    ) -> Result<Vec<u8>, DecompressError> {
        let mut permit = budget.acquire(1).unwrap();
        let result = decompress(codec, input, limit, &mut permit);
        let kept = result.as_ref().map_or(0, Vec::capacity);
        assert_eq!(permit.bytes(), 1 + kept, "{codec:?}");
        result
    }

    fn text(len: usize) -> Vec<u8> {
        (0..len)
            .map(|at| (at % 251) as u8 ^ (at / 997) as u8)
            .collect()
    }

    #[test]
    fn every_codec_round_trips() {
        for codec in CODECS {
            for len in [1, 100, 70_000, 3 * MIB] {
                let data = text(len);
                assert_eq!(
                    run(codec, &compress(codec, &data), len).unwrap(),
                    data,
                    "{codec:?}"
                );
            }
        }
        let data = text(3 * MIB);
        assert_eq!(
            run(Codec::Zstd, &zstd_stream(&data), data.len()).unwrap(),
            data
        );
    }

    #[test]
    fn an_empty_body_may_be_compressed_too() {
        for codec in CODECS {
            assert_eq!(
                run(codec, &compress(codec, b""), 0).unwrap(),
                b"",
                "{codec:?}"
            );
        }
    }

    #[test]
    fn several_gzip_members_or_zstd_frames_are_one_body() {
        for codec in [Codec::Gzip, Codec::Zstd] {
            let both = [compress(codec, b"one "), compress(codec, b"two")].concat();
            assert_eq!(run(codec, &both, 7).unwrap(), b"one two");
            assert_eq!(run(codec, &both, 6), Err(DecompressError::TooLarge(6)));
        }
        let both = [zstd_stream(b"one "), compress(Codec::Zstd, b"two")].concat();
        assert_eq!(run(Codec::Zstd, &both, 7).unwrap(), b"one two");
    }

    #[test]
    fn equal_gzip_members_are_all_read() {
        let member = compress(Codec::Gzip, b"the same");
        for members in 1..4 {
            let data = b"the same".repeat(members);
            let body = member.repeat(members);
            assert_eq!(run(Codec::Gzip, &body, data.len()).unwrap(), data);
        }
        // A wrong content size with the correct checksum.
        let mut body = member.clone();
        if let Some(size) = body.last_chunk_mut::<4>() {
            *size = 7_u32.to_le_bytes();
        }
        let result = run(Codec::Gzip, &body, MIB);
        assert!(matches!(result, Err(DecompressError::Corrupt(_))));
    }

    #[test]
    fn deflate_without_its_zlib_wrapper_is_understood() {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(b"bare").unwrap();
        assert_eq!(
            run(Codec::Zlib, &encoder.finish().unwrap(), 10).unwrap(),
            b"bare"
        );
    }

    #[test]
    fn a_bomb_is_refused_within_the_limit_and_little_scratch() {
        let zeros = vec![0; 48 * MIB];
        let bombs = CODECS
            .into_iter()
            .map(|codec| (codec, compress(codec, &zeros)))
            .chain([(Codec::Zstd, zstd_stream(&zeros))]);
        for (codec, bomb) in bombs {
            // Doubling stops at the limit, and the old half exists while its bytes are moved. The rest is the decoders'
            // own memory.
            let budget = Budget::new(MIB + MIB / 2 + 13 * MIB);
            assert_eq!(
                run_within(&budget, codec, &bomb, MIB),
                Err(DecompressError::TooLarge(MIB)),
                "{codec:?}"
            );
        }
    }

    #[test]
    fn the_budget_is_asked_before_memory_is_used() {
        for codec in CODECS {
            let body = compress(codec, &text(MIB));
            let refused = run_within(&Budget::new(MIB / 2), codec, &body, 8 * MIB);
            assert!(
                matches!(refused, Err(DecompressError::NoMemory(_))),
                "{codec:?}"
            );
        }
    }

    #[test]
    fn truncated_body_is_an_error_at_every_length() {
        for codec in CODECS {
            let whole = compress(codec, &text(300));
            for len in 0..whole.len() {
                // A framed snappy stream has no end mark, so truncation between chunks cannot be detected.
                if codec == Codec::SnappyFramed && matches!(len, 0 | 10) {
                    continue;
                }
                let result = run(codec, &whole[..len], MIB);
                assert!(
                    matches!(result, Err(DecompressError::Corrupt(_))),
                    "{codec:?} {len} {result:?}"
                );
            }
        }
        let whole = zstd_stream(&text(300));
        for len in 0..whole.len() {
            assert!(run(Codec::Zstd, &whole[..len], MIB).is_err(), "{len}");
        }
    }

    #[test]
    fn trailing_data_is_an_error() {
        for codec in CODECS {
            let mut body = compress(codec, &text(300));
            body.extend_from_slice(b"trailing");
            let result = run(codec, &body, MIB);
            assert!(
                matches!(result, Err(DecompressError::Corrupt(_))),
                "{codec:?} {result:?}"
            );
        }
    }

    #[test]
    fn a_declared_size_is_not_believed() {
        // A snappy block of 5 bytes that declares a mebibyte.
        let block = [0x80, 0x80, 0x40, 0x00, 0x61];
        let budget = Budget::new(MIB / 2);
        assert!(matches!(
            run_within(&budget, Codec::SnappyBlock, &block, 2 * MIB),
            Err(DecompressError::Corrupt(_))
        ));
        // A zstd frame that needs a window of 1 GiB.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 20 << 3, 0x01, 0x00, 0x00];
        assert!(matches!(
            run(Codec::Zstd, &frame, MIB),
            Err(DecompressError::Corrupt(_))
        ));
    }

    proptest! {
        #[test]
        fn decompression_never_panics_or_exceeds_limit(
            body in proptest::collection::vec(any::<u8>(), 0..300),
            prefix in 0..6usize,
            damage in any::<(usize, u8)>(),
        ) {
            for codec in CODECS {
                // Arbitrary bytes, then a valid body with one changed byte, which gets further.
                if let Ok(output) = run(codec, &body, 1000) {
                    prop_assert!(output.len() <= 1000);
                }
                let mut valid = compress(CODECS[prefix], &body);
                let at = damage.0 % valid.len().max(1);
                if let Some(byte) = valid.get_mut(at) {
                    *byte ^= damage.1;
                }
                if let Ok(output) = run(codec, &valid, 1000) {
                    prop_assert!(output.len() <= 1000);
                }
            }
        }
    }
}
