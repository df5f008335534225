//! The target for decompression.

use std::io::Read;

use bytes::Bytes;
use tributary_compression::Codec;
use tributary_compression::compress::Compressor;
use tributary_compression::decompress;
use tributary_memory::Budget;

pub(crate) const CODECS: [Codec; 6] = [
    Codec::Gzip,
    Codec::Zlib,
    Codec::Zstd,
    Codec::SnappyBlock,
    Codec::SnappyFramed,
    Codec::Lz4,
];

/// Decompression never exceeds the limit or the budget, and the permit is exact to the byte.
/// Accepted output equals that of the codec's own decoder. Data compressed here is read again.
pub fn decompress(input: &[u8]) {
    let [codec, limit, budget, body @ ..] = input else {
        return;
    };
    let codec = CODECS[usize::from(*codec) % CODECS.len()];
    let limit = (16 << (limit % 16)) + usize::from(limit / 16);
    // A budget that is too small for some results, or large enough for all of them.
    let budget = Budget::new(HELD + (1 << (10 + budget % 20)));
    if let Some(bytes) = checked(codec, body, limit, &budget) {
        assert_eq!(reference(codec, body, limit).as_deref(), Some(&*bytes));
    }
    let compressed = Compressor::new(codec, None).compress(&[Bytes::copy_from_slice(body)]);
    let roomy = Budget::new(1 << 30);
    let back = checked(codec, &compressed.unwrap(), limit, &roomy);
    assert_eq!(
        back.as_deref(),
        Some(body).filter(|body| body.len() <= limit)
    );
}

/// Bytes held before by another owner.
const HELD: usize = 100;

fn checked(
    codec: Codec,
    body: &[u8],
    limit: usize,
    budget: &std::sync::Arc<Budget>,
) -> Option<Vec<u8>> {
    let mut permit = budget.acquire(HELD).unwrap();
    let result = decompress::decompress(codec, body, limit, &mut permit);
    let held = result.as_ref().map_or(0, Vec::capacity);
    assert_eq!(permit.bytes(), HELD + held);
    assert_eq!(budget.used(), HELD + held);
    if let Ok(bytes) = &result {
        assert!(bytes.len() <= limit);
        // One byte is needed to detect the end of the output, and the buffer is at least half full.
        assert!(held <= limit + 1 && held <= 2 * bytes.len() + 1, "{held}");
    }
    drop(permit);
    assert_eq!(budget.used(), 0);
    result.ok()
}

/// Decompresses with the library's own reader, unless the result exceeds the limit.
fn reference(codec: Codec, body: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut read = |reader: &mut dyn Read| {
        let mut reader = reader.take(limit as u64 + 1);
        reader.read_to_end(&mut bytes).is_ok()
    };
    let complete = match codec {
        Codec::Gzip => read(&mut flate2::read::MultiGzDecoder::new(body)),
        Codec::Zlib if flate2::read::ZlibDecoder::new(body).read(&mut [0]).is_ok() => {
            read(&mut flate2::read::ZlibDecoder::new(body))
        }
        Codec::Zlib => read(&mut flate2::read::DeflateDecoder::new(body)),
        Codec::Zstd => read(&mut zstd::stream::read::Decoder::new(body).unwrap()),
        Codec::SnappyBlock => return snap::raw::Decoder::new().decompress_vec(body).ok(),
        Codec::SnappyFramed => read(&mut snap::read::FrameDecoder::new(body)),
        Codec::Lz4 => read(&mut lz4_flex::frame::FrameDecoder::new(body)),
    };
    (complete && bytes.len() <= limit).then_some(bytes)
}
