//! Back-pressure on upstream senders while many bytes are in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes in flight, in KiB, from which upstream senders wait.
const FREELY_KIB: u32 = 8 << 10;
/// Maximum wait of an upstream sender. After that, its data is accepted.
const LONGEST: Duration = Duration::from_millis(50);

/// Limits the bytes in flight by short waits of the upstream senders.
///
/// A queue accepts data at the speed of memory, the next hop at the speed of the network. While both work, a short wait
/// leaves the excess data with the clients instead of in memory. While the next hop is down, waiting would not help,
/// and the queue buffers the data.
#[derive(Debug)]
pub(super) struct Pace {
    free: Arc<Semaphore>,
    failing: AtomicUsize,
}

/// Share of the bytes in flight, released on delivery or drop.
pub(super) type Step = Arc<OwnedSemaphorePermit>;

impl Pace {
    pub(super) fn new() -> Self {
        Pace {
            free: Arc::new(Semaphore::new(FREELY_KIB as usize)),
            failing: AtomicUsize::new(0),
        }
    }

    /// Waits until there is room for `bytes` more in flight, for at most [`LONGEST`].
    pub(super) async fn step(&self, bytes: usize) -> Option<Step> {
        if self.failing.load(Relaxed) > 0 {
            return None;
        }
        let step = self.free.clone().acquire_many_owned(kib(bytes));
        timeout(LONGEST, step).await.ok()?.ok().map(Arc::new)
    }

    /// Like [`step`](Self::step), without waiting. Returns `None` if there is no room.
    pub(super) fn try_step(&self, bytes: usize) -> Option<Step> {
        let step = self.free.clone().try_acquire_many_owned(kib(bytes));
        step.ok().map(Arc::new)
    }

    /// Suspends the waits while the returned guard lives, because the next hop is down.
    pub(super) fn failing(&self) -> Failing<'_> {
        self.failing.fetch_add(1, Relaxed);
        Failing(self)
    }
}

fn kib(bytes: usize) -> u32 {
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(FREELY_KIB);
    kib.clamp(1, FREELY_KIB)
}

/// Guard of [`Pace::failing`].
pub(super) struct Failing<'a>(&'a Pace);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        self.0.failing.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn a_sender_waits_for_what_is_under_way_but_never_long() {
        let pace = Pace::new();
        let start = Instant::now();
        let first = pace.step(6 * MIB).await.unwrap();
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(pace.step(6 * MIB).await.is_none());
        assert_eq!(start.elapsed(), LONGEST);
        let (second, ()) = tokio::join!(pace.step(6 * MIB), async { drop(first) });
        assert!(second.is_some());
        assert_eq!(start.elapsed(), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_next_hop_that_is_away() {
        let pace = Pace::new();
        let start = Instant::now();
        let _under_way = pace.step(100 * MIB).await.unwrap();
        let away = pace.failing();
        assert!(pace.step(MIB).await.is_none());
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop(away);
        assert!(pace.step(MIB).await.is_none());
        assert_eq!(start.elapsed(), LONGEST);
    }
}
