//! The configuration of the `jaeger` receiver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::serving::DEFAULT_ITEMS;
use crate::serving::grpc_keys::grpc_server_section;
use crate::serving::keys::http_server_section;
use tributary_config::{Endpoint, ExtensionUse, Problems, Section, Validate};

/// Receives spans of Jaeger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Protocols to listen with, at least one. Required.
    pub protocols: JaegerProtocols,
}

/// The protocols of Jaeger.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct JaegerProtocols {
    /// Protobuf over gRPC: `jaeger.api_v2.CollectorService/PostSpans`. Default: off.
    pub grpc: Section<JaegerGrpcConfig>,
    /// Thrift over HTTP: `POST /api/traces`. Default: off. (The Collector's defaults of `read_header_timeout` and
    /// `idle_timeout` are 0.)
    pub thrift_http: Section<ThriftHttpConfig>,
    /// Thrift's compact protocol over UDP, as Jaeger's agent receives it. Default: off.
    pub thrift_compact: Section<CompactConfig>,
    /// Thrift's binary protocol over UDP, as Jaeger's agent receives it. Default: off.
    pub thrift_binary: Section<BinaryConfig>,
}

grpc_server_section! {
    /// The gRPC server.
    pub struct JaegerGrpcConfig {
        /// Address to listen on. Default: `localhost:14250`.
        endpoint = "localhost:14250",
    }
}

http_server_section! {
    /// The HTTP server.
    pub struct ThriftHttpConfig {
        /// Address to listen on. Default: `localhost:14268`.
        endpoint = "localhost:14268",
        /// Maximum number of spans in a request; 0 means the default. A request with more is refused permanently.
        /// Default: 1000000. (The Collector has no such key.)
        max_items_per_request: usize = DEFAULT_ITEMS,
    }
}

/// Defines the section of an agent's socket.
macro_rules! agent_section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {
            $(#[$on:meta])*
            endpoint = $endpoint:expr,
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            $(#[$on])*
            pub endpoint: Endpoint,
            /// Number of packets that wait for a worker, from 1 to 1000000. Further packets are dropped and counted. The
            /// waiting packets are in the memory budget. Default: 1000.
            pub queue_size: usize,
            /// Maximum size of a packet in bytes, at least 1. A larger packet is dropped. UDP has no packets above
            /// 65507 bytes. Default: 65000.
            pub max_packet_size: usize,
            /// Number of packets that are processed at the same time, from 1 to 1000. Default: 10.
            pub workers: usize,
            /// Size of the socket's receive buffer in bytes, which the system may limit; 0 means the system's default.
            /// Default: 0.
            pub socket_buffer_size: usize,
        }

        impl Default for $Section {
            fn default() -> Self {
                $Section {
                    endpoint: Endpoint($endpoint.to_owned()),
                    queue_size: 1000,
                    max_packet_size: 65_000,
                    workers: 10,
                    socket_buffer_size: 0,
                }
            }
        }

        impl $Section {
            /// Returns the settings of the socket.
            pub(super) fn settings(&self) -> AgentSettings {
                AgentSettings {
                    endpoint: self.endpoint.clone(),
                    queue_size: self.queue_size,
                    max_packet_size: self.max_packet_size.min(LARGEST_PACKET),
                    workers: self.workers,
                    socket_buffer_size: self.socket_buffer_size,
                }
            }
        }

        impl Validate for $Section {
            fn validate(&self, problems: &mut Problems) {
                if self.endpoint.0.is_empty() {
                    let message = concat!("must not be empty; for example `", $endpoint, "`");
                    problems.error(&["endpoint"], message);
                }
                for (key, value) in [
                    ("queue_size", self.queue_size),
                    ("max_packet_size", self.max_packet_size),
                ] {
                    if value == 0 {
                        problems.error(&[key], "must be above 0");
                    }
                }
                if self.queue_size > LONGEST_QUEUE {
                    problems.error(&["queue_size"], format!("must be at most {LONGEST_QUEUE}"));
                }
                if !(1..=MOST_WORKERS).contains(&self.workers) {
                    problems.error(&["workers"], format!("must be between 1 and {MOST_WORKERS}"));
                }
                if i32::try_from(self.socket_buffer_size).is_err() {
                    problems.error(&["socket_buffer_size"], "must be at most 2147483647");
                }
            }
        }
    };
}

agent_section! {
    /// The socket for Thrift's compact protocol.
    pub struct CompactConfig {
        /// Address to listen on. Default: `localhost:6831`.
        endpoint = "localhost:6831",
    }
}

agent_section! {
    /// The socket for Thrift's binary protocol.
    pub struct BinaryConfig {
        /// Address to listen on. Default: `localhost:6832`.
        endpoint = "localhost:6832",
    }
}

/// Settings of an agent's socket.
pub(super) struct AgentSettings {
    pub(super) endpoint: Endpoint,
    pub(super) queue_size: usize,
    pub(super) max_packet_size: usize,
    pub(super) workers: usize,
    pub(super) socket_buffer_size: usize,
}

/// Maximum size of a UDP packet: 65,535 bytes without the headers of IPv4 and UDP.
const LARGEST_PACKET: usize = 65_507;
/// Maximum number of waiting packets. A packet has at most 64 KiB, so that the memory budget is the narrower bound.
const LONGEST_QUEUE: usize = 1_000_000;
const MOST_WORKERS: usize = 1000;

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        let JaegerProtocols {
            grpc,
            thrift_http,
            thrift_compact,
            thrift_binary,
        } = &self.protocols;
        let is_tcp = grpc.is_some() || thrift_http.is_some();
        if !is_tcp && thrift_compact.is_none() && thrift_binary.is_none() {
            problems.error(
                &["protocols"],
                "must specify at least one protocol when using the Jaeger receiver: `grpc:`, `thrift_http:`, \
                 `thrift_compact:` or `thrift_binary:`",
            );
        }
        problems.within("protocols", &self.protocols);
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        let protocols = &self.protocols;
        let grpc = (*protocols.grpc).as_ref().map(|grpc| &grpc.endpoint);
        let http = (*protocols.thrift_http).as_ref().map(|http| &http.endpoint);
        let compact = (*protocols.thrift_compact)
            .as_ref()
            .map(|udp| &udp.endpoint);
        let binary = (*protocols.thrift_binary).as_ref().map(|udp| &udp.endpoint);
        let all = [
            ("grpc", grpc),
            ("thrift_http", http),
            ("thrift_compact", compact),
            ("thrift_binary", binary),
        ];
        all.into_iter()
            .filter_map(|(key, endpoint)| {
                Some((vec!["protocols", key, "endpoint"], endpoint?.clone()))
            })
            .collect()
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let protocols = &self.protocols;
        let grpc = (*protocols.grpc)
            .as_ref()
            .and_then(|grpc| grpc.auth.as_ref());
        let http = (*protocols.thrift_http)
            .as_ref()
            .and_then(|http| http.auth.as_ref());
        let uses = [
            grpc.map(|auth| auth.server_use(&["protocols", "grpc", "auth"])),
            http.map(|auth| auth.server_use(&["protocols", "thrift_http", "auth"])),
        ];
        uses.into_iter().flatten().collect()
    }

    fn removed_keys() -> &'static [(&'static str, &'static str)] {
        &[(
            "remote_sampling",
            "the Collector has removed remote sampling from this receiver; configure the sampling of clients in the \
             clients, or run an own server of sampling strategies",
        )]
    }
}

impl Validate for JaegerProtocols {
    fn validate(&self, problems: &mut Problems) {
        if let Some(grpc) = &*self.grpc {
            problems.within("grpc", grpc);
        }
        if let Some(http) = &*self.thrift_http {
            problems.within("thrift_http", http);
        }
        if let Some(compact) = &*self.thrift_compact {
            problems.within("thrift_compact", compact);
        }
        if let Some(binary) = &*self.thrift_binary {
            problems.within("thrift_binary", binary);
        }
    }
}

impl Validate for JaegerGrpcConfig {
    fn validate(&self, problems: &mut Problems) {
        self.validate_server("0.0.0.0:14250", problems);
    }
}

impl Validate for ThriftHttpConfig {
    fn validate(&self, problems: &mut Problems) {
        self.validate_server("0.0.0.0:14268", problems);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_collector() {
        let config: Config = serde_yaml::from_str(
            "protocols: {grpc: {}, thrift_http: {}, thrift_compact: {}, thrift_binary: {}}",
        )
        .unwrap();
        let on: Vec<String> = config
            .listens_on()
            .into_iter()
            .map(|(_, endpoint)| endpoint.0)
            .collect();
        assert_eq!(
            on,
            [
                "localhost:14250",
                "localhost:14268",
                "localhost:6831",
                "localhost:6832"
            ]
        );
        let settings = CompactConfig::default().settings();
        assert_eq!((settings.queue_size, settings.workers), (1000, 10));
        assert_eq!(settings.max_packet_size, 65_000);
    }

    #[test]
    fn violated_rules_are_reported_at_their_keys() {
        let problems = crate::testing::problems::<Config>;
        assert_eq!(problems("{}"), ["protocols"]);
        let yaml = "
protocols:
  grpc: {transport: unix}
  thrift_http: {compression_algorithms: [br]}
  thrift_compact: {endpoint: '', queue_size: 0, workers: 0}
  thrift_binary: {queue_size: 4611686018427387904, max_packet_size: 0, socket_buffer_size: 3000000000}
";
        assert_eq!(
            problems(yaml),
            [
                "protocols::grpc::transport",
                "protocols::thrift_http::compression_algorithms::0",
                "protocols::thrift_compact::endpoint",
                "protocols::thrift_compact::queue_size",
                "protocols::thrift_compact::workers",
                "protocols::thrift_binary::max_packet_size",
                "protocols::thrift_binary::queue_size",
                "protocols::thrift_binary::socket_buffer_size",
            ]
        );
    }
}
