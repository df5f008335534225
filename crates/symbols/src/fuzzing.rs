//! Compiles files in memory, for fuzz targets.

use std::io::Cursor;
use std::path::Path;

use super::compile::{CompileError, CompileLimits, CompileSummary, compile_bytes};
use super::file::format;

/// Size of a compiled file's header, in bytes.
pub const HEADER: usize = format::HEADER;
/// Format version in the header.
pub const VERSION: u32 = format::VERSION;

/// Compiles files, the binary first, within limits for small inputs.
///
/// # Errors
/// Fails like [`compile`](super::compile()).
pub fn compile(files: &[&[u8]]) -> Result<(CompileSummary, Vec<u8>), CompileError> {
    let limits = CompileLimits {
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
