//! How long the writer waits for more, so that one fsync is for many.
//!
//! Whoever was answered sends again soon, but not at once: without waiting they come just too late for the next fsync,
//! which then is for a few, and each costs the processor a tenth of a millisecond and the disk several writes. So for as
//! long as the last one took, at most, what comes is gathered: a client waits for two instead of one and a half of them
//! on average. PostgreSQL's `commit_delay` and `commit_siblings` do the same with numbers that somebody has to choose.
//!
//! Waiting for half of them, so that the processor has the others while the disk is at work, was tried: with 32 clients it
//! gave 4 % more throughput for 4 % more CPU. So was writing what has come, half a megabyte at a time, while the others are
//! gathered: with 64 clients it took a quarter more CPU.

use std::time::{Duration, Instant};

/// The longest wait. A slower disk has more to do than to answer quickly.
const LONGEST: Duration = Duration::from_millis(5);

/// What the last group says of the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct LastGroup {
    appends: usize,
    /// Who has not come back by then is not waited for.
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

    /// How many appends there are when all have come back, with those that are waiting since it was written.
    pub(super) fn expected(&self, waiting: usize) -> usize {
        self.appends.saturating_add(waiting)
    }

    /// How long it is worth waiting for them.
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
    fn a_single_client_is_what_is_expected_of_it() {
        let now = Instant::now();
        assert_eq!(LastGroup::new(1, now, now).expected(0), 1);
        assert_eq!(LastGroup::new(1, now, now).expected(1), 2);
    }
}
