//! JSON files within a memory budget.

use memchr::memmem;
use serde::Deserialize;

use crate::builder::Builder;
use crate::error::Fault;

/// Memory of parsed JSON for each byte of text: `[],` becomes a vector of 24 bytes, and vectors grow by doubling.
const PER_BYTE: usize = 16;

/// Length of the parts of a file that are searched, at its beginning and its end, in bytes.
const SEARCHED: usize = 8 << 10;

/// Parses a file. The permit covers the memory of the parsed file until the end of the conversion.
///
/// # Errors
/// The text is not JSON of this type, or has more than 128 levels.
pub(crate) fn parse<'f, T: Deserialize<'f>>(
    bytes: &'f [u8],
    builder: &mut Builder<'_>,
) -> Result<T, Fault> {
    builder.grow(bytes.len().saturating_mul(PER_BYTE))?;
    Ok(serde_json::from_slice(without_mark(bytes))?)
}

/// Returns true if a JSON object has all of these texts near its beginning or its end.
pub(crate) fn mentions(bytes: &[u8], texts: &[&str]) -> bool {
    if without_mark(bytes).trim_ascii_start().first() != Some(&b'{') {
        return false;
    }
    let start = bytes.get(..SEARCHED).unwrap_or(bytes);
    let end = bytes.get(bytes.len().saturating_sub(SEARCHED)..);
    let end = end.unwrap_or_default();
    let has = |text: &&str| [start, end].iter().any(|part| contains(part, text));
    texts.iter().all(has)
}

/// Returns true if bytes contain a text.
pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    memmem::find(bytes, text.as_bytes()).is_some()
}

/// Removes the byte order mark that some editors write.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}
