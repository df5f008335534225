//! The keys of a gRPC server, listed once for all receivers that have one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::or;
use tributary_config::Problems;
use tributary_config::units::Duration;
use tributary_net::server::ServerOptions;

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

impl ServerKeepalive {
    /// Sets the options of connections.
    pub(crate) fn options(&self, defaults: ServerOptions) -> ServerOptions {
        let parameters = &self.server_parameters;
        ServerOptions {
            ping_interval: parameters.time.unless_zero().or(defaults.ping_interval),
            ping_timeout: parameters
                .timeout
                .unless_zero()
                .unwrap_or(defaults.ping_timeout),
            max_idle: parameters.max_connection_idle.unless_zero(),
            max_age: parameters.max_connection_age.unless_zero(),
            grace: parameters.max_connection_age_grace.unless_zero(),
            ..defaults
        }
    }

    /// Warns about a policy that has no effect.
    pub(crate) fn warn_about_policy(&self, problems: &mut Problems) {
        if self.enforcement_policy.is_some() {
            problems.warning(
                &["keepalive", "enforcement_policy"],
                "has no effect: the frequency of pings is not limited; remove it",
            );
        }
    }
}

/// Checks the sizes of messages and windows.
pub(crate) fn validate_sizes(message_mib: u32, window: u32, problems: &mut Problems) {
    if message_mib > LARGEST_MESSAGE_MIB {
        problems.error(
            &["max_recv_msg_size_mib"],
            format!(
                "invalid max_recv_msg_size_mib value, must be between 1 and {LARGEST_MESSAGE_MIB}"
            ),
        );
    }
    let window = or(window, DEFAULT_READ_BUFFER);
    if !(SMALLEST_WINDOW..=LARGEST_WINDOW).contains(&window) {
        problems.error(
            &["read_buffer_size"],
            format!("must be between {SMALLEST_WINDOW} and {LARGEST_WINDOW} bytes"),
        );
    }
}

/// Defines a section with the keys of a gRPC server and their defaults.
macro_rules! grpc_server_section {
    (
        $(#[$about:meta])*
        pub struct $Section:ident {
            $(#[$on:meta])*
            endpoint = $endpoint:expr,
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub struct $Section {
            $(#[$on])*
            pub endpoint: tributary_config::Endpoint,
            /// Kind of socket. Only `tcp` is supported. Default: `tcp`.
            pub transport: String,
            /// TLS of the server. Clients must speak HTTP/2 (ALPN `h2`). Default: off, plain text.
            pub tls: tributary_config::Section<tributary_net::tls::ServerTls>,
            /// Authentication of clients. Default: none, every client that reaches the address is accepted.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub auth: Option<crate::component::auth::Auth>,
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
            pub keepalive: crate::serving::grpc_keys::ServerKeepalive,
            /// Whether the request headers stay with the data, for processors and exporters that use them. Default: false.
            pub include_metadata: bool,
            /// Limits on clients. (The Collector has no such key.)
            pub limits: tributary_net::server::Limits,
        }

        impl Default for $Section {
            fn default() -> Self {
                use crate::serving::grpc_keys;
                $Section {
                    endpoint: tributary_config::Endpoint($endpoint.to_owned()),
                    transport: crate::serving::TCP.to_owned(),
                    tls: tributary_config::Section::default(),
                    auth: None,
                    max_recv_msg_size_mib: grpc_keys::DEFAULT_MESSAGE_MIB,
                    max_items_per_request: crate::serving::DEFAULT_ITEMS,
                    max_concurrent_streams: crate::serving::DEFAULT_STREAMS,
                    read_buffer_size: grpc_keys::DEFAULT_READ_BUFFER,
                    write_buffer_size: grpc_keys::DEFAULT_WRITE_BUFFER,
                    keepalive: grpc_keys::ServerKeepalive::default(),
                    include_metadata: false,
                    limits: tributary_net::server::Limits::default(),
                }
            }
        }

        impl $Section {
            /// Returns the maximum size of a message in bytes.
            pub fn max_message(&self) -> usize {
                let size = self.max_recv_msg_size_mib;
                (crate::serving::or(size, crate::serving::grpc_keys::DEFAULT_MESSAGE_MIB) as usize) << 20
            }

            /// Returns the maximum number of items in a request.
            pub fn max_items(&self) -> usize {
                crate::serving::max_items(self.max_items_per_request)
            }

            /// Returns the options of the server without those that the files of `tls` and the host determine.
            pub(crate) fn server_options(&self) -> tributary_net::server::ServerOptions {
                use crate::serving::{grpc_keys, or};
                let window = or(self.read_buffer_size, grpc_keys::DEFAULT_READ_BUFFER);
                let send_buffer = or(self.write_buffer_size, grpc_keys::DEFAULT_WRITE_BUFFER);
                self.keepalive.options(tributary_net::server::ServerOptions {
                    protocol: tributary_net::server::Protocol::Http2,
                    max_concurrent_streams: or(self.max_concurrent_streams, crate::serving::DEFAULT_STREAMS),
                    stream_window: window,
                    connection_window: window.saturating_mul(4),
                    max_send_buffer: send_buffer as usize,
                    limits: self.limits.clone(),
                    ..tributary_net::server::ServerOptions::default()
                })
            }

            /// Checks the keys of the server. `example` is an endpoint for the message about a missing one.
            fn validate_server(&self, example: &str, problems: &mut tributary_config::Problems) {
                crate::serving::validate_socket(&self.endpoint, &self.transport, example, problems);
                if let Some(tls) = &*self.tls {
                    problems.within("tls", tls);
                }
                problems.within("limits", &self.limits);
                let (auth, host) = (self.auth.as_ref(), self.endpoint.host());
                crate::component::auth::warn_about_plaintext(auth, self.tls.is_some(), host, problems);
                crate::serving::grpc_keys::validate_sizes(
                    self.max_recv_msg_size_mib,
                    self.read_buffer_size,
                    problems,
                );
                self.keepalive.warn_about_policy(problems);
            }
        }
    };
}

pub(crate) use grpc_server_section;

pub(crate) const DEFAULT_MESSAGE_MIB: u32 = 4;
/// The length of a gRPC message has 32 bits.
const LARGEST_MESSAGE_MIB: u32 = 4095;
pub(crate) const DEFAULT_READ_BUFFER: u32 = 1 << 20;
pub(crate) const DEFAULT_WRITE_BUFFER: u32 = 400 << 10;
/// The initial window that clients assume (RFC 9113, 6.9.2).
const SMALLEST_WINDOW: u32 = 65_535;
const LARGEST_WINDOW: u32 = 16 << 20;
