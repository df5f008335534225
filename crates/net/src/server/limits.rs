//! What a server lets its clients do: the `limits` section of every listening component.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::units::Duration;
use tributary_config::{ByteSize, Problems, Validate};

/// What clients may do at most. A client that wants more is refused at once, in its own protocol, and counted in
/// `tributary_server_limited`. For all numbers and durations 0 means no limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Open connections of this listener. Those of all listeners may not take more than a quarter of the memory limit
    /// either, at 48 KiB each, and those of one address not more than an eighth; 64 of each listener are let in even so.
    /// When there is no room, a newcomer takes the place of the connection that has been idle longest and has proved no
    /// identity. Default 10000.
    pub max_connections: usize,
    /// Open connections from one IP address (of IPv6, from one /64 network). Raise it where many clients come through
    /// one address: a NAT gateway, a load balancer. Default 1000.
    pub max_connections_per_peer: usize,
    /// TLS handshakes under way. One address (of IPv6, one /64 network) gets a quarter of them. Default 256.
    pub max_handshakes: usize,
    /// The longest a TLS handshake, and the beginning of the first request, may take. Default 10s.
    pub handshake_timeout: Duration,
    /// Requests whose answers are not sent, over all connections of this listener; one address (of IPv6, one /64
    /// network) gets half of them. Those of HTTP/2, beyond four on each connection, may not take more than an eighth of
    /// the memory limit either, at 8 KiB each. Default 10000.
    pub max_requests: usize,
    /// Largest request head: for HTTP/1 as sent, for HTTP/2 as HPACK counts it. 8KiB to 1MiB. Default 16KiB.
    pub max_header_size: ByteSize,
    /// The longest a request head may take to arrive, once it has begun. Default 10s.
    pub header_timeout: Duration,
    /// A request body must arrive at least this fast, in bytes a second, after `body_grace`. Default 16KiB.
    pub min_body_rate: ByteSize,
    /// How long a request body may take without regard to `min_body_rate`. Default 30s.
    pub body_grace: Duration,
    /// How long a client may take to receive an answer. A second while three quarters of a limit on requests or answers
    /// are used. Default 30s.
    pub send_timeout: Duration,
    /// HTTP/2: frames a second on one connection that carry neither a request nor its data (PING, SETTINGS,
    /// WINDOW_UPDATE, RST_STREAM in either direction, PRIORITY, CONTINUATION, empty DATA), with ten seconds' worth at
    /// once. Every DATA frame and every end of an answer earn the client two more, because clients measure the line and
    /// open their windows as answers arrive. A client that sends more is disconnected. Default 1000.
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
    /// How long so many bytes of a body may take; None for no limit.
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
    fn a_body_has_its_grace_and_its_rate_and_no_limit_without_one_of_them() {
        let limits = Limits::default();
        let time = limits.time_for(1 << 20);
        assert_eq!(time, Some(std::time::Duration::from_secs(30 + 64)));
        let (mut no_grace, mut no_rate) = (limits.clone(), limits);
        no_grace.body_grace = Duration::secs(0);
        no_rate.min_body_rate = ByteSize(0);
        assert_eq!((no_grace.time_for(1), no_rate.time_for(1)), (None, None));
    }
}
