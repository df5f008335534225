//! The compiler on files in memory, for fuzz targets.

use std::io::Cursor;
use std::path::Path;

use super::compile::{CompileError, Limits, Summary, compile_bytes};
use super::file::format;

/// Bytes of the header of a compiled file.
pub const HEADER: usize = format::HEADER;
/// The version in it.
pub const VERSION: u32 = format::VERSION;

/// Compiles files, the binary first, within limits that suit small inputs.
///
/// # Errors
/// As [`compile`](super::compile()).
pub fn compile(files: &[&[u8]]) -> Result<(Summary, Vec<u8>), CompileError> {
    let limits = Limits {
        input_bytes: 1 << 20,
        decompressed_bytes: 16 << 20,
        output_bytes: 16 << 20,
        entries: 1 << 18,
    };
    let files: Vec<_> = files
        .iter()
        .map(|file| (Path::new("file"), *file))
        .collect();
    let mut output = Cursor::new(Vec::new());
    let summary = compile_bytes(&files, &limits, &mut output)?;
    Ok((summary, output.into_inner()))
}
