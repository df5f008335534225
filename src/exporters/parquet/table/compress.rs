//! Compression of pages.

use std::io;

use bytes::Bytes;
use parquet::basic::Compression as Codec;

use super::options::PageCompression;

/// Highest zstd level with the default window. Above this level, the window is limited to the size
/// of a page, however large a dictionary is: at level 22, the tables for 16 MiB of data would take
/// 257 MiB.
const SMALL_LEVELS: i32 = 8;
/// 1 MiB, as a power of two.
const WINDOW: u32 = 20;

/// Working memory of a compressor in bytes: the result of `ZSTD_estimateCCtxSize_usingCParams` of
/// zstd 1.5.7 for a page.
pub(super) const fn memory(compression: PageCompression) -> usize {
    let tenths_of_mib = match compression {
        PageCompression::Zstd(..=3) => 13,
        PageCompression::Zstd(4..=5) => 36,
        PageCompression::Zstd(6..=SMALL_LEVELS) => 66,
        PageCompression::Zstd(9..=12) => 126,
        PageCompression::Zstd(_) => 174,
        PageCompression::Snappy | PageCompression::Lz4 | PageCompression::None => 1,
    };
    tenths_of_mib * ((1 << 20) / 10)
}

/// Compresses pages with the same working memory.
pub(super) struct Compressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    snappy: snap::raw::Encoder,
}

impl Compressor {
    pub(super) fn new(compression: PageCompression) -> io::Result<Self> {
        Ok(Compressor {
            codec: compression.codec(),
            zstd: match compression {
                PageCompression::Zstd(level) => {
                    let mut zstd = zstd::bulk::Compressor::new(level)?;
                    if level > SMALL_LEVELS {
                        zstd.window_log(WINDOW)?;
                    }
                    Some(zstd)
                }
                _ => None,
            },
            snappy: snap::raw::Encoder::new(),
        })
    }

    pub(super) fn codec(&self) -> Codec {
        self.codec
    }

    pub(super) fn compress(&mut self, page: &[u8]) -> io::Result<Bytes> {
        let compressed = match (self.codec, &mut self.zstd) {
            (Codec::ZSTD(_), Some(zstd)) => zstd.compress(page)?,
            (Codec::LZ4_RAW, _) => lz4_flex::block::compress(page),
            (Codec::SNAPPY, _) => self.snappy.compress_vec(page)?,
            _ => page.to_vec(),
        };
        Ok(compressed.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_levels_stay_within_counted_memory() {
        // A dictionary larger than any page.
        let page = vec![7; 4 << 20];
        for level in [1, 3, 5, 8, 9, 12, 15, 22] {
            let compression = PageCompression::Zstd(level);
            let mut compressor = Compressor::new(compression).unwrap();
            compressor.compress(&page).unwrap();
            let taken = compressor.zstd.as_mut().unwrap().context_mut().sizeof();
            assert!(taken <= memory(compression), "{level}: {taken}");
        }
    }
}
