//! Reads the bytes of files and URLs.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::fetch;
use tributary_compression::Codec;
use tributary_compression::decompress::decompress;
use tributary_memory::Budget;

/// Maximum size of a file after decompression, in bytes.
pub(super) const LIMIT: u64 = 1 << 30;

/// Reads and decompresses a file or URL.
pub(super) fn read(file: &Path, fetching: &fetch::Fetching) -> Result<Vec<u8>, String> {
    let cannot = |error: io::Error| format!("cannot read the file: {error}");
    let mut bytes = Vec::new();
    if let Some(url) = fetch::url(file) {
        bytes = fetching.fetch(url, LIMIT)?;
    } else if file.as_os_str() == "-" {
        limited(io::stdin().lock(), &mut bytes).map_err(cannot)?;
    } else {
        let file = File::open(file).map_err(cannot)?;
        // The current size plus one byte, to detect a file that is growing.
        let size = file.metadata().map_err(cannot)?.len().min(LIMIT) + 1;
        bytes.reserve_exact(usize::try_from(size).unwrap_or_default());
        limited(file, &mut bytes).map_err(cannot)?;
    }
    // A server or an archive may compress data that is compressed already.
    for _ in 0..2 {
        if bytes.starts_with(&[0x1f, 0x8b]) {
            bytes = decompressed(&bytes).map_err(cannot)?;
        }
    }
    Ok(bytes)
}

fn decompressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    // The size alone limits the memory.
    let limit = usize::try_from(LIMIT).unwrap_or(usize::MAX);
    let mut permit = Budget::new(usize::MAX).empty_permit();
    decompress(Codec::Gzip, bytes, limit, &mut permit).map_err(io::Error::other)
}

fn limited(reader: impl Read, output: &mut Vec<u8>) -> io::Result<()> {
    if reader.take(LIMIT + 1).read_to_end(output)? as u64 > LIMIT {
        return Err(io::Error::other(format!(
            "the file has more than {LIMIT} bytes"
        )));
    }
    Ok(())
}

/// Returns the files of a measurement.
pub(super) fn runs(place: &Path) -> Result<Vec<PathBuf>, String> {
    if fetch::url(place).is_some() || !place.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let cannot =
        |error: std::io::Error| format!("{}: cannot read the file: {error}", place.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(place).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    match files.is_empty() {
        true => Err(format!("{}: the directory has no files", place.display())),
        false => Ok(files),
    }
}
