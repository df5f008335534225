//! How long the writer waits for more, so that one fsync is for many.
//!
//! Whoever was answered sends again soon, but not at once: without waiting they come just too late for the next fsync,
//! which then is for a few, and each costs the processor a tenth of a millisecond and the disk several writes. So for as
//! long as the last one took, at most, what comes is gathered: a client waits for two instead of one and a half of them
//! on average. PostgreSQL's `commit_delay` and `commit_siblings` do the same with numbers that somebody has to choose.
//!
//! If there is much to write already when the last write ends, the others are not waited for: the disk is at work while they
//! come, and what is written soon is in the processor's cache still. To stop waiting once so much has come was tried: with
//! 64 clients it took a quarter more CPU.

use std::time::{Duration, Instant};

/// The longest wait. A slower disk has more to do than to answer quickly.
const LONGEST: Duration = Duration::from_millis(5);

/// From how many bytes on what has come is written.
const ENOUGH_BYTES: usize = 1 << 20;
/// The same for each append: who brings so much has gathered it.
const LARGE_BYTES: usize = 512 << 10;

/// Whether so many bytes in so many appends are worth an fsync of their own, which costs the processor about as much as
/// writing 100 KiB.
pub(super) fn is_enough(bytes: usize, appends: usize) -> bool {
    bytes >= ENOUGH_BYTES || bytes >= appends.saturating_mul(LARGE_BYTES)
}

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
