//! As much of an ELF file as unwinding needs, by seeking: binaries are large.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

/// Contents of a 64-bit little-endian ELF file.
#[derive(Debug, Default)]
pub(super) struct Elf {
    /// Code segments: range in the file, and linked address. Other segments are left out, because a
    /// page with the end of one segment and the beginning of the next is mapped for both.
    pub(super) segments: Vec<(Range<u64>, u64)>,
    /// `.text`
    pub(super) text: Option<Range<u64>>,
    /// `.eh_frame`, where it is linked to and what is in it.
    pub(super) eh_frame: Option<(Range<u64>, Vec<u8>)>,
    /// `.eh_frame_hdr`
    pub(super) eh_frame_header: Option<(Range<u64>, Vec<u8>)>,
    /// `.got`
    pub(super) got: Option<Range<u64>>,
    /// The GNU build id, in hexadecimal digits.
    pub(super) build_id: String,
}

impl Elf {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or is no such file.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let header = read(file, 0, 64)?;
        // Magic number, 64 bits, little-endian.
        if !header.starts_with(b"\x7fELF\x02\x01") {
            return Err(invalid("it is no 64-bit little-endian ELF file"));
        }
        let mut elf = Elf::default();
        let (at, size, count) = (u64_at(&header, 32)?, 56, u16_at(&header, 56)?);
        for entry in read(file, at, size * u64::from(count))?.chunks_exact(56) {
            const LOAD: u32 = 1;
            const EXECUTABLE: u32 = 1;
            if u32_at(entry, 0)? == LOAD && u32_at(entry, 4)? & EXECUTABLE != 0 {
                let (offset, length) = (u64_at(entry, 8)?, u64_at(entry, 32)?);
                let place = offset..offset.saturating_add(length);
                elf.segments.push((place, u64_at(entry, 16)?));
            }
        }
        let (at, count) = (u64_at(&header, 40)?, u16_at(&header, 60)?);
        let sections = read(file, at, 64 * u64::from(count))?;
        let section = |at: usize| sections.get(at * 64..at * 64 + 64);
        let names = section(usize::from(u16_at(&header, 62)?));
        let names = names.ok_or_else(|| invalid("it has no names of sections"))?;
        let names = read(file, u64_at(names, 24)?, u64_at(names, 32)?)?;
        for section in sections.chunks_exact(64) {
            let name = usize::try_from(u32_at(section, 0)?).unwrap_or(usize::MAX);
            let name = names.get(name..).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let (address, offset, length) = (
                u64_at(section, 16)?,
                u64_at(section, 24)?,
                u64_at(section, 32)?,
            );
            let place = address..address.saturating_add(length);
            match name {
                b".text" => elf.text = Some(place),
                b".got" => elf.got = Some(place),
                b".eh_frame" => elf.eh_frame = Some((place, read(file, offset, length)?)),
                b".eh_frame_hdr" => {
                    elf.eh_frame_header = Some((place, read(file, offset, length)?));
                }
                b".note.gnu.build-id" => elf.build_id = build_id(&read(file, offset, length)?),
                _ => {}
            }
        }
        Ok(elf)
    }

    /// The address that this place in the file is linked for.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        // A mapping begins with a page, which may be before the segment.
        let page = |at: u64| at & !0xfff;
        let mut segments = self.segments.iter();
        let (place, address) =
            segments.find(|(place, _)| (page(place.start)..place.end).contains(&offset))?;
        Some(address.wrapping_add(offset.wrapping_sub(place.start)))
    }
}

/// The description of the first note: name size, size, type, name, all padded to four bytes.
fn build_id(note: &[u8]) -> String {
    let size = |at| {
        u32_at(note, at)
            .ok()
            .and_then(|size| usize::try_from(size).ok())
    };
    let (Some(name), Some(length)) = (size(0), size(4)) else {
        return String::new();
    };
    let start = name.next_multiple_of(4).saturating_add(12);
    let id = note.get(start..start.saturating_add(length));
    id.unwrap_or_default()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn read(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    /// Larger than any section that is read here.
    const LARGEST: u64 = 256 << 20;
    if length > LARGEST {
        return Err(invalid("a section is too large"));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> io::Result<[u8; N]> {
    let array = bytes.get(at..).and_then(<[u8]>::first_chunk);
    array.copied().ok_or_else(|| invalid("it is cut off"))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> io::Result<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
