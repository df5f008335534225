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
fn compressed_empty_body_is_accepted() {
    for codec in CODECS {
        assert_eq!(
            run(codec, &compress(codec, b""), 0).unwrap(),
            b"",
            "{codec:?}"
        );
    }
}

#[test]
fn gzip_members_and_zstd_frames_are_concatenated() {
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
fn deflate_without_zlib_header_is_decompressed() {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(b"bare").unwrap();
    assert_eq!(
        run(Codec::Zlib, &encoder.finish().unwrap(), 10).unwrap(),
        b"bare"
    );
}

#[test]
fn bomb_is_refused_within_limit_and_bounded_scratch() {
    let zeros = vec![0; 48 * MIB];
    let bombs = CODECS
        .into_iter()
        .map(|codec| (codec, compress(codec, &zeros)))
        .chain([(Codec::Zstd, zstd_stream(&zeros))]);
    for (codec, bomb) in bombs {
        // Doubling stops at the limit, and copying keeps the old half. The rest is the decoders' own memory.
        let budget = Budget::new(MIB + MIB / 2 + 13 * MIB);
        assert_eq!(
            run_within(&budget, codec, &bomb, MIB),
            Err(DecompressError::TooLarge(MIB)),
            "{codec:?}"
        );
    }
}

#[test]
fn memory_is_reserved_before_allocation() {
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
fn false_declared_size_is_not_allocated() {
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
            // Arbitrary bytes, then a valid body with one changed byte, which reaches deeper code.
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
