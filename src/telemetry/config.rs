//! `service.telemetry`: the collector's own logs and metrics.

mod logs;
mod metrics;
mod resource;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::logs::{LogEncoding, LogLevel, LogsConfig, Sampling};
pub use self::metrics::{
    MetricsConfig, MetricsLevel, MetricsReader, PrometheusReader, PullExporter, PullReader,
    ResourceLabels,
};
use tributary_config::Unread;
use tributary_config::units::Endpoint;
use tributary_config::{ExtensionUse, Problems, Validate};

/// The collector's own logs and metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Level, encoding and destination of the collector's own logs.
    pub logs: LogsConfig,
    /// Level and endpoint of the collector's own metrics.
    pub metrics: MetricsConfig,
    /// Attributes that describe this process, in `target_info` of its metrics: a mapping, or
    /// `attributes: [{name, value}]`. A null value removes a default one (`service.name`,
    /// `service.version`, `service.instance.id`).
    #[serde(deserialize_with = "resource::deserialize")]
    pub resource: BTreeMap<String, Option<String>>,
    /// The collector's own traces. The collector creates none; only settings that say so are
    /// accepted.
    #[serde(skip_serializing_if = "TracesConfig::is_default")]
    pub traces: TracesConfig,
}

/// The collector's own traces. The collector creates none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TracesConfig {
    /// Level of detail. Only `none` is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<MetricsLevel>,
    /// Export of the collector's own traces. Only an empty list is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<Unread>,
    /// Propagators of trace context. Only an empty list is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub propagators: Vec<String>,
}

impl Validate for TelemetryConfig {
    fn validate(&self, problems: &mut Problems) {
        problems.within("logs", &self.logs);
        problems.within("metrics", &self.metrics);
        problems.within("traces", &self.traces);
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let path = match self.metrics.readers {
            Some(_) => vec!["metrics", "readers", "0", "pull", "exporter", "prometheus"],
            None => vec!["metrics", "address"],
        };
        self.metrics
            .listen()
            .map(|endpoint| (path, endpoint))
            .into_iter()
            .collect()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let serves = self.metrics.level != MetricsLevel::None;
        let auth = self.metrics.auth.iter().filter(|_| serves);
        auth.map(|auth| auth.server_use(&["metrics", "auth"]))
            .collect()
    }
}

impl TracesConfig {
    fn is_default(&self) -> bool {
        *self == TracesConfig::default()
    }
}

impl Validate for TracesConfig {
    fn validate(&self, problems: &mut Problems) {
        if !self.processors.is_empty() {
            let message = "is not supported: the collector creates no traces of its own; remove it";
            problems.error(&["processors"], message);
        }
        if !self.propagators.is_empty() {
            let message = "has no effect: the collector creates no traces of its own";
            problems.warning(&["propagators"], message);
        }
        if self.level.is_some_and(|level| level != MetricsLevel::None) {
            let message = "has no effect: the collector creates no traces of its own";
            problems.warning(&["level"], message);
        }
    }
}
