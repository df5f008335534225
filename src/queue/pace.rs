//! Slows senders down a little while much is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Bytes that may be under way before senders wait, in KiB.
const FREELY_KIB: u32 = 8 << 10;
/// The longest that a sender waits. After that its data is taken like any other.
const LONGEST: Duration = Duration::from_millis(50);

/// A queue takes data as fast as memory does, the next hop as fast as the network. When both work, a short wait keeps
/// the difference with the clients instead of in memory. While the next hop is away there is nothing to wait for: then
/// the queue is what the data waits in.
#[derive(Debug)]
pub(super) struct Pace {
    free: Arc<Semaphore>,
    failing: AtomicUsize,
}

/// Part of what is under way; held until it is delivered or given up.
pub(super) type Step = Arc<OwnedSemaphorePermit>;

impl Pace {
    pub(super) fn new() -> Self {
        Pace {
            free: Arc::new(Semaphore::new(FREELY_KIB as usize)),
            failing: AtomicUsize::new(0),
        }
    }

    /// Waits until `bytes` more may be under way, but not for long.
    pub(super) async fn step(&self, bytes: usize) -> Option<Step> {
        if self.failing.load(Relaxed) > 0 {
            return None;
        }
        let step = self.free.clone().acquire_many_owned(kib(bytes));
        timeout(LONGEST, step).await.ok()?.ok().map(Arc::new)
    }

    /// The same for those who do not wait: it counts if there is room for it.
    pub(super) fn try_step(&self, bytes: usize) -> Option<Step> {
        let step = self.free.clone().try_acquire_many_owned(kib(bytes));
        step.ok().map(Arc::new)
    }

    /// The next hop is away as long as what is returned lives.
    pub(super) fn failing(&self) -> Failing<'_> {
        self.failing.fetch_add(1, Relaxed);
        Failing(self)
    }
}

fn kib(bytes: usize) -> u32 {
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).unwrap_or(FREELY_KIB);
    kib.clamp(1, FREELY_KIB)
}

/// See [`Pace::failing`].
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
