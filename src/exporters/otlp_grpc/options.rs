//! Values of the keys of an OTLP/gRPC client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_compression::Codec;
use tributary_config::units::Duration;
use tributary_net::client::Balancing;

/// Compression of gRPC requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(transform = tributary_config::Aliases(&[""]))]
pub enum GrpcCompression {
    /// gzip (RFC 1952).
    #[default]
    Gzip,
    /// Snappy framing format.
    Snappy,
    /// Zstandard (RFC 8878).
    Zstd,
    /// No compression.
    #[serde(alias = "")]
    None,
}

/// HTTP/2 pings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClientKeepalive {
    /// Time without received data after which a connection is pinged. Above 0. Default: 10s.
    pub time: Duration,
    /// Time to wait for the answer to a ping before the connection counts as dead. Above 0. Default: 10s.
    pub timeout: Duration,
    /// Whether connections without requests are pinged too. Servers may refuse that. Default: false.
    pub permit_without_stream: bool,
}

/// Distribution of connections over the addresses of the endpoint's host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Balancer {
    /// Over all addresses.
    #[default]
    RoundRobin,
    /// Connects to the first address that accepts the connection.
    PickFirst,
}

impl Default for ClientKeepalive {
    fn default() -> Self {
        ClientKeepalive {
            time: Duration::secs(10),
            timeout: Duration::secs(10),
            permit_without_stream: false,
        }
    }
}

impl GrpcCompression {
    /// The codec.
    pub fn codec(self) -> Option<Codec> {
        match self {
            GrpcCompression::Gzip => Some(Codec::Gzip),
            GrpcCompression::Snappy => Some(Codec::SnappyFramed),
            GrpcCompression::Zstd => Some(Codec::Zstd),
            GrpcCompression::None => None,
        }
    }

    /// The value of `grpc-encoding`.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            GrpcCompression::Gzip => Some("gzip"),
            GrpcCompression::Snappy => Some("snappy"),
            GrpcCompression::Zstd => Some("zstd"),
            GrpcCompression::None => None,
        }
    }
}

impl Balancer {
    pub(super) fn balancing(self) -> Balancing {
        match self {
            Balancer::RoundRobin => Balancing::RoundRobin,
            Balancer::PickFirst => Balancing::PickFirst,
        }
    }
}
