//! Protocol settings for members: the configuration of `otlp_grpc` without the keys that do not
//! apply to a member.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth::Auth;
use crate::exporters::otlp_grpc;
use crate::exporters::otlp_grpc::{Balancer, Compression, Keepalive};
use tributary_compression::compress::CompressionParams;
use tributary_config::Unread;
use tributary_config::units::Duration;
use tributary_config::{Headers, Problems, Section, Validate as _};
use tributary_net::tls::ClientTls;

/// Protocol settings of all members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Protocol {
    /// OTLP over gRPC.
    pub otlp: Otlp,
}

/// OTLP over gRPC, with the keys of `otlp_grpc`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// TLS settings. TLS is on unless `insecure: true` is set.
    pub tls: ClientTls,
    /// Authentication of this collector to the members. Default: none besides `headers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Compression of requests: `gzip`, `snappy`, `zstd` or `none`. Default: `gzip`.
    pub compression: Compression,
    /// Compression level.
    pub compression_params: CompressionParams,
    /// Headers added to every request, as a map or as a list of `name` and `value`. Default: none.
    pub headers: Headers,
    /// Time limit for a member's answer, after which the next member is tried. 0 means no limit.
    /// Default: 5s.
    pub timeout: Duration,
    /// HTTP/2 pings that detect dead connections. Default: off.
    pub keepalive: Section<Keepalive>,
    /// HTTP/2 receive window in bytes, at least 65535. Default: 524288.
    pub read_buffer_size: u32,
    /// Bytes of a request that are buffered in a connection ahead of the socket. Default: 524288.
    pub write_buffer_size: usize,
    /// Whether a request waits, up to `timeout`, for an unreachable member instead of going to
    /// another member at once. Default: false.
    pub wait_for_ready: bool,
    /// The `user-agent` header. Default: `tributary/` and the version.
    pub user_agent: String,
    /// Load balancing over several addresses of a member's host name: `round_robin` or
    /// `pick_first`. Default: `round_robin`.
    pub balancer_name: Balancer,
    /// The `:authority` header. Default: the member's address.
    pub authority: String,
    /// Number of connections to each member, 1 to 64. Default: 1.
    pub connections: usize,
    /// Not supported here: `resolver` defines the members.
    #[serde(skip_serializing)]
    pub endpoint: Option<Unread>,
    /// Not supported here: configure the queue next to `protocol`. `enabled: false` is accepted.
    #[serde(skip_serializing)]
    pub sending_queue: Section<Unread>,
    /// Not supported here: configure retries next to `protocol`. `enabled: false` is accepted.
    #[serde(skip_serializing)]
    pub retry_on_failure: Section<Unread>,
}

impl Default for Otlp {
    fn default() -> Self {
        let otlp_grpc::Config {
            endpoint: _,
            tls,
            auth,
            compression,
            compression_params,
            headers,
            timeout,
            keepalive,
            read_buffer_size,
            write_buffer_size,
            wait_for_ready,
            user_agent,
            balancer_name,
            authority,
            connections,
            sending_queue: _,
            retry_on_failure: _,
        } = otlp_grpc::Config::default();
        Otlp {
            tls,
            auth,
            compression,
            compression_params,
            headers,
            timeout,
            keepalive,
            read_buffer_size,
            write_buffer_size,
            wait_for_ready,
            user_agent,
            balancer_name,
            authority,
            connections,
            endpoint: None,
            sending_queue: Section(None),
            retry_on_failure: Section(None),
        }
    }
}

impl Otlp {
    /// Returns the configuration of the exporter to a member at this address.
    pub(super) fn at(&self, address: &str) -> otlp_grpc::Config {
        let own = self.clone();
        otlp_grpc::Config {
            endpoint: address.to_owned(),
            tls: own.tls,
            auth: own.auth,
            compression: own.compression,
            compression_params: own.compression_params,
            headers: own.headers,
            timeout: own.timeout,
            keepalive: own.keepalive,
            read_buffer_size: own.read_buffer_size,
            write_buffer_size: own.write_buffer_size,
            wait_for_ready: own.wait_for_ready,
            user_agent: own.user_agent,
            balancer_name: own.balancer_name,
            authority: own.authority,
            connections: own.connections,
            sending_queue: Section(None),
            retry_on_failure: Section(None),
        }
    }
}

impl Protocol {
    /// Reports all invalid settings for a member at this address.
    pub(super) fn check(&self, address: &str, problems: &mut Problems) {
        if self.otlp.endpoint.is_some() {
            let message = "members have no endpoint here: `resolver` says who they are";
            problems.error(&["otlp", "endpoint"], message);
        }
        if self.otlp.sending_queue.is_some() {
            let message = "a member has no queue of its own, because another member can take what waits in it: set \
                           `sending_queue` beside `protocol`";
            problems.error(&["otlp", "sending_queue"], message);
        }
        if self.otlp.retry_on_failure.is_some() {
            let message = "what a member does not take goes to another one; set `retry_on_failure` beside `protocol`, \
                           for what none takes";
            problems.error(&["otlp", "retry_on_failure"], message);
        }
        let mut member = Problems::default();
        self.otlp.at(address).validate(&mut member);
        // Invalid addresses are reported at their own position.
        if !member
            .found()
            .iter()
            .any(|problem| problem.path == ["endpoint"])
        {
            problems.extend(&["otlp"], member);
        }
    }
}
