//! Records become blocks, and blocks records.

use bytes::Bytes;

use super::NewRecord;
use super::format::{BLOCK_HEADER, BlockHeader, Codec, Marker, RECORD_HEADER, crc, now, take};

/// Collects the records of one block, uncompressed.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    raw: Vec<u8>,
    records: u32,
    items: u64,
}

/// Why a payload is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Damaged;

impl BlockBuilder {
    /// With room for so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        BlockBuilder {
            raw: Vec::with_capacity(bytes),
            ..BlockBuilder::default()
        }
    }

    /// Adds a record; its size was checked against the largest one.
    pub(super) fn push(&mut self, record: &NewRecord) {
        let items = u32::try_from(record.items).unwrap_or(u32::MAX);
        let len = u32::try_from(record.len()).unwrap_or(u32::MAX);
        self.raw.extend(len.to_le_bytes());
        self.raw.extend(items.to_le_bytes());
        for part in &record.parts {
            self.raw.extend_from_slice(part);
        }
        self.records += 1;
        self.items += u64::from(items);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Bytes of the records so far.
    pub(super) fn len(&self) -> usize {
        self.raw.len()
    }

    /// Writes the block behind what is in `output`. Returns its header, and its payload uncompressed.
    pub(super) fn finish(
        self,
        first: u64,
        marker: Marker,
        compress: bool,
        output: &mut Vec<u8>,
    ) -> (BlockHeader, Bytes) {
        let start = output.len();
        output.resize(start + BLOCK_HEADER, 0);
        let codec = match compress && append_compressed(&self.raw, output) {
            true => Codec::Lz4,
            false => {
                output.truncate(start + BLOCK_HEADER);
                output.extend_from_slice(&self.raw);
                Codec::Raw
            }
        };
        let payload = output.get(start + BLOCK_HEADER..).unwrap_or_default();
        let length = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let header = BlockHeader {
            first,
            records: self.records,
            items: self.items,
            written: now(),
            stored: length(payload.len()),
            raw: length(self.raw.len()),
            codec,
            payload_crc: crc(payload),
        };
        if let Some(place) = output.get_mut(start..start + BLOCK_HEADER) {
            place.copy_from_slice(&header.encode(marker));
        }
        (header, self.raw.into())
    }
}

/// Whether that made it smaller; otherwise `output` has anything behind what it had.
fn append_compressed(raw: &[u8], output: &mut Vec<u8>) -> bool {
    let start = output.len();
    output.resize(
        start + lz4_flex::block::get_maximum_output_size(raw.len()),
        0,
    );
    let Some(room) = output.get_mut(start..) else {
        return false;
    };
    match lz4_flex::block::compress_into(raw, room) {
        Ok(len) if len < raw.len() => {
            output.truncate(start + len);
            true
        }
        _ => false,
    }
}

/// The payload uncompressed. `stored` has the right checksum.
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

/// The records of a payload: sequence number, items, content. It ends early where it is not what was written.
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
    fn records_come_back_as_they_went_in() {
        let noise: Vec<u8> = (0..1000).map(|_| fastrand::u8(..)).collect();
        for (content, compress, codec) in [
            (vec![7; 1000], true, Codec::Lz4),
            (vec![7; 1000], false, Codec::Raw),
            (noise, true, Codec::Raw),
            (Vec::new(), false, Codec::Raw),
        ] {
            let mut builder = BlockBuilder::default();
            let (one, two) = content.split_at(content.len() / 3);
            let parts = [one, two].map(Bytes::copy_from_slice).to_vec();
            builder.push(&NewRecord { parts, items: 3 });
            builder.push(&NewRecord::default());
            let mut output = b"before".to_vec();
            let (header, raw) = builder.finish(5, [9; 8], compress, &mut output);
            assert_eq!(header.codec, codec);
            assert_eq!(output.len() as u64, 6 + header.len());
            assert_eq!(BlockHeader::decode(&output[6..], [9; 8]), Some(header));
            let expanded = expand(&header, &output[6 + BLOCK_HEADER..]).unwrap();
            assert_eq!(expanded, raw);
            let found: Vec<_> = records(&header, &expanded).collect();
            assert_eq!(found, [(5, 3, content.into()), (6, 0, Bytes::new())]);
        }
    }
}
