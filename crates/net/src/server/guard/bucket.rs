//! A token bucket for frames without data.

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Bucket {
    /// Tokens per second; 0 means no limit.
    rate: u32,
    left: f64,
    filled: Instant,
}

impl Bucket {
    pub(super) fn new(rate: u32, now: Instant) -> Self {
        Bucket {
            rate,
            left: BURST * f64::from(rate),
            filled: now,
        }
    }

    pub(super) fn earn(&mut self, answers: u32) {
        let full = BURST * f64::from(self.rate);
        self.left = (self.left + f64::from(answers) * PERMITTED_PER_FRAME).min(full);
    }

    /// Takes tokens. Returns false if the bucket has too few tokens.
    pub(super) fn take(&mut self, frames: u32) -> bool {
        if self.rate == 0 {
            return true;
        }
        let (rate, now) = (f64::from(self.rate), Instant::now());
        let since = now.duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * rate).min(BURST * rate) - f64::from(frames);
        self.filled = now;
        self.left >= 0.0
    }
}

/// Seconds' worth of control frames that may arrive in a burst.
const BURST: f64 = 10.0;
/// Control frames that a DATA frame or the end of a response permits. grpc-go and grpc-c measure the round trip with
/// PINGs while responses arrive, thousands per second on a fast network. Any client may answer a DATA frame with one
/// WINDOW_UPDATE each for the stream and the connection.
const PERMITTED_PER_FRAME: f64 = 2.0;
