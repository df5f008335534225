//! The configuration of `otlp_http`.

use http::Uri;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::exporters::http_client_keys::http_client_section;
use crate::queue::QueueConfig;
use tributary_compression::compress::CompressionParams;
use tributary_compression::http::Compression;
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Headers, Problems, Validate};
use tributary_net::client::{Proxy, parse_url};
use tributary_otlp::Signal;

http_client_section! {
    /// Sends OTLP requests over HTTP.
    pub struct Config {
        /// Base URL; `/v1/traces`, `/v1/metrics`, `/v1/logs` or `/v1development/profiles` is appended. `https://` means
        /// TLS, `http://` plaintext. Required, unless every signal has its own.
        endpoint: String = String::new(),
        /// Full URL for traces. Default: made from `endpoint`.
        traces_endpoint: String = String::new(),
        /// Full URL for metrics. Default: made from `endpoint`.
        metrics_endpoint: String = String::new(),
        /// Full URL for logs. Default: made from `endpoint`.
        logs_endpoint: String = String::new(),
        /// Full URL for profiles. Default: made from `endpoint`.
        profiles_endpoint: String = String::new(),
        /// Encoding of requests: `proto` or `json`. Default: `proto`.
        encoding: Encoding = Encoding::Proto,
        /// Compression of requests: `gzip`, `zstd`, `snappy`, `x-snappy-framed`, `zlib`, `deflate`, `lz4` or `none`.
        /// Default: `gzip`.
        compression: Compression = Compression::Gzip,
        /// Compression level.
        compression_params: CompressionParams = CompressionParams::default(),
        /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
        headers: Headers = Headers::default(),
        /// Time limit of one attempt; 0 means no limit. Default: 30s.
        timeout: Duration = Duration::secs(30),
    }
}

/// A cookie jar. It has no settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CookiesConfig {}

/// Encoding of requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Binary protobuf.
    #[default]
    Proto,
    /// OTLP/JSON. Costs several times the CPU time of protobuf on both sides.
    Json,
}

impl Config {
    /// Returns the URL of a signal: its own endpoint, or the base endpoint with the path of the signal. `None` if
    /// neither is set.
    ///
    /// # Errors
    ///
    /// The key at fault, and the reason.
    pub(super) fn url(&self, signal: Signal) -> Result<Option<Uri>, (&'static str, String)> {
        let (key, own, path) = match signal {
            Signal::Traces => ("traces_endpoint", &self.traces_endpoint, "v1/traces"),
            Signal::Metrics => ("metrics_endpoint", &self.metrics_endpoint, "v1/metrics"),
            Signal::Logs => ("logs_endpoint", &self.logs_endpoint, "v1/logs"),
            Signal::Profiles => {
                let own = &self.profiles_endpoint;
                ("profiles_endpoint", own, "v1development/profiles")
            }
        };
        let (key, url) = match (own.is_empty(), self.endpoint.is_empty()) {
            (true, true) => return Ok(None),
            (false, _) => (key, own.clone()),
            (true, false) => {
                // Reports errors in the configured URL, before the path is appended.
                parse_url(&self.endpoint).map_err(|reason| ("endpoint", reason))?;
                let base = self.endpoint.strip_suffix('/').unwrap_or(&self.endpoint);
                ("endpoint", format!("{base}/{path}"))
            }
        };
        parse_url(&url).map(Some).map_err(|reason| (key, reason))
    }

    /// Returns the proxy, if one is configured.
    ///
    /// # Errors
    ///
    /// The reason why `proxy_url` is invalid.
    pub(super) fn proxy(&self) -> Result<Option<Proxy>, String> {
        match self.proxy_url.is_empty() {
            true => Ok(None),
            false => Proxy::parse(&self.proxy_url).map(Some),
        }
    }

    pub(super) fn is_tls(url: &Uri) -> bool {
        url.scheme_str() == Some("https")
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let urls = Signal::ALL.map(|signal| self.url(signal));
        if urls.iter().all(|url| *url == Ok(None)) {
            problems.error(
                &["endpoint"],
                "at least one endpoint must be specified: set endpoint to the server's base URL, \
                 as in https://host:4318",
            );
        }
        let mut reported = Vec::new();
        for (key, reason) in urls.iter().filter_map(|url| url.as_ref().err()) {
            // The base URL is part of up to four.
            if !reported.contains(key) {
                problems.error(&[key], reason.clone());
                reported.push(*key);
            }
        }
        let proxy = self.proxy();
        if let Err(reason) = &proxy {
            problems.error(&["proxy_url"], reason.clone());
        }
        let is_proxy_tls = matches!(&proxy, Ok(Some(proxy)) if proxy.is_tls());
        let mut in_use = urls.iter().flatten().flatten();
        if is_proxy_tls || in_use.clone().any(Config::is_tls) {
            self.tls.validate_for_tls("tls", problems);
        }
        if let Some(url) = in_use.find(|url| !Config::is_tls(url)) {
            let host = url.host().unwrap_or_default();
            auth::warn_about_plaintext(self.auth.as_ref(), false, host, problems);
        }
        self.compression_params
            .validate(self.compression.codec(), problems);
        if self.http2_ping_timeout.is_zero() && !self.http2_read_idle_timeout.is_zero() {
            problems.error(&["http2_ping_timeout"], "must be above 0");
        }
        if !matches!(self.read_buffer_size, 0 | 65_535..=0x7fff_ffff) {
            problems.error(
                &["read_buffer_size"],
                "must be 0, or from 65535 to 2147483647",
            );
        }
        if let Some(queue) = &*self.sending_queue {
            problems.within("sending_queue", queue);
        }
        if let Some(retry) = &*self.retry_on_failure {
            problems.within("retry_on_failure", retry);
        }
        let (queue, retry) = (self.sending_queue.as_ref(), self.retry_on_failure.as_ref());
        crate::queue::warn_about_retry_limit(queue, retry, problems);
    }

    fn blocks_pipelines(&self) -> bool {
        crate::queue::blocks_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter().map(|auth| auth.client_use(&["auth"]));
        auth.chain(self.sending_queue.iter().filter_map(QueueConfig::uses))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        crate::testing::problems::<Config>(yaml)
    }

    #[test]
    fn signal_urls_derive_from_base_or_override() {
        let config: Config = serde_yaml::from_str(
            "{endpoint: 'http://a:4318/otlp/', logs_endpoint: 'https://b/loki?x=1'}",
        )
        .unwrap();
        let urls = Signal::ALL.map(|signal| config.url(signal).unwrap().unwrap().to_string());
        assert_eq!(
            urls,
            [
                "http://a:4318/otlp/v1/traces",
                "http://a:4318/otlp/v1/metrics",
                "https://b/loki?x=1",
                "http://a:4318/otlp/v1development/profiles",
            ]
        );
        let only: Config = serde_yaml::from_str("logs_endpoint: 'http://a'").unwrap();
        assert_eq!(only.url(Signal::Traces), Ok(None));
        assert_eq!(problems("logs_endpoint: 'http://a'"), Vec::<String>::new());
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        assert_eq!(problems("{}"), ["endpoint"]);
        assert_eq!(problems("endpoint: a:4318"), ["endpoint"]);
        assert_eq!(problems("endpoint: 'http://u:p@a:4318'"), ["endpoint"]);
        let yaml = "
endpoint: http://a
traces_endpoint: grpc://a
compression: lz4
compression_params: {level: 1}
http2_read_idle_timeout: 1s
http2_ping_timeout: 0s
read_buffer_size: 1
proxy_url: socks5://a:1
cookies: {enabled: true}
sending_queue: {queue_size: 0}
retry_on_failure: {multiplier: 0}
";
        assert_eq!(
            problems(yaml),
            [
                "traces_endpoint",
                "proxy_url",
                "compression_params::level",
                "http2_ping_timeout",
                "read_buffer_size",
                "sending_queue::queue_size",
                "retry_on_failure::multiplier",
            ]
        );
    }

    #[test]
    fn compression_levels_match_codec() {
        let level = |codec: &str, level: i32| {
            let yaml = format!(
                "{{endpoint: 'http://a', compression: {codec}, compression_params: {{level: {level}}}}}"
            );
            problems(&yaml).is_empty()
        };
        for codec in ["gzip", "zlib", "deflate"] {
            let valid: Vec<i32> = (-3..12).filter(|l| level(codec, *l)).collect();
            assert_eq!(valid, [-1, 1, 2, 3, 4, 5, 6, 7, 8, 9], "{codec}");
        }
        assert!([1, 3, 6, 11, 22].iter().all(|l| level("zstd", *l)));
        assert!([0, -1, 23].iter().all(|l| !level("zstd", *l)));
        assert!(!level("none", 1) && !level("snappy", 1));
    }
}
