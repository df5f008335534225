//! Wait of the writer for more appends, so that one fsync covers many (group commit).
//!
//! Acknowledged senders soon send again, but not at once. Without a wait, they just miss the next fsync, which then
//! covers few records. Each fsync costs a tenth of a millisecond of CPU and several disk writes. So the writer waits
//! for at most the duration of the last fsync. On average, a client then waits for two fsyncs instead of one and a
//! half. PostgreSQL's `commit_delay` and `commit_siblings` do the same with values that an administrator has to choose.
//!
//! If many bytes are waiting when the last write ends, the writer does not wait: more appends arrive during the write,
//! and the waiting data is still in the processor's cache. Ending the wait early once that many bytes have arrived was
//! slower: with 64 clients it took a quarter more CPU.

use std::time::{Duration, Instant};

/// Maximum wait. A slower disk needs throughput more than latency.
const LONGEST: Duration = Duration::from_millis(5);

/// Size in bytes from which waiting appends are written at once.
const ENOUGH_BYTES: usize = 1 << 20;
/// The same size per append: a sender of such large appends batches by itself.
const LARGE_BYTES: usize = 512 << 10;

/// Whether these appends are worth an fsync of their own. An fsync costs about as much CPU as writing 100 KiB.
pub(super) fn is_enough(bytes: usize, appends: usize) -> bool {
    bytes >= ENOUGH_BYTES || bytes >= appends.saturating_mul(LARGE_BYTES)
}

/// Statistics of the last group, which predict the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastGroup {
    appends: usize,
    /// Deadline of the wait.
    until: Instant,
}

impl LastGroup {
    pub(super) fn new(appends: usize, began: Instant, ended: Instant) -> Self {
        let took = ended.saturating_duration_since(began);
        LastGroup {
            appends,
            until: ended + took.min(LONGEST),
        }
    }

    /// Returns the expected number of appends: all of the last group, and those that are waiting since.
    pub(super) fn expected(&self, waiting: usize) -> usize {
        self.appends.saturating_add(waiting)
    }

    /// Returns the rest of the wait. Returns `None` if the deadline has passed.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn as_long_as_the_last_one_took_and_not_longer_than_is_stated() {
        let began = Instant::now();
        let quick = LastGroup::new(3, began, began + 2 * MILLI);
        assert_eq!(quick.left(began + 2 * MILLI), Some(2 * MILLI));
        assert_eq!(quick.left(began + 3 * MILLI), Some(MILLI));
        assert_eq!(quick.left(began + 4 * MILLI), None);
        let slow = LastGroup::new(3, began, began + 100 * MILLI);
        assert_eq!(slow.left(began + 100 * MILLI), Some(LONGEST));
    }

    #[test]
    fn what_is_worth_an_fsync_does_not_wait() {
        assert!(is_enough(1 << 20, 100));
        assert!(!is_enough(1 << 19, 2));
        assert!(is_enough(1 << 19, 1));
    }

    #[test]
    fn a_single_client_is_what_is_expected_of_it() {
        let now = Instant::now();
        assert_eq!(LastGroup::new(1, now, now).expected(0), 1);
        assert_eq!(LastGroup::new(1, now, now).expected(1), 2);
    }
}
