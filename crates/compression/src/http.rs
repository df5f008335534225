//! Compression of HTTP request bodies, by the Collector's names.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Codec;

/// A codec of HTTP requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&[""]))]
pub enum Compression {
    /// RFC 1952.
    #[default]
    Gzip,
    /// RFC 8878.
    Zstd,
    /// Snappy blocks.
    Snappy,
    /// Snappy, framed.
    #[serde(rename = "x-snappy-framed")]
    SnappyFramed,
    /// RFC 1950.
    Zlib,
    /// RFC 1950 too, as HTTP has it.
    Deflate,
    /// LZ4 frames.
    Lz4,
    /// No compression.
    #[serde(alias = "")]
    None,
}

impl Compression {
    /// The codec.
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

    /// The value of `content-encoding`.
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
