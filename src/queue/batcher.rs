//! Turns queued requests into jobs: one by one, or merged until a batch is large or old enough.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::config::BatchSizer;
use super::entry::{Entry, Job};
use crate::pipeline::batch::Batch;

/// Conditions under which a batch is complete.
#[derive(Debug, Clone)]
pub(super) struct Merging {
    pub(super) flush_timeout: Duration,
    pub(super) min_size: usize,
    /// `usize::MAX` means no limit.
    pub(super) max_size: usize,
    pub(super) sizer: BatchSizer,
    /// In lower case.
    pub(super) metadata_keys: Vec<String>,
}

/// Values of the metadata keys. Only requests with equal values are merged.
pub(super) type Partition = Vec<Option<Vec<String>>>;

/// Entries between the producers and the consumers of the queue.
///
/// The lock is held for a few pointer moves, never across an await. Expensive work (splitting, compressing) is done
/// before entries come in.
#[derive(Default)]
pub(super) struct Batcher {
    merging: Option<Merging>,
    state: Mutex<State>,
    job_ready: Notify,
    timer_set: Notify,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Job>,
    open: HashMap<Partition, Open>,
    /// Timers of the open batches, ordered by deadline. That is also the order of opening, since the timeout is the
    /// same for all. A batch that was completed early leaves its timer behind; the timer's number then matches no open
    /// batch.
    timers: VecDeque<(Instant, u64, Partition)>,
    opened: u64,
    busy: usize,
    closed: bool,
}

struct Open {
    number: u64,
    job: Job,
    size: usize,
}

/// A job taken by a consumer.
pub(super) struct Taken<'a> {
    batcher: &'a Batcher,
    job: Job,
}

impl Batcher {
    /// Creates a batcher that merges requests, or passes them on one by one.
    pub(super) fn new(merging: Option<Merging>) -> Self {
        Batcher {
            merging,
            ..Batcher::default()
        }
    }

    /// Returns the merge settings, if merging is on.
    pub(super) fn merging(&self) -> Option<&Merging> {
        self.merging.as_ref()
    }

    /// Adds all entries of one request. Returns them if the queue is closed.
    #[must_use]
    pub(super) fn push(&self, partition: Partition, entries: Job) -> Option<Job> {
        let mut state = self.lock();
        if state.closed {
            return Some(entries);
        }
        for entry in entries {
            match &self.merging {
                Some(merging) => self.merge(merging, &mut state, &partition, entry),
                None => self.ready(&mut state, Job::from_iter([entry])),
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
        self.ready(&mut state, job);
    }

    /// Waits for the next job. Returns `None` once the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<Taken<'_>> {
        loop {
            let ready = self.job_ready.notified();
            tokio::pin!(ready);
            // Registered before the check, so that no notification is lost.
            ready.as_mut().enable();
            {
                let mut state = self.lock();
                if let Some(job) = state.ready.pop_front() {
                    state.busy += 1;
                    return Some(Taken { batcher: self, job });
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
        state.timers.clear();
        let open: Vec<Open> = state.open.drain().map(|(_, open)| open).collect();
        for open in open {
            self.ready(&mut state, open.job);
        }
        drop(state);
        self.job_ready.notify_waiters();
    }

    /// Drops all entries that no consumer took.
    pub(super) fn clear(&self) {
        let abandoned = {
            let mut state = self.lock();
            (
                std::mem::take(&mut state.ready),
                std::mem::take(&mut state.open),
            )
        };
        // Dropped after the lock is released: dropped entries count themselves.
        drop(abandoned);
    }

    /// Whether a new request has to wait for one of `workers`.
    pub(super) fn is_backlogged(&self, workers: usize) -> bool {
        let state = self.lock();
        state.busy >= workers || !state.ready.is_empty()
    }

    fn merge(&self, merging: &Merging, state: &mut State, partition: &Partition, entry: Entry) {
        let size = match merging.sizer {
            BatchSizer::Items => entry.items(),
            BatchSizer::Bytes => entry.bytes(),
        };
        if let Some(open) = state.open.get_mut(partition)
            && open.size.saturating_add(size) > merging.max_size
        {
            let job = std::mem::take(&mut open.job);
            state.open.remove(partition);
            self.ready(state, job);
        }
        if !state.open.contains_key(partition) && size >= merging.min_size {
            return self.ready(state, Job::from_iter([entry]));
        }
        match state.open.get_mut(partition) {
            Some(open) => {
                open.job.push(entry);
                open.size += size;
                if open.size >= merging.min_size {
                    let job = std::mem::take(&mut open.job);
                    state.open.remove(partition);
                    self.ready(state, job);
                }
            }
            None => {
                state.opened += 1;
                let number = state.opened;
                let deadline = Instant::now() + merging.flush_timeout;
                state
                    .timers
                    .push_back((deadline, number, partition.clone()));
                if state.timers.len() == 1 {
                    self.timer_set.notify_one();
                }
                let job = Job::from_iter([entry]);
                state
                    .open
                    .insert(partition.clone(), Open { number, job, size });
            }
        }
    }

    /// Completes batches that are due at `now`. Returns the deadline of the next batch.
    fn complete_due(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        while let Some((deadline, number, partition)) = state.timers.pop_front() {
            let waiting = state.open.get(&partition);
            if waiting.is_none_or(|open| open.number != number) {
                continue;
            }
            if deadline > now {
                state.timers.push_front((deadline, number, partition));
                return Some(deadline);
            }
            if let Some(open) = state.open.remove(&partition) {
                self.ready(&mut state, open.job);
            }
        }
        None
    }

    fn ready(&self, state: &mut State, job: Job) {
        state.ready.push_back(job);
        self.job_ready.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock. If it did, the state would still be consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Merging {
    /// Returns the partition that a batch belongs to.
    pub(super) fn partition_of(&self, batch: &Batch) -> Partition {
        let values = |key: &String| batch.metadata.as_ref()?.get(key).cloned();
        self.metadata_keys.iter().map(values).collect()
    }
}

impl Taken<'_> {
    /// Takes the job out; the consumer stays busy until `self` is dropped.
    pub(super) fn take(&mut self) -> Job {
        std::mem::take(&mut self.job)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.batcher.lock().busy -= 1;
    }
}
