//! Whether a member gets anything: it is left alone for a while when it fails, and one request asks it again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::config::MemberBackoff;

/// How a member fares.
#[derive(Debug)]
pub(super) struct Health {
    state: Mutex<State>,
    backoff: MemberBackoff,
}

#[derive(Debug)]
enum State {
    In,
    Out {
        /// In a row.
        failures: u32,
        until: Instant,
        /// Whether a request is asking it again.
        probed: bool,
    },
}

/// How a request gets to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As all others.
    Open,
    /// As the only one, to find out whether the member is back.
    Probe,
}

impl Health {
    /// Of a member that nothing is known of.
    pub(super) fn new(backoff: MemberBackoff) -> Self {
        Health {
            state: Mutex::new(State::In),
            backoff,
        }
    }

    /// Whether a request may go there now. A [`Way::Probe`] must end in one of the calls below.
    pub(super) fn enter(&self) -> Option<Way> {
        match &mut *self.lock() {
            State::In => Some(Way::Open),
            State::Out { until, probed, .. } if !*probed && *until <= Instant::now() => {
                *probed = true;
                Some(Way::Probe)
            }
            State::Out { .. } => None,
        }
    }

    /// The probe was not made after all, or nobody knows what became of it.
    pub(super) fn unknown(&self) {
        if let State::Out { probed, .. } = &mut *self.lock() {
            *probed = false;
        }
    }

    /// It answered. Returns whether it was out.
    pub(super) fn answered(&self) -> bool {
        let before = std::mem::replace(&mut *self.lock(), State::In);
        matches!(before, State::Out { .. })
    }

    /// It failed, and may have said when to come back. Returns for how long it is out, if it was in.
    pub(super) fn failed(&self, way: Way, throttle: Option<Duration>) -> Option<Duration> {
        let mut state = self.lock();
        let failures = match *state {
            State::In => 1,
            State::Out { failures, .. } if way == Way::Probe => failures.saturating_add(1),
            // It was under way when another one failed.
            State::Out { .. } => return None,
        };
        let doubled = 2_u32.saturating_pow(failures - 1);
        let MemberBackoff {
            initial_interval,
            max_interval,
        } = &self.backoff;
        let pause = initial_interval.saturating_mul(doubled).min(**max_interval);
        // So that senders that lost it together do not come back together.
        let pause = pause.mul_f64(0.75 + fastrand::f64() / 2.0);
        let pause = pause.max(throttle.unwrap_or_default());
        *state = State::Out {
            failures,
            until: Instant::now() + pause,
            probed: false,
        };
        (failures == 1).then_some(pause)
    }

    /// How long it is still left alone; nothing while it is asked again.
    pub(super) fn pause(&self) -> Duration {
        match *self.lock() {
            State::In => Duration::ZERO,
            State::Out { until, .. } => until.saturating_duration_since(Instant::now()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_member_that_fails_is_left_alone_longer_every_time_and_asked_by_one_request() {
        let health = Health::new(MemberBackoff::default());
        assert_eq!(health.enter(), Some(Way::Open));
        let first = health.failed(Way::Open, None).unwrap();
        assert!((750..=1250).contains(&first.as_millis()), "{first:?}");
        let mut before = Duration::ZERO;
        for round in 0..8 {
            assert_eq!(health.enter(), None);
            let pause = health.pause();
            assert!(
                round == 0 || pause > before / 2,
                "{pause:?} after {before:?}"
            );
            assert!(pause.as_secs_f64() <= 37.5, "{pause:?}");
            before = pause;
            advance(pause).await;
            assert_eq!(health.enter(), Some(Way::Probe));
            assert_eq!(health.enter(), None, "two requests ask");
            assert_eq!(health.failed(Way::Probe, None), None);
        }
        assert!(before > Duration::from_secs(20), "{before:?}");
        advance(health.pause()).await;
        assert_eq!(health.enter(), Some(Way::Probe));
        assert!(health.answered());
        assert_eq!(health.enter(), Some(Way::Open));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_fail_together_count_once_and_a_time_that_was_asked_for_is_granted() {
        let health = Health::new(MemberBackoff::default());
        let asked = Duration::from_secs(60);
        assert_eq!(health.failed(Way::Open, Some(asked)), Some(asked));
        assert_eq!(health.failed(Way::Open, None), None);
        assert_eq!(health.pause(), asked);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_was_not_made_leaves_it_to_the_next_one() {
        let health = Health::new(MemberBackoff::default());
        health.failed(Way::Open, None);
        advance(health.pause()).await;
        assert_eq!(health.enter(), Some(Way::Probe));
        health.unknown();
        assert_eq!(health.enter(), Some(Way::Probe));
    }
}
