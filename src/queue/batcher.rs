//! Queued requests become jobs here: one by one, or merged until a batch is large or old enough.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::config::BatchSizer;
use super::entry::{Entry, Job};
use crate::pipeline::batch::Batch;

/// When batches are complete.
#[derive(Debug, Clone)]
pub(super) struct Merging {
    pub(super) flush_timeout: Duration,
    pub(super) min_size: usize,
    /// `usize::MAX` is no limit.
    pub(super) max_size: usize,
    pub(super) sizer: BatchSizer,
    /// Lower case.
    pub(super) metadata_keys: Vec<String>,
}

/// The values of the metadata keys that keep requests apart.
pub(super) type Partition = Vec<Option<Vec<String>>>;

/// Entries on their way to the workers.
///
/// The lock is held for a few moves of pointers, never across an await; what happens outside it (cutting,
/// compressing) is done before entries come in.
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
    /// In the order of their deadlines, which is the order of opening: all batches wait equally long. Those whose
    /// batch was complete earlier are still here; their number tells.
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

/// A job in the hands of a worker.
pub(super) struct Taken<'a> {
    batcher: &'a Batcher,
    job: Job,
}

impl Batcher {
    /// Merges as told, or not at all.
    pub(super) fn new(merging: Option<Merging>) -> Self {
        Batcher {
            merging,
            ..Batcher::default()
        }
    }

    /// How batches are made, if they are.
    pub(super) fn merging(&self) -> Option<&Merging> {
        self.merging.as_ref()
    }

    /// Takes in the entries of one request, all or none: they come back once the queue is closed.
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

    /// Takes in a job that is complete. Once the queue is closed it is dropped.
    pub(super) fn push_job(&self, job: Job) {
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return drop(job);
        }
        self.ready(&mut state, job);
    }

    /// The next job; waits for one. `None` once the queue is closed and empty.
    pub(super) async fn next(&self) -> Option<Taken<'_>> {
        loop {
            let ready = self.job_ready.notified();
            tokio::pin!(ready);
            // From here on no notification is missed.
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

    /// Completes batches that have waited long enough. Never ends.
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

    /// Takes nothing any more; everything held becomes ready.
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

    /// Gives up everything that no worker took.
    pub(super) fn clear(&self) {
        let abandoned = {
            let mut state = self.lock();
            (
                std::mem::take(&mut state.ready),
                std::mem::take(&mut state.open),
            )
        };
        // Outside the lock: entries count themselves when they are dropped.
        drop(abandoned);
    }

    /// Whether what comes in now has to wait for one of `workers`.
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

    /// Completes what is due at `now`, and says when the next batch is.
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
        // Nothing under the lock panics; if it did, the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Merging {
    /// Which batch a request belongs to.
    pub(super) fn partition_of(&self, batch: &Batch) -> Partition {
        let values = |key: &String| batch.metadata.as_ref()?.get(key).cloned();
        self.metadata_keys.iter().map(values).collect()
    }
}

impl Taken<'_> {
    /// The job, out of the hands that count as busy.
    pub(super) fn take(&mut self) -> Job {
        std::mem::take(&mut self.job)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.batcher.lock().busy -= 1;
    }
}
