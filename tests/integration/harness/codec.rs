//! Compression of bodies by its names in `Content-Encoding` and `grpc-encoding`.

use std::io::{Read, Write};

use flate2::Compression;

/// Every name that is accepted over HTTP by default.
pub const HTTP: [&str; 8] = [
    "identity",
    "gzip",
    "zstd",
    "zlib",
    "deflate",
    "snappy",
    "x-snappy-framed",
    "lz4",
];

/// Every name that is accepted over gRPC.
pub const GRPC: [&str; 4] = ["identity", "gzip", "zstd", "snappy"];

/// `bytes` in the named encoding.
pub fn compress(name: &str, bytes: &[u8]) -> Vec<u8> {
    match name {
        "identity" => bytes.to_vec(),
        "gzip" => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "zlib" | "deflate" => {
            let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), Compression::fast());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        "zstd" => zstd::stream::encode_all(bytes, 1).unwrap(),
        "snappy" => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        "x-snappy-framed" => {
            let mut writer = snap::write::FrameEncoder::new(Vec::new());
            writer.write_all(bytes).unwrap();
            writer.into_inner().unwrap()
        }
        "lz4" => {
            let mut writer = lz4_flex::frame::FrameEncoder::new(Vec::new());
            writer.write_all(bytes).unwrap();
            writer.finish().unwrap()
        }
        other => panic!("no such encoding: {other}"),
    }
}

/// Decompresses bytes in the named encoding.
pub fn decompress(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match name {
        "" | "identity" => plain.extend_from_slice(bytes),
        "gzip" => {
            let mut reader = flate2::read::GzDecoder::new(bytes);
            reader.read_to_end(&mut plain).unwrap();
        }
        "zlib" | "deflate" => {
            let mut reader = flate2::read::ZlibDecoder::new(bytes);
            reader.read_to_end(&mut plain).unwrap();
        }
        "zstd" => plain = zstd::stream::decode_all(bytes).unwrap(),
        "snappy" => plain = snap::raw::Decoder::new().decompress_vec(bytes).unwrap(),
        "x-snappy-framed" => {
            let mut reader = snap::read::FrameDecoder::new(bytes);
            reader.read_to_end(&mut plain).unwrap();
        }
        "lz4" => {
            let mut reader = lz4_flex::frame::FrameDecoder::new(bytes);
            reader.read_to_end(&mut plain).unwrap();
        }
        other => panic!("no such encoding: {other}"),
    }
    plain
}
