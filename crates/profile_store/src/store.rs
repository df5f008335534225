//! The store: appending, and the files in use.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tributary_storage::Lock;

use super::block::{Block, DAMAGED, ReadError, UNFINISHED, journal_name};
use super::budget::Pool;
use super::disk::{Disk, FILE_MODE, Local};
use super::error::{StoreAppendError, StoreOpenError};
use super::head::Head;
use super::intake::{Batch, Rules, SeriesFinder};
use super::journal::{self, Journal, MAX_REQUEST_BYTES};
use super::options::ProfileStoreOptions;
use super::series::SeriesTable;

/// Maximum wait for another process that is about to close the store.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Profiles of the last hours, in memory and in the files of a directory.
///
/// All methods block while they use the disk. Times are nanoseconds since 1970 (UTC). The owner calls
/// [`maintain`](Self::maintain) about every second, and [`flush`](Self::flush) at the end.
#[derive(Debug)]
pub struct ProfileStore {
    pub(crate) options: RwLock<Arc<ProfileStoreOptions>>,
    pub(crate) finder: SeriesFinder,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) catalog: Mutex<Catalog>,
    /// The head that accepts requests. Appends hold the lock for reading until their request is in the head.
    pub(crate) current: RwLock<Arc<Head>>,
    /// Memory of the requests in all heads and in running appends, in bytes.
    pub(crate) reserved: AtomicU64,
    /// Locked by the thread that flushes or compacts.
    pub(crate) upkeep: Mutex<()>,
    /// Number of the next file.
    pub(crate) next: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) queries: Pool,
    _lock: Option<Lock>,
}

/// The heads and blocks of the store. Each profile is in exactly one of them.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// Heads, the current one last.
    pub(crate) heads: Vec<Arc<Head>>,
    /// Blocks, ordered by number.
    pub(crate) blocks: Vec<Arc<Block>>,
    /// Files that cannot be read, with their sizes.
    pub(crate) damaged: Vec<(String, u64)>,
}

impl Catalog {
    /// Size of all files, in bytes.
    pub(crate) fn disk(&self) -> u64 {
        let heads: u64 = self.heads.iter().map(|head| head.disk()).sum();
        let blocks: u64 = self.blocks.iter().map(|block| block.size).sum();
        let damaged: u64 = self.damaged.iter().map(|(_, size)| size).sum();
        heads + blocks + damaged
    }

    /// Memory of the requests in heads, in bytes.
    pub(crate) fn head_bytes(&self) -> u64 {
        self.heads.iter().map(|head| head.bytes()).sum()
    }

    /// Memory of the indices of all blocks, in bytes.
    pub(crate) fn index_bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.bytes()).sum()
    }
}

/// Events since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) damaged: AtomicU64,
    pub(crate) early_compactions: AtomicU64,
    pub(crate) dropped_blocks: AtomicU64,
    pub(crate) dropped_samples: AtomicU64,
    pub(crate) too_old: AtomicU64,
    pub(crate) from_the_future: AtomicU64,
}

/// State of a store, and events since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Memory of the open window, the index and the labels, in bytes.
    pub memory: u64,
    /// Memory that queries use now, in bytes.
    pub query_memory: u64,
    /// Size of all files, in bytes.
    pub disk: u64,
    /// Number of series.
    pub series: usize,
    /// Number of blocks of 10 seconds, of a minute, and of 10 minutes.
    pub blocks: [usize; 3],
    /// Files and sections found damaged and set aside.
    pub damaged: u64,
    /// Early compactions, because the disk or the memory was full.
    pub early_compactions: u64,
    /// Blocks dropped before the retention, because the disk or the memory was full.
    pub dropped_blocks: u64,
    /// Samples in dropped blocks.
    pub dropped_samples: u64,
    /// Samples refused because they were older than the retention.
    pub too_old: u64,
    /// Profiles stored at their arrival time, because their own time was later.
    pub from_the_future: u64,
}

/// Result of opening a store: recovered requests and damage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecoveredStore {
    /// Requests read from journals.
    pub requests: u64,
    /// Journals that end with an incomplete record, whose sender was not acknowledged.
    pub torn: u64,
    /// Files that are damaged and were set aside.
    pub damaged: u64,
}

/// Result of an append that was acknowledged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppendOutcome {
    /// Samples left out, because they are older than the retention.
    pub too_old: u64,
}

impl ProfileStore {
    /// Opens a store. Reads the journals and the index of every block.
    ///
    /// # Errors
    /// The options contradict each other, another process has the store open, or the file system returns an error.
    pub fn open(options: ProfileStoreOptions) -> Result<(Self, RecoveredStore), StoreOpenError> {
        options.check()?;
        let directory = options.directory.clone();
        let failed = |error| StoreOpenError::Io {
            directory: directory.clone(),
            error,
        };
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&directory);
        made.map_err(failed)?;
        let lock = Lock::take(&directory, LOCK_TIMEOUT, FILE_MODE);
        let lock = lock.map_err(|error| match error {
            tributary_storage::OpenError::Locked { directory, owner } => {
                StoreOpenError::Locked { directory, owner }
            }
            other => failed(io::Error::other(other)),
        })?;
        let disk = Arc::new(Local {
            directory: directory.clone(),
        });
        let (mut store, recovered) = Self::open_on(disk, options).map_err(failed)?;
        store._lock = Some(lock);
        Ok((store, recovered))
    }

    /// Opens a store on a disk that no other process uses.
    pub(crate) fn open_on(
        disk: Arc<dyn Disk>,
        options: ProfileStoreOptions,
    ) -> io::Result<(Self, RecoveredStore)> {
        let finder = SeriesFinder {
            rules: RwLock::new(Arc::new(Rules::of(&options))),
            series: SeriesTable::default(),
        };
        let mut recovered = RecoveredStore::default();
        let mut catalog = Catalog::default();
        let mut journals = Vec::new();
        let mut last = 0;
        for (name, size) in disk.list()? {
            let number = |end: &str| {
                let digits = name.strip_suffix(end)?;
                u64::from_str_radix(digits, 16).ok()
            };
            if name.ends_with(UNFINISHED) {
                disk.remove(&name)?;
            } else if name.ends_with(DAMAGED) {
                catalog.damaged.push((name, size));
            } else if let Some(number) = number(".block") {
                last = last.max(number);
                match Block::open(&disk, number, &finder.series) {
                    Ok(block) => catalog.blocks.push(Arc::new(block)),
                    Err(ReadError::Io(error)) => return Err(error),
                    Err(ReadError::Damaged) => {
                        recovered.damaged += 1;
                        catalog.damaged.push((set_aside(&*disk, &name)?, size));
                    }
                }
            } else if let Some(number) = number(".journal") {
                last = last.max(number);
                journals.push((number, name, size));
            }
        }
        catalog.blocks.sort_by_key(|block| block.number);
        let replaced: HashSet<u64> = catalog
            .blocks
            .iter()
            .flat_map(|block| block.index.replaces.iter().copied())
            .collect();
        for block in catalog
            .blocks
            .extract_if(.., |block| replaced.contains(&block.number))
        {
            block.remove_when_unused();
        }
        let blocks: HashSet<u64> = catalog.blocks.iter().map(|block| block.number).collect();
        journals.sort();
        for (number, name, size) in journals {
            if blocks.contains(&number) || replaced.contains(&number) {
                disk.remove(&name)?;
                continue;
            }
            let (records, is_torn) = match journal::read(&*disk.open(&name)?) {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    recovered.damaged += 1;
                    catalog.damaged.push((set_aside(&*disk, &name)?, size));
                    continue;
                }
                read => read?,
            };
            recovered.torn += u64::from(is_torn);
            let head = Head::recovered(number, size);
            for record in records {
                match Batch::new(&finder, record.arrival, record.request) {
                    Ok((batch, _)) => {
                        recovered.requests += 1;
                        head.push(batch);
                    }
                    // Every request was read successfully before it was written.
                    Err(_) => recovered.damaged += 1,
                }
            }
            match head.is_empty() {
                true => disk.remove(&name)?,
                false => catalog.heads.push(Arc::new(head)),
            }
        }
        let next = AtomicU64::new(last + 1);
        let current = begin_head(&*disk, &next)?;
        catalog.heads.push(current.clone());
        let reserved = AtomicU64::new(catalog.head_bytes());
        let queries = Pool::new(options.share());
        let counters = Counters::default();
        counters.damaged.store(recovered.damaged, Relaxed);
        let store = ProfileStore {
            options: RwLock::new(Arc::new(options)),
            finder,
            disk,
            catalog: Mutex::new(catalog),
            current: RwLock::new(current),
            reserved,
            upkeep: Mutex::new(()),
            next,
            counters,
            queries,
            _lock: None,
        };
        Ok((store, recovered))
    }

    /// Appends the profiles of an encoded request. On return, they are durable and visible to queries.
    ///
    /// Concurrent appends share a sync of the disk. An append that fills the open window flushes it.
    ///
    /// # Errors
    /// See [`StoreAppendError`]. No part of the request is visible then.
    pub fn append(&self, request: Bytes, now: u64) -> Result<AppendOutcome, StoreAppendError> {
        let share = self.options().share();
        let len = request.len() as u64;
        // A window must have room for several requests, so that one flush makes room for the next request.
        let most = (share / 2).min(MAX_REQUEST_BYTES as u64);
        if len > most {
            return Err(StoreAppendError::TooLarge(len, most));
        }
        let read = Batch::new(&self.finder, now, request);
        let (batch, intake) = read.map_err(StoreAppendError::Malformed)?;
        let (too_old, future) = (intake.too_old, intake.from_the_future);
        drop(intake);
        self.counters.too_old.fetch_add(too_old, Relaxed);
        self.counters.from_the_future.fetch_add(future, Relaxed);
        if batch.entries.is_empty() {
            return Ok(AppendOutcome { too_old });
        }
        let bytes = batch.bytes();
        if self.current().has_failed() {
            let _ = self.flush(now);
        }
        if !self.reserve(bytes) {
            self.flush(now)
                .map_err(|error| StoreAppendError::Disk(error.to_string()))?;
            if !self.reserve(bytes) {
                return Err(StoreAppendError::Full(self.reserved.load(Relaxed)));
            }
        }
        let head = self.current.read().unwrap_or_else(PoisonError::into_inner);
        match head.append(batch) {
            Ok(()) => Ok(AppendOutcome { too_old }),
            Err(error) => {
                self.reserved.fetch_sub(bytes, Relaxed);
                Err(StoreAppendError::Disk(error))
            }
        }
    }

    /// Takes memory for a request, unless the heads are full.
    fn reserve(&self, bytes: u64) -> bool {
        let most = self.options().share();
        let taken = self.reserved.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= most)
        });
        taken.is_ok()
    }

    /// Returns the state of the store.
    pub fn stats(&self) -> Stats {
        let catalog = self.lock();
        let mut blocks = [0; 3];
        for block in &catalog.blocks {
            if let Some(count) = blocks.get_mut(usize::from(block.index.level)) {
                *count += 1;
            }
        }
        let (series, label_bytes) = self.finder.series.size();
        let read = |counter: &AtomicU64| counter.load(Relaxed);
        Stats {
            memory: catalog.head_bytes() + catalog.index_bytes() + label_bytes,
            query_memory: self.queries.used(),
            disk: catalog.disk(),
            series,
            blocks,
            damaged: read(&self.counters.damaged),
            early_compactions: read(&self.counters.early_compactions),
            dropped_blocks: read(&self.counters.dropped_blocks),
            dropped_samples: read(&self.counters.dropped_samples),
            too_old: read(&self.counters.too_old),
            from_the_future: read(&self.counters.from_the_future),
        }
    }

    pub(crate) fn current(&self) -> Arc<Head> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        current.clone()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins a head with an empty journal that survives a crash.
pub(crate) fn begin_head(disk: &dyn Disk, next: &AtomicU64) -> io::Result<Arc<Head>> {
    let number = next.fetch_add(1, Relaxed);
    let name = journal_name(number);
    let begun = disk.create(&name).and_then(Journal::begin);
    let synced = begun.and_then(|journal| disk.sync_directory().map(|()| journal));
    match synced {
        Ok(journal) => Ok(Arc::new(Head::new(number, journal))),
        Err(error) => {
            let _ = disk.remove(&name);
            Err(error)
        }
    }
}

/// Renames an unreadable file, so that it no longer counts. Returns the new name.
fn set_aside(disk: &dyn Disk, name: &str) -> io::Result<String> {
    let aside = format!("{name}{DAMAGED}");
    disk.rename(name, &aside)?;
    Ok(aside)
}
