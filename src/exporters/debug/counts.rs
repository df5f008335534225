//! What verbosity `basic` says, and the others before all else.

use std::time::{SystemTime, UNIX_EPOCH};

use super::normal::data_points;
use super::text::Utc;
use tributary_otlp::Decoded;

/// How much is in a batch, under the Collector's names.
pub(super) struct Counts {
    message: &'static str,
    counts: Vec<(&'static str, usize)>,
}

impl Counts {
    pub(super) fn of(decoded: &Decoded) -> Counts {
        let (message, counts) = match decoded {
            Decoded::Traces(request) => {
                let scopes = request.resource_spans.iter().flat_map(|r| &r.scope_spans);
                let counts = vec![
                    ("resource spans", request.resource_spans.len()),
                    ("spans", scopes.map(|scope| scope.spans.len()).sum()),
                ];
                ("Traces", counts)
            }
            Decoded::Metrics(request) => {
                let scopes = request
                    .resource_metrics
                    .iter()
                    .flat_map(|r| &r.scope_metrics);
                let metrics = scopes.flat_map(|scope| &scope.metrics);
                let counts = vec![
                    ("resource metrics", request.resource_metrics.len()),
                    ("metrics", metrics.clone().count()),
                    ("data points", metrics.map(data_points).sum()),
                ];
                ("Metrics", counts)
            }
            Decoded::Logs(request) => {
                let scopes = request.resource_logs.iter().flat_map(|r| &r.scope_logs);
                let counts = vec![
                    ("resource logs", request.resource_logs.len()),
                    (
                        "log records",
                        scopes.map(|scope| scope.log_records.len()).sum(),
                    ),
                ];
                ("Logs", counts)
            }
            Decoded::Profiles(request) => {
                let scopes = request
                    .resource_profiles
                    .iter()
                    .flat_map(|r| &r.scope_profiles);
                let profiles = scopes.flat_map(|scope| &scope.profiles);
                let counts = vec![
                    ("resource profiles", request.resource_profiles.len()),
                    (
                        "sample records",
                        profiles.map(|profile| profile.samples.len()).sum(),
                    ),
                ];
                ("Profiles", counts)
            }
        };
        Counts { message, counts }
    }

    pub(super) fn get(&self, name: &str) -> usize {
        let found = self.counts.iter().find(|(counted, _)| *counted == name);
        found.map_or(0, |(_, count)| *count)
    }

    /// The line in front of the text where there is no log to give it a time.
    pub(super) fn line(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(name, count)| format!("\"{name}\": {count}"))
            .collect();
        format!(
            "{}\tinfo\t{}\t{{{}}}",
            Utc(now),
            self.message,
            counts.join(", ")
        )
    }
}
