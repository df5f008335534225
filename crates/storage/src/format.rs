//! The format of a segment: a header, then blocks, each with a header and its records. Numbers are little-endian.
//!
//! ```text
//! segment: "TRIBUTRY" crc:u32 version:u32 marker:u64 first:u64 follows:u64 reused:u64
//! block:   marker:u64 crc:u32 payload_crc:u32 first:u64 items:u64 written:u64 records:u32 stored:u32 raw:u32 codec:u32
//! payload: { length:u32 items:u32 content }*   as it is, or as one LZ4 block
//! ```
//!
//! A block begins with the marker of its segment. The marker is derived from the log's eight random bytes and the
//! segment's name. If a header is damaged, the reader continues at the next marker. A fixed marker would let a client
//! send data that looks like a block. Files are reused for later segments, and data of the earlier segment may follow
//! the last block. Data of the earlier segment has another marker and is ignored.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC: [u8; 8] = *b"TRIBUTRY";
pub(super) const VERSION: u32 = 2;
pub(super) const SEGMENT_HEADER: usize = 48;
pub(super) const BLOCK_HEADER: usize = 56;
/// Size of the header in front of a record's content, in bytes.
pub(super) const RECORD_HEADER: usize = 8;
/// Maximum size of a record, in bytes: above the request limits of all receivers.
pub(super) const MAX_RECORD_BYTES: usize = 1 << 30;

/// First bytes of each block of a segment.
pub(super) type Marker = [u8; 8];

/// Derives the marker of a segment from the marker of its log.
pub(super) fn marker_of(log: Marker, segment: u64) -> Marker {
    // Odd, so that different segments have different markers.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let log = u64::from_le_bytes(log);
    log.wrapping_add(segment.wrapping_mul(STEP)).to_le_bytes()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub(super) marker: Marker,
    /// Sequence number of the first record.
    pub(super) first: u64,
    /// Number after the last acknowledged append before this segment. Records of earlier segments
    /// from this number on were refused or are repeated in this segment. The numbers from `follows`
    /// to `first` are unused.
    pub(super) follows: u64,
    /// Previous length of the file. Data behind the last block, up to this offset, belongs to an earlier segment.
    pub(super) reused: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// Sequence number of the first record. The numbers of the other records follow without gaps.
    pub(super) first: u64,
    pub(super) records: u32,
    pub(super) items: u64,
    /// Time of writing, in milliseconds since 1970.
    pub(super) written: u64,
    /// Size of the stored payload, in bytes.
    pub(super) stored: u32,
    /// Size of the uncompressed payload, in bytes.
    pub(super) raw: u32,
    pub(super) codec: Codec,
    /// Checksum of the payload in its stored form.
    pub(super) payload_crc: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    Raw = 0,
    Lz4 = 1,
}

/// Reason why a segment's header cannot be used.
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

    /// Decodes a block header of the segment with this marker. Returns `None` if the bytes are not a complete header.
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

    /// Returns the number after the sequence number of the last record.
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(self.records.into())
    }

    pub(super) fn len(&self) -> u64 {
        BLOCK_HEADER as u64 + u64::from(self.stored)
    }
}

/// Computes the CRC-32C, with the processor's instruction if available.
pub(super) fn crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Computes the CRC-32C of bytes in several parts.
#[derive(Debug, Default)]
pub(super) struct Checksum(u32);

impl Checksum {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    pub(super) fn value(&self) -> u32 {
        self.0
    }
}

/// Reads a fixed number of bytes from the front of `rest`.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

/// Returns the current time in milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or(Duration::ZERO).as_millis()).unwrap_or(u64::MAX)
}

/// Returns the name of the segment that begins with a sequence number. Names sort in the order of the numbers.
pub(super) fn segment_name(first: u64) -> String {
    format!("{first:020}.segment")
}

/// Suffix of a segment that is not complete yet.
pub(super) const UNFINISHED: &str = ".new";

/// Parses the sequence number in the name of a segment.
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
    fn header_round_trips_and_any_flipped_bit_is_detected() {
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
