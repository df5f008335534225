//! Compression and decompression of request bodies.
//!
//! # Invariants
//!
//! * Decompression takes memory from the budget before it allocates, and stops at the caller's limit. A size declared
//!   by the body is believed only within that limit.
//! * Truncated input and trailing data are errors.
//! * A compressor keeps its working memory from one body to the next.
//!
//! # Example
//!
//! ```
//! use tributary_compression::Codec;
//! use tributary_compression::compress::Compressor;
//! use tributary_compression::decompress::decompress;
//! use tributary_memory::Budget;
//!
//! let body = Compressor::new(Codec::Zstd, None).compress(&["spans".into(), "spans".into()])?;
//! let budget = Budget::new(1 << 20);
//! let mut permit = budget.acquire(body.len())?;
//! assert_eq!(decompress(Codec::Zstd, &body, 1 << 10, &mut permit)?, b"spansspans");
//! // A body that exceeds the limit is refused before it takes memory.
//! assert!(decompress(Codec::Zstd, &body, 9, &mut permit).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to start reading
//!
//! [`decompress`] for requests from outside, [`compress`] for requests of exporters, and [`http`] for the names of the
//! codecs in configurations and headers.

pub mod compress;
pub mod decompress;
pub mod http;

/// A codec of request bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// gzip (RFC 1952).
    Gzip,
    /// zlib (RFC 1950). HTTP's `deflate` is the same format.
    Zlib,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Snappy block format without framing: the meaning of `snappy` in OTLP/HTTP.
    SnappyBlock,
    /// Snappy framing format: the meaning of `snappy` in gRPC, and of `x-snappy-framed` in HTTP.
    SnappyFramed,
    /// LZ4 frame format.
    Lz4,
}
