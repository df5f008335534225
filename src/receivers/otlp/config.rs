//! The configuration of the `otlp` receiver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serving::DEFAULT_ITEMS;
use crate::serving::grpc_keys::grpc_server_section;
use crate::serving::keys::http_server_section;
use tributary_config::{Endpoint, ExtensionUse, Problems, Section, Validate};

/// Transports of the OTLP receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Transports to listen with, at least one. Required.
    pub protocols: Protocols,
}

/// The transports of OTLP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Protocols {
    /// OTLP over gRPC. Default: off.
    pub grpc: Section<GrpcConfig>,
    /// OTLP over HTTP/1.1 and HTTP/2, as protobuf or JSON. Default: off. (The Collector's defaults of
    /// `read_header_timeout` and `idle_timeout` are 0.)
    pub http: Section<HttpConfig>,
}

grpc_server_section! {
    /// The gRPC server.
    pub struct GrpcConfig {
        /// Address to listen on. Default: `localhost:4317`.
        endpoint = "localhost:4317",
    }
}

http_server_section! {
    /// The HTTP server.
    pub struct HttpConfig {
        /// Address to listen on. Default: `localhost:4318`.
        endpoint = "localhost:4318",
        /// Path of traces. Default: `/v1/traces`.
        traces_url_path: String = "/v1/traces".to_owned(),
        /// Path of metrics. Default: `/v1/metrics`.
        metrics_url_path: String = "/v1/metrics".to_owned(),
        /// Path of logs. The path of profiles is always `/v1development/profiles`. Default: `/v1/logs`.
        logs_url_path: String = "/v1/logs".to_owned(),
        /// Maximum number of spans, data points, log records or samples in a request; 0 means the default. A request
        /// with more is refused permanently. An item may take two bytes on the wire and many times as much while it is
        /// processed. Default: 1000000. (The Collector has no such key.)
        max_items_per_request: usize = DEFAULT_ITEMS,
    }
}

impl HttpConfig {
    /// Returns the maximum number of items in a request.
    pub fn max_items(&self) -> usize {
        crate::serving::max_items(self.max_items_per_request)
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let Protocols { grpc, http } = &self.protocols;
        if grpc.is_none() && http.is_none() {
            problems.error(
                &["protocols"],
                "must specify at least one protocol when using the OTLP receiver: `grpc:` or `http:`",
            );
        }
        problems.within("protocols", &self.protocols);
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let grpc = self
            .protocols
            .grpc
            .iter()
            .map(|grpc| ("grpc", &grpc.endpoint));
        let http = self
            .protocols
            .http
            .iter()
            .map(|http| ("http", &http.endpoint));
        grpc.chain(http)
            .map(|(name, endpoint)| (vec!["protocols", name, "endpoint"], endpoint.clone()))
            .collect()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        self.protocols.uses_extensions()
    }
}

impl Protocols {
    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let grpc = self.grpc.as_ref().and_then(|grpc| grpc.auth.as_ref());
        let http = self.http.as_ref().and_then(|http| http.auth.as_ref());
        let uses = [
            grpc.map(|auth| auth.server_use(&["protocols", "grpc", "auth"])),
            http.map(|auth| auth.server_use(&["protocols", "http", "auth"])),
        ];
        uses.into_iter().flatten().collect()
    }
}

impl Validate for Protocols {
    fn validate(&self, problems: &mut Problems) {
        if let Some(grpc) = &*self.grpc {
            problems.within("grpc", grpc);
        }
        if let Some(http) = &*self.http {
            problems.within("http", http);
        }
    }
}

impl Validate for GrpcConfig {
    fn validate(&self, problems: &mut Problems) {
        self.validate_server("0.0.0.0:4317", problems);
    }
}

impl Validate for HttpConfig {
    fn validate(&self, problems: &mut Problems) {
        self.validate_server("0.0.0.0:4317", problems);
        let paths = [
            ("traces_url_path", &self.traces_url_path),
            ("metrics_url_path", &self.metrics_url_path),
            ("logs_url_path", &self.logs_url_path),
        ];
        for (at, (key, path)) in paths.iter().enumerate() {
            if path.is_empty() {
                problems.error(&[key], "must not be empty");
            }
            let earlier = paths.iter().take(at).find(|(_, other)| other == path);
            if let Some((other, _)) = earlier {
                problems.error(
                    &[key],
                    format!("is also the path of `{other}`: set different paths"),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(yaml: &str) -> Config {
        serde_yaml::from_str(yaml).unwrap()
    }

    fn problems(config: &Config) -> Vec<(String, bool)> {
        let mut problems = Problems::default();
        config.validate(&mut problems);
        let describe = |problem: &tributary_config::Problem| {
            (
                format!("{}: {}", problem.path.join("."), problem.message),
                problem.warning,
            )
        };
        problems.found().iter().map(describe).collect()
    }

    #[test]
    fn protocol_is_enabled_by_its_key() {
        let config = parse("protocols:\n  grpc:\n");
        assert_eq!(config.protocols.grpc.0, Some(GrpcConfig::default()));
        assert!(config.protocols.http.is_none());
        assert_eq!(problems(&config), []);
        assert_eq!(
            config.listens_on(),
            [(
                vec!["protocols", "grpc", "endpoint"],
                Endpoint("localhost:4317".to_owned())
            )]
        );
    }

    #[test]
    fn missing_protocol_has_error_of_the_collector() {
        let found = problems(&Config::default());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].0.starts_with(
                "protocols: must specify at least one protocol when using the OTLP receiver"
            ),
            "{found:?}"
        );
    }

    #[test]
    fn wrong_values_are_reported_at_their_keys() {
        let config = parse(
            "protocols:
  grpc: {transport: unix, max_recv_msg_size_mib: 5000, read_buffer_size: 10,
    keepalive: {enforcement_policy: {min_time: 10s}}}
  http: {endpoint: '', logs_url_path: /v1/traces, compression_algorithms: [br],
    tls: {cert_pem: nonsense}, cors: {allowed_headers: ['a b']}}
",
        );
        let found: Vec<String> = problems(&config)
            .into_iter()
            .map(|(text, warning)| {
                format!(
                    "{}{}",
                    text.split(':').next().unwrap(),
                    if warning { "?" } else { "" }
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                "protocols.grpc.transport",
                "protocols.grpc.max_recv_msg_size_mib",
                "protocols.grpc.read_buffer_size",
                "protocols.grpc.keepalive.enforcement_policy?",
                "protocols.http.endpoint",
                "protocols.http.tls.cert_file",
                "protocols.http.compression_algorithms.0",
                "protocols.http.cors.allowed_headers.0",
                "protocols.http.logs_url_path",
            ]
        );
    }
}
