//! Derives metrics from profiles: resource usage of a service, by function and per request.
//!
//! Profiles are buffered over a window. At its end, each resource gets totals (CPU time, memory
//! allocated and in use, waits for locks, goroutines and more, see [`METRICS`]). The functions with
//! the largest values get their own values and their values including callees; a function that
//! occurs several times in a stack counts once. Values of unnamed and all other functions add up
//! under `other`, so the own values add up to the total. Values including callees overlap, so there
//! is no `other` for them.
//!
//! Additive values are sums of delta temporality. Levels, such as memory in use, are gauges: the
//! last one of each instance in the window, summed over the instances that became one resource.
//! Cumulative profiles, such as Go's allocations, mutex and block profiles unless a previous stage
//! made differences of them, count from the second profile on; the connector computes the
//! differences for each instance. Profiles with sample counts only are multiplied by their period.
//!
//! Traces and metrics give only the number of requests of their service: spans of the kinds
//! `SERVER` and `CONSUMER`, or the service's own counters. CPU time and allocations of the service
//! are then also given per request.
//!
//! A batch is acknowledged once it is counted, in bounded memory. A window that the metrics
//! pipelines refuse temporarily is retried until they accept it; while eight windows wait, senders
//! are refused. A permanently refused window is split, and the requests refused then are dropped,
//! logged and counted. A shutdown and a reload flush the current window.

#[cfg(fuzzing)]
pub(super) mod fuzzing;
mod kinds;
mod measure;
mod measured;
mod metrics;
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

pub(super) use self::kinds::is_level;
pub use self::kinds::{METRICS, OTHERS, Quantity, QuantityMetric};
pub(super) use self::measure::Bounds;
use crate::component::{
    BuildContext, BuildError, ConnectorConfig, Entry, Origin, Outputs, Stability, Terminal,
};
use crate::entry;
use crate::metric::{self, shared};
use tributary_config::units::{ByteSize, Duration};
use tributary_config::{Problems, Validate};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ConnectorConfig> = entry!(
    dyn ConnectorConfig,
    Config,
    "profile_metrics",
    aliases: &[],
    "Derives metrics from profiles: totals, top functions, and costs per request.",
    &[
        (Signal::Traces, Stability::Alpha),
        (Signal::Metrics, Stability::Alpha),
        (Signal::Profiles, Stability::Alpha),
    ],
    emits: &[Signal::Metrics],
    collector: Origin::Own,
    metrics: &[shared::CONNECTOR, OWN_METRICS]
);

const OWN_METRICS: &[metric::Metric] = &[
    metric::counter(
        "tributary_connector_profile_metrics_windows",
        "Number of windows emitted as metrics, by the end of the window: its interval or the memory bound",
    ),
    metric::counter(
        "tributary_connector_profile_metrics_unknown_profiles",
        "Number of profiles without a metric for their sample type, or with a unit that does not fit it",
    ),
    metric::counter(
        "tributary_connector_profile_metrics_first_profiles",
        "Number of cumulative profiles without a predecessor, which yield no difference yet",
    ),
    metric::counter(
        "tributary_connector_profile_metrics_forgotten_series",
        "Number of cumulative series forgotten for lack of memory; no metric counts their growth until the next \
         profile",
    ),
];

/// Settings of the derived metrics.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Duration of a window. Above 0, and at least as long as the interval between two profiles of
    /// one process, or gauges have gaps. Default: 1m.
    pub interval: Duration,
    /// Resource attributes to retain. Profiles whose resources have equal values of all of them are
    /// added up. Default: `service.name`, `service.namespace`, `service.version`,
    /// `deployment.environment.name`.
    pub resource_attributes: Vec<String>,
    /// Number of functions with their own data points, for each total of a resource: the functions
    /// with the largest own values, and those with the largest values including callees. 0: totals
    /// only. Default: 20.
    pub top_functions: u32,
    /// Metrics that count the requests of a service: monotonic sums, or histograms. If a resource
    /// sends both a default metric and the one that it replaced, the newer one is used. Default:
    /// `http.server.request.duration`, `http.server.duration`, `rpc.server.call.duration`,
    /// `rpc.server.duration`.
    pub request_metrics: Vec<String>,
    /// Maximum number of resources, and of services, per window. Further ones are added up under a
    /// resource with the attribute `otel.metric.overflow`. Above 0. Default: 1000.
    pub max_resources: u32,
    /// Maximum memory of a window, as in `64MiB`; a larger window is flushed early. The state of
    /// cumulative profiles may use the same amount again. At least 64KiB. Default: 64MiB.
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
        let next = outputs.get(Signal::Metrics).ok_or_else(|| {
            BuildError("no metrics pipeline lists the connector as a receiver".to_owned())
        })?;
        Ok(stage::build(self, cx, inputs, next.clone()))
    }
}
