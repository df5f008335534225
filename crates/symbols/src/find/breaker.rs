//! Leaves a server alone that does not work.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many failures in a row open it.
const FAILURES: u32 = 5;
/// How long it stays open; then one request may try.
const OPEN: Duration = Duration::from_secs(60);

/// A circuit breaker for one server.
#[derive(Debug, Default)]
pub(super) struct Breaker(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Until when nobody asks.
    until: Option<Instant>,
}

impl Breaker {
    /// Whether the server may be asked now. Who is let in must tell how it went.
    pub(super) fn admits(&self) -> bool {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match state.until {
            Some(until) if now < until => false,
            Some(_) => {
                // One tries; the others wait until it is known how that went, or for as long again.
                state.until = Some(now + OPEN);
                true
            }
            None => true,
        }
    }

    /// The server answered; that it has not got something is an answer, too.
    pub(super) fn worked(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State::default();
    }

    /// It did not.
    pub(super) fn failed(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    async fn after_some_failures_in_a_row_a_server_is_asked_once_a_minute_until_it_works() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES - 1 {
            assert!(breaker.admits());
            breaker.failed();
        }
        breaker.worked();
        for _ in 0..FAILURES {
            assert!(breaker.admits(), "not in a row");
            breaker.failed();
        }
        for _ in 0..3 {
            assert!(!breaker.admits());
            tokio::time::advance(OPEN).await;
            assert!(breaker.admits());
            assert!(!breaker.admits(), "one is enough");
            breaker.failed();
        }
        tokio::time::advance(OPEN).await;
        assert!(breaker.admits());
        breaker.worked();
        assert!(breaker.admits() && breaker.admits());
    }
}
