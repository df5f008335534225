//! The files of segments: made, used again, and closed.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Active, Failed, Writer};
use crate::disk::Output;
use crate::format::{SEGMENT_HEADER, SegmentHeader, UNFINISHED};
use crate::state::Segment;
use crate::{Fsync, Options};

/// See [`Options::busy_segment_bytes`].
const BUSY: Duration = Duration::from_secs(1);

/// The file of a segment that nobody needs.
pub(super) struct Spare {
    path: PathBuf,
    bytes: u64,
}

impl Writer {
    /// A segment that can be written to.
    pub(super) fn make_ready(&mut self, options: &Options) -> Result<(), Failed> {
        if self.active.as_ref().is_some_and(|active| active.doubtful) {
            self.rescue(options)?;
        }
        if let Some(active) = &self.active {
            let is_full = is_full(active.len, active.began.elapsed(), options);
            let is_out_of_place = active.past_cache && options.fsync != Fsync::Always;
            if !is_full && !is_out_of_place {
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
        self.shared.show(&state);
        drop(state);
        self.active = Some(active);
        Ok(())
    }

    /// A new segment without records, and what its file takes.
    fn next_segment(&mut self, options: &Options) -> Result<(Active, u64), Failed> {
        let (first, follows) = (self.next, self.follows);
        if let Some(spare) = self.spare.take() {
            match self.reuse(&spare, first, follows, options) {
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

    /// A new segment in the file of an old one: what is written over needs no room, and neither does the file system have
    /// to note where it is. An fsync costs half as much.
    fn reuse(
        &mut self,
        spare: &Spare,
        first: u64,
        follows: u64,
        options: &Options,
    ) -> io::Result<Active> {
        let name = self.next_name.max(first);
        // Also if this fails: part of it may be there.
        self.next_name = name.saturating_add(1);
        let named = self.shared.path(name);
        let header = SegmentHeader {
            marker: self.shared.marker,
            first,
            follows,
            reused: spare.bytes,
        };
        let synced = options.fsync == Fsync::Always;
        let mut output = self.disk.reuse(&spare.path, synced)?;
        output.write(&mut [IoSlice::new(&header.encode())])?;
        // Under its name the old header would say what of the segments before it does not count.
        output.sync()?;
        self.disk.rename(&spare.path, &named)?;
        if let Err(error) = self.disk.sync_directory(&self.shared.directory) {
            let _ = self.disk.remove(&named);
            return Err(error);
        }
        Ok(Active {
            past_cache: synced,
            ..Active::new(output, name, SEGMENT_HEADER as u64, first)
        })
    }

    /// A new segment with this content, on the disk.
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
        // Its header says that others do not count from some record on: not before it has those itself.
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
        // One that could not be removed after a failure keeps its name.
        self.next_name = name.saturating_add(1);
        let mut fill = || -> io::Result<()> {
            output.write(&mut [IoSlice::new(&header.encode())])?;
            output.write(&mut [IoSlice::new(blocks)])?;
            output.flush()?;
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

    /// What is behind `len` was refused.
    pub(super) fn take_back(&mut self, len: u64, options: &Options) {
        let Some(active) = &mut self.active else {
            return;
        };
        active.len = len;
        let nothing_in_doubt = active.synced == len;
        if active.output.truncate(len).is_err() || (active.doubtful && nothing_in_doubt) {
            // The next segment says from where on this one does not count.
            self.seal_synced(options);
        }
    }

    /// Nothing is added to the segment any more, once all of it is on the disk. Where that fails what is in doubt is
    /// written again before anything else is: the next fsync of the same file would say that all is well.
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

    /// Whoever reads the file finds nothing behind what is in it; whether that is so. Where it fails it is known to be
    /// nothing.
    pub(super) fn close_active(&mut self) -> bool {
        let active = self.active.take();
        active.is_some_and(|mut active| active.output.truncate(active.len).is_ok())
    }

    /// Keeps the file of a segment that nobody needs for the next one, if the reader keeps up: a backlog needs the room. Who
    /// wants no fsync has nothing of it. Whether it is kept.
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
            // What is left of it the next start removes.
            let _ = self.disk.remove(&spare.path);
            self.shared.lock().segments.keep_spare(0);
        }
    }
}

impl Active {
    /// A segment of `len` bytes, all of them on the disk, that goes on with the record `next`.
    fn new(output: Box<dyn Output>, name: u64, len: u64, next: u64) -> Self {
        Active {
            output,
            name,
            began: Instant::now(),
            past_cache: false,
            len,
            synced: len,
            synced_next: next,
            unsynced_since: None,
            doubtful: false,
        }
    }
}

/// Whether a segment of so many bytes, begun so long ago, is followed by another one.
fn is_full(len: u64, age: Duration, options: &Options) -> bool {
    // Without an fsync for each group, what one that fails leaves in doubt may be all of it: that is read into memory.
    let may_grow = options.fsync == Fsync::Always && age < BUSY;
    len >= options.segment_bytes && (len >= options.busy_segment_bytes || !may_grow)
}

/// The name of a segment that is not complete yet.
fn unfinished(segment: &Path) -> PathBuf {
    let mut name = segment.as_os_str().to_owned();
    name.push(UNFINISHED);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_is_filled_quickly_may_be_larger() {
        let options = Options {
            segment_bytes: 16,
            busy_segment_bytes: 64,
            ..Options::default()
        };
        let quickly = BUSY - Duration::from_millis(1);
        assert!(!is_full(15, BUSY, &options));
        assert!(is_full(16, BUSY, &options));
        assert!(!is_full(63, quickly, &options));
        assert!(is_full(64, quickly, &options));
        // One that is bounded in bytes, and small.
        let bounded = Options {
            busy_segment_bytes: 16,
            ..options.clone()
        };
        assert!(is_full(16, quickly, &bounded));
        let unsynced = Options {
            fsync: Fsync::Interval(BUSY),
            ..options
        };
        assert!(is_full(16, quickly, &unsynced));
    }
}
