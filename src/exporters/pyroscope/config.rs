//! The configuration of `pyroscope`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::otlp_http;
use crate::component::auth::Auth;
use crate::queue::{QueueConfig, RetryConfig};
use tributary_compression::http::Compression;
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Headers, Problems, Section, Validate};
use tributary_net::client::parse_url;
use tributary_net::tls::ClientTls;

/// Pushes profiles to Pyroscope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base URL of the server, as in `http://pyroscope:4040`; `/push.v1.PusherService/Push` is appended. `https://` means
    /// TLS, `http://` plaintext. Required.
    pub endpoint: String,
    /// Tenant of all profiles, sent as the header `X-Scope-OrgID`. Default: none, for servers with a single tenant.
    pub tenant: String,
    /// Maximum number of labels of a series, from 4 to 64. `__name__`, `service_name` and `__delta__` come first, then
    /// resource attributes in their order; further attributes are left out. Pyroscope refuses series with more labels
    /// than its `max_label_names_per_series`. Default: 30.
    pub max_labels: usize,
    /// Compression of requests: `gzip` or `none`. Default: `gzip`.
    pub compression: Compression,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// Time limit of one attempt; 0 means no limit. Default: 30s.
    pub timeout: Duration,
    /// TLS settings for an `https://` endpoint.
    pub tls: ClientTls,
    /// Authentication to the server. Default: none, only `headers` are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Proxy for all connections, as in `http://user:password@host:3128`; `https://` encrypts the connection to the proxy,
    /// by `tls`. Variables such as `HTTPS_PROXY` have no effect. Default: none.
    pub proxy_url: String,
    /// Number of concurrent requests to the server; 0 is no limit. Default: 0.
    pub max_conns_per_host: usize,
    /// Time after which an idle connection is closed; 0 is never. Default: 1m30s.
    pub idle_conn_timeout: Duration,
    /// Sending queue. With `enabled: false`, senders wait while their data is sent. Default: on.
    pub sending_queue: Section<QueueConfig>,
    /// Retries after retryable failures. Default: on.
    pub retry_on_failure: Section<RetryConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            endpoint: String::new(),
            tenant: String::new(),
            max_labels: 30,
            compression: Compression::Gzip,
            headers: Headers::default(),
            timeout: Duration::secs(30),
            tls: ClientTls::default(),
            auth: None,
            proxy_url: String::new(),
            max_conns_per_host: 0,
            idle_conn_timeout: Duration::secs(90),
            sending_queue: Section(Some(QueueConfig::default())),
            retry_on_failure: Section(Some(RetryConfig::default())),
        }
    }
}

impl Config {
    /// Returns the configuration of the client.
    pub(super) fn transport(&self) -> otlp_http::Config {
        let base = self.endpoint.strip_suffix('/').unwrap_or(&self.endpoint);
        otlp_http::Config {
            profiles_endpoint: match base.is_empty() {
                true => String::new(),
                false => format!("{base}{METHOD}"),
            },
            compression: self.compression,
            headers: self.headers.clone(),
            timeout: self.timeout,
            tls: self.tls.clone(),
            auth: self.auth.clone(),
            proxy_url: self.proxy_url.clone(),
            max_conns_per_host: self.max_conns_per_host,
            idle_conn_timeout: self.idle_conn_timeout,
            sending_queue: self.sending_queue.clone(),
            retry_on_failure: self.retry_on_failure.clone(),
            ..otlp_http::Config::default()
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let mut found = Problems::default();
        if self.endpoint.is_empty() {
            problems.error(
                &["endpoint"],
                "must be set to the server's base URL, as in http://localhost:4040",
            );
        } else if let Err(reason) = parse_url(&self.endpoint) {
            problems.error(&["endpoint"], reason);
        } else {
            self.transport().validate(&mut found);
        }
        problems.extend(&[], found);
        if !matches!(self.compression, Compression::Gzip | Compression::None) {
            problems.error(
                &["compression"],
                "must be `gzip` or `none`: Pyroscope reads no other",
            );
        }
        if http::HeaderValue::try_from(&self.tenant).is_err() {
            problems.error(&["tenant"], "must not contain control characters");
        }
        if !(4..=64).contains(&self.max_labels) {
            problems.error(&["max_labels"], "must be from 4 to 64");
        }
    }

    fn blocks_pipelines(&self) -> bool {
        crate::queue::blocks_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.transport().uses_extensions()
    }
}

/// Path of the method.
const METHOD: &str = "/push.v1.PusherService/Push";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        let problems = |yaml: &str| crate::testing::problems::<Config>(yaml);
        assert_eq!(problems("{}"), ["endpoint"]);
        assert_eq!(problems("{endpoint: 'a:4040'}"), ["endpoint"]);
        assert_eq!(
            problems("{endpoint: 'http://a:4040/'}"),
            Vec::<String>::new()
        );
        let yaml = "{endpoint: 'http://a', compression: zstd, tenant: \"a\\nb\", max_labels: 3, proxy_url: 'socks5://a',
            sending_queue: {queue_size: 0}}";
        let expected = [
            "proxy_url",
            "sending_queue::queue_size",
            "compression",
            "tenant",
            "max_labels",
        ];
        assert_eq!(problems(yaml), expected);
    }
}
