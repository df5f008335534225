//! Sampling decisions by policy, under the Collector's metric names.

use metrics::counter;
use tributary_otlp::Signal;

/// Metrics of the `probabilistic_sampler` processor, by policy.
#[derive(Clone)]
pub(super) struct SamplerMetrics {
    names: &'static [&'static str],
    policies: Vec<String>,
}

impl SamplerMetrics {
    /// Creates the counters for a signal. The first name is the one from before contrib 0.161.
    pub(super) fn new(signal: Signal, policies: impl Into<Vec<String>>) -> Self {
        SamplerMetrics {
            names: match signal {
                Signal::Logs => &["otelcol_processor_probabilistic_sampler_count_logs_sampled"],
                Signal::Profiles => {
                    &["tributary_processor_probabilistic_sampler_count_profiles_sampled"]
                }
                _ => &[
                    "otelcol_processor_probabilistic_sampler_count_traces_sampled",
                    "otelcol_processor_probabilistic_sampler_count_spans_processed",
                ],
            },
            policies: policies.into(),
        }
    }

    /// Counts the items that were not sampled and that were sampled, by policy.
    pub(super) fn count(&self, counts: &[[u64; 2]]) {
        for (policy, counts) in self.policies.iter().zip(counts) {
            for (sampled, count) in ["false", "true"].into_iter().zip(counts) {
                if *count == 0 {
                    continue;
                }
                for name in self.names {
                    let labels = [("policy", policy.clone()), ("sampled", sampled.to_owned())];
                    counter!(*name, &labels).increment(*count);
                }
            }
        }
    }
}
