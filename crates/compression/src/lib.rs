//! Compression codecs of request bodies.

pub mod compress;
pub mod decompress;
pub mod http;

/// A codec of request bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// RFC 1952.
    Gzip,
    /// RFC 1950; the `deflate` of HTTP is this too.
    Zlib,
    /// RFC 8878.
    Zstd,
    /// Block format without framing: what `snappy` means over OTLP/HTTP.
    SnappyBlock,
    /// Framed format: what `snappy` means over gRPC, and `x-snappy-framed` over HTTP.
    SnappyFramed,
    /// LZ4 frame format.
    Lz4,
}
