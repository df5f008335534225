//! Selection of the batches that are printed.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Interval after which the count restarts, as in the Collector's logger.
const SAMPLING_WINDOW: Duration = Duration::from_secs(1);

/// Admits the first batches of every second, and then one in `thereafter`.
pub(super) struct Sampler {
    initial: u64,
    thereafter: u64,
    seen: Mutex<Seen>,
}

struct Seen {
    since: Instant,
    count: u64,
}

impl Sampler {
    pub(super) fn new(initial: u32, thereafter: u32) -> Self {
        Sampler {
            initial: initial.into(),
            thereafter: thereafter.into(),
            seen: Mutex::new(Seen {
                since: Instant::now(),
                count: 0,
            }),
        }
    }

    /// Whether the next batch is printed.
    pub(super) fn admits(&self, now: Instant) -> bool {
        let mut seen = self.seen.lock();
        if now.saturating_duration_since(seen.since) >= SAMPLING_WINDOW {
            *seen = Seen {
                since: now,
                count: 0,
            };
        }
        seen.count += 1;
        match seen.count.checked_sub(self.initial) {
            None | Some(0) => true,
            Some(beyond) => beyond.checked_rem(self.thereafter) == Some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(sampler: &Sampler, now: Instant, batches: usize) -> Vec<bool> {
        (0..batches).map(|_| sampler.admits(now)).collect()
    }

    #[test]
    fn sampler_admits_first_batches_then_every_nth() {
        let sampler = Sampler::new(2, 3);
        let start = Instant::now();
        let expected = [true, true, false, false, true, false, false, true];
        assert_eq!(admitted(&sampler, start, 8), expected);
        let later = start + SAMPLING_WINDOW + SAMPLING_WINDOW;
        assert_eq!(admitted(&sampler, later, 8), expected);
        assert_eq!(
            admitted(&sampler, later + SAMPLING_WINDOW / 2, 3),
            [false, false, true]
        );
    }

    #[test]
    fn thereafter_1_admits_all_and_0_none() {
        let now = Instant::now();
        assert_eq!(admitted(&Sampler::new(1, 1), now, 4), [true; 4]);
        assert_eq!(admitted(&Sampler::new(1, 0), now, 3), [true, false, false]);
        assert_eq!(admitted(&Sampler::new(0, 0), now, 2), [false, false]);
    }
}
