//! What processors count besides what every processor counts.

use metrics::{Counter, counter};

use crate::batch::Signal;
use crate::config::ComponentId;

/// What `filter` counts.
#[derive(Clone)]
pub struct FilterMetrics(Counter);

impl FilterMetrics {
    /// The handle of a filter in pipelines of a signal. The label has the name that the Collector gives it.
    pub fn new(filter: &ComponentId, signal: Signal) -> Self {
        let items = match signal {
            Signal::Traces => "spans",
            Signal::Metrics => "datapoints",
            Signal::Logs => "logs",
            Signal::Profiles => "profiles",
        };
        FilterMetrics(counter!(
            format!("otelcol_processor_filter_{items}_filtered"),
            "filter" => filter.to_string()
        ))
    }

    /// So many items were dropped.
    pub fn filtered(&self, items: usize) {
        self.0.increment(items as u64);
    }
}

/// What `probabilistic_sampler` counts, by policy.
#[derive(Clone)]
pub struct SamplerMetrics {
    names: &'static [&'static str],
    policies: Vec<String>,
}

impl SamplerMetrics {
    /// The counters for a signal: the first of the names is the one from before contrib 0.161.
    pub fn new(signal: Signal, policies: impl Into<Vec<String>>) -> Self {
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

    /// So many items were not sampled, and sampled, by each of the policies.
    pub fn count(&self, counts: &[[u64; 2]]) {
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
