//! Profiles that are in the journal, and not in a block yet.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::intake::Batch;
use super::journal::Journal;

/// The requests of one journal, in memory.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) number: u64,
    /// The journal; `None` if it was read at the start and accepts no more requests.
    pub(crate) journal: Option<Journal>,
    /// Size on disk of a journal that was read at the start, in bytes.
    recovered: u64,
    batches: Mutex<Vec<Arc<Batch>>>,
    bytes: AtomicU64,
    /// Arrival of the first request, in nanoseconds since 1970; `u64::MAX` without requests.
    first: AtomicU64,
}

impl Head {
    pub(crate) fn new(number: u64, journal: Journal) -> Self {
        Self::with(number, Some(journal), 0)
    }

    /// Creates the head of a journal that was read at the start.
    pub(crate) fn recovered(number: u64, size: u64) -> Self {
        Self::with(number, None, size)
    }

    fn with(number: u64, journal: Option<Journal>, recovered: u64) -> Self {
        Head {
            number,
            journal,
            recovered,
            batches: Mutex::default(),
            bytes: AtomicU64::new(0),
            first: AtomicU64::new(u64::MAX),
        }
    }

    /// Writes a request to the journal, and adds it to the head when it is durable.
    pub(crate) fn append(&self, batch: Batch) -> Result<(), String> {
        match &self.journal {
            Some(journal) => journal.append(&batch.record)?,
            None => return Err("the journal is closed".to_owned()),
        }
        self.push(batch);
        Ok(())
    }

    /// Whether the journal accepts no more requests, because a write failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::has_failed)
    }

    /// Adds a request that is durable.
    pub(crate) fn push(&self, batch: Batch) {
        self.bytes.fetch_add(batch.bytes(), Relaxed);
        self.first.fetch_min(batch.record.arrival, Relaxed);
        self.lock().push(Arc::new(batch));
    }

    /// Returns the current requests. The time depends on their number, not on their size.
    pub(crate) fn batches(&self) -> Vec<Arc<Batch>> {
        self.lock().clone()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Arrival of the first request, in nanoseconds since 1970.
    pub(crate) fn first(&self) -> Option<u64> {
        Some(self.first.load(Relaxed)).filter(|first| *first != u64::MAX)
    }

    /// Size of the journal, in bytes.
    pub(crate) fn disk(&self) -> u64 {
        self.journal.as_ref().map_or(self.recovered, Journal::bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Batch>>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
