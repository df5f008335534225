//! Makes metrics of profiles: what a service spends, where, and per request.
//!
//! Profiles are gathered over a window. At its end each resource has its totals (CPU time, memory allocated and in
//! use, waits for locks, goroutines and more, by what [`METRICS`] knows) and, for the functions with the most, what
//! they have in themselves and with what they call; a function that is in a stack several times counts once. What is
//! in no function that is named adds up under `other`, so the functions' own values add up to the total. Values with
//! what is called overlap: there is no rest of those.
//!
//! What adds up is a sum of delta temporality. Levels, such as memory in use, are gauges: the last one of each
//! instance in the window, added up over the instances that became one resource. What counts from the start of a
//! process, as Go's allocations, mutex and block profiles do unless something made differences of them before, counts
//! from its second profile on; the differences are made here, for each instance. Profiles that only say how often
//! they looked count by their period.
//!
//! Traces and metrics that flow in make no metrics but the number of requests of their service: spans of the kinds
//! `SERVER` and `CONSUMER`, or what its own counters say. Then its CPU time and allocations are also given per request.
//!
//! A batch is acknowledged when it is counted, in memory that is bounded. What the pipelines of metrics refuse for
//! now is offered until they take it; while eight windows wait for that, senders are refused. What they refuse for
//! good is cut in pieces, and what is refused then is dropped, logged and counted. A shutdown and a reload hand on
//! what is there.

#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod kinds;
mod measure;
mod requests;
mod series;
mod stage;
mod subject;
#[cfg(test)]
mod tests;
mod unknown;
mod window;
mod write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::kinds::{Kind, METRICS, Metric, OTHERS};
use crate::component::{
    BuildContext, BuildError, ConnectorConfig, Entry, Outputs, Stability, Terminal,
};
use crate::entry;
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;

/// The registry's entry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "profile_metrics",
    aliases: &[],
    "Makes metrics of profiles: totals, the functions that count most, and costs per request.",
    &[
        (Signal::Traces, Stability::Alpha),
        (Signal::Metrics, Stability::Alpha),
        (Signal::Profiles, Stability::Alpha),
    ],
    emits: Some(&[Signal::Metrics])
);

/// What becomes of profiles.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// How long profiles are gathered before their metrics leave. Above 0; at least as long as the interval between two
    /// profiles of one process, or levels come and go. Default: 60s.
    pub interval: Duration,
    /// The resource attributes that stay. Profiles whose resources have equal values of all of them are added up.
    /// Default: `service.name`, `service.namespace`, `service.version`, `deployment.environment.name`.
    pub resource_attributes: Vec<String>,
    /// How many functions of a resource have data points of their own, for each of its totals: so many with the most in
    /// themselves, and so many with the most with what they call. 0: none, only totals. Default: 20.
    pub top_functions: u32,
    /// Metrics that count the requests of a service: monotonic sums, or histograms. Where a resource sends both one of
    /// the defaults and the one that it replaced, the newer one counts. Default:
    /// `http.server.request.duration`, `http.server.duration`, `rpc.server.call.duration`, `rpc.server.duration`.
    pub request_metrics: Vec<String>,
    /// How many resources a window may have, and how many services. What comes of further ones is added up under a
    /// resource with the attribute `otel.metric.overflow`. Above 0. Default: 1000.
    pub max_resources: u32,
    /// The memory that a window may take, as in `64MiB`; above it the window ends early. As much again is used for what
    /// counts from the start of processes. At least 64KiB. Default: 64MiB.
    pub max_bytes: ByteSize,
}

impl Default for Config {
    fn default() -> Self {
        let texts = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        Config {
            interval: Duration::secs(60),
            resource_attributes: texts([
                "service.name",
                "service.namespace",
                "service.version",
                "deployment.environment.name",
            ]),
            top_functions: 20,
            request_metrics: texts([
                "http.server.request.duration",
                "http.server.duration",
                "rpc.server.call.duration",
                "rpc.server.duration",
            ]),
            max_resources: 1000,
            max_bytes: ByteSize::mib(64),
        }
    }
}

const LEAST_BYTES: u64 = 64 << 10;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.interval.is_zero() {
            problems.error(&["interval"], "must be above 0");
        }
        if self.max_resources == 0 {
            problems.error(&["max_resources"], "must be above 0");
        }
        if self.max_bytes.0 < LEAST_BYTES {
            problems.error(&["max_bytes"], "must be at least 64KiB");
        }
        for (key, list) in [
            ("resource_attributes", &self.resource_attributes),
            ("request_metrics", &self.request_metrics),
        ] {
            for (at, name) in list.iter().enumerate() {
                let path = [key, &at.to_string()];
                if name.is_empty() {
                    problems.error(&path, "must not be empty");
                } else if list.iter().take(at).any(|before| before == name) {
                    problems.error(&path, format!("duplicate entry `{name}`"));
                }
            }
        }
    }
}

impl ConnectorConfig for Config {
    fn build(
        &self,
        cx: &BuildContext,
        inputs: &[Signal],
        outputs: Outputs,
    ) -> Result<Terminal, BuildError> {
        let next = outputs
            .get(Signal::Metrics)
            .ok_or_else(|| BuildError("no metrics pipeline starts with it".to_owned()))?;
        Ok(stage::build(self, cx, inputs, next.clone()))
    }
}
