//! Metrics of the connector.

use metrics::Counter;

use super::finding::Finding;
use super::window::Skipped;

pub(super) struct Metrics {
    regressions: Counter,
    improvements: Counter,
    pub(super) comparisons: Counter,
    skipped: [Counter; Skipped::ALL.len()],
}

impl Metrics {
    pub(super) fn new(connector: &str) -> Self {
        let found = |kind: &'static str| {
            metrics::counter!(
                "tributary_connector_profile_regressions",
                "connector" => connector.to_owned(),
                "kind" => kind
            )
        };
        Metrics {
            regressions: found("regression"),
            improvements: found("improvement"),
            comparisons: metrics::counter!(
                "tributary_connector_profile_regressions_comparisons",
                "connector" => connector.to_owned()
            ),
            skipped: Skipped::ALL.map(|reason| {
                metrics::counter!(
                    "tributary_connector_profile_regressions_skipped_samples",
                    "connector" => connector.to_owned(),
                    "reason" => reason.name()
                )
            }),
        }
    }

    pub(super) fn found(&self, finding: &Finding) {
        match finding.is_regression() {
            true => self.regressions.increment(1),
            false => self.improvements.increment(1),
        }
    }

    /// Counts samples that are in no comparison.
    pub(super) fn skipped(&self, reason: Skipped, samples: u64) {
        self.skipped[reason as usize].increment(samples);
    }
}
