//! The times of counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

/// Assigns each count its own time range, from the end of the previous count to now.
///
/// The times of the counted items are not used, because the times of two requests may be equal (in files with a
/// resolution of seconds) or out of order. Delta points of one series must not repeat an end time, because receivers
/// drop such a point as a duplicate.
#[derive(Debug)]
pub(super) struct Clock(AtomicU64);

impl Clock {
    /// Creates a clock whose first range begins now.
    pub(super) fn new() -> Self {
        Clock(AtomicU64::new(now()))
    }

    /// Returns the start and the end of a count, in nanoseconds since 1970. The end always grows, even if the system's
    /// clock goes back.
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
