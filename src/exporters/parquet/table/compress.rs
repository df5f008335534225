//! Compression of pages.

use std::io;

use bytes::Bytes;
use parquet::basic::Compression as Codec;

use super::layout::Compression;

/// Compresses page after page with the same working memory.
pub(super) struct Compressor {
    codec: Codec,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    snappy: snap::raw::Encoder,
}

impl Compressor {
    pub(super) fn new(compression: Compression) -> io::Result<Self> {
        Ok(Compressor {
            codec: compression.codec(),
            zstd: match compression {
                Compression::Zstd(level) => Some(zstd::bulk::Compressor::new(level)?),
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
