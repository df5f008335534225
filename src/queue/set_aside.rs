//! Keeps records that fail repeatedly from blocking a stored queue.
//!
//! ```text
//! consumer: attempt, attempt, attempt --fails--> set aside, one attempt at a time --fails for an hour--> dead letters
//! ```
//!
//! If its first attempts fail, a record releases its consumer and its memory, because the log has the record. The record
//! is then retried beside the consumers. Its failures count only while the next hop accepts other data.

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
/// Counted failures after which a record is a suspect.
const COUNTED_FAILURES: u32 = 5;
/// Limit of records set aside, per consumer. A total outage reaches this limit.
const SLOTS_PER_CONSUMER: usize = 10;
/// Time for which a suspect is retried before it goes to the dead letters.
const DEAD_LETTER_AFTER: Duration = Duration::from_secs(3600);

/// The records of one queue that are set aside.
pub(super) struct SetAside {
    pub(super) stored: Arc<Stored>,
    slots: Arc<Semaphore>,
    gauge: Gauge,
    /// Number of delivered jobs.
    delivered: AtomicU64,
    /// Number of failed attempts of jobs that were not set aside.
    failed: AtomicU64,
}

#[derive(Default)]
pub(super) struct FailureHistory {
    failures: u32,
    counted_failures: u32,
    /// Counters of the queue at the time of the job's last failure.
    delivered: u64,
    failed: u64,
    slot: Option<SetAsideSlot>,
}

struct SetAsideSlot {
    since: Instant,
    gauge: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl SetAside {
    pub(super) fn new(stored: Arc<Stored>, consumers: usize, gauge: Gauge) -> Self {
        let slots = consumers
            .saturating_mul(SLOTS_PER_CONSUMER)
            .min(Semaphore::MAX_PERMITS);
        SetAside {
            stored,
            slots: Arc::new(Semaphore::new(slots)),
            gauge,
            delivered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(super) fn delivered(&self) {
        self.delivered.fetch_add(1, Relaxed);
    }

    /// Whether suspects block other data: no further record can be set aside, or the queue is nearly full.
    fn lacks_room(&self) -> bool {
        self.slots.available_permits() == 0 || self.stored.is_scarce(0)
    }
}

impl FailureHistory {
    /// Records a failed attempt that may be retried.
    pub(super) fn failed(&mut self, set_aside: &SetAside, error: &SendError) {
        // Throttling applies to all data, so a throttled attempt does not count against this job.
        if error.throttle.is_some() || error.code == Code::ResourceExhausted {
            return;
        }
        let delivered = set_aside.delivered.load(Relaxed);
        if self.slot.is_none() {
            set_aside.failed.fetch_add(1, Relaxed);
        }
        let failed = set_aside.failed.load(Relaxed);
        // If most jobs fail, the next hop is at fault, not this job.
        let others_succeed = delivered - self.delivered > failed - self.failed;
        if self.failures > 0 && others_succeed {
            self.counted_failures += 1;
        }
        self.failures += 1;
        (self.delivered, self.failed) = (delivered, failed);
    }

    /// Sets the job aside if it has failed often enough and there is room. Returns whether this call set it aside.
    pub(super) fn try_set_aside(&mut self, set_aside: &SetAside) -> bool {
        if self.slot.is_some() || self.failures < ATTEMPTS {
            return false;
        }
        let Ok(permit) = set_aside.slots.clone().try_acquire_owned() else {
            return false;
        };
        set_aside.gauge.increment(1);
        self.slot = Some(SetAsideSlot {
            since: Instant::now(),
            gauge: set_aside.gauge.clone(),
            _permit: permit,
        });
        true
    }

    pub(super) fn is_set_aside(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether the job has failed more than once in a row.
    pub(super) fn failed_repeatedly(&self) -> bool {
        self.failures > 1
    }

    /// Whether the job is at fault, and not the next hop.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_set_aside() && self.counted_failures >= COUNTED_FAILURES
    }

    /// Whether the job must move to the dead letters now.
    pub(super) fn is_dead_letter(&self, set_aside: &SetAside) -> bool {
        let long = |slot: &SetAsideSlot| slot.since.elapsed() >= DEAD_LETTER_AFTER;
        self.is_suspect() && (set_aside.lacks_room() || self.slot.as_ref().is_some_and(long))
    }

    /// Resets the counted failures, for the remaining part of the job, which keeps the slot.
    pub(super) fn reset(&mut self) {
        self.counted_failures = 0;
    }
}

impl Drop for SetAsideSlot {
    fn drop(&mut self) {
        self.gauge.decrement(1);
    }
}
