//! A detection: all detectors at the same time, with retries.

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::queue::{Backoff, RetryConfig};
use tributary_detectors::{
    BuiltInDetector, DetectedResource, Detection, DetectionConfig, DetectionError, Machine,
};
use tributary_net::Owner;

/// Runs all configured detectors, and merges their attributes.
///
/// # Errors
/// The reasons of all detectors that failed.
pub(super) async fn detect(
    config: &DetectionConfig,
    machine: &Machine,
    owner: &Owner,
) -> Result<DetectedResource, String> {
    let session = Session {
        config,
        machine,
        owner,
        retry: RetryConfig {
            initial_interval: config.retry.initial_interval,
            randomization_factor: config.retry.randomization_factor,
            multiplier: config.retry.multiplier,
            max_interval: config.retry.max_interval,
            max_elapsed_time: Some(config.retry.max_elapsed_time),
        },
        started: Instant::now(),
    };
    let detectors = config.built_in();
    let results = join_all(detectors.iter().map(|detector| session.run(*detector))).await;
    let mut merged = DetectedResource::default();
    let mut failures = Vec::new();
    for (detector, result) in detectors.iter().zip(results) {
        match result {
            Ok(found) => merged.complement(found),
            Err(error) => failures.push(format!("detector `{}`: {error}", detector.name())),
        }
    }
    if !config.attributes.is_empty() {
        let kept = &config.attributes;
        merged.attributes.retain(|(key, _)| kept.contains(key));
    }
    match failures.is_empty() {
        true => Ok(merged),
        false => Err(failures.join("; ")),
    }
}

struct Session<'a> {
    config: &'a DetectionConfig,
    machine: &'a Machine,
    owner: &'a Owner,
    retry: RetryConfig,
    started: Instant,
}

impl Session<'_> {
    /// Runs a detector until it succeeds or the time is over.
    async fn run(&self, detector: BuiltInDetector) -> Result<DetectedResource, DetectionError> {
        let timeout = self.config.timeout.0;
        let total = self.config.retry.max_elapsed_time.unless_zero();
        let end = self.started + total.unwrap_or(timeout);
        let mut backoff = Backoff::new(&self.retry, self.started);
        let mut previous = None;
        loop {
            let detection = Detection {
                config: self.config,
                machine: self.machine,
                deadline: end.min(Instant::now() + timeout),
                owner: self.owner,
            };
            let error = match tributary_detectors::detect(detector, &detection).await {
                Ok(found) => return Ok(found),
                // The end cuts the last attempt off; the reason of the one before tells more.
                Err(error) => match previous.take() {
                    Some(previous) if Instant::now() >= end => previous,
                    _ => error,
                },
            };
            let wait = backoff.next(None).filter(|_| self.config.retry.enabled);
            match wait.filter(|wait| Instant::now() + *wait < end) {
                Some(wait) => {
                    let detector = detector.name();
                    warn!(detector, %error, "A detector failed; retrying in {wait:?}.");
                    previous = Some(error);
                    sleep(wait).await;
                }
                None => return Err(error),
            }
        }
    }
}
