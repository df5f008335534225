//! The bytes of a segment: a header, then blocks, each a header and its records. Numbers are little-endian.
//!
//! ```text
//! segment: "TRIBUTRY" crc:u32 version:u32 marker:u64 first:u64 follows:u64 reused:u64
//! block:   marker:u64 crc:u32 payload_crc:u32 first:u64 items:u64 written:u64 records:u32 stored:u32 raw:u32 codec:u32
//! payload: { length:u32 items:u32 content }*   as it is, or as one LZ4 block
//! ```
//!
//! A block begins with the marker of its segment: the log's, eight random bytes, and the segment's name. Where a header is
//! damaged the next marker leads on. Bytes that were chosen once and for all would do as well, but then a client could
//! send what looks like a block. A file is used for one segment after another, and what it had before is behind what it has:
//! that has another marker, so it is nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a segment begins with.
const MAGIC: [u8; 8] = *b"TRIBUTRY";
/// The version of all of this.
pub(super) const VERSION: u32 = 2;
/// Bytes of a segment's header.
pub(super) const SEGMENT_HEADER: usize = 48;
/// Bytes of a block's header.
pub(super) const BLOCK_HEADER: usize = 56;
/// Bytes in front of a record's content.
pub(super) const RECORD_HEADER: usize = 8;
/// The largest record. Every receiver's limit is below it.
pub(super) const LARGEST_RECORD: usize = 1 << 30;

/// What all blocks of a segment begin with.
pub(super) type Marker = [u8; 8];

/// The marker of a segment, of its log's.
pub(super) fn marker_of(log: Marker, segment: u64) -> Marker {
    // Odd, so that no two segments have the same one.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let log = u64::from_le_bytes(log);
    log.wrapping_add(segment.wrapping_mul(STEP)).to_le_bytes()
}

/// What a segment begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// That of the log.
    pub(super) marker: Marker,
    /// The sequence number of the first record.
    pub(super) first: u64,
    /// One above the last record before it that was answered. What an earlier segment has from here on was refused or
    /// is here again; numbers between this and `first` are not used.
    pub(super) follows: u64,
    /// How long the file was before: up to there what is behind the last block is that of another segment.
    pub(super) reused: u64,
}

/// What a block begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// The sequence number of the first record; the others follow without a gap.
    pub(super) first: u64,
    pub(super) records: u32,
    /// Items of all records.
    pub(super) items: u64,
    /// Milliseconds since 1970.
    pub(super) written: u64,
    /// Bytes of the payload here.
    pub(super) stored: u32,
    /// Bytes of the payload uncompressed.
    pub(super) raw: u32,
    pub(super) codec: Codec,
    /// Of the payload as it is stored.
    pub(super) payload_crc: u32,
}

/// How a payload is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Raw = 0,
    Lz4 = 1,
}

/// Why a segment's header cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadHeader {
    Damaged,
    Version(u32),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SEGMENT_HEADER] {
        let mut body = Vec::with_capacity(SEGMENT_HEADER);
        body.extend(VERSION.to_le_bytes());
        body.extend(self.marker);
        for number in [self.first, self.follows, self.reused] {
            body.extend(number.to_le_bytes());
        }
        let mut header = [0; SEGMENT_HEADER];
        let crc = crc(&body).to_le_bytes();
        fill(&mut header, MAGIC.into_iter().chain(crc).chain(body));
        header
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let rest = &mut &*bytes;
        Self::read(rest).ok_or(BadHeader::Damaged)?
    }

    fn read(rest: &mut &[u8]) -> Option<Result<Self, BadHeader>> {
        if take::<8>(rest)? != MAGIC {
            return None;
        }
        let sum = u32::from_le_bytes(take(rest)?);
        if crc(rest.get(..SEGMENT_HEADER - 12)?) != sum {
            return None;
        }
        let version = u32::from_le_bytes(take(rest)?);
        if version != VERSION {
            return Some(Err(BadHeader::Version(version)));
        }
        Some(Ok(SegmentHeader {
            marker: take(rest)?,
            first: u64::from_le_bytes(take(rest)?),
            follows: u64::from_le_bytes(take(rest)?),
            reused: u64::from_le_bytes(take(rest)?),
        }))
    }
}

impl BlockHeader {
    pub(super) fn encode(&self, marker: Marker) -> [u8; BLOCK_HEADER] {
        let mut body = Vec::with_capacity(BLOCK_HEADER);
        body.extend(self.payload_crc.to_le_bytes());
        for number in [self.first, self.items, self.written] {
            body.extend(number.to_le_bytes());
        }
        for number in [self.records, self.stored, self.raw, self.codec as u32] {
            body.extend(number.to_le_bytes());
        }
        let mut header = [0; BLOCK_HEADER];
        let crc = crc(&body).to_le_bytes();
        fill(&mut header, marker.into_iter().chain(crc).chain(body));
        header
    }

    /// `None` for what is no whole block header of the log with this marker.
    pub(super) fn decode(bytes: &[u8], marker: Marker) -> Option<Self> {
        let rest = &mut &*bytes;
        if take::<8>(rest)? != marker {
            return None;
        }
        let sum = u32::from_le_bytes(take(rest)?);
        if crc(rest.get(..BLOCK_HEADER - 12)?) != sum {
            return None;
        }
        let payload_crc = u32::from_le_bytes(take(rest)?);
        let first = u64::from_le_bytes(take(rest)?);
        let items = u64::from_le_bytes(take(rest)?);
        let written = u64::from_le_bytes(take(rest)?);
        let records = u32::from_le_bytes(take(rest)?);
        let stored = u32::from_le_bytes(take(rest)?);
        let raw = u32::from_le_bytes(take(rest)?);
        let codec = match u32::from_le_bytes(take(rest)?) {
            0 => Codec::Raw,
            1 => Codec::Lz4,
            _ => return None,
        };
        first.checked_add(records.into())?;
        Some(BlockHeader {
            first,
            records,
            items,
            written,
            stored,
            raw,
            codec,
            payload_crc,
        })
    }

    /// One above its last record.
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(self.records.into())
    }

    /// Bytes of the block, header included.
    pub(super) fn len(&self) -> u64 {
        BLOCK_HEADER as u64 + u64::from(self.stored)
    }
}

/// CRC-32C, by the processor's own instruction where it has one.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The same of bytes that come in parts.
#[derive(Debug)]
pub(super) struct Checksum(crc_fast::Digest);

impl Default for Checksum {
    fn default() -> Self {
        Checksum(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }
}

impl Checksum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn value(&self) -> u32 {
        // Of the 64 bits that it says for any algorithm.
        self.0.finalize() as u32
    }
}

/// Takes as many bytes as the type says.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX)
}

/// The name of the segment that begins with a sequence number: in the order of the numbers.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first:020}.segment")
}

/// What the name of a segment ends with that is not complete yet.
pub(super) const UNFINISHED: &str = ".new";

/// The number in the name of a segment.
pub(super) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".segment")?;
    (digits.len() == 20).then(|| digits.parse().ok())?
}

fn fill(header: &mut [u8], bytes: impl Iterator<Item = u8>) {
    for (to, byte) in header.iter_mut().zip(bytes) {
        *to = byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: Marker = *b"a marker";

    fn block() -> BlockHeader {
        BlockHeader {
            first: 7,
            records: 3,
            items: 1 << 33,
            written: 1_700_000_000_000,
            stored: 100,
            raw: 1000,
            codec: Codec::Lz4,
            payload_crc: 0xdead_beef,
        }
    }

    #[test]
    fn headers_survive_the_round_trip_and_no_changed_bit_does() {
        let segment = SegmentHeader {
            marker: MARKER,
            first: 9,
            follows: 8,
            reused: 2,
        };
        assert_eq!(SegmentHeader::decode(&segment.encode()), Ok(segment));
        assert_eq!(
            BlockHeader::decode(&block().encode(MARKER), MARKER),
            Some(block())
        );
        for bit in 0..BLOCK_HEADER * 8 {
            let mut bytes = block().encode(MARKER);
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::decode(&bytes, MARKER), None, "{bit}");
        }
        for bit in 0..SEGMENT_HEADER * 8 {
            let mut bytes = segment.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "{bit}");
        }
        for len in 0..SEGMENT_HEADER {
            assert!(SegmentHeader::decode(&segment.encode()[..len]).is_err());
            assert_eq!(
                BlockHeader::decode(&block().encode(MARKER)[..len], MARKER),
                None
            );
        }
    }

    #[test]
    fn names_sort_as_numbers_do() {
        for first in [0, 9, 10, u64::MAX] {
            assert_eq!(segment_number(&segment_name(first)), Some(first));
        }
        assert!(segment_name(9) < segment_name(10));
        for name in ["1.segment", "position", "00000000000000000001.segment.new"] {
            assert_eq!(segment_number(name), None, "{name}");
        }
    }
}
