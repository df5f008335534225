//! Memory of the batches that some branches of a fan-out accepted and other branches refused.
//!
//! The sender of such a batch retries the same bytes. Recognizing the content avoids duplicates at the branches that
//! accepted the batch. Otherwise one full queue would fill all other queues with duplicates.

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
const RETRY_WINDOW: Duration = Duration::from_secs(300);
/// Maximum number of remembered batches, of about 150 bytes each. The oldest is evicted first.
const MAX_REMEMBERED: usize = 4096;

/// The partly refused batches of one fan-out.
///
/// Batches are identified by a hash of their content. Hashing begins with the first immediate refusal and ends after
/// [`RETRY_WINDOW`] without a refusal, so normal operation pays nothing. A batch whose first refusal comes late is not
/// recognized, because its content has been released by then.
pub(super) struct Refused {
    /// Makes the hashes unpredictable, so that a client cannot forge a batch with the hash of another client's batch.
    secret: [u8; 192],
    is_active: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Time of the refusal and the branches that accepted the batch, by hash.
    progress: HashMap<u128, (Instant, Arc<Progress>)>,
    /// Times of `progress`, oldest first. An entry is stale if `progress` has no batch or a later time for its hash.
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
            is_active: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    /// Whether a batch was refused within [`RETRY_WINDOW`].
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Relaxed)
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

    /// Removes and returns the branches that accepted the batch before. An entry is used once, because a second batch
    /// with the same content is a different batch.
    pub(super) fn take(&self, key: u128) -> Option<Arc<Progress>> {
        let mut known = self.lock();
        known.evict_expired(Instant::now());
        self.is_active.store(known.last.is_some(), Relaxed);
        known.progress.remove(&key).map(|(_, progress)| progress)
    }

    /// Records a refused batch. `None` starts the hashing of later batches.
    pub(super) fn keep(&self, batch: Option<(u128, Arc<Progress>)>) {
        let now = Instant::now();
        let mut known = self.lock();
        known.last = Some(now);
        if let Some((key, progress)) = batch {
            known.evict_expired(now);
            known.progress.insert(key, (now, progress));
            known.order.push_back((now, key));
        }
        self.is_active.store(true, Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

impl Known {
    fn evict_expired(&mut self, now: Instant) {
        let is_expired = |at: Instant| now.saturating_duration_since(at) >= RETRY_WINDOW;
        while let Some((at, key)) = self.order.front().copied()
            && (is_expired(at) || self.order.len() >= MAX_REMEMBERED)
        {
            self.order.pop_front();
            if self.progress.get(&key).is_some_and(|(last, _)| *last == at) {
                self.progress.remove(&key);
            }
        }
        self.last = self.last.filter(|at| !is_expired(*at));
    }
}
