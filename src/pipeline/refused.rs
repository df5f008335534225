//! What some branches of a fan-out took and others refused.
//!
//! The sender is refused and sends all of it again, the same bytes. Going by these, whoever took them is not given them once
//! more: else one queue that is full would fill all others with repetitions.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3;

use crate::pipeline::batch::{Batch, Progress};

/// For how long a sender is expected to come back: exporters give up after five minutes, unless they are told otherwise.
const EXPECTED: Duration = Duration::from_secs(300);
/// The most batches that are remembered, of about 150 bytes each; the oldest one is forgotten first.
const MOST: usize = 4096;

/// The batches of one fan-out that are to come again.
///
/// While nothing is refused it costs nothing: batches are told apart by a hash of their content when one is refused at once,
/// and from then on until there was none for [`EXPECTED`]. Only the first one that somebody refuses after having thought
/// about it is not known when it comes again: nobody has its content by then.
pub(super) struct Refused {
    /// Nobody outside may foresee hashes: who could would make batches that pass for those of others.
    secret: [u8; 192],
    watches: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// When each was refused, and who took it.
    progress: HashMap<u128, (Instant, Arc<Progress>)>,
    /// The same times, the oldest first. Those that came again since are not in the map, or with a later time.
    order: VecDeque<(Instant, u128)>,
    last: Option<Instant>,
}

impl Refused {
    pub(super) fn new() -> Self {
        let mut secret = [0; 192];
        // Without randomness from the system there would be no TLS either; accidents are still told apart.
        if SystemRandom::new().fill(&mut secret).is_err() {
            secret.fill_with(|| fastrand::u8(..));
        }
        Refused {
            secret,
            watches: AtomicBool::new(false),
            known: Mutex::default(),
        }
    }

    /// Whether anything was refused lately.
    pub(super) fn watches(&self) -> bool {
        self.watches.load(Relaxed)
    }

    /// What a batch is told apart by.
    pub(super) fn key(&self, batch: &mut Batch) -> u128 {
        let mut hash = Xxh3::with_secret(self.secret);
        let mut add = |bytes: &[u8]| {
            hash.update(&bytes.len().to_le_bytes());
            hash.update(bytes);
        };
        add(&[batch.signal().index() as u8]);
        // Whoever is somebody else by these did not send it before.
        for (name, values) in batch.metadata.iter().flat_map(|metadata| metadata.iter()) {
            add(name.as_bytes());
            add(&values.len().to_le_bytes());
            values.iter().for_each(|value| add(value.as_bytes()));
        }
        batch.wire().parts().iter().for_each(|part| add(part));
        hash.digest128()
    }

    /// Which branches took the batch when it came before. Nobody else is told so: another one with the same content that
    /// comes meanwhile is another one.
    pub(super) fn take(&self, key: u128) -> Option<Arc<Progress>> {
        let mut known = self.lock();
        known.forget_old(Instant::now());
        self.watches.store(known.last.is_some(), Relaxed);
        known.progress.remove(&key).map(|(_, progress)| progress)
    }

    /// A batch was refused and will come again: this one, if it is known which.
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
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
