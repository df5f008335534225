//! Segment files: creation, reuse and completion.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Active, Failed, Writer};
use crate::disk::Output;
use crate::format::{SEGMENT_HEADER, SegmentHeader, UNFINISHED};
use crate::state::Segment;
use crate::{Fsync, Options};

/// See [`Options::busy_segment_bytes`].
const BUSY_SEGMENT_AGE: Duration = Duration::from_secs(1);

/// The file of a finished segment, kept for reuse.
pub(super) struct Spare {
    path: PathBuf,
    bytes: u64,
}

impl Writer {
    /// Makes sure that there is a segment to write to.
    pub(super) fn make_ready(&mut self, options: &Options) -> Result<(), Failed> {
        if self.active.as_ref().is_some_and(|active| active.doubtful) {
            self.rescue(options)?;
        }
        if let Some(active) = &self.active {
            if !is_full(active.len, active.began.elapsed(), options) {
                return Ok(());
            }
            if options.fsync != Fsync::Never
                && active.unsynced_since.is_some()
                && let Err(error) = self.sync()
            {
                self.failed("fsync", &error);
                self.rescue(options)?;
                return Ok(());
            }
            self.seal();
        }
        let (active, file) = self.next_segment(options)?;
        let mut state = self.shared.lock();
        state.segments.push(Segment {
            name: active.name,
            first: self.next,
            end: self.next,
            bytes: active.len,
            file,
            records: 0,
            items: 0,
            sealed: false,
        });
        state.segments.keep_spare(0);
        self.shared.update_metrics(&state);
        drop(state);
        self.active = Some(active);
        Ok(())
    }

    /// Creates an empty segment. Returns it with the size of its file.
    fn next_segment(&mut self, options: &Options) -> Result<(Active, u64), Failed> {
        let (first, follows) = (self.next, self.follows);
        if let Some(spare) = self.spare.take() {
            match self.reuse(&spare, first, follows) {
                Ok(active) => return Ok((active, spare.bytes)),
                Err(_) => {
                    let _ = self.disk.remove(&spare.path);
                    self.shared.lock().segments.keep_spare(0);
                }
            }
        }
        let name = self.next_name.max(first);
        let active = self.create(name, first, follows, &[], options)?;
        let file = active.len;
        Ok((active, file))
    }

    /// Creates a segment in the file of an old segment. Overwriting needs no space and no changes of file system
    /// metadata, so an fsync costs half as much.
    fn reuse(&mut self, spare: &Spare, first: u64, follows: u64) -> io::Result<Active> {
        let name = self.next_name.max(first);
        // The name is used up even after a failure, since part of the file may exist.
        self.next_name = name.saturating_add(1);
        let named = self.shared.path(name);
        let header = SegmentHeader {
            marker: self.shared.marker,
            first,
            follows,
            reused: spare.bytes,
        };
        let mut output = self.disk.reuse(&spare.path)?;
        output.write(&mut [IoSlice::new(&header.encode())])?;
        // Synced before the rename: with the old header, the new name would invalidate records of other segments.
        output.sync()?;
        self.disk.rename(&spare.path, &named)?;
        if let Err(error) = self.disk.sync_directory(&self.shared.directory) {
            let _ = self.disk.remove(&named);
            return Err(error);
        }
        Ok(Active::new(output, name, SEGMENT_HEADER as u64, first))
    }

    /// Creates a segment with this content, synced to disk.
    pub(super) fn create(
        &mut self,
        name: u64,
        first: u64,
        follows: u64,
        blocks: &[u8],
        options: &Options,
    ) -> Result<Active, Failed> {
        let header = SegmentHeader {
            marker: self.shared.marker,
            first,
            follows,
            reused: 0,
        };
        let named = self.shared.path(name);
        // The header invalidates records of other segments, so the file gets its name only after it contains these
        // records.
        let path = match blocks {
            [] => named.clone(),
            _ => unfinished(&named),
        };
        let mut created = self.disk.create(&path);
        if created
            .as_ref()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
            && self.remake_directory(options)?
        {
            created = self.disk.create(&path);
        }
        let mut output = created.map_err(|error| ("create a segment", error))?;
        // A file that could not be removed after a failure keeps its name.
        self.next_name = name.saturating_add(1);
        let mut fill = || -> io::Result<()> {
            output.write(&mut [IoSlice::new(&header.encode())])?;
            output.write(&mut [IoSlice::new(blocks)])?;
            if options.fsync != Fsync::Never {
                if !blocks.is_empty() {
                    output.sync()?;
                }
                if path != named {
                    self.disk.rename(&path, &named)?;
                }
                self.disk.sync_directory(&self.shared.directory)?;
            }
            Ok(())
        };
        if let Err(error) = fill() {
            let _ = self.disk.remove(&path);
            let _ = self.disk.remove(&named);
            return Err(("write a new segment", error));
        }
        let len = (SEGMENT_HEADER + blocks.len()) as u64;
        Ok(Active::new(output, name, len, self.next))
    }

    /// Discards the refused data behind `len`.
    pub(super) fn take_back(&mut self, len: u64, options: &Options) {
        let Some(active) = &mut self.active else {
            return;
        };
        active.len = len;
        let nothing_in_doubt = active.synced == len;
        if active.output.truncate(len).is_err() || (active.doubtful && nothing_in_doubt) {
            // The next segment's header states the first invalid record of this segment.
            self.seal_synced(options);
        }
    }

    /// Completes the segment after syncing all of it. If the sync fails, the unsynced data is written again first,
    /// because the next fsync of the same file would report success.
    pub(super) fn seal_synced(&mut self, options: &Options) {
        let Some(active) = &self.active else {
            return;
        };
        let in_doubt = options.fsync != Fsync::Never && active.synced < active.len;
        if in_doubt {
            if active.doubtful {
                return;
            }
            if let Err(error) = self.sync() {
                if let Some(active) = &mut self.active {
                    active.doubtful = true;
                }
                self.failed("fsync", &error);
                return;
            }
        }
        self.seal();
    }

    pub(super) fn seal(&mut self) {
        let is_cut = self.close_active();
        self.shared.lock().segments.seal(is_cut);
    }

    /// Completes the segment and truncates its file to its records. Returns whether that succeeded. If not, readers
    /// ignore the rest of the file.
    pub(super) fn close_active(&mut self) -> bool {
        let active = self.active.take();
        active.is_some_and(|mut active| active.output.truncate(active.len).is_ok())
    }

    /// Keeps the file of a finished segment for the next segment, which makes fsync cheaper. The file is kept only if
    /// fsync is used and the reader keeps up, since a backlog needs the space. Returns whether the file is kept.
    pub(super) fn keep_spare(&mut self, segment: &Segment, options: &Options) -> bool {
        let keeps_up = self.shared.lock().segments.len() <= 1;
        let largest = options.segment_bytes.max(options.busy_segment_bytes);
        let fits = segment.file <= 2 * largest;
        if self.spare.is_some() || !keeps_up || !fits || options.fsync == Fsync::Never {
            return false;
        }
        let path = self.shared.path(segment.name);
        let spare = unfinished(&path);
        if self.disk.rename(&path, &spare).is_err() {
            return false;
        }
        self.shared.lock().segments.keep_spare(segment.file);
        self.spare = Some(Spare {
            path: spare,
            bytes: segment.file,
        });
        true
    }

    pub(super) fn drop_spare(&mut self) {
        if let Some(spare) = self.spare.take() {
            // If the removal fails, the next start removes the file.
            let _ = self.disk.remove(&spare.path);
            self.shared.lock().segments.keep_spare(0);
        }
    }
}

impl Active {
    /// Creates the state of a segment of `len` synced bytes that continues with the record `next`.
    fn new(output: Box<dyn Output>, name: u64, len: u64, next: u64) -> Self {
        Active {
            output,
            name,
            began: Instant::now(),
            len,
            synced: len,
            synced_next: next,
            unsynced_since: None,
            doubtful: false,
        }
    }
}

/// Whether a segment of this size and age is full.
fn is_full(len: u64, age: Duration, options: &Options) -> bool {
    // Without an fsync per group, a failed fsync may leave the whole segment unsynced, and the rescue reads all of it
    // into memory.
    let may_grow = options.fsync == Fsync::Always && age < BUSY_SEGMENT_AGE;
    len >= options.segment_bytes && (len >= options.busy_segment_bytes || !may_grow)
}

fn unfinished(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quickly_filled_segment_may_be_larger() {
        let options = Options {
            segment_bytes: 16,
            busy_segment_bytes: 64,
            ..Options::default()
        };
        let quickly = BUSY_SEGMENT_AGE - Duration::from_millis(1);
        assert!(!is_full(15, BUSY_SEGMENT_AGE, &options));
        assert!(is_full(16, BUSY_SEGMENT_AGE, &options));
        assert!(!is_full(63, quickly, &options));
        assert!(is_full(64, quickly, &options));
        let bounded = Options {
            busy_segment_bytes: 16,
            ..options.clone()
        };
        assert!(is_full(16, quickly, &bounded));
        let unsynced = Options {
            fsync: Fsync::Interval(BUSY_SEGMENT_AGE),
            ..options
        };
        assert!(is_full(16, quickly, &unsynced));
    }
}
