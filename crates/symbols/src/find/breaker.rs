//! A circuit breaker, which stops requests to a failing server.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const FAILURES: u32 = 5;
/// Time for which the breaker stays open. After it, one trial request is allowed.
const OPEN: Duration = Duration::from_secs(60);

/// A circuit breaker for one server.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// End of the open state.
    until: Option<Instant>,
}

impl Breaker {
    /// Whether a query to the server is allowed now. The caller of an allowed query must report the outcome.
    pub(super) fn allows_request(&self) -> bool {
        let mut state = self.0.lock();
        let now = Instant::now();
        match state.until {
            Some(until) if now < until => false,
            Some(_) => {
                // One request is a trial. Other requests wait for its outcome, or for the same time again.
                state.until = Some(now + OPEN);
                true
            }
            None => true,
        }
    }

    /// Records a response of the server. "Not found" is a response too.
    pub(super) fn record_success(&self) {
        let mut state = self.0.lock();
        *state = State::default();
    }

    pub(super) fn record_failure(&self) {
        let mut state = self.0.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failures >= FAILURES {
            state.until = Some(Instant::now() + OPEN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn open_breaker_allows_one_request_a_minute() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES - 1 {
            assert!(breaker.allows_request());
            breaker.record_failure();
        }
        breaker.record_success();
        for _ in 0..FAILURES {
            assert!(breaker.allows_request(), "not in a row");
            breaker.record_failure();
        }
        for _ in 0..3 {
            assert!(!breaker.allows_request());
            tokio::time::advance(OPEN).await;
            assert!(breaker.allows_request());
            assert!(!breaker.allows_request(), "one is enough");
            breaker.record_failure();
        }
        tokio::time::advance(OPEN).await;
        assert!(breaker.allows_request());
        breaker.record_success();
        assert!(breaker.allows_request() && breaker.allows_request());
    }
}
