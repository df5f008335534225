//! Settings of a job, with the defaults of `global` applied.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use http::HeaderValue;
use regex::Regex;

use super::config::{
    Config, GlobalConfig, PrometheusDuration, RelabelConfig, ScrapeConfig, ScrapeProtocol,
};
use crate::component::BuildError;
use crate::receivers::scraping::scheme::Scheme;
use tributary_prometheus::relabel::{RelabelRule, RuleError};
use tributary_prometheus::{ExpositionFormat, HistogramOptions};

/// Maximum size of a page if the configuration has no limit, in bytes.
const MAX_PAGE: u64 = 256 << 20;

/// Settings of a job.
pub(super) struct JobSettings {
    pub(super) job: String,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    pub(super) accept: HeaderValue,
    pub(super) fallback: ExpositionFormat,
    pub(super) path: String,
    pub(super) scheme: &'static str,
    pub(super) params: BTreeMap<String, Vec<String>>,
    pub(super) honor_labels: bool,
    pub(super) honor_timestamps: bool,
    pub(super) track_timestamps: bool,
    pub(super) follow_redirects: bool,
    pub(super) compression: bool,
    pub(super) limits: Limits,
    pub(super) options: HistogramOptions,
    pub(super) extra_metrics: bool,
    pub(super) utf8_names: bool,
    pub(super) target_rules: Vec<RelabelRule>,
    pub(super) metric_rules: Vec<RelabelRule>,
    pub(super) external_labels: BTreeMap<String, String>,
    pub(super) trims_suffixes: bool,
    pub(super) start_time_metric: Option<Regex>,
}

/// Limits of a job. 0 means no limit, except for the size of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Size of a page in bytes.
    pub(super) body: usize,
    pub(super) samples: usize,
    pub(super) targets: usize,
    pub(super) labels: usize,
    /// Length of names of labels in bytes.
    pub(super) label_name: usize,
    /// Length of values of labels in bytes.
    pub(super) label_value: usize,
}

impl JobSettings {
    /// Returns the settings of a job.
    ///
    /// # Errors
    /// A relabelling rule is invalid. A validated configuration never fails here.
    pub(super) fn new(config: &Config, job: &ScrapeConfig) -> Result<Self, BuildError> {
        let global = &config.config.global;
        let interval = job.scrape_interval.unwrap_or(global.scrape_interval);
        let default = PrometheusDuration(Duration::from_secs(10));
        let timeout = job
            .scrape_timeout
            .unwrap_or_else(|| global.scrape_timeout.unwrap_or(default).min(interval));
        let utf8_names = job.has_utf8_names(global);
        let rules = |rules: &[RelabelConfig]| {
            let compiled = rules.iter().map(|rule| rule.rule(utf8_names));
            compiled
                .collect::<Result<Vec<RelabelRule>, RuleError>>()
                .map_err(|error| BuildError(error.to_string()))
        };
        let native = job
            .scrape_native_histograms
            .unwrap_or(global.scrape_native_histograms);
        Ok(JobSettings {
            job: job.job_name.clone(),
            interval: interval.0,
            timeout: timeout.0,
            accept: accept(&protocols(global, job, native), utf8_names),
            fallback: match job.fallback_scrape_protocol {
                Some(ScrapeProtocol::PrometheusProto) => ExpositionFormat::Protobuf,
                Some(
                    ScrapeProtocol::OpenMetricsText0_0_1 | ScrapeProtocol::OpenMetricsText1_0_0,
                ) => ExpositionFormat::OpenMetrics,
                _ => ExpositionFormat::Text,
            },
            path: job.metrics_path.clone(),
            scheme: match job.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            },
            params: job.params.clone(),
            honor_labels: job.honor_labels,
            honor_timestamps: job.honor_timestamps,
            track_timestamps: job.track_timestamps_staleness,
            follow_redirects: job.follow_redirects,
            compression: job.enable_compression,
            limits: Limits::new(global, job),
            options: HistogramOptions {
                native_histograms: native,
                classic_beside_native: job
                    .always_scrape_classic_histograms
                    .unwrap_or(global.always_scrape_classic_histograms),
            },
            extra_metrics: job
                .extra_scrape_metrics
                .unwrap_or(global.extra_scrape_metrics)
                || config.report_extra_scrape_metrics,
            utf8_names,
            target_rules: rules(&job.relabel_configs)?,
            metric_rules: rules(&job.metric_relabel_configs)?,
            external_labels: global.external_labels.clone(),
            trims_suffixes: config.trim_metric_suffixes,
            start_time_metric: config.start_time_metric(),
        })
    }
}

impl Limits {
    fn new(global: &GlobalConfig, job: &ScrapeConfig) -> Self {
        let own = |job: usize, global: usize| if job == 0 { global } else { job };
        let body = match (job.body_size_limit.0, global.body_size_limit.0) {
            (0, 0) => MAX_PAGE,
            (0, global) => global,
            (own, _) => own,
        };
        Limits {
            body: usize::try_from(body).unwrap_or(usize::MAX),
            samples: own(job.sample_limit, global.sample_limit),
            targets: own(job.target_limit, global.target_limit),
            labels: own(job.label_limit, global.label_limit),
            label_name: own(job.label_name_length_limit, global.label_name_length_limit),
            label_value: own(
                job.label_value_length_limit,
                global.label_value_length_limit,
            ),
        }
    }
}

/// Returns the formats in the order of preference.
fn protocols(global: &GlobalConfig, job: &ScrapeConfig, native: bool) -> Vec<ScrapeProtocol> {
    let given = job
        .scrape_protocols
        .as_ref()
        .or(global.scrape_protocols.as_ref());
    if let Some(given) = given {
        return given.clone();
    }
    let first = native.then_some(ScrapeProtocol::PrometheusProto);
    first.into_iter().chain(ScrapeProtocol::DEFAULT).collect()
}

/// Returns the header `Accept`, as Prometheus writes it.
fn accept(protocols: &[ScrapeProtocol], utf8_names: bool) -> HeaderValue {
    let escaping = if utf8_names {
        "allow-utf-8"
    } else {
        "underscores"
    };
    let mut text = String::new();
    let mut weight = 7;
    for protocol in protocols {
        // Writing to a text does not fail.
        let _ = write!(text, "{}", protocol.media_type());
        if protocol.has_escaping() {
            let _ = write!(text, ";escaping={escaping}");
        }
        let _ = write!(text, ";q=0.{weight},");
        weight -= 1;
    }
    let _ = write!(text, "*/*;q=0.{weight}");
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("*/*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_is_that_of_prometheus() {
        assert_eq!(
            accept(&ScrapeProtocol::DEFAULT, true),
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.7,\
             application/openmetrics-text;version=0.0.1;q=0.6,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.3"
        );
    }
}
