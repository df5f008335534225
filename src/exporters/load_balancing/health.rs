//! Health of a member: a failed member gets no requests for a while, then a single request probes
//! it.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::config::MemberBackoff;

/// Longest pause that a member's retry delay can cause, unless `max_interval` is longer.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub(super) struct Health {
    state: Mutex<State>,
    backoff: MemberBackoff,
}

#[derive(Debug)]
enum State {
    In,
    Out {
        /// Consecutive failures.
        failures: u32,
        until: Instant,
        /// End of the pause after a first failure.
        early: Instant,
        /// Whether a probe is in flight.
        probed: bool,
    },
}

/// Kind of access to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// An ordinary request.
    Open,
    /// The single request that probes whether the member is available again.
    Probe,
}

impl Health {
    pub(super) fn new(backoff: MemberBackoff) -> Self {
        Health {
            state: Mutex::new(State::In),
            backoff,
        }
    }

    /// Returns the kind of access for a request now. `alone` means that all other members failed,
    /// which shortens the pause. A [`Way::Probe`] must end in one of the calls below.
    pub(super) fn enter(&self, alone: bool) -> Option<Way> {
        match &mut *self.lock() {
            State::In => Some(Way::Open),
            State::Out {
                until,
                early,
                probed,
                ..
            } => {
                let end = if alone { *early } else { *until };
                let admitted = !*probed && end <= Instant::now();
                *probed |= admitted;
                admitted.then_some(Way::Probe)
            }
        }
    }

    /// Ends a probe without a known outcome.
    pub(super) fn unknown(&self) {
        if let State::Out { probed, .. } = &mut *self.lock() {
            *probed = false;
        }
    }

    /// Records a response. Returns whether the member was unavailable before.
    pub(super) fn answered(&self) -> bool {
        let before = std::mem::replace(&mut *self.lock(), State::In);
        matches!(before, State::Out { .. })
    }

    /// Records a failure, with the retry delay that the member requested. Returns the length of the pause if the
    /// member was available before.
    pub(super) fn failed(&self, way: Way, throttle: Option<Duration>) -> Option<Duration> {
        let mut state = self.lock();
        let failures = match *state {
            State::In => 1,
            State::Out { failures, .. } if way == Way::Probe => failures.saturating_add(1),
            // The request was already in flight when another request failed.
            State::Out { .. } => return None,
        };
        let doubled = 2_u32.saturating_pow(failures - 1);
        let MemberBackoff {
            initial_interval,
            max_interval,
        } = &self.backoff;
        // Jitter keeps senders that failed at the same time from returning at the same time.
        let jitter = 0.75 + fastrand::f64() / 2.0;
        // A delay of a day, or one that overflows the clock, is an error of the peer.
        let asked = throttle
            .unwrap_or_default()
            .min(LONGEST_ASKED.max(**max_interval));
        let first = initial_interval.mul_f64(jitter).max(asked);
        let pause = initial_interval.saturating_mul(doubled).min(**max_interval);
        let pause = pause.mul_f64(jitter).max(asked);
        let now = Instant::now();
        *state = State::Out {
            failures,
            until: now + pause,
            early: now + first,
            probed: false,
        };
        (failures == 1).then_some(pause)
    }

    /// Returns the rest of the pause if all other members have failed.
    pub(super) fn pause(&self) -> Duration {
        match *self.lock() {
            State::In => Duration::ZERO,
            State::Out { early, .. } => early.saturating_duration_since(Instant::now()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Waits until the member may be probed, and returns the time waited.
    async fn left_alone(health: &Health, alone: bool) -> Duration {
        let began = Instant::now();
        while health.enter(alone).is_none() {
            advance(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn failing_member_is_paused_longer_and_probed_once() {
        let health = Health::new(MemberBackoff::default());
        assert_eq!(health.enter(false), Some(Way::Open));
        let first = health.failed(Way::Open, None).unwrap();
        assert!((750..=1250).contains(&first.as_millis()), "{first:?}");
        for shortest in [0.75, 1.5, 3.0, 6.0, 12.0, 22.5, 22.5] {
            let pause = left_alone(&health, false).await.as_secs_f64();
            let longest = shortest / 0.75 * 1.25 + 0.02;
            assert!((shortest - 0.02..=longest).contains(&pause), "{pause}");
            assert_eq!(health.enter(false), None, "two requests ask");
            assert_eq!(health.failed(Way::Probe, None), None);
        }
        left_alone(&health, false).await;
        assert!(health.answered());
        assert_eq!(health.enter(false), Some(Way::Open));
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_stay_short_without_alternatives() {
        let health = Health::new(MemberBackoff::default());
        health.failed(Way::Open, None);
        for _ in 0..8 {
            let said = health.pause();
            let pause = left_alone(&health, true).await;
            assert!(
                pause <= Duration::from_millis(1260) && pause >= said,
                "{pause:?}"
            );
            health.failed(Way::Probe, None);
        }
        left_alone(&health, true).await;
        health.failed(Way::Probe, Some(Duration::from_secs(60)));
        assert!(left_alone(&health, true).await >= Duration::from_secs(60));
        // Delays that overflow the clock or would strand the member are capped.
        health.failed(Way::Probe, Some(Duration::MAX));
        assert!(left_alone(&health, true).await <= LONGEST_ASKED);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_failures_count_once() {
        let health = Health::new(MemberBackoff::default());
        assert!(health.failed(Way::Open, None).is_some());
        assert_eq!(health.failed(Way::Open, None), None);
        assert!(left_alone(&health, false).await <= Duration::from_millis(1260));
    }

    #[tokio::test(start_paused = true)]
    async fn unused_probe_passes_to_next_request() {
        let health = Health::new(MemberBackoff::default());
        health.failed(Way::Open, None);
        left_alone(&health, false).await;
        health.unknown();
        assert_eq!(health.enter(false), Some(Way::Probe));
    }
}
