//! Merges requests into batches until a batch is large or old enough. The processor `batch` and `sending_queue.batch`
//! use this module.
//!
//! ```text
//! request -> [split::within] -> push -> the open batch of its partition -> complete: by size, by age, or taken early
//! ```
//!
//! Adding a request moves pointers only, so a caller may hold a lock. Splitting ([`within`](super::split::within)) and
//! merging ([`merge`](super::merge)) work on every byte and run without the lock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::partition::Partition;
use tributary_otlp::Limit;

/// Thresholds and limits of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Thresholds at which a batch is complete; either one suffices.
    pub(crate) min: Limit,
    /// Maximum size of a batch. A larger request is a batch of its own.
    pub(crate) max: Limit,
}

/// A request, or a part of one.
pub(crate) trait Measured {
    /// Returns the number of spans, data points, log records or samples.
    fn items(&self) -> usize;

    /// Returns the size of the encoded requests in bytes.
    fn bytes(&self) -> usize;
}

/// Requests that are sent as one, in order of arrival.
pub(crate) type Gathered<T> = SmallVec<[T; 1]>;

/// The incomplete batches, one for each partition.
pub(crate) struct Gathering<T> {
    sizes: Sizes,
    timeout: Duration,
    open: HashMap<Partition, Open<T>>,
    /// Deadlines of the open batches, in order, because all batches have the same timeout. The deadline of a batch that
    /// was completed early stays here, and its number matches no open batch.
    deadlines: VecDeque<(Instant, u64, Partition)>,
    opened: u64,
}

struct Open<T> {
    number: u64,
    requests: Gathered<T>,
    size: Limit,
}

impl<T: Measured> Gathering<T> {
    /// Creates an empty collection. `timeout` is the maximum age of an incomplete batch.
    pub(crate) fn new(sizes: Sizes, timeout: Duration) -> Self {
        Gathering {
            sizes,
            timeout,
            open: HashMap::new(),
            deadlines: VecDeque::new(),
            opened: 0,
        }
    }

    /// Returns the thresholds and limits.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Adds a request to the batch of its partition. Passes completed batches to `complete`. Returns true if the request
    /// set the only deadline, so that the caller must wake its timer.
    pub(crate) fn push(
        &mut self,
        partition: &Partition,
        request: T,
        mut complete: impl FnMut(Gathered<T>),
    ) -> bool {
        let Sizes { min, max } = self.sizes;
        let (items, bytes) = (request.items(), request.bytes());
        let with = |size: Limit| Limit {
            items: size.items.saturating_add(items),
            bytes: size.bytes.saturating_add(bytes),
        };
        if let Some(open) = self.open.get(partition)
            && !is_within(with(open.size), max)
        {
            self.take(partition).into_iter().for_each(&mut complete);
        }
        let is_complete = |size: Limit| size.items >= min.items || size.bytes >= min.bytes;
        if let Some(open) = self.open.get_mut(partition) {
            open.requests.push(request);
            open.size = with(open.size);
            if is_complete(open.size) {
                self.take(partition).into_iter().for_each(&mut complete);
            }
            return false;
        }
        let size = Limit { items, bytes };
        let requests = Gathered::from_iter([request]);
        if is_complete(size) {
            complete(requests);
            return false;
        }
        self.opened += 1;
        let number = self.opened;
        let was_idle = self.deadlines.is_empty();
        let deadline = Instant::now() + self.timeout;
        self.deadlines
            .push_back((deadline, number, partition.clone()));
        let open = Open {
            number,
            requests,
            size,
        };
        self.open.insert(partition.clone(), open);
        was_idle
    }

    /// Takes the incomplete batch of a partition.
    pub(crate) fn take(&mut self, partition: &Partition) -> Option<Gathered<T>> {
        Some(self.open.remove(partition)?.requests)
    }

    /// Takes a batch that has reached the maximum age, with its partition.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(Partition, Gathered<T>)> {
        if self.next_deadline()? > now {
            return None;
        }
        let (_, _, partition) = self.deadlines.pop_front()?;
        let requests = self.take(&partition)?;
        Some((partition, requests))
    }

    /// Returns the deadline of the oldest incomplete batch.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        loop {
            let (deadline, number, partition) = self.deadlines.front()?;
            let open = self.open.get(partition);
            if open.is_some_and(|open| open.number == *number) {
                return Some(*deadline);
            }
            self.deadlines.pop_front();
        }
    }

    /// Takes all incomplete batches, each with its partition.
    pub(crate) fn take_all(&mut self) -> Vec<(Partition, Gathered<T>)> {
        self.deadlines.clear();
        let open = self.open.drain();
        open.map(|(partition, open)| (partition, open.requests))
            .collect()
    }
}

pub(crate) fn is_within(size: Limit, max: Limit) -> bool {
    size.items <= max.items && size.bytes <= max.bytes
}

#[cfg(test)]
mod tests;
