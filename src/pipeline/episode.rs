//! Log throttling for lasting trouble: one line when it begins, one line with totals when it ends.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Time without occurrences after which an episode is over. Intermittent trouble is one episode.
const QUIET: Duration = Duration::from_secs(10);

/// A kind of trouble of a component.
#[derive(Debug, Default)]
pub(crate) struct Episode {
    /// Fast path of [`over`](Self::over).
    is_on: AtomicBool,
    state: Mutex<Option<State>>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    began: Instant,
    last: Instant,
    times: u64,
    items: u64,
}

/// Totals of an episode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Time from the first to the last occurrence.
    pub(crate) lasted: Duration,
    /// Number of occurrences.
    pub(crate) times: u64,
    /// Affected items. Each repeated attempt counts them again.
    pub(crate) items: u64,
}

impl Episode {
    /// Counts an occurrence that affects `items` items. Returns true if the occurrence begins an episode.
    pub(crate) fn occurs(&self, items: usize) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let begins = state.is_none();
        let known = state.get_or_insert(State {
            began: now,
            last: now,
            times: 0,
            items: 0,
        });
        known.last = now;
        known.times += 1;
        known.items += items as u64;
        self.is_on.store(true, Relaxed);
        begins
    }

    /// Records the absence of trouble. Returns the totals if an episode has ended.
    pub(crate) fn over(&self) -> Option<Ended> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let mut state = self.state.lock();
        let known = state.as_ref()?;
        if known.last.elapsed() < QUIET {
            return None;
        }
        let ended = Ended {
            lasted: known.last - known.began,
            times: known.times,
            items: known.items,
        };
        *state = None;
        self.is_on.store(false, Relaxed);
        Some(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn episode_begins_once_and_ends_after_a_quiet_time() {
        let episode = Episode::default();
        assert_eq!(episode.over(), None);
        assert!(episode.occurs(3));
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(!episode.occurs(4));
        assert_eq!(episode.over(), None, "it has just occurred");
        tokio::time::advance(QUIET).await;
        let ended = Ended {
            lasted: Duration::from_secs(60),
            times: 2,
            items: 7,
        };
        assert_eq!(episode.over(), Some(ended));
        assert_eq!(episode.over(), None);
        assert!(episode.occurs(1), "another one");
    }
}
