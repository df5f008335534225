//! `service.telemetry`: the collector's own logs and metrics.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Endpoint;
use super::{Problems, Validate};

/// Where own metrics are served when nothing else is said; the Collector's default.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: u16 = 8888;

/// The collector's own logs and metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// What is logged, how and where.
    pub logs: LogsConfig,
    /// Which metrics are served, and where.
    pub metrics: MetricsConfig,
    /// Attributes that describe this process, on every log line and in `target_info`. A null value removes a default one
    /// (`service.name`, `service.version`, `service.instance.id`).
    pub resource: BTreeMap<String, Option<String>>,
}

/// What is logged, how and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogsConfig {
    /// The least severe level that is logged. Default: `info`.
    pub level: LogLevel,
    /// `console` for people, `json` for machines. Default: `console`.
    pub encoding: LogEncoding,
    /// Where logs go: `stderr`, `stdout`, or paths of files that are appended to. Default: `[stderr]`.
    pub output_paths: Vec<String>,
    /// Fields that every line carries. Default: none.
    pub initial_fields: BTreeMap<String, String>,
}

/// How severe a log line must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything, for finding faults.
    #[serde(alias = "DEBUG")]
    Debug,
    /// What happens.
    #[default]
    #[serde(alias = "INFO")]
    Info,
    /// What needs attention.
    #[serde(alias = "WARN")]
    Warn,
    /// What failed.
    #[serde(alias = "ERROR")]
    Error,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEncoding {
    /// For people.
    #[default]
    Console,
    /// One JSON object a line.
    Json,
}

/// Which metrics are served, and where.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// How much is measured; `none` switches the endpoint off. Default: `normal`.
    pub level: MetricsLevel,
    /// Where metrics are served, in the form of older collectors: `host:port`. Default: none; see `readers`.
    pub address: Option<Endpoint>,
    /// Where metrics are served: at most one, a `pull` reader with a `prometheus` exporter. Default: one on
    /// `localhost:8888`.
    pub readers: Option<Vec<MetricsReader>>,
}

/// How much is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MetricsLevel {
    /// Nothing.
    #[serde(alias = "None")]
    None,
    /// What is essential.
    #[serde(alias = "Basic")]
    Basic,
    /// What dashboards need.
    #[default]
    #[serde(alias = "Normal")]
    Normal,
    /// Everything.
    #[serde(alias = "Detailed")]
    Detailed,
}

/// A way in which own metrics leave the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsReader {
    /// Metrics are fetched from here.
    pub pull: PullReader,
}

/// A reader that waits to be scraped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullReader {
    /// In which format.
    pub exporter: PullExporter,
}

/// The format of a pull reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullExporter {
    /// The text format of Prometheus.
    pub prometheus: PrometheusReader,
}

/// Where the Prometheus endpoint listens. Names carry no unit, no `_total` and no scope labels, as the Collector's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrometheusReader {
    /// The interface to listen on. Default: `localhost`.
    pub host: String,
    /// The port. Default: 8888.
    pub port: u16,
}

impl Default for LogsConfig {
    fn default() -> Self {
        LogsConfig {
            level: LogLevel::default(),
            encoding: LogEncoding::default(),
            output_paths: vec!["stderr".to_owned()],
            initial_fields: BTreeMap::new(),
        }
    }
}

impl Default for PrometheusReader {
    fn default() -> Self {
        PrometheusReader {
            host: DEFAULT_HOST.to_owned(),
            port: DEFAULT_PORT,
        }
    }
}

impl MetricsConfig {
    /// Where own metrics are served; `None` when they are switched off.
    pub fn listen(&self) -> Option<Endpoint> {
        if self.level == MetricsLevel::None {
            return None;
        }
        if let Some(readers) = &self.readers {
            let reader = &readers.first()?.pull.exporter.prometheus;
            return Some(Endpoint::new(&reader.host, reader.port));
        }
        match &self.address {
            Some(address) => Some(address.clone()),
            None => Some(Endpoint::new(DEFAULT_HOST, DEFAULT_PORT)),
        }
    }
}

impl Validate for TelemetryConfig {
    fn validate(&self, problems: &mut Problems) {
        let metrics = &self.metrics;
        if metrics.address.is_some() && metrics.readers.is_some() {
            problems.error(
                &["metrics", "address"],
                "`address` and `readers` say the same thing: remove `address`",
            );
        }
        if metrics.level != MetricsLevel::None {
            match metrics.readers.as_deref() {
                Some([]) => problems.error(
                    &["metrics", "readers"],
                    "without a reader nobody can see the metrics: add one, or set `level: none`",
                ),
                Some([_, _, ..]) => {
                    problems.error(&["metrics", "readers", "1"], "only one reader is supported")
                }
                _ => {}
            }
        }
        if self.logs.output_paths.is_empty() {
            problems.error(
                &["logs", "output_paths"],
                "logs must go somewhere: name `stderr`, `stdout` or a file",
            );
        }
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let path = match self.metrics.readers {
            Some(_) => vec!["metrics", "readers", "0"],
            None => vec!["metrics", "address"],
        };
        self.metrics
            .listen()
            .map(|endpoint| (path, endpoint))
            .into_iter()
            .collect()
    }
}
