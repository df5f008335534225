//! Recovery from a failed fsync: writes the unsynced data again.

use std::io;

use tracing::warn;

use super::{Failed, Writer};
use crate::Options;
use crate::format::{SEGMENT_HEADER, marker_of};
use crate::recovery::waiting;
use crate::scan::{Found, Scan};
use crate::state::Segment;

impl Writer {
    /// Writes the data since the last successful fsync to a new segment, and continues there.
    pub(super) fn rescue(&mut self, options: &Options) -> Result<(), Failed> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        active.doubtful = true;
        let (name, synced, len, first) =
            (active.name, active.synced, active.len, active.synced_next);
        let path = self.shared.path(name);
        let published = {
            let state = self.shared.lock();
            let known = state.segments.find(first);
            known
                .filter(|segment| segment.name == name)
                .map_or(synced, |segment| segment.bytes)
        };
        let new_name = self.next_name.max(first);
        let marker = marker_of(self.shared.marker, new_name);
        let mut doubtful = Vec::new();
        let mut headers = Vec::new();
        let mut reread = || -> io::Result<()> {
            let mut scan = Scan::open(&path, marker_of(self.shared.marker, name), len)?;
            scan.seek(synced);
            while let Some(found) = scan.next()? {
                let (header, stored) = match found {
                    Found::Block { header, stored, .. } => (header, stored),
                    // A damaged published block must not prevent the rescue of its neighbours. Unpublished data can
                    // still be refused.
                    Found::Damaged(damage) if damage.at + damage.bytes <= published => continue,
                    Found::Damaged(_) => {
                        return Err(io::Error::other("the written data cannot be read back"));
                    }
                };
                doubtful.extend(header.encode(marker));
                let start = doubtful.len();
                doubtful.extend_from_slice(stored);
                headers.push((header, start..doubtful.len()));
            }
            Ok(())
        };
        reread().map_err(|error| ("read the blocks of the failed fsync", error))?;
        let mut new = self.create(new_name, first, first, &doubtful, options)?;
        let mut state = self.shared.lock();
        let known_end = state.segments.end();
        let (mut items, mut end, mut readable) = (0, first, 0);
        let mut lost = Vec::new();
        for (header, stored) in headers {
            if header.end() <= known_end {
                let stored = doubtful.get(stored).unwrap_or_default();
                items += waiting(&header, stored, &state.segments.acknowledged).1;
                readable += header.len();
            }
            if end < header.first.min(known_end) {
                lost.push((end, header.first.min(known_end)));
            }
            end = header.end();
        }
        if end < known_end {
            lost.push((end, known_end));
        }
        let records = state
            .segments
            .acknowledged
            .absent_in(first, known_end.max(first));
        let segment = Segment {
            name: new.name,
            first,
            end: first,
            bytes: SEGMENT_HEADER as u64 + readable,
            file: SEGMENT_HEADER as u64 + readable,
            records: 0,
            items: 0,
            sealed: false,
        };
        state.segments.split_last(synced, records, items, segment);
        state.recent.clear();
        self.shared.update_metrics(&state);
        drop(state);
        for (first, end) in lost {
            self.shared.lose(first, end);
        }
        new.synced_next = end.max(known_end);
        self.active = Some(new);
        warn!(
            directory = %self.shared.directory.display(),
            bytes = doubtful.len(),
            "An fsync of a queue on disk failed; wrote its blocks again, to a new segment. Check the disk."
        );
        // The header of the new segment invalidates the repeated data in the old segment. The old file is not changed,
        // because a reader may be using it.
        Ok(())
    }
}
