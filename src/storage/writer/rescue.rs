//! After an fsync that failed: what it left in doubt is written again.

use std::io;

use tracing::warn;

use super::{Failed, Writer};
use crate::storage::Options;
use crate::storage::format::SEGMENT_HEADER;
use crate::storage::recovery::waiting;
use crate::storage::scan::{Found, Scan};
use crate::storage::state::Segment;

impl Writer {
    /// What was written since the last fsync that succeeded is written to a new segment, which is used from then on.
    pub(super) fn rescue(&mut self, options: &Options) -> Result<(), Failed> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        active.doubtful = true;
        let (name, synced, len, first) =
            (active.name, active.synced, active.len, active.synced_next);
        let path = self.shared.path(name);
        let mut doubtful = Vec::new();
        let mut headers = Vec::new();
        let mut reread = || -> io::Result<()> {
            let mut scan = Scan::open(&path, self.shared.marker, len)?;
            scan.seek(synced);
            while let Some(found) = scan.next()? {
                let Found::Block { header, stored, .. } = found else {
                    return Err(io::Error::other("what was written cannot be read back"));
                };
                doubtful.extend(header.encode(self.shared.marker));
                doubtful.extend_from_slice(stored);
                headers.push((header, stored.to_vec()));
            }
            Ok(())
        };
        reread().map_err(|error| ("read what an fsync left in doubt", error))?;
        let mut new = self.create(first, first, &doubtful, options)?;
        let mut state = self.shared.lock();
        let known = state
            .segments
            .find(first)
            .filter(|segment| segment.name == name);
        let readable = known.map_or(synced, |segment| segment.bytes.max(synced));
        let (mut records, mut items, mut end) = (0, 0, first);
        for (header, stored) in &headers {
            end = header.end();
            if header.end() <= state.segments.end() {
                let (more, of) = waiting(header, stored, &state.segments.acknowledged);
                records += more;
                items += of;
            }
        }
        let segment = Segment {
            name: new.name,
            first,
            end: first,
            bytes: SEGMENT_HEADER as u64 + (readable - synced),
            records: 0,
            items: 0,
            sealed: false,
        };
        state.segments.split_last(synced, records, items, segment);
        state.recent.clear();
        self.shared.show(&state);
        drop(state);
        new.synced_next = end;
        self.active = Some(new);
        warn!(
            directory = %self.shared.directory.display(),
            bytes = doubtful.len(),
            "An fsync of a stored queue failed. What it left in doubt was written to a new segment."
        );
        // The new segment says that this does not count; without it, it takes room.
        let _ = self.disk.cut(&path, synced);
        Ok(())
    }
}
