//! The configuration of the `zipkin` exporter.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::exporters::http_client_keys::http_client_section;
use crate::exporters::otlp_http;
use tributary_compression::compress::CompressionParams;
use tributary_compression::http::Compression;
use tributary_config::units::Duration;
use tributary_config::{ExtensionUse, Headers, Problems, Validate};

http_client_section! {
    /// Sends spans to Zipkin over HTTP.
    pub struct Config {
        /// URL for spans, as in `http://zipkin:9411/api/v2/spans`. `https://` means TLS, `http://` plaintext. Required.
        endpoint: String = String::new(),
        /// Format of spans: `json` or `proto`. Default: `json`.
        format: ZipkinFormat = ZipkinFormat::Json,
        /// Name of the service for resources without a name. Default: `<missing service name>`. (The Collector ignores
        /// this key.)
        default_service_name: String = "<missing service name>".to_owned(),
        /// Compression of requests: `gzip`, `zstd`, `snappy`, `x-snappy-framed`, `zlib`, `deflate`, `lz4` or `none`.
        /// Zipkin accepts `gzip`. Default: `none`.
        compression: Compression = Compression::None,
        /// Compression level.
        compression_params: CompressionParams = CompressionParams::default(),
        /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
        headers: Headers = Headers::default(),
        /// Time limit of one attempt; 0 means no limit. Default: 5s.
        timeout: Duration = Duration::secs(5),
    }
}

/// Format of spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ZipkinFormat {
    /// A JSON list.
    #[default]
    Json,
    /// Binary protobuf, `zipkin.proto3.ListOfSpans`.
    Proto,
}

impl Config {
    /// Returns the client's configuration.
    pub(super) fn client(&self) -> otlp_http::Config {
        otlp_http::Config {
            traces_endpoint: self.endpoint.clone(),
            compression: self.compression,
            compression_params: self.compression_params.clone(),
            headers: self.headers.clone(),
            timeout: self.timeout,
            tls: self.tls.clone(),
            auth: self.auth.clone(),
            proxy_url: self.proxy_url.clone(),
            cookies: self.cookies.clone(),
            force_attempt_http2: self.force_attempt_http2,
            max_idle_conns: self.max_idle_conns,
            max_idle_conns_per_host: self.max_idle_conns_per_host,
            max_conns_per_host: self.max_conns_per_host,
            idle_conn_timeout: self.idle_conn_timeout,
            disable_keep_alives: self.disable_keep_alives,
            http2_read_idle_timeout: self.http2_read_idle_timeout,
            http2_ping_timeout: self.http2_ping_timeout,
            read_buffer_size: self.read_buffer_size,
            write_buffer_size: self.write_buffer_size,
            sending_queue: self.sending_queue.clone(),
            retry_on_failure: self.retry_on_failure.clone(),
            ..otlp_http::Config::default()
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if self.endpoint.is_empty() {
            problems.error(
                &["endpoint"],
                "endpoint required: set it to the URL for spans, as in http://zipkin:9411/api/v2/spans",
            );
            return;
        }
        // Findings about the URL belong to the key `endpoint`, as those about a base URL of OTLP.
        let client = otlp_http::Config {
            endpoint: self.endpoint.clone(),
            traces_endpoint: String::new(),
            ..self.client()
        };
        client.validate(problems);
    }

    fn blocks_pipelines(&self) -> bool {
        crate::queue::blocks_pipelines(self.sending_queue.as_ref())
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.client().uses_extensions()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_collector() {
        let config = Config::default();
        assert_eq!(config.timeout, Duration::secs(5));
        assert_eq!(config.format, ZipkinFormat::Json);
        assert_eq!(config.default_service_name, "<missing service name>");
        assert_eq!(config.write_buffer_size, 512 * 1024);
        assert!(config.sending_queue.is_some() && config.retry_on_failure.is_some());
        let client = config.client();
        assert_eq!(client.compression, Compression::None);
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        let problems = crate::testing::problems::<Config>;
        assert_eq!(problems("{}"), ["endpoint"]);
        assert_eq!(problems("endpoint: zipkin:9411"), ["endpoint"]);
        assert_eq!(
            problems(
                "{endpoint: 'http://zipkin:9411/api/v2/spans', proxy_url: 'socks5://a:1', sending_queue: {queue_size: 0}}"
            ),
            ["proxy_url", "sending_queue::queue_size"]
        );
    }
}
