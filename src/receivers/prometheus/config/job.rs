//! A job: targets that are scraped in the same way.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ::http::HeaderValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::discovery::{DnsSdConfig, FileSdConfig, HttpSdConfig, StaticConfig};
use super::global::{GlobalConfig, check_protocols, refuse_shared, warn_of_dropped};
use super::http::{Authorization, BasicAuth, ExtraHeader, PrometheusTls, is_empty};
use super::relabel::RelabelConfig;
use super::units::{Base2Size, NameScheme, PrometheusDuration, ScrapeProtocol};
use super::unsupported::refuse;
use crate::receivers::scraping::scheme::Scheme;
use tributary_config::{Problems, Secret, Unread, Validate};
use tributary_net::client::Proxy;

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ScrapeConfig {
    /// Name of the job, which becomes the label `job` and `service.name`. Must be unique. Required.
    pub job_name: String,
    /// Interval of scrapes. Above 0. Default: that of `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_interval: Option<PrometheusDuration>,
    /// Timeout of a scrape. Above 0, and at most the interval. Default: that of `global`, or the interval if it is
    /// shorter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_timeout: Option<PrometheusDuration>,
    /// Formats to ask targets for, in the order of preference. Default: those of `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_protocols: Option<Vec<ScrapeProtocol>>,
    /// Format of pages whose `Content-Type` names none. Default: `PrometheusText0.0.4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_scrape_protocol: Option<ScrapeProtocol>,
    /// Path of the page. Default: `/metrics`.
    pub metrics_path: String,
    /// URL scheme of targets: `http` or `https`. Default: `http`.
    pub scheme: Scheme,
    /// Parameters of the URL, each with a list of values. Default: none.
    pub params: BTreeMap<String, Vec<String>>,
    /// Whether labels of a page take precedence over labels of the target. Otherwise conflicting labels of the page get
    /// the prefix `exported_`. Default: false.
    pub honor_labels: bool,
    /// Whether timestamps of a page are used. Otherwise all samples have the time of the scrape. Default: true.
    pub honor_timestamps: bool,
    /// Whether series with timestamps end with a mark (`NoRecordedValue`) when they vanish. Default: false.
    pub track_timestamps_staleness: bool,
    /// User name and password. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<BasicAuth>,
    /// Credentials in the header `Authorization`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// Bearer token; equal to `authorization.credentials`. Default: none.
    pub bearer_token: Secret,
    /// File with a bearer token; equal to `authorization.credentials_file`. Default: none.
    #[serde(skip_serializing_if = "is_empty")]
    pub bearer_token_file: PathBuf,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<Unread>,
    /// TLS for `https`.
    pub tls_config: PrometheusTls,
    /// URL of an HTTP proxy, as in `http://user:password@host:3128`. Default: none.
    pub proxy_url: Secret,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proxy: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_from_environment: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_connect_header: Option<Unread>,
    /// Whether redirects are followed, at most 10 of them. Credentials are not sent to another host. Default: true.
    pub follow_redirects: bool,
    /// Whether TLS connections offer HTTP/2. Default: true.
    pub enable_http2: bool,
    /// Headers added to every request to the target, but not to other hosts that it redirects to. Headers with a meaning
    /// for the scrape, such as `Authorization` and `User-Agent`, are refused. Default: none.
    pub http_headers: BTreeMap<String, ExtraHeader>,
    /// Whether targets are asked for gzip. Default: true.
    pub enable_compression: bool,
    /// Maximum size of a page after decompression; 0 means that of `global`. Default: 0B.
    pub body_size_limit: Base2Size,
    /// Maximum number of samples of a page after relabelling; 0 means that of `global`. Default: 0.
    pub sample_limit: usize,
    /// Maximum number of targets after relabelling; 0 means that of `global`. Default: 0.
    pub target_limit: usize,
    /// Maximum number of labels of a series; 0 means that of `global`. Default: 0.
    pub label_limit: usize,
    /// Maximum length of names of labels in bytes; 0 means that of `global`. Default: 0.
    pub label_name_length_limit: usize,
    /// Maximum length of values of labels in bytes; 0 means that of `global`. Default: 0.
    pub label_value_length_limit: usize,
    /// Has no effect and causes a warning above 0: dropped targets are not kept. Default: 0.
    pub keep_dropped_targets: usize,
    /// Allowed names of metrics and labels: `utf8` or `legacy`. Default: that of `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_name_validation_scheme: Option<NameScheme>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_name_escaping_scheme: Option<Unread>,
    /// Whether to read native histograms, which become exponential histograms. Default: that of `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_native_histograms: Option<bool>,
    /// Whether to read the classic buckets of native histograms too. Default: that of `global`.
    #[serde(
        alias = "scrape_classic_histograms",
        skip_serializing_if = "Option::is_none"
    )]
    pub always_scrape_classic_histograms: Option<bool>,
    /// Must be false: classic histograms become histograms of OTLP in any case. Default: false.
    pub convert_classic_histograms_to_nhcb: bool,
    /// Whether to report `scrape_timeout_seconds`, `scrape_sample_limit` and `scrape_body_size_bytes` for each scrape.
    /// Default: that of `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_scrape_metrics: Option<bool>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_histogram_bucket_limit: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native_histogram_min_bucket_factor: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrape_failure_log_file: Option<Unread>,
    /// Targets in the configuration. Default: none.
    pub static_configs: Vec<StaticConfig>,
    /// Targets in files. They have the label `__meta_filepath`. Default: none.
    pub file_sd_configs: Vec<FileSdConfig>,
    /// Targets from DNS. They have the label `__meta_dns_name`. Default: none.
    pub dns_sd_configs: Vec<DnsSdConfig>,
    /// Targets from HTTP servers. They have the label `__meta_url`. Default: none.
    pub http_sd_configs: Vec<HttpSdConfig>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes_sd_configs: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consul_sd_configs: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub docker_sd_configs: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ec2_sd_configs: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gce_sd_configs: Option<Unread>,
    /// Not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_sd_configs: Option<Unread>,
    /// Rules for the labels of targets, applied before the scrapes. Default: none.
    pub relabel_configs: Vec<RelabelConfig>,
    /// Rules for the labels of samples, applied after the scrape. Default: none.
    pub metric_relabel_configs: Vec<RelabelConfig>,
}

impl Default for ScrapeConfig {
    fn default() -> Self {
        ScrapeConfig {
            job_name: String::new(),
            scrape_interval: None,
            scrape_timeout: None,
            scrape_protocols: None,
            fallback_scrape_protocol: None,
            metrics_path: "/metrics".to_owned(),
            scheme: Scheme::Http,
            params: BTreeMap::new(),
            honor_labels: false,
            honor_timestamps: true,
            track_timestamps_staleness: false,
            basic_auth: None,
            authorization: None,
            bearer_token: Secret::default(),
            bearer_token_file: PathBuf::new(),
            oauth2: None,
            tls_config: PrometheusTls::default(),
            proxy_url: Secret::default(),
            no_proxy: None,
            proxy_from_environment: None,
            proxy_connect_header: None,
            follow_redirects: true,
            enable_http2: true,
            http_headers: BTreeMap::new(),
            enable_compression: true,
            body_size_limit: Base2Size(0),
            sample_limit: 0,
            target_limit: 0,
            label_limit: 0,
            label_name_length_limit: 0,
            label_value_length_limit: 0,
            keep_dropped_targets: 0,
            metric_name_validation_scheme: None,
            metric_name_escaping_scheme: None,
            scrape_native_histograms: None,
            always_scrape_classic_histograms: None,
            convert_classic_histograms_to_nhcb: false,
            extra_scrape_metrics: None,
            native_histogram_bucket_limit: None,
            native_histogram_min_bucket_factor: None,
            scrape_failure_log_file: None,
            static_configs: Vec::new(),
            file_sd_configs: Vec::new(),
            dns_sd_configs: Vec::new(),
            http_sd_configs: Vec::new(),
            kubernetes_sd_configs: None,
            consul_sd_configs: None,
            docker_sd_configs: None,
            ec2_sd_configs: None,
            gce_sd_configs: None,
            azure_sd_configs: None,
            relabel_configs: Vec::new(),
            metric_relabel_configs: Vec::new(),
        }
    }
}

impl ScrapeConfig {
    /// Whether names may have any characters.
    pub(in super::super) fn has_utf8_names(&self, global: &GlobalConfig) -> bool {
        let scheme = self.metric_name_validation_scheme;
        scheme.unwrap_or(global.metric_name_validation_scheme) == NameScheme::Utf8
    }

    /// Reports mistakes.
    pub(super) fn check(&self, global: &GlobalConfig, problems: &mut Problems) {
        if self.job_name.is_empty() {
            problems.error(&["job_name"], "must be set");
        }
        self.check_times(global, problems);
        check_protocols(self.scrape_protocols.as_deref(), problems);
        self.check_client(problems);
        for (key, rules) in [
            ("relabel_configs", &self.relabel_configs),
            ("metric_relabel_configs", &self.metric_relabel_configs),
        ] {
            for (at, rule) in rules.iter().enumerate() {
                if let Err(error) = rule.rule(self.has_utf8_names(global)) {
                    problems.error(&[key, &at.to_string(), error.key], error.reason);
                }
            }
        }
        check_all("static_configs", &self.static_configs, problems);
        check_all("file_sd_configs", &self.file_sd_configs, problems);
        check_all("dns_sd_configs", &self.dns_sd_configs, problems);
        check_all("http_sd_configs", &self.http_sd_configs, problems);
        self.check_unsupported(problems);
    }

    fn check_times(&self, global: &GlobalConfig, problems: &mut Problems) {
        let interval = self.scrape_interval.unwrap_or(global.scrape_interval);
        if self
            .scrape_interval
            .is_some_and(|interval| interval.0.is_zero())
        {
            problems.error(&["scrape_interval"], "must be above 0");
        }
        match self.scrape_timeout {
            Some(timeout) if timeout.0.is_zero() => {
                problems.error(&["scrape_timeout"], "must be above 0");
            }
            Some(timeout) if timeout > interval => {
                let interval = String::from(interval);
                let message = format!("must not be longer than the `scrape_interval`, {interval}");
                problems.error(&["scrape_timeout"], message);
            }
            _ => {}
        }
    }

    fn check_client(&self, problems: &mut Problems) {
        if let Some(basic) = &self.basic_auth {
            problems.within("basic_auth", basic);
        }
        if let Some(authorization) = &self.authorization {
            problems.within("authorization", authorization);
        }
        let given = [
            ("basic_auth", self.basic_auth.is_some()),
            ("authorization", self.authorization.is_some()),
            ("bearer_token", !self.bearer_token.reveal().is_empty()),
            ("bearer_token_file", !is_empty(&self.bearer_token_file)),
        ];
        let mut given = given.iter().filter(|(_, given)| *given);
        if let (Some((one, _)), Some((other, _))) = (given.next(), given.next()) {
            problems.error(&[other], format!("cannot be combined with `{one}`"));
        }
        if HeaderValue::from_str(self.bearer_token.reveal()).is_err() {
            problems.error(
                &["bearer_token"],
                "has characters that a header cannot have",
            );
        }
        // Rules may change the scheme.
        if self.scheme == Scheme::Https || self.tls_config != PrometheusTls::default() {
            self.tls_config.check(problems);
        }
        let proxy = self.proxy_url.reveal();
        if !proxy.is_empty()
            && let Err(reason) = Proxy::parse(proxy)
        {
            problems.error(&["proxy_url"], reason);
        }
        for (name, header) in &self.http_headers {
            if let Err(reason) = header.check(name) {
                problems.error(&["http_headers", name], reason);
            }
        }
    }

    fn check_unsupported(&self, problems: &mut Problems) {
        warn_of_dropped(self.keep_dropped_targets, problems);
        for (key, given) in [
            ("kubernetes_sd_configs", &self.kubernetes_sd_configs),
            ("consul_sd_configs", &self.consul_sd_configs),
            ("docker_sd_configs", &self.docker_sd_configs),
            ("ec2_sd_configs", &self.ec2_sd_configs),
            ("gce_sd_configs", &self.gce_sd_configs),
            ("azure_sd_configs", &self.azure_sd_configs),
        ] {
            let instead = "use `static_configs`, `dns_sd_configs`, `http_sd_configs`, or `file_sd_configs` with files that \
                 another program writes";
            refuse(key, given.is_some(), instead, problems);
        }
        let token =
            "use `authorization`, with a token that another program renews in `credentials_file`";
        refuse("oauth2", self.oauth2.is_some(), token, problems);
        let proxy = "set `proxy_url` in the jobs that need a proxy";
        refuse("no_proxy", self.no_proxy.is_some(), proxy, problems);
        refuse(
            "proxy_from_environment",
            self.proxy_from_environment.is_some(),
            proxy,
            problems,
        );
        refuse(
            "proxy_connect_header",
            self.proxy_connect_header.is_some(),
            proxy,
            problems,
        );
        let resolution = "histograms keep the resolution of the target; lower it there";
        for (key, given) in [
            (
                "native_histogram_bucket_limit",
                &self.native_histogram_bucket_limit,
            ),
            (
                "native_histogram_min_bucket_factor",
                &self.native_histogram_min_bucket_factor,
            ),
        ] {
            refuse(key, given.is_some(), resolution, problems);
        }
        let log = "failures are in the collector's own log";
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

fn check_all<T: Validate>(key: &str, parts: &[T], problems: &mut Problems) {
    for (at, part) in parts.iter().enumerate() {
        let mut inner = Problems::default();
        part.validate(&mut inner);
        problems.extend(&[key, &at.to_string()], inner);
    }
}
