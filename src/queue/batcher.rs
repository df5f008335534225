//! Turns queued requests into jobs: one by one, or merged until a batch is large or old enough.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::config::{BatchConfig, BatchSizer, QueueConfig};
use super::entry::{Entry, Job};
use crate::pipeline::batch::Batch;
use crate::pipeline::gathering::{Gathering, Measured, Sizes};
use crate::pipeline::partition::{Keys, Partition};
use crate::pipeline::split;
use crate::pipeline::split::Parts;
use tributary_memory::Budget;
use tributary_otlp::Limit;

/// Limit that no batch reaches.
const NO_LIMIT: Limit = Limit {
    items: usize::MAX,
    bytes: usize::MAX,
};

/// Entries between the producers and the consumers of the queue.
///
/// The lock is held for a few pointer moves, never across an await. Expensive work (splitting, compressing) runs before
/// entries are added.
pub(super) struct Batcher {
    /// Maximum size of a batch.
    max: Limit,
    /// Headers whose values must be equal within a batch.
    keys: Keys,
    state: Mutex<State>,
    job_ready: Notify,
    timer_set: Notify,
}

struct State {
    /// Incomplete batches, if requests are merged.
    gathering: Option<Gathering<Entry>>,
    ready: VecDeque<Job>,
    busy: usize,
    closed: bool,
}

/// A job taken by a consumer.
pub(super) struct ActiveJob<'a> {
    batcher: &'a Batcher,
    job: Job,
}

impl Measured for Entry {
    fn items(&self) -> usize {
        Entry::items(self)
    }

    fn bytes(&self) -> usize {
        Entry::bytes(self)
    }
}

impl Batcher {
    /// Creates a batcher that merges requests as configured, or passes them on one by one.
    pub(super) fn new(queue: Option<&QueueConfig>) -> Self {
        let batch = queue.and_then(|queue| Some((queue, queue.batch.as_ref()?)));
        let gathering = batch.map(|(queue, batch)| {
            let sizes = sizes(batch, queue.batch_sizer(batch));
            Gathering::new(sizes, *batch.flush_timeout)
        });
        Batcher {
            max: gathering
                .as_ref()
                .map_or(NO_LIMIT, |gathering| gathering.sizes().max),
            keys: batch.map_or_else(Keys::default, |(_, batch)| {
                Keys::new(&batch.partition.metadata_keys)
            }),
            state: Mutex::new(State {
                gathering,
                ready: VecDeque::new(),
                busy: 0,
                closed: false,
            }),
            job_ready: Notify::new(),
            timer_set: Notify::new(),
        }
    }

    pub(super) fn merges(&self) -> bool {
        self.lock().gathering.is_some()
    }

    /// Returns the maximum size of a batch.
    pub(super) fn max(&self) -> Limit {
        self.max
    }

    /// Returns the headers whose values must be equal within a batch.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Splits a batch that exceeds the maximum size. Returns the parts and their partition.
    pub(super) async fn split(
        &self,
        batch: Batch,
        budget: &Arc<Budget>,
    ) -> (Partition, Parts<Batch>) {
        let partition = self.keys.partition(&batch);
        (partition, split::within(batch, self.max, budget).await)
    }

    /// Adds all entries of one request. Returns the entries if the queue is closed.
    #[must_use]
    pub(super) fn push(&self, partition: &Partition, entries: Job) -> Option<Job> {
        let mut state = self.lock();
        if state.closed {
            return Some(entries);
        }
        let State {
            gathering, ready, ..
        } = &mut *state;
        for entry in entries {
            match gathering {
                Some(gathering) => {
                    let complete = |job| self.ready(ready, job);
                    if gathering.push(partition, entry, complete) {
                        self.timer_set.notify_one();
                    }
                }
                None => self.ready(ready, Job::from_iter([entry])),
            }
        }
        None
    }

    /// Adds a complete job. If the queue is closed, the job is dropped.
    pub(super) fn push_job(&self, job: Job) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return drop(job);
        }
        self.ready(&mut state.ready, job);
    }

    /// Waits for the next job. Returns `None` once the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<ActiveJob<'_>> {
        loop {
            let ready = self.job_ready.notified();
            tokio::pin!(ready);
            // Register before the check, so that no notification is lost.
            ready.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(job) = state.ready.pop_front() {
                    state.busy += 1;
                    return Some(ActiveJob { batcher: self, job });
                }
                if state.closed {
                    return None;
                }
            }
            ready.await;
        }
    }

    /// Completes batches that have reached their maximum age. Never returns.
    pub(super) async fn run_timers(&self) {
        loop {
            let set = self.timer_set.notified();
            tokio::pin!(set);
            set.as_mut().enable();
            match self.complete_due(Instant::now()) {
                Some(deadline) => sleep_until(deadline).await,
                None => set.await,
            }
        }
    }

    /// Refuses new entries. All buffered entries become ready.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let State {
            gathering, ready, ..
        } = &mut *state;
        let open = gathering.as_mut().map(Gathering::take_all);
        for (_, job) in open.into_iter().flatten() {
            self.ready(ready, job);
        }
        drop(state);
        self.job_ready.notify_waiters();
    }

    /// Drops all entries that no consumer has taken.
    pub(super) fn clear(&self) {
        let abandoned = {
            let mut state = self.lock();
            let open = state.gathering.as_mut().map(Gathering::take_all);
            (std::mem::take(&mut state.ready), open)
        };
        // Drop outside the lock, because dropped entries update counters.
        drop(abandoned);
    }

    /// Whether a new request has to wait for one of `workers`.
    pub(super) fn is_backlogged(&self, workers: usize) -> bool {
        let state = self.lock();
        state.busy >= workers || !state.ready.is_empty()
    }

    /// Completes batches that are due at `now`. Returns the deadline of the next batch.
    fn complete_due(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        let State {
            gathering, ready, ..
        } = &mut *state;
        let gathering = gathering.as_mut()?;
        while let Some((_, job)) = gathering.take_due(now) {
            self.ready(ready, job);
        }
        gathering.next_deadline()
    }

    fn ready(&self, ready: &mut VecDeque<Job>, job: Job) {
        ready.push_back(job);
        self.job_ready.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns the sizes of `sending_queue.batch` in the unit `sizer`; the other unit has no limit.
fn sizes(batch: &BatchConfig, sizer: BatchSizer) -> Sizes {
    let max = match batch.max_size {
        0 => usize::MAX,
        size => size,
    };
    let of = |size| match sizer {
        BatchSizer::Items => Limit {
            items: size,
            ..NO_LIMIT
        },
        BatchSizer::Bytes => Limit {
            bytes: size,
            ..NO_LIMIT
        },
    };
    Sizes {
        min: of(batch.min_size),
        max: of(max),
    }
}

impl ActiveJob<'_> {
    /// Takes the job. The consumer counts as busy until `self` is dropped.
    pub(super) fn take_job(&mut self) -> Job {
        std::mem::take(&mut self.job)
    }
}

impl Drop for ActiveJob<'_> {
    fn drop(&mut self) {
        self.batcher.lock().busy -= 1;
    }
}
