//! Caches results about files until the files change.

use std::collections::HashMap;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::Xxh3;

/// Maximum number of cached results; a full cache is cleared.
const MAX_RESULTS: usize = 4096;

/// Results by the fingerprint of a file.
#[derive(Debug)]
pub(super) struct Remembered<T>(Mutex<HashMap<u64, T>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Remembered(Mutex::default())
    }
}

impl<T: Clone> Remembered<T> {
    pub(super) fn get(&self, stamp: u64) -> Option<T> {
        self.known().get(&stamp).cloned()
    }

    pub(super) fn insert(&self, stamp: u64, found: T) {
        let mut known = self.known();
        if known.len() >= MAX_RESULTS {
            known.clear();
        }
        known.insert(stamp, found);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<u64, T>> {
        self.0.lock()
    }
}

/// Fingerprint of a file: name, size and time. Blocks.
pub(super) fn stamp(file: &Path) -> Option<u64> {
    let mut hash = Xxh3::new();
    super::stamp(file, &mut hash)?;
    Some(hash.digest())
}
