//! Codecs by their names in `grpc-encoding` or `Content-Encoding`.

use tributary_compression::Codec;
use tributary_compression::decompress::is_framed_snappy;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Not encoded.
    Identity,
    /// Encoded with this codec.
    Codec(Codec),
    /// Snappy, block or framed. Implementations differ, so the first bytes of the body decide.
    Snappy,
}

/// Names over gRPC, in the format of `grpc-accept-encoding`. The same names as in the Collector.
pub(crate) const GRPC_NAMES: &str = "identity,gzip,zstd,snappy";

/// Names over HTTP, in the order of the Collector's default for `compression_algorithms`.
pub(crate) const HTTP_NAMES: [&str; 8] = [
    "",
    "gzip",
    "zstd",
    "zlib",
    "snappy",
    "deflate",
    "lz4",
    "x-snappy-framed",
];

impl Encoding {
    /// Returns the encoding with this name in `grpc-encoding`.
    pub(crate) fn of_grpc(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"identity" | b"" => Encoding::Identity,
            b"gzip" => Encoding::Codec(Codec::Gzip),
            b"zstd" => Encoding::Codec(Codec::Zstd),
            b"snappy" => Encoding::Snappy,
            _ => return None,
        })
    }

    /// Returns the encoding with this name in [`HTTP_NAMES`].
    pub(crate) fn of_http(name: &str) -> Option<Self> {
        Some(match name {
            "" => Encoding::Identity,
            "gzip" => Encoding::Codec(Codec::Gzip),
            "zstd" => Encoding::Codec(Codec::Zstd),
            // RFC 9110, 8.4.1.2: `deflate` is the zlib format.
            "zlib" | "deflate" => Encoding::Codec(Codec::Zlib),
            "snappy" => Encoding::Snappy,
            "lz4" => Encoding::Codec(Codec::Lz4),
            "x-snappy-framed" => Encoding::Codec(Codec::SnappyFramed),
            _ => return None,
        })
    }

    /// Returns the codec of a body, or `None` if the body is not encoded.
    pub(crate) fn codec(self, body: &[u8]) -> Option<Codec> {
        match self {
            Encoding::Identity => None,
            Encoding::Codec(codec) => Some(codec),
            Encoding::Snappy if is_framed_snappy(body) => Some(Codec::SnappyFramed),
            Encoding::Snappy => Some(Codec::SnappyBlock),
        }
    }
}

/// Joins names for a message, with commas.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let shown: Vec<&str> = names
        .into_iter()
        .map(|name| if name.is_empty() { "identity" } else { name })
        .collect();
    shown.join(", ")
}
