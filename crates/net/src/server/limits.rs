//! The `limits` section of every listening component.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::Duration;
use tributary_config::{ByteSize, Problems, Validate};

/// Limits on clients. A client over a limit is refused at once, in its own protocol, and counted in
/// `tributary_server_limited`. For all numbers and durations, 0 means no limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Maximum number of open connections of this listener. The connections of all listeners are also limited to a
    /// quarter of the memory limit, at 48 KiB each, and those of one address to an eighth. 64 connections of each
    /// listener are always allowed. If there is no room, a new connection replaces the unauthenticated connection that
    /// has been idle longest. Default: 10000.
    pub max_connections: usize,
    /// Maximum number of open connections from one IP address (for IPv6, from one /64 network). Raise it if many
    /// clients share one address, for example behind a NAT gateway or a load balancer. Default: 1000.
    pub max_connections_per_peer: usize,
    /// Maximum number of concurrent TLS handshakes. One address (for IPv6, one /64 network) gets a quarter of them.
    /// Default: 256.
    pub max_handshakes: usize,
    /// Maximum time for the TLS handshake, and for the beginning of the first request. Default: 10s.
    pub handshake_timeout: Duration,
    /// Maximum number of open requests, over all connections of this listener. A request is open until its response is
    /// sent. One address (for IPv6, one /64 network) gets half of them. HTTP/2 requests beyond four per connection are
    /// also limited to an eighth of the memory limit, at 8 KiB each. Default: 10000.
    pub max_requests: usize,
    /// Maximum size of a request head: for HTTP/1 as sent, for HTTP/2 as HPACK counts it. From 8KiB to 1MiB. Default:
    /// 16KiB.
    pub max_header_size: ByteSize,
    /// Maximum time for a request head to arrive, from its first byte. Default: 10s.
    pub header_timeout: Duration,
    /// Minimum transfer rate of a request body after `body_grace`, per second. Default: 16KiB.
    pub min_body_rate: ByteSize,
    /// Time in which a request body may arrive at any rate. Default: 30s.
    pub body_grace: Duration,
    /// Maximum time for a client to receive a response. While three quarters of a limit on requests or responses are
    /// used, the maximum is one second. Default: 30s.
    pub send_timeout: Duration,
    /// HTTP/2: maximum rate, per second and connection, of frames that carry neither a request nor its data: PING,
    /// SETTINGS, WINDOW_UPDATE, RST_STREAM, PRIORITY, CONTINUATION, empty DATA, and RST_STREAM of the server for an
    /// error of the client. Bursts may have ten seconds' worth. Every DATA frame and every end of a response permits two
    /// more frames, because clients then measure the round trip and open their windows. A client over the limit is
    /// disconnected. Refusals do not count, however soon the client retries. Default: 1000.
    pub max_control_frames: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_connections: 10_000,
            max_connections_per_peer: 1000,
            max_handshakes: 256,
            handshake_timeout: Duration::secs(10),
            max_requests: 10_000,
            max_header_size: ByteSize::kib(16),
            header_timeout: Duration::secs(10),
            min_body_rate: ByteSize::kib(16),
            body_grace: Duration::secs(30),
            send_timeout: Duration::secs(30),
            max_control_frames: 1000,
        }
    }
}

impl Limits {
    /// Returns the maximum time for `bytes` of a body, or `None` for no limit.
    pub(super) fn time_for(&self, bytes: u32) -> Option<std::time::Duration> {
        let grace = self.body_grace.unless_zero()?;
        let slowest = u64::from(bytes).checked_div(self.min_body_rate.0)?;
        Some(grace.saturating_add(std::time::Duration::from_secs(slowest)))
    }
}

impl Validate for Limits {
    fn validate(&self, problems: &mut Problems) {
        let size = self.max_header_size;
        if !(ByteSize::kib(8)..=ByteSize::mib(1)).contains(&size) {
            problems.error(&["max_header_size"], "must be between 8KiB and 1MiB");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn body_deadline_needs_grace_and_rate() {
        let limits = Limits::default();
        let time = limits.time_for(1 << 20);
        assert_eq!(time, Some(std::time::Duration::from_secs(30 + 64)));
        let (mut no_grace, mut no_rate) = (limits.clone(), limits);
        no_grace.body_grace = Duration::secs(0);
        no_rate.min_body_rate = ByteSize(0);
        assert_eq!((no_grace.time_for(1), no_rate.time_for(1)), (None, None));
    }
}
