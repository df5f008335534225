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
    /// Attributes that describe this process, in `target_info` of its metrics: a mapping, or
    /// `attributes: [{name, value}]`. A null value removes a default one (`service.name`,
    /// `service.version`, `service.instance.id`).
    #[serde(deserialize_with = "resource::deserialize")]
    pub resource: BTreeMap<String, Option<String>>,
    /// The collector's own traces. It makes none: only what says so is taken.
    #[serde(skip_serializing_if = "TracesConfig::is_default")]
    pub traces: TracesConfig,
}

/// What is logged, how and where.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogsConfig {
    /// The least severe level that is logged. Default: `info`.
    pub level: LogLevel,
    /// `console` for people, `json` for machines. Default: `console`.
    pub encoding: LogEncoding,
    /// Where logs go: `stderr`, `stdout`, or paths of files that are appended to, and created with mode 0640. Default:
    /// `[stderr]`.
    pub output_paths: Vec<String>,
    /// Fields that every line carries. Default: none.
    pub initial_fields: BTreeMap<String, String>,
    /// Where errors of the logger itself go: always `stderr`, the Collector's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_output_paths: Option<Vec<String>>,
    /// Thinning of equal lines. Default: components limit what they would repeat, libraries log ten lines of a kind in
    /// ten seconds, and of any kind above the level `debug` a thousand lines in ten seconds are logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Leave the place in the source (`caller`) out of JSON lines; lines for people have none. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_caller: Option<bool>,
    /// Leave what describes the process (`resource`) out of JSON lines; lines for people have none. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_zap_resource: Option<bool>,
    /// The Collector's stack traces. Here lines carry none, so only `true` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disable_stacktrace: Option<bool>,
    /// The Collector's mode for its own developers. Only `false` is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub development: Option<bool>,
    /// Where own logs are sent as OTLP. Not supported: only an empty list is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<Unread>,
}

/// Thinning of equal log lines: those with the same message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Whether lines are left out. Default: `true`.
    pub enabled: bool,
    /// Over what time lines are counted. Default: `10s`.
    pub tick: Duration,
    /// How many equal lines are logged in that time. Default: 10.
    pub initial: u64,
    /// And of the rest, one in how many. Default: 100.
    pub thereafter: u64,
}

/// The collector's own traces. It makes none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TracesConfig {
    /// How much is traced. Only `none` is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<MetricsLevel>,
    /// Where own traces are sent. Only an empty list is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processors: Vec<Unread>,
    /// How trace context is passed on. Only an empty list is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub propagators: Vec<String>,
}

/// How severe a log line must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&["DEBUG", "INFO", "WARN", "ERROR"]))]
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
    /// Where metrics are served, in the form of older collectors: `host:port`. Default: none; see
    /// `readers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Endpoint>,
    /// Where metrics are served: at most one, a `pull` reader with a `prometheus` exporter.
    /// Default: one on `localhost:8888`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<Vec<MetricsReader>>,
    /// The Collector's changes to its own metrics. Not supported: only an empty list is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<Unread>,
    /// TLS of the address where metrics are served. Absent: plain text. The Collector has no such key.
    pub tls: Section<ServerTls>,
    /// Who may fetch metrics. Absent: everybody who reaches the address. The Collector has no such key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// What those who fetch metrics may do at most. The Collector has no such key.
    pub limits: Limits,
}

/// How much is measured.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Also(&["None", "Basic", "Normal", "Detailed"]))]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsReader {
    /// Metrics are fetched from here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull: Option<PullReader>,
    /// Metrics are sent from here. Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Unread>,
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

/// Where the Prometheus endpoint listens. Names carry no unit and no scope labels, and by default no `_total`, as
/// the Collector's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrometheusReader {
    /// The interface to listen on. Default: `localhost`.
    pub host: String,
    /// The port. Default: 8888.
    pub port: u16,
    /// Names without units. Only `true`, the Collector's default, is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_units: Option<bool>,
    /// Names of counters without `_total`, as the Collector's. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_type_suffix: Option<bool>,
    /// No `otel_scope_*` labels. Only `true`, the Collector's default, is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_scope_info: Option<bool>,
    /// Which attributes of `resource` are labels of all series. They are labels of `target_info` anyway. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_resource_constant_labels: Option<ResourceLabels>,
}

/// Chooses attributes by their keys. In a pattern, `*` stands for any text and `?` for any character.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLabels {
    /// Patterns of those that become labels. Default: none, or, with `excluded`, all others.
    pub included: Vec<String>,
    /// Patterns of those that do not, whatever `included` says. Default: none.
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

    /// Which attributes of the process are labels of all series.
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

    /// Where own metrics are served; `None` when they are switched off.
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
            let message = "logs must go somewhere: name `stderr`, `stdout` or a file";
            problems.error(&["output_paths"], message);
        }
        if !self.processors.is_empty() {
            let message = "sending own logs as OTLP is not supported: use `output_paths`";
            problems.error(&["processors"], message);
        }
        // What only changes how lines look is no reason not to start.
        let mut no_effect = |key: &str, asked: bool, what: &str| {
            if asked {
                problems.warning(&[key], format!("this has no effect: {what}"));
            }
        };
        let elsewhere = |paths: &Vec<String>| paths.iter().any(|path| path != "stderr");
        no_effect(
            "error_output_paths",
            self.error_output_paths.as_ref().is_some_and(elsewhere),
            "errors of the logger itself go to stderr",
        );
        let stack = self.disable_stacktrace == Some(false);
        no_effect("disable_stacktrace", stack, "lines carry no stack traces");
        let development = self.development == Some(true);
        no_effect(
            "development",
            development,
            "there is no such mode; set `level: debug`",
        );
    }
}

impl Validate for MetricsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.address.is_some() && self.readers.is_some() {
            let message = "`address` and `readers` say the same thing: remove `address`";
            problems.error(&["address"], message);
        }
        if !self.views.is_empty() {
            let message = "views are not supported: drop metrics where they are scraped";
            problems.error(&["views"], message);
        }
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        if let Some(endpoint) = self.listen() {
            auth::warn_of_plaintext(
                self.auth.as_ref(),
                self.tls.is_some(),
                endpoint.host(),
                problems,
            );
        }
        let readers = self.readers.as_deref().unwrap_or_default();
        if self.readers.is_some() && readers.is_empty() && self.level != MetricsLevel::None {
            let message = "without a reader nobody sees the metrics: add one, or set `level: none`";
            problems.error(&["readers"], message);
        }
        for (index, reader) in readers.iter().enumerate() {
            let index = index.to_string();
            if reader.periodic.is_some() {
                let message = "sending own metrics is not supported: use a `pull` reader, and a \
                               `prometheus` receiver elsewhere";
                problems.error(&["readers", &index, "periodic"], message);
            } else if reader.pull.is_none() {
                let message = "a reader needs `pull: {exporter: {prometheus: {host, port}}}`";
                problems.error(&["readers", &index], message);
            } else if index != "0" {
                let message = "only one reader is supported: remove this one";
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
                    problems.warning(&path, "this has no effect: metric names are the plain ones");
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
            let message = "the collector makes no traces of its own: remove this";
            problems.error(&["processors"], message);
        }
        if !self.propagators.is_empty() {
            let message = "this has no effect: the collector makes no traces of its own";
            problems.warning(&["propagators"], message);
        }
        if self.level.is_some_and(|level| level != MetricsLevel::None) {
            let message = "this has no effect: the collector makes no traces of its own";
            problems.warning(&["level"], message);
        }
    }
}
