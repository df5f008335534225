//! Conversion between records and blocks.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Bytes;

use super::NewRecord;
use super::format::{
    BLOCK_HEADER, BlockHeader, Checksum, Codec, Marker, RECORD_HEADER, crc, now, take,
};

/// A block to be written. Only compression copies the content of the records.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) header: BlockHeader,
    pub(super) records: Arc<[NewRecord]>,
    head: [u8; BLOCK_HEADER],
    payload: Payload,
}

#[derive(Debug)]
enum Payload {
    Raw(Vec<[u8; RECORD_HEADER]>),
    Compressed(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

impl Block {
    /// Creates a block of records whose first sequence number is `first`. The caller has checked the record sizes.
    pub(super) fn new(first: u64, records: Vec<NewRecord>, marker: Marker, compress: bool) -> Self {
        let heads: Vec<_> = records.iter().map(head_of).collect();
        let raw: usize = records.iter().map(|one| RECORD_HEADER + one.len()).sum();
        let compressed = compress.then(|| compressed(&heads, &records, raw));
        let (codec, stored, payload_crc, payload) = match compressed.flatten() {
            Some(block) => {
                let (stored, sum) = (block.len(), crc(&block));
                (Codec::Lz4, stored, sum, Payload::Compressed(block))
            }
            None => {
                let mut sum = Checksum::default();
                content(&heads, &records).for_each(|part| sum.add(part));
                (Codec::Raw, raw, sum.value(), Payload::Raw(heads))
            }
        };
        let header = BlockHeader {
            first,
            records: length(records.len()),
            items: records.iter().map(|one| u64::from(length(one.items))).sum(),
            written: now(),
            stored: length(stored),
            raw: length(raw),
            codec,
            payload_crc,
        };
        Block {
            header,
            records: records.into(),
            head: header.encode(marker),
            payload,
        }
    }

    pub(super) fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let (heads, compressed): (&[_], &[u8]) = match &self.payload {
            Payload::Raw(heads) => (heads, &[]),
            Payload::Compressed(block) => (&[], block),
        };
        [self.head.as_slice(), compressed]
            .into_iter()
            .chain(content(heads, &self.records))
            .filter(|part| !part.is_empty())
            .map(IoSlice::new)
    }
}

/// Returns the bytes of the records, each with its header.
fn content<'a>(
    heads: &'a [[u8; RECORD_HEADER]],
    records: &'a [NewRecord],
) -> impl Iterator<Item = &'a [u8]> {
    heads.iter().zip(records).flat_map(|(head, record)| {
        let parts = record.parts.iter().map(Bytes::as_ref);
        std::iter::once(head.as_slice()).chain(parts)
    })
}

fn head_of(record: &NewRecord) -> [u8; RECORD_HEADER] {
    let [a, b, c, d] = length(record.len()).to_le_bytes();
    let [e, f, g, h] = length(record.items).to_le_bytes();
    [a, b, c, d, e, f, g, h]
}

fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Compresses the records as one LZ4 block. Returns `None` if the result is not smaller than `raw` bytes.
fn compressed(heads: &[[u8; RECORD_HEADER]], records: &[NewRecord], raw: usize) -> Option<Vec<u8>> {
    let mut whole = Vec::with_capacity(raw);
    content(heads, records).for_each(|part| whole.extend_from_slice(part));
    let mut block = vec![0; lz4_flex::block::get_maximum_output_size(raw)];
    let len = lz4_flex::block::compress_into(&whole, &mut block).ok()?;
    block.truncate(len);
    (len < raw).then_some(block)
}

/// Decompresses a payload. The checksum of `stored` has been verified.
pub(super) fn expand(header: &BlockHeader, stored: &[u8]) -> Result<Bytes, Damaged> {
    match header.codec {
        Codec::Raw => Ok(Bytes::copy_from_slice(stored)),
        Codec::Lz4 => {
            let raw = lz4_flex::block::decompress(stored, header.raw as usize);
            let raw = raw.map_err(|_| Damaged)?;
            (raw.len() == header.raw as usize)
                .then(|| raw.into())
                .ok_or(Damaged)
        }
    }
}

/// Returns the records of a payload: sequence number, items, content. Ends early if the payload is malformed.
pub(super) fn records(
    header: &BlockHeader,
    raw: &Bytes,
) -> impl Iterator<Item = (u64, usize, Bytes)> {
    let mut at = 0;
    let raw = raw.clone();
    (header.first..header.end()).map_while(move |sequence| {
        let mut head = raw.get(at..)?;
        let len = u32::from_le_bytes(take(&mut head)?) as usize;
        let items = u32::from_le_bytes(take(&mut head)?) as usize;
        if head.len() < len {
            return None;
        }
        let start = at + RECORD_HEADER;
        at = start + len;
        Some((sequence, items, raw.slice(start..at)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let noise: Vec<u8> = (0..1000).map(|_| fastrand::u8(..)).collect();
        for (content, compress, codec) in [
            (vec![7; 1000], true, Codec::Lz4),
            (vec![7; 1000], false, Codec::Raw),
            (noise, true, Codec::Raw),
            (Vec::new(), false, Codec::Raw),
        ] {
            let (one, two) = content.split_at(content.len() / 3);
            let parts = [one, two].map(Bytes::copy_from_slice).to_vec();
            let new = vec![
                NewRecord {
                    parts,
                    items: 3,
                    memory: Default::default(),
                },
                NewRecord::default(),
            ];
            let block = Block::new(5, new, [9; 8], compress);
            let header = block.header;
            assert_eq!(header.codec, codec);
            let slices: Vec<_> = block.slices().collect();
            let output: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            assert_eq!(output.len() as u64, header.len());
            assert_eq!(BlockHeader::decode(&output, [9; 8]), Some(header));
            let stored = &output[BLOCK_HEADER..];
            assert_eq!(crc(stored), header.payload_crc);
            let expanded = expand(&header, stored).unwrap();
            let found: Vec<_> = records(&header, &expanded).collect();
            assert_eq!(found, [(5, 3, content.into()), (6, 0, Bytes::new())]);
        }
    }
}
