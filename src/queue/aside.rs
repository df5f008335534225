//! Records that fail again and again must not stop a stored queue.
//!
//! ```text
//! consumer: attempt, attempt, attempt --fails--> set aside, one attempt at a time --fails for an hour--> dead letters
//! ```
//!
//! A record whose first attempts fail gives up its consumer, and its memory: the log has it. It is retried beside
//! the consumers. Nothing tells such a record from any other while the next hop takes nothing at all. Once the next
//! hop takes other data, each further failure counts against the record.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use metrics::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::SendError;
use super::stored::Stored;
use crate::pipeline::batch::Code;

/// Failed attempts after which a record is set aside.
const ATTEMPTS: u32 = 3;
/// Failures that count against a record before it is a suspect.
const COUNTED_FAILURES: u32 = 5;
/// Records that may be set aside, for each consumer. A total outage sets so many aside as well.
const PLACES: usize = 10;
/// How long a suspect is retried before it goes to the dead letters.
const DEAD_LETTER_AFTER: Duration = Duration::from_secs(3600);

/// The records of one queue that are set aside.
pub(super) struct Aside {
    pub(super) stored: Arc<Stored>,
    places: Arc<Semaphore>,
    gauge: Gauge,
    /// Jobs that were delivered, and attempts that failed in the hands of consumers.
    delivered: AtomicU64,
    failed: AtomicU64,
}

/// What is held against one job.
#[derive(Default)]
pub(super) struct Trial {
    failures: u32,
    counted: u32,
    /// The queue's figures at the last failure.
    delivered: u64,
    failed: u64,
    place: Option<Place>,
}

struct Place {
    since: Instant,
    gauge: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Aside {
    pub(super) fn new(stored: Arc<Stored>, consumers: usize, gauge: Gauge) -> Self {
        let places = consumers.saturating_mul(PLACES).min(Semaphore::MAX_PERMITS);
        Aside {
            stored,
            places: Arc::new(Semaphore::new(places)),
            gauge,
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// A job was delivered.
    pub(super) fn delivered(&self) {
        self.delivered.fetch_add(1, Relaxed);
    }

    /// Whether suspects are in the way of other data: no other record can be set aside, or the queue is nearly full.
    fn is_pressed(&self) -> bool {
        self.places.available_permits() == 0 || self.stored.is_scarce(0)
    }
}

impl Trial {
    /// An attempt failed, and may succeed later.
    pub(super) fn failed(&mut self, aside: &Aside, error: &SendError) {
        // A server that says "later" says so of all data.
        if error.throttle.is_some() || error.code == Code::ResourceExhausted {
            return;
        }
        let delivered = aside.delivered.load(Relaxed);
        if self.place.is_none() {
            aside.failed.fetch_add(1, Relaxed);
        }
        let failed = aside.failed.load(Relaxed);
        // A next hop that refuses most of what it gets is in trouble itself.
        let others_succeed = delivered - self.delivered > failed - self.failed;
        if self.failures > 0 && others_succeed {
            self.counted += 1;
        }
        self.failures += 1;
        (self.delivered, self.failed) = (delivered, failed);
    }

    /// Whether the job has just been set aside.
    pub(super) fn set_aside(&mut self, aside: &Aside) -> bool {
        if self.place.is_some() || self.failures < ATTEMPTS {
            return false;
        }
        let Ok(permit) = aside.places.clone().try_acquire_owned() else {
            return false;
        };
        aside.gauge.increment(1);
        self.place = Some(Place {
            since: Instant::now(),
            gauge: aside.gauge.clone(),
            _permit: permit,
        });
        true
    }

    pub(super) fn is_aside(&self) -> bool {
        self.place.is_some()
    }

    /// Whether the job has failed more than once in a row.
    pub(super) fn fails_again(&self) -> bool {
        self.failures > 1
    }

    /// Whether it is the job that is at fault and not the next hop.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_aside() && self.counted >= COUNTED_FAILURES
    }

    /// Whether it is time to give a suspect up.
    pub(super) fn is_over(&self, aside: &Aside) -> bool {
        let long = |place: &Place| place.since.elapsed() >= DEAD_LETTER_AFTER;
        self.is_suspect() && (aside.is_pressed() || self.place.as_ref().is_some_and(long))
    }

    /// The job is another one from now on, in the same place.
    pub(super) fn begin_again(&mut self) {
        self.counted = 0;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gauge.decrement(1);
    }
}
