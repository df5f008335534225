//! The times of counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// Gives each count a time of its own: it begins where the one before it ended, and ends now.
///
/// The times of what is counted would say more, but two requests may have the same last time (of a file whose lines
/// have seconds), or the second an earlier one. Delta points of one series must not: who adds them up takes an end
/// that was there before for a repetition, and drops it.
#[derive(Debug)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// A clock whose first count begins now.
    pub(super) fn new() -> Self {
        Clock(AtomicU64::new(now()))
    }

    /// The start and the end of a count, in nanoseconds since 1970. Ends only grow, also where the system's clock
    /// goes back.
    pub(super) fn tick(&self) -> (u64, u64) {
        let now = now();
        let end = |last: u64| now.max(last.saturating_add(1));
        let last = self
            .0
            .fetch_update(Relaxed, Relaxed, |last| Some(end(last)));
        let last = last.unwrap_or_else(|last| last);
        (last, end(last))
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX))
}
