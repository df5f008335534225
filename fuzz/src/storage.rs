//! Fuzz targets for the files of stored queues: arbitrary segments, and valid segments with
//! overwritten bytes.

use bytes::Bytes;
use tributary::fuzzing::decode_record;
use tributary::fuzzing::storage::{blocks, position, read};

/// Marker of blocks in this target.
const MARKER: &[u8] = b"a marker";

/// Every byte of a segment is in exactly one block or damaged range, in order. Overwritten bytes
/// damage only the blocks that contain them.
pub fn segment(input: &[u8]) {
    let Some((how, input)) = input.split_first() else {
        return;
    };
    if how & 0x80 != 0 {
        covers(input);
        position(input);
        return;
    }
    let (Some((where_to, rest)), true) = (input.split_first(), input.len() > 2) else {
        return;
    };
    let (with, content) = rest.split_at(1);
    // A block within a record requires the marker of the log, which is secret.
    if content.windows(MARKER.len()).any(|bytes| bytes == MARKER) {
        return;
    }
    let records: Vec<&[u8]> = content.chunks(1 + content.len() / 5).collect();
    let whole = blocks(&records, how & 1 != 0);
    let good = covers(&whole);
    assert_eq!(good.len(), records.len());
    let at = whole.len() * usize::from(*where_to) / 256;
    let Some(byte) = whole.get(at) else {
        return;
    };
    let mut damaged = whole.clone();
    damaged[at] = byte ^ with[0].max(1);
    let found = covers(&damaged);
    let lost: Vec<u64> = (0..records.len() as u64)
        .filter(|number| !found.contains(number))
        .collect();
    assert_eq!(lost.len(), 1, "one block has the byte at {at}");
    // After a truncation at any offset, all complete blocks are found.
    let cut = covers(&whole[..at]);
    assert!(good.starts_with(&cut));
    assert_eq!(cut.len() as u64, lost[0]);
}

/// Returns the numbers of the records that are found.
fn covers(bytes: &[u8]) -> Vec<u64> {
    let mut end = 0;
    let mut found = Vec::new();
    for piece in read(bytes).expect("memory") {
        assert_eq!(piece.at, end);
        assert!(piece.bytes > 0);
        end += piece.bytes;
        found.extend(
            piece
                .records
                .into_iter()
                .flatten()
                .map(|(number, _)| number),
        );
    }
    assert_eq!(end, bytes.len());
    found
}

/// A record is either invalid or a batch whose requests are part of the record, for any split into
/// chunks.
pub fn stored_record(input: &[u8]) {
    let whole = Bytes::copy_from_slice(input);
    let halves = vec![whole.slice(..input.len() / 2), whole.slice(input.len() / 2..)];
    let requests = |parts| decode_record(parts, 1).map(|batch| batch.wire().to_bytes());
    let found = requests(vec![whole]);
    assert_eq!(requests(halves), found);
    if let Some(found) = found {
        assert!(input.ends_with(&found));
    }
}
