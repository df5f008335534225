//! Links of a binary to its debug files.

use super::build_id::BuildId;
use super::elf::Elf;

/// A debug link, see [GDB](https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugLink {
    /// Name of the file, without directories.
    pub name: String,
    /// CRC-32 of the whole file.
    pub crc: u32,
}

pub(super) fn debug_link(elf: &Elf<'_>) -> Option<DebugLink> {
    read_debug_link(&elf.section_data(".gnu_debuglink").unwrap_or_default())
}

pub(super) fn supplementary_id(elf: &Elf<'_>) -> Option<BuildId> {
    read_supplementary_id(&elf.section_data(".gnu_debugaltlink").unwrap_or_default())
}

/// Parses a zero-terminated name, padding to 4 bytes, and the CRC.
pub(super) fn read_debug_link(section: &[u8]) -> Option<DebugLink> {
    let end = section.iter().position(|byte| *byte == 0)?;
    let name = str::from_utf8(section.get(..end)?).ok()?;
    let crc = section.get((end + 1).next_multiple_of(4)..)?;
    Some(DebugLink {
        name: file_name(name)?.to_owned(),
        crc: u32::from_le_bytes(*crc.first_chunk()?),
    })
}

/// Parses a zero-terminated path and a build id. The path is untrusted and ignored.
fn read_supplementary_id(section: &[u8]) -> Option<BuildId> {
    let end = section.iter().position(|byte| *byte == 0)?;
    BuildId::from_bytes(section.get(end + 1..)?).ok()
}

/// Returns the name if it is a plain file name without directories.
pub(super) fn file_name(name: &str) -> Option<&str> {
    let plain = !name.contains('/') && !matches!(name, "" | "." | "..");
    let printable = name.len() <= LONGEST_NAME && !name.chars().any(char::is_control);
    (plain && printable).then_some(name)
}

/// Maximum length of a file name in bytes: Linux's `NAME_MAX`.
pub(super) const LONGEST_NAME: usize = 255;
