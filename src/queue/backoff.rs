//! Waits between attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::config::RetryConfig;

/// Waits of one batch: exponential with jitter, within a total time.
#[derive(Debug)]
pub(crate) struct Backoff<'a> {
    config: &'a RetryConfig,
    started: Instant,
    interval: Duration,
}

impl<'a> Backoff<'a> {
    /// Starts the clock of `max_elapsed_time`.
    pub(crate) fn new(config: &'a RetryConfig, started: Instant) -> Self {
        Backoff {
            config,
            started,
            interval: *config.initial_interval,
        }
    }

    /// Excludes `time` from `max_elapsed_time`, because no attempt failed in that time.
    pub(super) fn pause(&mut self, time: Duration) {
        self.started += time;
    }

    /// Returns the wait before the next attempt, at least as long as the server throttle for. Returns `None` if that
    /// attempt would come after `max_elapsed_time`.
    pub(crate) fn next(&mut self, throttle: Option<Duration>) -> Option<Duration> {
        let factor = self.config.randomization_factor;
        let jitter = 1.0 + factor * (2.0 * fastrand::f64() - 1.0);
        let wait = self.interval.mul_f64(jitter.clamp(0.0, 2.0));
        let wait = wait.max(throttle.unwrap_or_default());
        self.interval = self
            .interval
            .mul_f64(self.config.multiplier.clamp(1.0, 1e3))
            .min(*self.config.max_interval);
        let limit = *self.config.limit();
        let in_time = limit.is_zero() || self.started.elapsed().saturating_add(wait) <= limit;
        in_time.then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_config::units::Duration as Setting;

    fn config() -> RetryConfig {
        RetryConfig {
            randomization_factor: 0.0,
            ..RetryConfig::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_grow_to_max_interval() {
        let config = RetryConfig {
            max_elapsed_time: Some(Setting::secs(0)),
            ..config()
        };
        let mut backoff = Backoff::new(&config, Instant::now());
        let waits: Vec<f64> = (0..7)
            .map(|_| backoff.next(None).unwrap().as_secs_f64())
            .collect();
        assert_eq!(waits, [5.0, 7.5, 11.25, 16.875, 25.3125, 30.0, 30.0]);
    }

    #[tokio::test(start_paused = true)]
    async fn jitter_stays_within_its_factor() {
        let config = RetryConfig::default();
        let mut seen: Vec<Duration> = (0..100)
            .map(|_| Backoff::new(&config, Instant::now()).next(None).unwrap())
            .collect();
        assert!(
            seen.iter()
                .all(|wait| (2.5..=7.5).contains(&wait.as_secs_f64()))
        );
        seen.sort();
        seen.dedup();
        assert!(seen.len() > 50);
    }

    #[tokio::test(start_paused = true)]
    async fn server_delay_lengthens_wait_within_total_time() {
        let config = config();
        let mut backoff = Backoff::new(&config, Instant::now());
        let throttle = Duration::from_secs(60);
        assert_eq!(backoff.next(Some(throttle)), Some(throttle));
        assert_eq!(
            backoff.next(Some(Duration::from_secs(1))),
            Some(Duration::from_secs_f64(7.5))
        );
        assert_eq!(backoff.next(Some(Duration::from_secs(301))), None);
        assert_eq!(backoff.next(Some(Duration::MAX)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_never_exceeds_total_time() {
        let config = config();
        let mut backoff = Backoff::new(&config, Instant::now());
        tokio::time::advance(Duration::from_secs(295)).await;
        assert_eq!(backoff.next(None), Some(Duration::from_secs(5)));
        assert_eq!(backoff.next(None), None);
    }
}
