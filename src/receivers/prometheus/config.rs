//! The configuration of `prometheus`: that of the Collector's receiver, with Prometheus' own configuration in `config`.

mod discovery;
mod global;
mod http;
mod job;
mod relabel;
mod units;
mod unsupported;

use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::discovery::{DnsRecord, DnsSdConfig, FileSdConfig, HttpSdConfig, StaticConfig};
pub use self::global::GlobalConfig;
pub use self::http::{Authorization, BasicAuth, ExtraHeader, PrometheusTls};
pub use self::job::ScrapeConfig;
pub use self::relabel::{RelabelAction, RelabelConfig};
pub use self::units::{Base2Size, NameScheme, PrometheusDuration, ScrapeProtocol};
use self::unsupported::refuse;
use tributary_config::{Problems, Unread, Validate, re2};

/// Scrapes metrics from targets in the formats of Prometheus.
///
/// In texts, the Collector's rules for `$` apply: `$1` stays as it is, `${1}` would be the value of a variable, and
/// `$${1}` becomes `${1}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Prometheus' configuration: `global` and `scrape_configs`. Required.
    pub config: PrometheusConfig,
    /// Whether to remove the suffixes of type and unit from the names of metrics: `_total` and `_seconds`, for example.
    /// Units are known from OpenMetrics and protobuf only. Default: false.
    pub trim_metric_suffixes: bool,
    /// Whether cumulative metrics without a start time get the value of the metric `process_start_time_seconds` on the
    /// same page, if there is one. Default: false. (The Collector has moved this key to its processor
    /// `metricstarttime`.)
    pub use_start_time_metric: bool,
    /// Regular expression for the name of another metric than `process_start_time_seconds`. Needs
    /// `use_start_time_metric`. Default: none. (The Collector has moved this key to its processor `metricstarttime`.)
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start_time_metric_regex: String,
    /// Whether to report `scrape_timeout_seconds`, `scrape_sample_limit` and `scrape_body_size_bytes` for each scrape of
    /// each job; equal to `extra_scrape_metrics` in `global`. Default: false. (The Collector has replaced this key by
    /// `extra_scrape_metrics`.)
    pub report_extra_scrape_metrics: bool,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_allocator: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_server: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_on_shutdown: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery_reload_on_startup: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_scrape_offset: Option<Unread>,
}

/// Prometheus' configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrometheusConfig {
    /// Defaults of all jobs.
    pub global: GlobalConfig,
    /// Jobs: groups of targets that are scraped in the same way. At least one. Required.
    pub scrape_configs: Vec<ScrapeConfig>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_config_files: Option<Unread>,
    /// Not supported, as in the Collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_files: Option<Unread>,
    /// Not supported, as in the Collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_write: Option<Unread>,
    /// Not supported, as in the Collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_read: Option<Unread>,
    /// Not supported, as in the Collector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alerting: Option<Unread>,
}

impl Config {
    /// Returns the pattern of names of start time metrics; `None` means that starts are not taken from metrics.
    pub(super) fn start_time_metric(&self) -> Option<Regex> {
        let pattern = match self.start_time_metric_regex.as_str() {
            "" => "^process_start_time_seconds$",
            pattern => pattern,
        };
        // Validation has rejected invalid patterns.
        re2::compile(pattern)
            .ok()
            .filter(|_| self.use_start_time_metric)
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        problems.within("config", &self.config);
        if !self.start_time_metric_regex.is_empty() {
            if !self.use_start_time_metric {
                let message = "has no effect without `use_start_time_metric: true`";
                problems.error(&["start_time_metric_regex"], message);
            }
            if let Err(error) = re2::compile(&self.start_time_metric_regex) {
                problems.error(&["start_time_metric_regex"], error.to_string());
            }
        }
        let why = "write the targets in `config.scrape_configs`, or use `file_sd_configs` or `http_sd_configs`";
        refuse(
            "target_allocator",
            self.target_allocator.is_some(),
            why,
            problems,
        );
        refuse(
            "api_server",
            self.api_server.is_some(),
            "remove it",
            problems,
        );
        refuse(
            "scrape_on_shutdown",
            self.scrape_on_shutdown.is_some(),
            "remove it; a shorter `scrape_interval` loses less at the end",
            problems,
        );
        refuse(
            "discovery_reload_on_startup",
            self.discovery_reload_on_startup.is_some(),
            "remove it; targets are scraped as soon as they are discovered",
            problems,
        );
        refuse(
            "initial_scrape_offset",
            self.initial_scrape_offset.is_some(),
            "remove it; the first scrapes are spread over the `scrape_interval`",
            problems,
        );
    }
}

impl Validate for PrometheusConfig {
    fn validate(&self, problems: &mut Problems) {
        problems.within("global", &self.global);
        if self.scrape_configs.is_empty() {
            problems.error(
                &["scrape_configs"],
                "must not be empty: define at least one job",
            );
        }
        let mut names = Vec::new();
        for (at, job) in self.scrape_configs.iter().enumerate() {
            let mut inner = Problems::default();
            job.check(&self.global, &mut inner);
            if names.contains(&&job.job_name) {
                let message = format!("there are two jobs named `{}`", job.job_name);
                inner.error(&["job_name"], message);
            }
            names.push(&job.job_name);
            problems.extend(&["scrape_configs", &at.to_string()], inner);
        }
        let alone = "write the jobs in `scrape_configs`, or use `--config` several times";
        refuse(
            "scrape_config_files",
            self.scrape_config_files.is_some(),
            alone,
            problems,
        );
        let gone = "receivers collect only; use a pipeline's exporters";
        refuse("remote_write", self.remote_write.is_some(), gone, problems);
        refuse("remote_read", self.remote_read.is_some(), gone, problems);
        let rules = "evaluate rules in the metrics backend";
        refuse("rule_files", self.rule_files.is_some(), rules, problems);
        refuse("alerting", self.alerting.is_some(), rules, problems);
    }
}
