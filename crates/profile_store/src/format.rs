//! The format of a block file.
//!
//! ```text
//! file:     "TRIBPROF" section* index trailer
//! section:  the merged profile of a series in a window, as an OTLP request, compressed with zstd;
//!           or the cells of its heat map
//! index:    level, time, numbers of the replaced files, series with their labels, entries; compressed with zstd
//! trailer:  offset:u64 stored:u32 raw:u32 crc:u32 version:u32 "TRIBPEND"
//! ```
//!
//! Numbers of the trailer are little-endian, numbers of the index are varints. The checksums are CRC-32C: the trailer
//! has the checksum of the index, and the index has the checksums of the sections. A file with its final name is
//! complete, because it is written under another name and synced first.

use std::sync::Arc;

use tributary_otlp::reader::{put_varint, varint};

use super::options::{LAST_LEVEL, WINDOWS};
use super::series::Labels;

pub(crate) const MAGIC: [u8; 8] = *b"TRIBPROF";
const END: [u8; 8] = *b"TRIBPEND";
const VERSION: u32 = 1;
/// Size of the trailer, in bytes.
pub(crate) const TRAILER: usize = 32;
/// Compression level: the fastest level of zstd, except the negative levels.
const LEVEL: i32 = 1;
/// Maximum size of a section or an index before compression, in bytes. A larger number is damage.
const MAX_SECTION_BYTES: usize = 1 << 30;

/// Compressed bytes in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) at: u64,
    /// Size in the file, in bytes.
    pub(crate) stored: u32,
    /// Size before compression, in bytes.
    pub(crate) raw: u32,
    /// Checksum of the bytes in the file.
    pub(crate) crc: u32,
}

/// A series in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) series: Arc<Labels>,
    /// Start of the window, in seconds since 1970.
    pub(crate) window: u64,
    pub(crate) profile: Section,
    /// The cells of the heat map; empty without timestamps.
    pub(crate) heat: Section,
    pub(crate) total: i64,
    pub(crate) samples: u64,
    pub(crate) has_links: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index {
    /// Position of the window's length in [`WINDOWS`].
    pub(crate) level: u8,
    /// Start of the time in which the profiles were flushed, in seconds since 1970.
    pub(crate) created: u64,
    /// Numbers of the files whose profiles are in this file, including the files that those files replaced.
    pub(crate) replaces: Vec<u64>,
    /// Entries, in the order of their sections.
    pub(crate) entries: Vec<Entry>,
}

impl Index {
    /// Length of the windows, in seconds.
    pub(crate) fn window_len(&self) -> u64 {
        WINDOWS.get(usize::from(self.level)).copied().unwrap_or(1)
    }

    /// Encodes the index and the trailer of a file whose index begins at an offset.
    pub(crate) fn encode(&self, at: u64) -> Result<Vec<u8>, std::io::Error> {
        let mut raw = Vec::new();
        put_varint(self.level.into(), &mut raw);
        put_varint(self.created, &mut raw);
        put_varint(self.replaces.len() as u64, &mut raw);
        for number in &self.replaces {
            put_varint(*number, &mut raw);
        }
        let mut series: Vec<&Arc<Labels>> = Vec::new();
        let mut positions = std::collections::HashMap::new();
        for entry in &self.entries {
            positions
                .entry(Arc::as_ptr(&entry.series))
                .or_insert_with(|| {
                    series.push(&entry.series);
                    series.len() - 1
                });
        }
        put_varint(series.len() as u64, &mut raw);
        for labels in series {
            put_varint(labels.len() as u64, &mut raw);
            for (name, value) in labels.iter() {
                put_text(name, &mut raw);
                put_text(value, &mut raw);
            }
        }
        put_varint(self.entries.len() as u64, &mut raw);
        for entry in &self.entries {
            let position = positions.get(&Arc::as_ptr(&entry.series));
            put_varint(position.copied().unwrap_or_default() as u64, &mut raw);
            put_varint(entry.window, &mut raw);
            put_section(&entry.profile, &mut raw);
            put_section(&entry.heat, &mut raw);
            put_varint(entry.total.cast_unsigned(), &mut raw);
            put_varint(entry.samples, &mut raw);
            put_varint(entry.has_links.into(), &mut raw);
        }
        let (mut bytes, section) = compress(&raw, at)?;
        bytes.extend(at.to_le_bytes());
        bytes.extend(section.stored.to_le_bytes());
        bytes.extend(section.raw.to_le_bytes());
        bytes.extend(section.crc.to_le_bytes());
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(END);
        Ok(bytes)
    }

    /// Decodes an index. `end` is the offset of the index, and all sections are before it. Returns `None` for a damaged
    /// index.
    pub(crate) fn decode(
        mut raw: &[u8],
        end: u64,
        intern: impl Fn(Labels) -> Arc<Labels>,
    ) -> Option<Self> {
        let input = &mut raw;
        let mut index = Index {
            level: u8::try_from(number(input)?).ok()?,
            created: number(input)?,
            ..Index::default()
        };
        if index.level > LAST_LEVEL {
            return None;
        }
        for _ in 0..number(input)? {
            index.replaces.push(number(input)?);
        }
        let mut series = Vec::new();
        for _ in 0..number(input)? {
            let mut pairs = Vec::new();
            for _ in 0..number(input)? {
                pairs.push((text(input)?.to_owned(), text(input)?.to_owned()));
            }
            series.push(intern(Labels::new(pairs)));
        }
        for _ in 0..number(input)? {
            let position = usize::try_from(number(input)?).ok()?;
            index.entries.push(Entry {
                series: series.get(position)?.clone(),
                window: number(input)?,
                profile: section(input, end)?,
                heat: section(input, end)?,
                total: number(input)?.cast_signed(),
                samples: number(input)?,
                has_links: number(input)? != 0,
            });
        }
        input.is_empty().then_some(index)
    }
}

/// Decodes a trailer. Returns `None` if the trailer is damaged or of another version.
pub(crate) fn trailer(bytes: &[u8]) -> Option<Section> {
    let (at, rest) = bytes.split_first_chunk()?;
    let (stored, rest) = rest.split_first_chunk()?;
    let (raw, rest) = rest.split_first_chunk()?;
    let (crc, rest) = rest.split_first_chunk()?;
    let (version, rest) = rest.split_first_chunk()?;
    let is_known = u32::from_le_bytes(*version) == VERSION && rest == END;
    is_known.then_some(Section {
        at: u64::from_le_bytes(*at),
        stored: u32::from_le_bytes(*stored),
        raw: u32::from_le_bytes(*raw),
        crc: u32::from_le_bytes(*crc),
    })
}

/// Compresses bytes that will be at an offset.
pub(crate) fn compress(raw: &[u8], at: u64) -> Result<(Vec<u8>, Section), std::io::Error> {
    let bytes = zstd::bulk::compress(raw, LEVEL)?;
    let too_large = |_| std::io::Error::from(std::io::ErrorKind::FileTooLarge);
    let section = Section {
        at,
        stored: u32::try_from(bytes.len()).map_err(too_large)?,
        raw: u32::try_from(raw.len()).map_err(too_large)?,
        crc: crc32c::crc32c(&bytes),
    };
    Ok((bytes, section))
}

/// Decompresses a section. Returns `None` if the section is damaged.
pub(crate) fn decompress(stored: &[u8], section: &Section) -> Option<Vec<u8>> {
    let raw = usize::try_from(section.raw).ok()?;
    if crc32c::crc32c(stored) != section.crc || raw > MAX_SECTION_BYTES {
        return None;
    }
    let bytes = zstd::bulk::decompress(stored, raw).ok()?;
    (bytes.len() == raw).then_some(bytes)
}

fn put_text(text: &str, into: &mut Vec<u8>) {
    put_varint(text.len() as u64, into);
    into.extend_from_slice(text.as_bytes());
}

fn put_section(section: &Section, into: &mut Vec<u8>) {
    put_varint(section.at, into);
    for number in [section.stored, section.raw, section.crc] {
        put_varint(number.into(), into);
    }
}

pub(crate) fn number(input: &mut &[u8]) -> Option<u64> {
    let (number, rest) = varint(input).ok()?;
    *input = rest;
    Some(number)
}

fn text<'i>(input: &mut &'i [u8]) -> Option<&'i str> {
    let length = usize::try_from(number(input)?).ok()?;
    let (text, rest) = input.split_at_checked(length)?;
    *input = rest;
    str::from_utf8(text).ok()
}

fn section(input: &mut &[u8], end: u64) -> Option<Section> {
    let at = number(input)?;
    let mut next = || u32::try_from(number(input)?).ok();
    let section = Section {
        at,
        stored: next()?,
        raw: next()?,
        crc: next()?,
    };
    let is_inside = at.checked_add(section.stored.into())? <= end;
    is_inside.then_some(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let labels = |value: &str| {
            Arc::new(Labels::new([
                ("a".to_owned(), value.to_owned()),
                ("b".to_owned(), "\u{202e}<".to_owned()),
            ]))
        };
        let (one, two) = (labels("1"), labels("2"));
        let entry = |series: &Arc<Labels>, window, total| Entry {
            series: series.clone(),
            window,
            profile: Section {
                at: 8,
                stored: 10,
                raw: 90,
                crc: 7,
            },
            heat: Section::default(),
            total,
            samples: 3,
            has_links: window == 20,
        };
        Index {
            level: 1,
            created: 77,
            replaces: vec![3, 9],
            entries: vec![
                entry(&one, 10, -5),
                entry(&two, 10, i64::MAX),
                entry(&one, 20, 0),
            ],
        }
    }

    #[test]
    fn index_round_trips() {
        let written = index().encode(100).unwrap();
        let at = written.len() - TRAILER;
        let found = trailer(&written[at..]).unwrap();
        assert_eq!((found.at, found.stored as usize), (100, at));
        let raw = decompress(&written[..at], &found).unwrap();
        assert_eq!(Index::decode(&raw, 100, Arc::new).unwrap(), index());
        assert_eq!(Index::decode(&raw, 17, Arc::new), None);
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let written = index().encode(100).unwrap();
        let read = |bytes: &[u8]| {
            let at = bytes.len().checked_sub(TRAILER)?;
            let section = trailer(&bytes[at..])?;
            let stored = bytes.get(..at).filter(|_| section.stored as usize == at)?;
            let raw = decompress(stored, &section)?;
            Index::decode(&raw, section.at, Arc::new)
        };
        assert_eq!(read(&written), Some(index()));
        for at in 0..written.len() {
            assert_eq!(read(&written[..at]), None);
            for bit in 0..8 {
                let mut changed = written.clone();
                changed[at] ^= 1 << bit;
                // The offset of the index is checked against the size of the file.
                let is_offset =
                    (written.len() - TRAILER..written.len() - TRAILER + 8).contains(&at);
                assert!(
                    is_offset || read(&changed).is_none(),
                    "byte {at}, bit {bit}"
                );
            }
        }
    }
}
