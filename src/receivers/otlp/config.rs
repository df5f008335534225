//! The configuration of the `otlp` receiver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use crate::serving::keys::http_server_section;
use crate::serving::{DEFAULT_STREAMS, TCP, or, validate_socket};
use tributary_config::units::Duration;
use tributary_config::{Endpoint, ExtensionUse, Problems, Section, Validate};
use tributary_net::server::Limits;
use tributary_net::tls::ServerTls;

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

/// The gRPC server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GrpcConfig {
    /// Address to listen on. Default: `localhost:4317`.
    pub endpoint: Endpoint,
    /// Kind of socket. Only `tcp` is supported. Default: `tcp`.
    pub transport: String,
    /// TLS of the server. Clients must speak HTTP/2 (ALPN `h2`). Default: off, plain text.
    pub tls: Section<ServerTls>,
    /// Authentication of clients. Default: none, every client that reaches the address is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Maximum size of a message in MiB (2^20 bytes), both as sent and after decompression; 0 means the default.
    /// Default: 4.
    pub max_recv_msg_size_mib: u32,
    /// Maximum number of spans, data points, log records or samples in a request; 0 means the default. A request with
    /// more is refused permanently. An item may take two bytes on the wire and many times as much while it is processed.
    /// Default: 1000000. (The Collector has no such key.)
    pub max_items_per_request: usize,
    /// Maximum number of concurrent requests on one connection; 0 means the default. Default: 1000.
    pub max_concurrent_streams: u32,
    /// Bytes of one request that a client may send before the server reads them (the HTTP/2 stream window), from 65535
    /// to 16777216; 0 means the default. The window of a connection is four times as large. Default: 1048576.
    pub read_buffer_size: u32,
    /// Maximum size of buffered responses per client, in bytes; 0 means the default. Default: 409600.
    pub write_buffer_size: u32,
    /// Pings and closing of connections.
    pub keepalive: ServerKeepalive,
    /// Whether the request headers stay with the data, for processors and exporters that use them. Default: false.
    pub include_metadata: bool,
    /// Limits on clients. (The Collector has no such key.)
    pub limits: Limits,
}

/// Pings and closing of connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerKeepalive {
    /// Pings and closing of connections by this server.
    pub server_parameters: ServerParameters,
    /// Pings that clients may send. Accepted with a warning and not enforced: pings are cheap here, and no client is
    /// disconnected because of pings. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enforcement_policy: Option<EnforcementPolicy>,
}

/// Connection management of the server. Durations of 0 mean the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerParameters {
    /// Time without a request after which a connection is closed; 0 means the default. Default: never.
    pub max_connection_idle: Duration,
    /// Age at which a connection is closed, give or take a tenth, so that clients spread over new servers; 0 means the
    /// default. Default: never.
    pub max_connection_age: Duration,
    /// Time after `max_connection_age` for requests in progress to finish. Default: no limit.
    pub max_connection_age_grace: Duration,
    /// Time without data from a client after which it is pinged; 0 means the default. Default: 2h.
    pub time: Duration,
    /// Time to wait for the answer to a ping before the connection is closed; 0 means the default. Default: 20s.
    pub timeout: Duration,
}

/// The limits at which grpc-go servers disconnect clients that ping too often.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnforcementPolicy {
    /// Minimum time between pings. Not enforced: clients may ping as often as they like. Default: none.
    pub min_time: Duration,
    /// Whether clients may ping without an open request. Not enforced: clients may. Default: false.
    pub permit_without_stream: bool,
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

impl Default for GrpcConfig {
    fn default() -> Self {
        GrpcConfig {
            endpoint: Endpoint("localhost:4317".to_owned()),
            transport: TCP.to_owned(),
            tls: Section::default(),
            auth: None,
            max_recv_msg_size_mib: DEFAULT_MESSAGE_MIB,
            max_items_per_request: DEFAULT_ITEMS,
            max_concurrent_streams: DEFAULT_STREAMS,
            read_buffer_size: DEFAULT_READ_BUFFER,
            write_buffer_size: DEFAULT_WRITE_BUFFER,
            keepalive: ServerKeepalive::default(),
            include_metadata: false,
            limits: Limits::default(),
        }
    }
}

fn max_items(configured: usize) -> usize {
    match configured {
        0 => DEFAULT_ITEMS,
        items => items,
    }
}

impl GrpcConfig {
    /// Returns the maximum size of a message in bytes.
    pub fn max_message(&self) -> usize {
        (or(self.max_recv_msg_size_mib, DEFAULT_MESSAGE_MIB) as usize) << 20
    }

    /// Returns the maximum number of items in a request.
    pub fn max_items(&self) -> usize {
        max_items(self.max_items_per_request)
    }
}

impl HttpConfig {
    /// Returns the maximum number of items in a request.
    pub fn max_items(&self) -> usize {
        max_items(self.max_items_per_request)
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
        validate_socket(&self.endpoint, &self.transport, "0.0.0.0:4317", problems);
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        let (auth, host) = (self.auth.as_ref(), self.endpoint.host());
        auth::warn_about_plaintext(auth, self.tls.is_some(), host, problems);
        if self.max_recv_msg_size_mib > LARGEST_MESSAGE_MIB {
            problems.error(
                &["max_recv_msg_size_mib"],
                format!(
                    "invalid max_recv_msg_size_mib value, must be between 1 and {LARGEST_MESSAGE_MIB}"
                ),
            );
        }
        let window = or(self.read_buffer_size, DEFAULT_READ_BUFFER);
        if !(SMALLEST_WINDOW..=LARGEST_WINDOW).contains(&window) {
            problems.error(
                &["read_buffer_size"],
                format!("must be between {SMALLEST_WINDOW} and {LARGEST_WINDOW} bytes"),
            );
        }
        if self.keepalive.enforcement_policy.is_some() {
            problems.warning(
                &["keepalive", "enforcement_policy"],
                "has no effect: the frequency of pings is not limited; remove it",
            );
        }
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

/// Default of `max_items_per_request`. Usual requests, with items of at least 20 bytes, reach the
/// size limit first.
const DEFAULT_ITEMS: usize = 1_000_000;

const DEFAULT_MESSAGE_MIB: u32 = 4;
/// The length of a gRPC message has 32 bits.
const LARGEST_MESSAGE_MIB: u32 = 4095;
pub(super) const DEFAULT_READ_BUFFER: u32 = 1 << 20;
pub(super) const DEFAULT_WRITE_BUFFER: u32 = 400 << 10;
/// The initial window that clients assume (RFC 9113, 6.9.2).
const SMALLEST_WINDOW: u32 = 65_535;
const LARGEST_WINDOW: u32 = 16 << 20;

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
