//! `service.telemetry`: the collector's own logs and metrics.

mod logs;
mod metrics;
mod push;
mod resource;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::logs::{
    BatchLogProcessor, LogEncoding, LogLevel, LogProcessor, LogsConfig, Sampling,
    SimpleLogProcessor,
};
pub use self::metrics::{
    MetricsConfig, MetricsLevel, MetricsReader, PeriodicReader, PrometheusReader, PullExporter,
    PullReader, ResourceLabels,
};
pub use self::push::{PushCompression, PushExporter, PushOtlp, Transport};
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
    /// Level of detail. With `none`, the other keys have no effect; other levels have no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<MetricsLevel>,
    /// Export of the collector's own traces. Without `level: none`, only an empty list is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<Unread>,
    /// Propagators of trace context. Only an empty list is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub propagators: Vec<String>,
    /// Sampling of the collector's own traces. No effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampler: Option<Unread>,
    /// Limits on the collector's own spans. No effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Unread>,
}

impl Validate for TelemetryConfig {
    fn validate(&self, problems: &mut Problems) {
        problems.within("logs", &self.logs);
        problems.within("metrics", &self.metrics);
        problems.within("traces", &self.traces);
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let reader = |index| {
            vec![
                "metrics",
                "readers",
                index,
                "pull",
                "exporter",
                "prometheus",
            ]
        };
        let path = match self.metrics.pull() {
            Some((0, _)) => reader("0"),
            Some((1, _)) => reader("1"),
            Some(_) => vec!["metrics", "readers"],
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
        let no_effect = "has no effect: the collector creates no traces of its own";
        if !self.processors.is_empty() {
            match self.level {
                Some(MetricsLevel::None) => problems.warning(&["processors"], no_effect),
                _ => problems.error(
                    &["processors"],
                    "is not supported: the collector creates no traces of its own; remove it, or set `level: none`",
                ),
            }
        }
        for (key, is_set) in [
            ("propagators", !self.propagators.is_empty()),
            (
                "level",
                self.level.is_some_and(|level| level != MetricsLevel::None),
            ),
            ("sampler", self.sampler.is_some()),
            ("limits", self.limits.is_some()),
        ] {
            if is_set {
                problems.warning(&[key], no_effect);
            }
        }
    }
}
