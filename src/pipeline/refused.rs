//! Remembers batches that some branches of a fan-out accepted and others refused.
//!
//! The sender of such a batch retries the same bytes. Recognizing the content avoids duplicates at the branches that
//! accepted it. Otherwise one full queue would fill all other queues with duplicates.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

use crate::pipeline::batch::{Batch, Progress};

/// Time within which a sender is expected to retry. The default `max_elapsed_time` of exporters is five minutes.
const EXPECTED: Duration = Duration::from_secs(300);
/// Maximum number of remembered batches, of about 150 bytes each. The oldest is evicted first.
const MOST: usize = 4096;

/// The partly refused batches of one fan-out.
///
/// Batches are identified by a hash of their content. Hashing begins with the first immediate refusal and ends when
/// there was no refusal for [`EXPECTED`], so that normal operation pays nothing. A batch whose first refusal is not
/// immediate is not recognized: its content is no longer available then.
pub(super) struct Refused {
    /// Makes the hashes unpredictable, so that a client cannot craft a batch that is mistaken for another client's.
    secret: [u8; 192],
    watches: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Time of the refusal and the branches that took the batch, by hash.
    progress: HashMap<u128, (Instant, Arc<Progress>)>,
    /// The same times, oldest first. An entry is stale if the map has no batch or a later time for its hash.
    order: VecDeque<(Instant, u128)>,
    last: Option<Instant>,
}

impl Refused {
    pub(super) fn new() -> Self {
        let mut secret = [0; 192];
        // Without system randomness there is no TLS either. The fallback still prevents accidental collisions.
        if SystemRandom::new().fill(&mut secret).is_err() {
            secret.fill_with(|| fastrand::u8(..));
        }
        Refused {
            secret,
            watches: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    /// Whether a batch was refused within [`EXPECTED`].
    pub(super) fn watches(&self) -> bool {
        self.watches.load(Relaxed)
    }

    /// Returns the hash that identifies a batch.
    pub(super) fn key(&self, batch: &Batch) -> u128 {
        let mut hash = Xxh3::with_secret(self.secret);
        let mut add = |bytes: &[u8]| {
            hash.update(&bytes.len().to_le_bytes());
            hash.update(bytes);
        };
        add(&[batch.signal().index() as u8]);
        // Metadata identifies the client, so the same content with other metadata is another batch.
        for (name, values) in batch.metadata.iter().flat_map(|metadata| metadata.iter()) {
            add(name.as_bytes());
            add(&values.len().to_le_bytes());
            values.iter().for_each(|value| add(value.as_bytes()));
        }
        batch.wire().parts().iter().for_each(|part| add(part));
        hash.digest128()
    }

    /// Removes and returns the branches that took the batch before. The entry is used once: a second batch with the
    /// same content is a different batch.
    pub(super) fn take(&self, key: u128) -> Option<Arc<Progress>> {
        let mut known = self.lock();
        known.forget_old(Instant::now());
        self.watches.store(known.last.is_some(), Relaxed);
        known.progress.remove(&key).map(|(_, progress)| progress)
    }

    /// Records a refused batch. `None` starts the hashing of later batches.
    pub(super) fn keep(&self, batch: Option<(u128, Arc<Progress>)>) {
        let now = Instant::now();
        let mut known = self.lock();
        known.last = Some(now);
        if let Some((key, progress)) = batch {
            known.forget_old(now);
            known.progress.insert(key, (now, progress));
            known.order.push_back((now, key));
        }
        self.watches.store(true, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

impl Known {
    fn forget_old(&mut self, now: Instant) {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= EXPECTED;
        while let Some((at, key)) = self.order.front().copied()
            && (is_old(at) || self.order.len() >= MOST)
        {
            self.order.pop_front();
            if self.progress.get(&key).is_some_and(|(last, _)| *last == at) {
                self.progress.remove(&key);
            }
        }
        self.last = self.last.filter(|at| !is_old(*at));
    }
}
