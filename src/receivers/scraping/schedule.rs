//! Schedule of scrapes.

use std::time::Duration;

use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// Maximum wait after failures, unless the interval is longer.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// Scrape times at equal steps from a first time on.
#[derive(Debug, Clone, Copy)]
pub(in crate::receivers) struct Schedule {
    first: Instant,
    interval: Duration,
}

impl Schedule {
    /// Creates steps that begin after `delay`.
    pub(in crate::receivers) fn after(now: Instant, delay: Duration, interval: Duration) -> Self {
        Schedule {
            first: now + delay,
            interval,
        }
    }

    /// Creates steps at an offset within the interval that depends on `key` alone, by wall-clock time (since 1970).
    /// Equal intervals of different keys are spread over time, and a restart does not change the offset.
    pub(in crate::receivers) fn spread(
        now: Instant,
        wall: Duration,
        interval: Duration,
        key: &str,
    ) -> Self {
        let length = interval.as_nanos().max(1);
        let offset = (u128::from(xxh3_64(key.as_bytes())) * length) >> 64;
        let delay = (offset + length - wall.as_nanos() % length) % length;
        let delay = u64::try_from(delay).unwrap_or(u64::MAX);
        Schedule::after(now, Duration::from_nanos(delay), interval)
    }

    /// Returns the first time.
    pub(in crate::receivers) fn first(&self) -> Instant {
        self.first
    }

    /// Returns the next scrape after `now`: every `stretch`th step of the interval. After `failures` failures in a
    /// row, the wait doubles each time, with jitter, so that servers that recover together are not scraped together.
    pub(in crate::receivers) fn next(&self, now: Instant, failures: u32, stretch: u32) -> Instant {
        let interval = self.interval.saturating_mul(stretch.max(1));
        if failures < 2 {
            let step = interval.as_nanos().max(1);
            let passed = now.saturating_duration_since(self.first).as_nanos();
            let next = (passed / step + 1) * step;
            let next = u64::try_from(next).unwrap_or(u64::MAX);
            return self.first + Duration::from_nanos(next);
        }
        let doubled = interval.saturating_mul(1 << (failures - 1).min(16));
        let longest = interval.max(MAX_WAIT);
        let jitter = 0.8 + 0.4 * fastrand::f64();
        now + doubled.min(longest).mul_f64(jitter).max(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn offset_follows_from_key_and_clock() {
        let now = Instant::now();
        let interval = 60 * SECOND;
        let at = |wall: u64, key: &str| {
            let wall = Duration::from_millis(wall);
            let schedule = Schedule::spread(now, wall, interval, key);
            let delay = schedule.first() - now;
            assert!(delay < interval);
            (wall + delay).as_nanos() % interval.as_nanos()
        };
        // A restart at another time: the same phase.
        for key in ["a", "b", "c"] {
            assert_eq!(at(0, key), at(1_700_000_012_345, key));
        }
        // Many targets: every tenth of the interval has some.
        let mut tenths = [0; 10];
        for number in 0..1000 {
            let phase = at(0, &format!("10.0.0.{number}:6060\0cpu"));
            tenths[usize::try_from(phase * 10 / interval.as_nanos()).unwrap()] += 1;
        }
        assert!(
            tenths.iter().all(|count| (50..200).contains(count)),
            "{tenths:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn missed_steps_are_skipped() {
        let now = Instant::now();
        let schedule = Schedule::after(now, SECOND, 10 * SECOND);
        assert_eq!(schedule.first() - now, SECOND);
        for (at, next) in [(1, 11), (2, 11), (11, 21), (35, 41)] {
            assert_eq!(schedule.next(now + at * SECOND, 0, 1) - now, next * SECOND);
        }
        // A busy machine: every fourth.
        assert_eq!(schedule.next(now + 2 * SECOND, 0, 4) - now, 41 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn consecutive_failures_lengthen_waits_to_limit() {
        let now = Instant::now();
        let schedule = Schedule::after(now, Duration::ZERO, 10 * SECOND);
        let wait = |failures| (schedule.next(now, failures, 1) - now).as_secs_f64();
        assert_eq!((wait(0), wait(1)), (10.0, 10.0));
        for (failures, least, most) in [(2, 16.0, 24.0), (3, 32.0, 48.0), (30, 96.0, 144.0)] {
            let waits: Vec<f64> = (0..50).map(|_| wait(failures)).collect();
            assert!(
                waits.iter().all(|wait| (least..=most).contains(wait)),
                "{waits:?}"
            );
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
        // An interval above the limit stays.
        let rare = Schedule::after(now, Duration::ZERO, 600 * SECOND);
        let wait = rare.next(now, 9, 1) - now;
        assert!((600 * SECOND..=720 * SECOND).contains(&wait), "{wait:?}");
    }
}
