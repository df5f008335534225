//! Configuration with the keys and defaults of the Collector's exporter.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use crate::serving::{TCP, validate_socket};
use tributary_config::units::Duration;
use tributary_config::wildcard::matches;
use tributary_config::{Endpoint, ExtensionUse, Headers, Problems, Section, Validate};
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;

/// Keeps the last value of each series for Prometheus to scrape at `/metrics`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on, such as `0.0.0.0:8889`. Required.
    pub endpoint: Endpoint,
    /// Kind of socket. Only `tcp`, the default, is supported.
    pub transport: String,
    /// TLS settings. Default: plain text.
    pub tls: Section<ServerTls>,
    /// Authentication of scrapers. Default: none; every client that reaches the address may scrape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// HTTP/1: time limit for a request head to arrive after its first byte.
    /// `limits.header_timeout` applies too. Default: 1m.
    pub read_header_timeout: Duration,
    /// Time without a request after which a connection is closed. 0 means never. Default: 5m.
    pub idle_timeout: Duration,
    /// HTTP/1: keep connections open between requests. Default: true.
    pub keep_alives_enabled: bool,
    /// Headers added to every response. Default: none.
    pub response_headers: Headers,
    /// Limits on clients. (The Collector has no such key.)
    pub limits: Limits,
    /// Prefix of the names of all metrics. Default: none.
    pub namespace: String,
    /// Labels added to all series, by name. Constant labels take precedence over labels from
    /// clients. Default: none.
    pub const_labels: BTreeMap<String, String>,
    /// Expose the time at which each value was measured. Default: false; Prometheus then uses the
    /// time of the scrape and notices by itself when a series ends.
    pub send_timestamps: bool,
    /// Time for which a series is exposed after its last point. 0 means forever. Default: 5m.
    pub metric_expiration: Duration,
    /// Offer the OpenMetrics format, which has exemplars and units. Default: false.
    pub enable_open_metrics: bool,
    /// Leave out the labels `otel_scope_name`, `otel_scope_version` and `otel_scope_schema_url` and
    /// the labels made of scope attributes. Default: false.
    pub without_scope_info: bool,
    /// Translation of metric and attribute names into Prometheus names. Default:
    /// `UnderscoreEscapingWithSuffixes`.
    pub translation_strategy: Option<Strategy>,
    /// Older alternative to `translation_strategy`. Without a strategy, `false` means
    /// `UnderscoreEscapingWithoutSuffixes`. Default: true.
    pub add_metric_suffixes: bool,
    /// Older way to turn all resource attributes into labels; use `resource_constant_labels`
    /// to choose attributes.
    pub resource_to_telemetry_conversion: ResourceConversion,
    /// Resource attributes that become labels of all series. If set, `resource_to_telemetry_conversion` has no effect.
    /// Independent of this setting, every resource attribute is a label of `target_info`. Default: none.
    pub resource_constant_labels: ResourceLabelFilter,
    /// Maximum number of series, counted as Prometheus counts them: each bucket, the sum and the count of a histogram
    /// are series. Points that would create more series are dropped and counted. 0 means no limit except half of the
    /// memory budget, which always applies. Default: 1000000. (The Collector has no such key.)
    pub max_series: usize,
}

/// Translation of names. The first part of a strategy's name covers characters that Prometheus
/// refused before version 3; the second part covers the suffixes for unit and type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Strategy {
    /// `http.server.duration` in seconds becomes `http_server_duration_seconds`.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// `http.server.duration` in seconds becomes `http_server_duration`.
    UnderscoreEscapingWithoutSuffixes,
    /// `http.server.duration` in seconds becomes `http.server.duration_seconds` for clients that
    /// accept UTF-8 names.
    NoUTF8EscapingWithSuffixes,
    /// `http.server.duration` stays `http.server.duration`.
    NoTranslation,
}

/// Turns resource attributes into labels of all series.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceConversion {
    /// Turn all resource attributes into labels. Default: false.
    pub enabled: bool,
    /// Exclude `service.name`, `service.namespace` and `service.instance.id`, which `job` and
    /// `instance` already contain. Default: false.
    pub exclude_service_attributes: bool,
}

/// Chooses resource attributes by key. In a pattern, `*` stands for any text and `?` for any
/// character.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceLabelFilter {
    /// Patterns of attributes that become labels. Default: none; if only `excluded` is set, all
    /// other attributes.
    pub included: Vec<String>,
    /// Patterns of attributes that never become labels; `excluded` takes precedence over
    /// `included`. Default: none.
    pub excluded: Vec<String>,
}

impl ResourceLabelFilter {
    fn is_given(&self) -> bool {
        !self.included.is_empty() || !self.excluded.is_empty()
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            endpoint: Endpoint(String::new()),
            transport: TCP.to_owned(),
            tls: Section::default(),
            auth: None,
            read_header_timeout: Duration::secs(60),
            idle_timeout: Duration::secs(300),
            keep_alives_enabled: true,
            response_headers: Headers::default(),
            limits: Limits::default(),
            namespace: String::new(),
            const_labels: BTreeMap::new(),
            send_timestamps: false,
            metric_expiration: Duration::secs(300),
            enable_open_metrics: false,
            without_scope_info: false,
            translation_strategy: None,
            add_metric_suffixes: true,
            resource_to_telemetry_conversion: ResourceConversion::default(),
            resource_constant_labels: ResourceLabelFilter::default(),
            max_series: 1_000_000,
        }
    }
}

impl Config {
    /// Returns the strategy chosen by either of the two settings.
    pub(super) fn strategy(&self) -> Strategy {
        self.translation_strategy
            .unwrap_or(match self.add_metric_suffixes {
                true => Strategy::UnderscoreEscapingWithSuffixes,
                false => Strategy::UnderscoreEscapingWithoutSuffixes,
            })
    }

    pub(super) fn is_resource_label(&self, key: &str) -> bool {
        let labels = &self.resource_constant_labels;
        if labels.is_given() {
            let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, key));
            return (labels.included.is_empty() || any(&labels.included)) && !any(&labels.excluded);
        }
        let conversion = &self.resource_to_telemetry_conversion;
        conversion.enabled
            && !(conversion.exclude_service_attributes && SERVICE_ATTRIBUTES.contains(&key))
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        validate_socket(&self.endpoint, &self.transport, "0.0.0.0:8889", problems);
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        let (auth, host) = (self.auth.as_ref(), self.endpoint.host());
        auth::warn_about_plaintext(auth, self.tls.is_some(), host, problems);
        for name in self.const_labels.keys() {
            if name.is_empty()
                || name.starts_with("__")
                || ["le", "quantile"].contains(&name.as_str())
            {
                problems.error(
                    &["const_labels", name],
                    "is not a usable label name: it must not be empty, `le` or `quantile`, or begin with `__`, \
                     which Prometheus reserves",
                );
            }
        }
        if self.translation_strategy.is_some() && !self.add_metric_suffixes {
            problems.warning(
                &["add_metric_suffixes"],
                "has no effect with `translation_strategy`, which replaces it: remove this key",
            );
        }
        if self.resource_to_telemetry_conversion.enabled && self.resource_constant_labels.is_given()
        {
            problems.warning(
                &["resource_to_telemetry_conversion"],
                "has no effect with `resource_constant_labels`, which replaces it: remove this key",
            );
        }
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter();
        auth.map(|auth| auth.server_use(&["auth"])).collect()
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        vec![(vec!["endpoint"], self.endpoint.clone())]
    }
}

/// Attributes that form the labels `job` and `instance`.
pub(super) const SERVICE_ATTRIBUTES: [&str; 3] =
    ["service.name", "service.namespace", "service.instance.id"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_attributes_are_chosen_by_patterns() {
        let config = Config {
            resource_constant_labels: ResourceLabelFilter {
                included: vec!["k8s.*.name".to_owned(), "cloud.?one".to_owned()],
                excluded: vec!["k8s.pod.*".to_owned()],
            },
            ..Config::default()
        };
        let chosen = |key| config.is_resource_label(key);
        assert!(chosen("k8s.namespace.name") && chosen("cloud.zone"));
        assert!(!chosen("k8s.pod.name") && !chosen("k8s.name") && !chosen("cloud.zones"));
        let excluded = ResourceLabelFilter {
            included: Vec::new(),
            excluded: vec!["k8s.*".to_owned()],
        };
        let config = Config {
            resource_constant_labels: excluded,
            resource_to_telemetry_conversion: ResourceConversion {
                enabled: true,
                exclude_service_attributes: true,
            },
            ..Config::default()
        };
        assert!(config.is_resource_label("service.name"));
        assert!(!config.is_resource_label("k8s.pod.name"));
        assert!(matches("*", "") && matches("a*b*c", "a-b-b-c") && !matches("a*b", "a-b-c"));
    }

    #[test]
    fn conversion_takes_all_resource_attributes() {
        let mut config = Config::default();
        assert!(!config.is_resource_label("host.name"));
        config.resource_to_telemetry_conversion.enabled = true;
        assert!(config.is_resource_label("host.name") && config.is_resource_label("service.name"));
        let conversion = &mut config.resource_to_telemetry_conversion;
        conversion.exclude_service_attributes = true;
        assert!(config.is_resource_label("host.name") && !config.is_resource_label("service.name"));
    }

    #[test]
    fn older_key_selects_default_strategy() {
        let mut config = Config {
            add_metric_suffixes: false,
            ..Config::default()
        };
        assert_eq!(
            config.strategy(),
            Strategy::UnderscoreEscapingWithoutSuffixes
        );
        config.translation_strategy = Some(Strategy::NoTranslation);
        assert_eq!(config.strategy(), Strategy::NoTranslation);
    }
}
