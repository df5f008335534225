//! `service.telemetry.metrics`: the collector's own metrics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::push::PushExporter;
use crate::component::auth;
use crate::component::auth::Auth;
use tributary_config::Unread;
use tributary_config::units::{Endpoint, Section};
use tributary_config::wildcard::matches;
use tributary_config::{Problems, Validate};
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;

/// Default address of the metrics endpoint, as in the Collector.
const DEFAULT_HOST: &str = "localhost";
const DEFAULT_PORT: u16 = 8888;

/// Level and endpoint of the collector's own metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Level of detail; `none` disables the endpoint. Default: `normal`.
    pub level: MetricsLevel,
    /// Address of the metrics endpoint as `host:port`, as in older Collectors; a `pull` reader has the same effect. Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Endpoint>,
    /// Ways to read the metrics: at most one `pull` reader, the metrics endpoint, and any number of `periodic` readers,
    /// which export by OTLP. Default: a `pull` reader on `localhost:8888`.
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
    /// Reader that exports metrics at intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periodic: Option<PeriodicReader>,
}

/// A reader that exports metrics at intervals. Times are in milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PeriodicReader {
    /// Interval between two exports in milliseconds. Above 0. Default: 60000.
    pub interval: u64,
    /// Time limit of one export in milliseconds. Above 0. Default: 30000.
    pub timeout: u64,
    /// Destination. Required.
    pub exporter: PushExporter,
}

impl Default for PeriodicReader {
    fn default() -> Self {
        PeriodicReader {
            interval: 60_000,
            timeout: 30_000,
            exporter: PushExporter::default(),
        }
    }
}

impl Validate for PeriodicReader {
    fn validate(&self, problems: &mut Problems) {
        problems.within("exporter", &self.exporter);
        for (key, value) in [("interval", self.interval), ("timeout", self.timeout)] {
            if value == 0 {
                problems.error(&[key], "must be above 0 milliseconds");
            }
        }
    }
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
        self.pull()
            .is_some_and(|(_, reader)| reader.without_type_suffix == Some(false))
    }

    /// Returns the selection of process attributes that become labels of every series.
    pub fn labels(&self) -> ResourceLabels {
        let labels = self
            .pull()
            .and_then(|(_, reader)| reader.with_resource_constant_labels.clone());
        labels.unwrap_or_default()
    }

    /// Returns the configured metrics endpoint, and its index in `readers`.
    pub(super) fn pull(&self) -> Option<(usize, &PrometheusReader)> {
        let mut readers = self.readers.iter().flatten().enumerate();
        readers.find_map(|(index, reader)| {
            let pull = reader.pull.as_ref()?;
            Some((index, &pull.exporter.prometheus))
        })
    }

    /// Returns the readers that export metrics, unless metrics are off.
    pub fn periodic(&self) -> impl Iterator<Item = &PeriodicReader> {
        let readers = self.readers.iter().flatten();
        let readers = readers.filter_map(|reader| reader.periodic.as_ref());
        readers.filter(|_| self.level != MetricsLevel::None)
    }

    /// Returns the address of the metrics endpoint; `None` if metrics are off.
    pub fn listen(&self) -> Option<Endpoint> {
        if self.level == MetricsLevel::None {
            return None;
        }
        let reader = self.pull();
        let reader = reader.map(|(_, reader)| Endpoint::new(&reader.host, reader.port));
        let default = || Endpoint::new(DEFAULT_HOST, DEFAULT_PORT);
        reader
            .or_else(|| self.address.clone())
            .or_else(|| self.readers.is_none().then(default))
    }
}

impl Validate for MetricsConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.address.is_some() && self.pull().is_some() {
            let message = "cannot be combined with a `pull` reader: remove `address`";
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
            let message = "must not be empty: add a reader, or set `level: none`";
            problems.error(&["readers"], message);
        }
        for (at, reader) in readers.iter().enumerate() {
            let index = at.to_string();
            let is_first = self.pull().is_some_and(|(first, _)| first == at);
            match (&reader.periodic, &reader.pull) {
                (Some(periodic), None) => {
                    let mut inner = Problems::default();
                    periodic.validate(&mut inner);
                    problems.extend(&["readers", &index, "periodic"], inner);
                }
                (None, Some(_)) if is_first => {}
                (None, Some(_)) => {
                    let message = "only one `pull` reader is supported: remove this reader";
                    problems.error(&["readers", &index], message);
                }
                _ => {
                    let message = "a reader must be `pull: {exporter: {prometheus: {host, port}}}` or \
                                   `periodic: {exporter: {otlp_http: {endpoint}}}`";
                    problems.error(&["readers", &index], message);
                }
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
