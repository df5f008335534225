//! The section `global`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{Base2Size, NameScheme, PrometheusDuration, ScrapeProtocol};
use super::unsupported::refuse;
use tributary_config::{Problems, Unread, Validate};

/// Defaults of all jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GlobalConfig {
    /// Interval of scrapes. Above 0. Default: 1m.
    pub scrape_interval: PrometheusDuration,
    /// Timeout of a scrape. Above 0, and at most `scrape_interval`. Default: 10s, or `scrape_interval` if it is shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_timeout: Option<PrometheusDuration>,
    /// Formats to ask targets for, in the order of preference. Default: `OpenMetricsText1.0.0`, `OpenMetricsText0.0.1`,
    /// `PrometheusText1.0.0`, `PrometheusText0.0.4`; with `scrape_native_histograms`, `PrometheusProto` before them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_protocols: Option<Vec<ScrapeProtocol>>,
    /// Labels added to all metrics. Default: none.
    pub external_labels: BTreeMap<String, String>,
    /// Maximum size of a page after decompression; 0 means 256MiB. Default: 0B. (The Collector's 0 means no limit.)
    pub body_size_limit: Base2Size,
    /// Maximum number of samples of a page after relabelling; a larger page is dropped. 0 disables the limit. Default: 0.
    pub sample_limit: usize,
    /// Maximum number of targets of a job after relabelling; if there are more, all scrapes of the job fail. 0 disables
    /// the limit. Default: 0.
    pub target_limit: usize,
    /// Maximum number of labels of a series after relabelling; a page with more is dropped. 0 disables the limit, but a
    /// series on a page has at most 1024 labels, or this number if it is larger. Default: 0.
    pub label_limit: usize,
    /// Maximum length of names of labels in bytes; a page with a longer one is dropped. 0 disables the limit. Default: 0.
    pub label_name_length_limit: usize,
    /// Maximum length of values of labels in bytes; a page with a longer one is dropped. 0 disables the limit. Default:
    /// 0.
    pub label_value_length_limit: usize,
    /// Has no effect and causes a warning above 0: dropped targets are not kept. Default: 0.
    pub keep_dropped_targets: usize,
    /// Allowed names of metrics and labels: `utf8`, or `legacy` for names without other characters than letters,
    /// digits and underscores. Default: `utf8`.
    pub metric_name_validation_scheme: NameScheme,
    /// Whether to read native histograms, which become exponential histograms. Default: false.
    pub scrape_native_histograms: bool,
    /// Whether to read the classic buckets of native histograms too. Default: false.
    pub always_scrape_classic_histograms: bool,
    /// Whether to report `scrape_timeout_seconds`, `scrape_sample_limit` and `scrape_body_size_bytes` for each scrape.
    /// Default: false.
    pub extra_scrape_metrics: bool,
    /// Has no effect and causes a warning: the receiver evaluates no rules. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation_interval: Option<PrometheusDuration>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_log_file: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_failure_log_file: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_name_escaping_scheme: Option<Unread>,
    /// Must be false: classic histograms become histograms of OTLP in any case. Default: false.
    pub convert_classic_histograms_to_nhcb: bool,
}

impl Default for GlobalConfig {
    fn default() -> Self {
        GlobalConfig {
            scrape_interval: PrometheusDuration(std::time::Duration::from_secs(60)),
            scrape_timeout: None,
            scrape_protocols: None,
            external_labels: BTreeMap::new(),
            body_size_limit: Base2Size(0),
            sample_limit: 0,
            target_limit: 0,
            label_limit: 0,
            label_name_length_limit: 0,
            label_value_length_limit: 0,
            keep_dropped_targets: 0,
            metric_name_validation_scheme: NameScheme::Utf8,
            scrape_native_histograms: false,
            always_scrape_classic_histograms: false,
            extra_scrape_metrics: false,
            evaluation_interval: None,
            query_log_file: None,
            scrape_failure_log_file: None,
            metric_name_escaping_scheme: None,
            convert_classic_histograms_to_nhcb: false,
        }
    }
}

impl Validate for GlobalConfig {
    fn validate(&self, problems: &mut Problems) {
        if self.scrape_interval.0.is_zero() {
            problems.error(&["scrape_interval"], "must be above 0");
        }
        match self.scrape_timeout {
            Some(timeout) if timeout.0.is_zero() => {
                problems.error(&["scrape_timeout"], "must be above 0");
            }
            Some(timeout) if timeout > self.scrape_interval => {
                problems.error(
                    &["scrape_timeout"],
                    "must not be longer than `scrape_interval`",
                );
            }
            _ => {}
        }
        if self.evaluation_interval.is_some() {
            let message = "has no effect: the receiver evaluates no rules; remove it";
            problems.warning(&["evaluation_interval"], message);
        }
        warn_of_dropped(self.keep_dropped_targets, problems);
        check_protocols(self.scrape_protocols.as_deref(), problems);
        let log = "failures are in the collector's own log";
        refuse(
            "query_log_file",
            self.query_log_file.is_some(),
            "the receiver runs no queries",
            problems,
        );
        refuse(
            "scrape_failure_log_file",
            self.scrape_failure_log_file.is_some(),
            log,
            problems,
        );
        refuse_shared(
            self.metric_name_escaping_scheme.is_some(),
            self.convert_classic_histograms_to_nhcb,
            problems,
        );
    }
}

/// Reports a list of formats that is empty or has duplicates.
pub(super) fn check_protocols(protocols: Option<&[ScrapeProtocol]>, problems: &mut Problems) {
    let protocols = protocols.map(|protocols| {
        let twice = protocols
            .iter()
            .enumerate()
            .find(|(at, protocol)| protocols.iter().take(*at).any(|other| other == *protocol));
        (protocols.is_empty(), twice.map(|(at, _)| at))
    });
    match protocols {
        Some((true, _)) => problems.error(&["scrape_protocols"], "must not be empty"),
        Some((_, Some(at))) => {
            problems.error(&["scrape_protocols", &at.to_string()], "is listed twice");
        }
        _ => {}
    }
}

/// Warns of a number of dropped targets to keep.
pub(super) fn warn_of_dropped(targets: usize, problems: &mut Problems) {
    if targets > 0 {
        let message = "has no effect: dropped targets are not kept; remove it";
        problems.warning(&["keep_dropped_targets"], message);
    }
}

/// Reports keys that neither `global` nor jobs support.
pub(super) fn refuse_shared(escaping: bool, custom_buckets: bool, problems: &mut Problems) {
    let names = "set `metric_name_validation_scheme`, which decides about the names of targets too";
    refuse("metric_name_escaping_scheme", escaping, names, problems);
    let always = "classic histograms become histograms of OTLP in any case; remove it";
    refuse(
        "convert_classic_histograms_to_nhcb",
        custom_buckets,
        always,
        problems,
    );
}
