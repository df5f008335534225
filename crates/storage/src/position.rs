//! The acknowledged records, persisted in a small file that is replaced atomically.

use std::io;
use std::path::Path;

use super::acknowledged::Acknowledged;
use super::disk::Disk;
use super::format::{Marker, VERSION, crc, take};

pub(super) const NAME: &str = "position";

const MAGIC: [u8; 8] = *b"TRIBUPOS";
/// Maximum size of the file, in bytes: a million ranges.
const MAX_FILE_BYTES: u64 = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) marker: Marker,
    /// Next sequence number at the time of writing, so that no number is used twice.
    pub(super) next: u64,
    pub(super) acknowledged: Acknowledged,
}

impl Position {
    /// Loads the file of the directory. Returns `None` if there is no file and `Some(None)` if it is damaged.
    pub(super) fn load(directory: &Path) -> io::Result<Option<Option<Self>>> {
        let path = directory.join(NAME);
        let bytes = match std::fs::metadata(&path) {
            Ok(metadata) if metadata.len() > MAX_FILE_BYTES => return Ok(Some(None)),
            Ok(_) => std::fs::read(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(Self::decode(&bytes)))
    }

    pub(super) fn save(&self, disk: &dyn Disk, directory: &Path, durable: bool) -> io::Result<()> {
        disk.replace(&directory.join(NAME), &self.encode(), durable)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = self.marker.to_vec();
        body.extend(self.next.to_le_bytes());
        body.extend(self.acknowledged.watermark().to_le_bytes());
        for (first, end) in self.acknowledged.ranges() {
            body.extend(first.to_le_bytes());
            body.extend(end.to_le_bytes());
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(crc(&body).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = &mut &*bytes;
        if take::<8>(rest)? != MAGIC || u32::from_le_bytes(take(rest)?) != VERSION {
            return None;
        }
        if u32::from_le_bytes(take(rest)?) != crc(rest) {
            return None;
        }
        let marker = take(rest)?;
        let next = u64::from_le_bytes(take(rest)?);
        let watermark = u64::from_le_bytes(take(rest)?);
        let mut ranges = Vec::with_capacity(rest.len() / 16);
        while !rest.is_empty() {
            let first = u64::from_le_bytes(take(rest)?);
            let end = u64::from_le_bytes(take(rest)?);
            ranges.push((first, end));
        }
        Some(Position {
            marker,
            next,
            acknowledged: Acknowledged::new(watermark, ranges),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_round_trips_and_damage_is_detected() {
        let position = Position {
            marker: *b"a marker",
            next: 99,
            acknowledged: Acknowledged::new(10, [(12, 15), (20, 21)]),
        };
        let bytes = position.encode();
        assert_eq!(Position::decode(&bytes), Some(position));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            assert_eq!(Position::decode(&bytes), None, "{at}");
            assert_eq!(Position::decode(&bytes[..at]), None);
        }
    }
}
