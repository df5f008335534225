//! `service.telemetry`: the collector's own logs and metrics.

mod resource;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use tributary_config::Unread;
use tributary_config::units::{Duration, Endpoint, Section};
use tributary_config::wildcard::matches;
use tributary_config::{ExtensionUse, Problems, Validate};
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;

/// Default address of the metrics endpoint, as in the Collector.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: u16 = 8888;

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

/// Level, encoding and destination of the collector's own logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogsConfig {
    /// Minimum severity of logged lines. Default: `info`.
    pub level: LogLevel,
    /// `console` for people, `json` for machines. Default: `console`.
    pub encoding: LogEncoding,
    /// Destinations of log lines: `stderr`, `stdout` or file paths. Files are appended to, and
    /// created with mode 0640. Default: `[stderr]`.
    pub output_paths: Vec<String>,
    /// Fields added to every line. Default: none.
    pub initial_fields: BTreeMap<String, String>,
    /// Destination of the logger's own errors: always `stderr`, the Collector's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_output_paths: Option<Vec<String>>,
    /// Sampling of log lines with equal messages. Default: components limit repeated messages
    /// themselves; libraries log ten lines of one message in ten seconds; above the level `debug`,
    /// at most a thousand lines of one message are logged in ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Omits the source location (`caller`) from JSON lines; `console` lines never have one.
    /// Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_caller: Option<bool>,
    /// Omits the process attributes (`resource`) from JSON lines; `console` lines never have them.
    /// Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_zap_resource: Option<bool>,
    /// Disables the Collector's stack traces. Lines here never have stack traces, so only `true` is
    /// accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_stacktrace: Option<bool>,
    /// The Collector's development mode. Only `false` is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub development: Option<bool>,
    /// Export of the collector's own logs as OTLP. Not supported: only an empty list is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<Unread>,
}

/// Sampling of log lines with equal messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Whether lines are dropped. Default: `true`.
    pub enabled: bool,
    /// Time after which counting starts again. Default: `10s`.
    pub tick: Duration,
    /// Number of equal lines logged per `tick`. Default: 10.
    pub initial: u64,
    /// After `initial` lines, one in this many equal lines is logged. Default: 100.
    pub thereafter: u64,
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

/// Minimum severity of logged lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["DEBUG", "INFO", "WARN", "ERROR"]))]
pub enum LogLevel {
    /// Details for diagnosing faults.
    #[serde(alias = "DEBUG")]
    Debug,
    /// Normal operation.
    #[default]
    #[serde(alias = "INFO")]
    Info,
    /// Conditions that need attention.
    #[serde(alias = "WARN")]
    Warn,
    /// Failures.
    #[serde(alias = "ERROR")]
    Error,
}

/// Encoding of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogEncoding {
    /// Text for people.
    #[default]
    Console,
    /// One JSON object per line.
    Json,
}

/// Level and endpoint of the collector's own metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Level of detail; `none` disables the endpoint. Default: `normal`.
    pub level: MetricsLevel,
    /// Address of the metrics endpoint as `host:port`, as in older Collectors. Default: none; see
    /// `readers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Endpoint>,
    /// Metrics endpoint: at most one, a `pull` reader with a `prometheus` exporter. Default: one on
    /// `localhost:8888`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<Vec<MetricsReader>>,
    /// The Collector's views of its own metrics. Not supported: only an empty list is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<Unread>,
    /// TLS of the metrics endpoint. Default: off, plain text. (The Collector has no such key.)
    pub tls: Section<ServerTls>,
    /// Authentication of clients. Default: none, every client that reaches the address is accepted. (The Collector has
    /// no such key.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Limits on clients of the metrics endpoint. (The Collector has no such key.)
    pub limits: Limits,
}

/// Level of detail of the collector's own metrics.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&["None", "Basic", "Normal", "Detailed"]))]
pub enum MetricsLevel {
    /// No metrics.
    #[serde(alias = "None")]
    None,
    /// Essential metrics.
    #[serde(alias = "Basic")]
    Basic,
    /// Metrics that dashboards need.
    #[default]
    #[serde(alias = "Normal")]
    Normal,
    /// All metrics.
    #[serde(alias = "Detailed")]
    Detailed,
}

/// A way to export the collector's own metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsReader {
    /// Reader that clients scrape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullReader>,
    /// Reader that pushes metrics at intervals. Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Unread>,
}

/// A reader that clients scrape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullReader {
    /// Exposition format and address.
    pub exporter: PullExporter,
}

/// Exposition format of a pull reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullExporter {
    /// The text format of Prometheus.
    pub prometheus: PrometheusReader,
}

/// Address and naming of the Prometheus endpoint. Metric names have no unit, no scope labels and by
/// default no `_total`, as in the Collector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrometheusReader {
    /// The interface to listen on. Default: `localhost`.
    pub host: String,
    /// The port. Default: 8888.
    pub port: u16,
    /// Omits units from metric names. Only `true`, the Collector's default, is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_units: Option<bool>,
    /// Omits `_total` from the names of counters, as the Collector does. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_type_suffix: Option<bool>,
    /// Omits the `otel_scope_*` labels. Only `true`, the Collector's default, is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_scope_info: Option<bool>,
    /// Attributes of `resource` that become labels of every series. `target_info` always has all of
    /// them. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_resource_constant_labels: Option<ResourceLabels>,
}

/// Selection of attributes by key. In a pattern, `*` matches any text and `?` any character.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLabels {
    /// Patterns of keys that become labels. Default: none; with `excluded`, all keys that
    /// `excluded` does not match.
    pub included: Vec<String>,
    /// Patterns of keys that do not become labels; they take precedence over `included`. Default:
    /// none.
    pub excluded: Vec<String>,
}

impl ResourceLabels {
    /// Whether the attribute becomes a label.
    pub fn has(&self, key: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, key));
        let is_included = match (self.included.is_empty(), self.excluded.is_empty()) {
            (true, is_none) => !is_none,
            (false, _) => any(&self.included),
        };
        is_included && !any(&self.excluded)
    }
}

impl Default for LogsConfig {
    fn default() -> Self {
        LogsConfig {
            level: LogLevel::default(),
            encoding: LogEncoding::default(),
            output_paths: vec!["stderr".to_owned()],
            initial_fields: BTreeMap::new(),
            error_output_paths: None,
            sampling: None,
            disable_caller: None,
            disable_zap_resource: None,
            disable_stacktrace: None,
            development: None,
            processors: Vec::new(),
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling {
            enabled: true,
            tick: Duration::secs(10),
            initial: 10,
            thereafter: 100,
        }
    }
}

impl Default for PrometheusReader {
    fn default() -> Self {
        PrometheusReader {
            host: DEFAULT_HOST.to_owned(),
            port: DEFAULT_PORT,
            without_units: None,
            without_type_suffix: None,
            without_scope_info: None,
            with_resource_constant_labels: None,
        }
    }
}

impl MetricsConfig {
    /// Whether the names of counters end in `_total`.
    pub fn has_type_suffix(&self) -> bool {
        let readers = self.readers.iter().flatten();
        let pulls = readers.filter_map(|reader| reader.pull.as_ref());
        pulls
            .take(1)
            .any(|pull| pull.exporter.prometheus.without_type_suffix == Some(false))
    }

    /// Returns the selection of process attributes that become labels of every series.
    pub fn labels(&self) -> ResourceLabels {
        let reader = self.readers.iter().flatten().next();
        let pull = reader.and_then(|reader| reader.pull.as_ref());
        let labels = pull.and_then(|pull| {
            pull.exporter
                .prometheus
                .with_resource_constant_labels
                .clone()
        });
        labels.unwrap_or_default()
    }

    /// Returns the address of the metrics endpoint; `None` if metrics are off.
    pub fn listen(&self) -> Option<Endpoint> {
        if self.level == MetricsLevel::None {
            return None;
        }
        if let Some(readers) = &self.readers {
            let reader = &readers.first()?.pull.as_ref()?.exporter.prometheus;
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

impl Validate for LogsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.output_paths.is_empty() {
            let message = "must not be empty: list `stderr`, `stdout` or a file";
            problems.error(&["output_paths"], message);
        }
        if !self.processors.is_empty() {
            let message = "exporting own logs as OTLP is not supported: use `output_paths`";
            problems.error(&["processors"], message);
        }
        // Settings that only change the look of lines cause a warning, not an error.
        let mut no_effect = |key: &str, asked: bool, what: &str| {
            if asked {
                problems.warning(&[key], format!("has no effect: {what}"));
            }
        };
        let elsewhere = |paths: &Vec<String>| paths.iter().any(|path| path != "stderr");
        no_effect(
            "error_output_paths",
            self.error_output_paths.as_ref().is_some_and(elsewhere),
            "errors of the logger are always written to stderr",
        );
        let stack = self.disable_stacktrace == Some(false);
        no_effect("disable_stacktrace", stack, "lines carry no stack traces");
        let development = self.development == Some(true);
        no_effect(
            "development",
            development,
            "is not supported; set `level: debug`",
        );
    }
}

impl Validate for MetricsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.address.is_some() && self.readers.is_some() {
            let message = "cannot be combined with `readers`: remove `address`";
            problems.error(&["address"], message);
        }
        if !self.views.is_empty() {
            let message = "views are not supported: drop metrics in the scrape configuration";
            problems.error(&["views"], message);
        }
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        if let Some(endpoint) = self.listen() {
            auth::warn_about_plaintext(
                self.auth.as_ref(),
                self.tls.is_some(),
                endpoint.host(),
                problems,
            );
        }
        let readers = self.readers.as_deref().unwrap_or_default();
        if self.readers.is_some() && readers.is_empty() && self.level != MetricsLevel::None {
            let message = "must not be empty: add a `pull` reader, or set `level: none`";
            problems.error(&["readers"], message);
        }
        for (index, reader) in readers.iter().enumerate() {
            let index = index.to_string();
            if reader.periodic.is_some() {
                let message = "exporting own metrics is not supported: use a `pull` reader, and scrape the endpoint";
                problems.error(&["readers", &index, "periodic"], message);
            } else if reader.pull.is_none() {
                let message = "a reader must be `pull: {exporter: {prometheus: {host, port}}}`";
                problems.error(&["readers", &index], message);
            } else if index != "0" {
                let message = "only one reader is supported: remove this reader";
                problems.error(&["readers", &index], message);
            }
            let Some(pull) = &reader.pull else {
                continue;
            };
            let prometheus = &pull.exporter.prometheus;
            for (key, value) in [
                ("without_units", prometheus.without_units),
                ("without_scope_info", prometheus.without_scope_info),
            ] {
                if value == Some(false) {
                    let path = ["readers", &index, "pull", "exporter", "prometheus", key];
                    problems.warning(
                        &path,
                        "has no effect: metric names have no units and no scope labels",
                    );
                }
            }
        }
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
