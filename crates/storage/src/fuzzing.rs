//! The segment reader on bytes in memory, for fuzz targets.

use std::fs::File;
use std::io::{self, Write as _};

use bytes::Bytes;
use rustix::fs::{MemfdFlags, memfd_create};

use super::block::{self, Block};
use super::format::{Marker, SEGMENT_HEADER};
use super::position::Position;
use super::scan::{Found, Scan};
use super::{NewRecord, recovery};

const MARKER: Marker = *b"a marker";

/// A block or a damaged range found in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentRange {
    /// Offset behind the segment's header.
    pub at: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// Sequence number and content of the records of a block; `None` for a damaged range.
    pub records: Option<Vec<(u64, Bytes)>>,
}

/// Encodes each record as one block, as they follow the header of a segment.
pub fn blocks(records: &[&[u8]], compress: bool) -> Vec<u8> {
    let mut output = Vec::new();
    for (number, record) in records.iter().enumerate() {
        let record = NewRecord {
            parts: vec![Bytes::copy_from_slice(record)],
            items: 1,
            memory: Default::default(),
        };
        let block = Block::new(number as u64, vec![record], MARKER, compress);
        block
            .slices()
            .for_each(|slice| output.extend_from_slice(&slice));
    }
    output
}

/// Reads the bytes that follow the header of a segment.
///
/// # Errors
/// The system has no memory for the file.
pub fn read(blocks: &[u8]) -> io::Result<Vec<SegmentRange>> {
    let mut file = File::from(memfd_create("segment", MemfdFlags::CLOEXEC)?);
    file.write_all(&[0; SEGMENT_HEADER])?;
    file.write_all(blocks)?;
    let mut scan = Scan::of(file, MARKER, (SEGMENT_HEADER + blocks.len()) as u64);
    let mut pieces = Vec::new();
    while let Some(found) = scan.next()? {
        pieces.push(match found {
            Found::Damaged(damage) => SegmentRange {
                at: damage.at as usize - SEGMENT_HEADER,
                bytes: damage.bytes as usize,
                records: None,
            },
            Found::Block { at, header, stored } => {
                let raw = block::expand(&header, stored).unwrap_or_default();
                let none = Default::default();
                recovery::waiting(&header, stored, &none);
                let records = block::records(&header, &raw);
                SegmentRange {
                    at: at as usize - SEGMENT_HEADER,
                    bytes: header.len() as usize,
                    records: Some(records.map(|(number, _, data)| (number, data)).collect()),
                }
            }
        });
    }
    Ok(pieces)
}

/// Decodes a position and checks that encoding it yields the same bytes.
pub fn position(bytes: &[u8]) -> bool {
    Position::decode(bytes).is_some_and(|position| {
        assert_eq!(Position::decode(&position.encode()), Some(position));
        true
    })
}
