//! Flushes the open window, compacts blocks by age, and enforces the bounds.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, PoisonError};

use tributary_profiles::Profiles;
use tributary_profiles::merge::{MergeOptions, Merger};
use tributary_profiles::write::Encoder;

use super::block::{Block, Builder, ReadError, Reader, journal_name};
use super::format::{Entry, Index};
use super::head::Head;
use super::heat::Cells;
use super::intake::{Merging, window_of, write_profiles};
use super::options::{LAST_LEVEL, WINDOWS};
use super::series::Labels;
use super::store::{ProfileStore, begin_head};

const NANOS: u64 = 1_000_000_000;

/// Positions of the entries of a series that fall into one window: block and entry.
type EntryPositions = Vec<(usize, usize)>;

impl ProfileStore {
    /// Does the due work: flushes an open window of at least 10 seconds, compacts blocks that have reached their age,
    /// deletes profiles beyond the retention, and enforces the bounds.
    ///
    /// # Errors
    /// The disk returned an error. The next call retries the work; no profile is lost.
    pub fn maintain(&self, now: u64) -> io::Result<()> {
        let _turn = self.turn();
        let waiting = {
            let catalog = self.lock();
            let due = |head: &Arc<Head>| {
                let age = head.first().map(|first| now.saturating_sub(first));
                head.journal.is_none() || age.is_some_and(|age| age >= WINDOWS[0] * NANOS)
            };
            catalog.heads.len() > 1 || catalog.heads.iter().any(due)
        };
        if waiting {
            self.flush_or_make_room(now)?;
        }
        self.expire(now)?;
        for level in 0..LAST_LEVEL {
            while let Some(group) = self.due(level, now) {
                self.compact(&group, level)?;
            }
        }
        self.keep_bounds()?;
        self.finder.series.clean();
        Ok(())
    }

    /// Writes all profiles of the open window to a block.
    ///
    /// # Errors
    /// The disk returned an error. The profiles stay in the journal.
    pub fn flush(&self, now: u64) -> io::Result<()> {
        let _turn = self.turn();
        self.flush_or_make_room(now)?;
        self.keep_bounds()
    }

    /// Flushes all heads. If the disk has no room although the store is within its bounds, older blocks are deleted.
    fn flush_or_make_room(&self, now: u64) -> io::Result<()> {
        loop {
            match self.flush_heads(now) {
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                    ) && self.make_room()? => {}
                done => return done,
            }
        }
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.upkeep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush_heads(&self, now: u64) -> io::Result<()> {
        let current = self.current();
        if !current.is_empty() || current.has_failed() {
            let next = begin_head(&*self.disk, &self.next)?;
            // Waits for running appends to the current head, at most for one sync of the disk.
            let mut place = self.current.write().unwrap_or_else(PoisonError::into_inner);
            self.lock().heads.push(next.clone());
            *place = next;
        }
        loop {
            let head = {
                let catalog = self.lock();
                match catalog.heads.as_slice() {
                    [first, _, ..] => first.clone(),
                    _ => return Ok(()),
                }
            };
            self.flush_head(&head, now)?;
        }
    }

    /// Writes a block with the profiles of a head that accepts no more requests.
    fn flush_head(&self, head: &Head, now: u64) -> io::Result<()> {
        let index = Index {
            created: window_of(now / NANOS, 0),
            ..Index::default()
        };
        let mut builder = Builder::begin(&self.disk, head.number, index)?;
        let written = self.write_head(head, &mut builder);
        let block = builder.finish_after(written)?;
        {
            let mut catalog = self.lock();
            catalog.heads.retain(|other| other.number != head.number);
            self.reserved.fetch_sub(head.bytes(), Relaxed);
            if let Some(block) = block {
                catalog.blocks.push(Arc::new(block));
                catalog.blocks.sort_by_key(|block| block.number);
            }
        }
        // The block is durable, and a start ignores a journal with the number of a block.
        self.disk.remove(&journal_name(head.number))
    }

    fn write_head(&self, head: &Head, builder: &mut Builder) -> io::Result<()> {
        let mut merging = Merging::new();
        for batch in head.batches() {
            // Every request was read successfully before it was accepted.
            let added = merging.add(&self.finder, &batch.record);
            added.map_err(io::Error::other)?;
            if merging.bytes() > self.options().share() {
                std::mem::replace(&mut merging, Merging::new()).finish(builder)?;
            }
        }
        merging.finish(builder)
    }

    /// Deletes blocks whose profiles are all beyond the retention.
    fn expire(&self, now: u64) -> io::Result<()> {
        let oldest = (now / NANOS).saturating_sub(self.options().retention.as_secs());
        let expired: Vec<_> = {
            let mut catalog = self.lock();
            let is_expired = |block: &mut Arc<Block>| block.end() <= oldest;
            catalog.blocks.extract_if(.., is_expired).collect()
        };
        if !expired.is_empty() {
            self.forget(&expired)?;
        }
        Ok(())
    }

    /// Removes the files of blocks that left the catalog.
    fn forget(&self, blocks: &[Arc<Block>]) -> io::Result<()> {
        // The removal of the journals of these blocks must be durable first.
        self.disk.sync_directory()?;
        for block in blocks {
            block.remove_when_unused();
        }
        Ok(())
    }

    /// Returns the oldest blocks of a level that have reached their age, as the input of one compaction.
    fn due(&self, level: u8, now: u64) -> Option<Vec<Arc<Block>>> {
        let age = self.options().ages.get(usize::from(level))?.as_secs();
        let group = self.oldest(level)?;
        let start = window_of(group.first()?.index.created, level + 1);
        let end = start + WINDOWS.get(usize::from(level) + 1)?;
        (end + age <= now / NANOS).then_some(group)
    }

    /// Returns the oldest blocks of a level that were flushed within one window of the next level.
    fn oldest(&self, level: u8) -> Option<Vec<Arc<Block>>> {
        let catalog = self.lock();
        let of_level = |block: &&Arc<Block>| block.index.level == level;
        let blocks = || catalog.blocks.iter().filter(of_level);
        let window = |block: &Arc<Block>| window_of(block.index.created, level + 1);
        let first = blocks().map(window).min()?;
        Some(
            blocks()
                .filter(|block| window(block) == first)
                .cloned()
                .collect(),
        )
    }

    /// Merges blocks of a level into a block of the next level, which replaces them.
    fn compact(&self, group: &[Arc<Block>], level: u8) -> io::Result<()> {
        let level = level + 1;
        let created = group.first().map_or(0, |block| block.index.created);
        let mut replaces = Vec::new();
        for block in group {
            replaces.push(block.number);
            replaces.extend_from_slice(&block.index.replaces);
        }
        let index = Index {
            level,
            created: window_of(created, level),
            replaces,
            entries: Vec::new(),
        };
        let number = self.next.fetch_add(1, Relaxed);
        let mut builder = Builder::begin(&self.disk, number, index)?;
        let written = self.merge_blocks(group, level, &mut builder);
        let block = builder.finish_after(written)?;
        {
            let mut catalog = self.lock();
            let stays = |block: &Arc<Block>| group.iter().all(|one| one.number != block.number);
            catalog.blocks.retain(stays);
            catalog.blocks.extend(block.map(Arc::new));
            catalog.blocks.sort_by_key(|block| block.number);
            for block in group.iter().filter(|block| block.is_damaged()) {
                catalog.damaged.push((block.set_aside(), block.size));
            }
        }
        self.forget(group)
    }

    fn merge_blocks(
        &self,
        group: &[Arc<Block>],
        level: u8,
        builder: &mut Builder,
    ) -> io::Result<()> {
        let mut windows: BTreeMap<(&Arc<Labels>, u64), EntryPositions> = BTreeMap::new();
        let mut readers = Vec::new();
        for (at, block) in group.iter().enumerate() {
            let reader = self.checked(block, block.reader())?;
            readers.push(reader);
            for (place, entry) in block.index.entries.iter().enumerate() {
                let key = (&entry.series, window_of(entry.window, level));
                windows.entry(key).or_default().push((at, place));
            }
        }
        for ((series, window), places) in windows {
            let mut parts = Vec::new();
            for (at, place) in places {
                let (Some(block), Some(Some(reader))) = (group.get(at), readers.get(at)) else {
                    continue;
                };
                if let Some(entry) = block.index.entries.get(place) {
                    parts.push((&**block, reader, entry));
                }
            }
            self.merge_entries(&parts, series, window, level, builder)?;
        }
        Ok(())
    }

    /// Writes the entries of a series that fall into one window as one entry.
    fn merge_entries(
        &self,
        parts: &[(&Block, &Reader, &Entry)],
        series: &Arc<Labels>,
        window: u64,
        level: u8,
        builder: &mut Builder,
    ) -> io::Result<()> {
        // Blocks of 10 minutes have no heat maps: a heat map shows seconds.
        let keeps_heat = level < LAST_LEVEL;
        if let [(block, reader, entry)] = parts {
            let heat = match keeps_heat {
                true => self.checked(block, reader.stored(&entry.heat))?,
                false => None,
            };
            if let Some(profile) = self.checked(block, reader.stored(&entry.profile))? {
                builder.copy(entry, window, &profile, &heat.unwrap_or_default())?;
            }
            return Ok(());
        }
        let mut merger = Merger::new(MergeOptions::default());
        let mut cells = Cells::default();
        for (block, reader, entry) in parts {
            let Some(request) = self.checked(block, reader.section(&entry.profile))? else {
                continue;
            };
            if merger.add_encoded(&request).is_err() {
                self.note_damage(block);
                continue;
            }
            if keeps_heat && entry.heat.stored > 0 {
                let read = self.checked(block, reader.section(&entry.heat))?;
                match read.map(|bytes| Cells::decode(&bytes)) {
                    Some(Some(heat)) => cells.merge(&heat),
                    Some(None) => self.note_damage(block),
                    None => {}
                }
            }
        }
        let Profiles {
            dictionary,
            resources,
        } = merger.finish();
        let mut encoder = Encoder::new(&dictionary);
        let scopes = resources.into_iter().flat_map(|resource| resource.scopes);
        let profiles = scopes.flat_map(|scope| scope.profiles);
        write_profiles(
            profiles,
            &mut encoder,
            (series, window),
            Some(&cells),
            builder,
        )
    }

    /// Counts damage and returns `None` for it. Returns errors of the disk.
    pub(crate) fn checked<T>(
        &self,
        block: &Block,
        read: Result<T, ReadError>,
    ) -> io::Result<Option<T>> {
        match read {
            Ok(content) => Ok(Some(content)),
            Err(ReadError::Io(error)) => Err(error),
            Err(ReadError::Damaged) => {
                self.note_damage(block);
                Ok(None)
            }
        }
    }

    pub(crate) fn note_damage(&self, block: &Block) {
        if block.note_damage() {
            self.counters.damaged.fetch_add(1, Relaxed);
        }
    }

    /// Makes room until the files and the index are within their bounds.
    fn keep_bounds(&self) -> io::Result<()> {
        while self.is_above_bounds() && self.make_room()? {
            self.finder.series.clean();
        }
        Ok(())
    }

    /// Removes a damaged file, compacts the oldest blocks early, or drops the oldest block. Returns false if none of
    /// these is possible.
    fn make_room(&self) -> io::Result<bool> {
        let damaged = self.lock().damaged.pop();
        if let Some((name, _)) = damaged {
            // While a query reads the file, the file still has its old name.
            let _ = self.disk.remove(&name);
            return Ok(true);
        }
        let newest = self
            .lock()
            .blocks
            .iter()
            .map(|block| block.index.created)
            .max();
        // Blocks of the newest window are not merged: they would become one block, and a later drop would remove all of
        // them.
        let group = (0..LAST_LEVEL).find_map(|level| {
            let group = self.oldest(level)?;
            let window = |created| window_of(created, level + 1);
            let is_newest =
                group.first().map(|block| window(block.index.created)) == newest.map(window);
            (!is_newest).then_some((level, group))
        });
        if let Some((level, group)) = group
            // Without room for the new block, the oldest block is dropped.
            && self.compact(&group, level).is_ok()
        {
            self.counters.early_compactions.fetch_add(1, Relaxed);
            return Ok(true);
        }
        let oldest = {
            let mut catalog = self.lock();
            let blocks = catalog.blocks.iter().enumerate();
            let oldest = blocks.min_by_key(|(_, block)| (block.end(), block.number));
            let Some((at, _)) = oldest else {
                return Ok(false);
            };
            catalog.blocks.remove(at)
        };
        self.counters.dropped_blocks.fetch_add(1, Relaxed);
        self.counters
            .dropped_samples
            .fetch_add(oldest.samples(), Relaxed);
        self.forget(&[oldest])?;
        Ok(true)
    }

    fn is_above_bounds(&self) -> bool {
        let options = self.options();
        let catalog = self.lock();
        let index = catalog.index_bytes() + self.finder.series.size().1;
        catalog.disk() > options.max_disk || index > options.share()
    }
}
