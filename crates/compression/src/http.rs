//! Compression of HTTP request bodies, with the Collector's names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Codec;

/// A codec of HTTP requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&[""]))]
pub enum Compression {
    /// gzip (RFC 1952).
    #[default]
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Snappy block format.
    Snappy,
    /// Snappy framing format.
    #[serde(rename = "x-snappy-framed")]
    SnappyFramed,
    /// zlib (RFC 1950).
    Zlib,
    /// zlib (RFC 1950), as HTTP defines `deflate`.
    Deflate,
    /// LZ4 frame format.
    Lz4,
    /// No compression.
    #[serde(alias = "")]
    None,
}

impl Compression {
    /// Returns the codec, or `None` for no compression.
    pub fn codec(self) -> Option<Codec> {
        match self {
            Compression::Gzip => Some(Codec::Gzip),
            Compression::Zstd => Some(Codec::Zstd),
            Compression::Snappy => Some(Codec::SnappyBlock),
            Compression::SnappyFramed => Some(Codec::SnappyFramed),
            Compression::Zlib | Compression::Deflate => Some(Codec::Zlib),
            Compression::Lz4 => Some(Codec::Lz4),
            Compression::None => None,
        }
    }

    /// Returns the value of `content-encoding`.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Compression::Gzip => Some("gzip"),
            Compression::Zstd => Some("zstd"),
            Compression::Snappy => Some("snappy"),
            Compression::SnappyFramed => Some("x-snappy-framed"),
            Compression::Zlib => Some("zlib"),
            Compression::Deflate => Some("deflate"),
            Compression::Lz4 => Some("lz4"),
            Compression::None => None,
        }
    }
}
