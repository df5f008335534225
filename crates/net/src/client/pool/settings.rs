//! Settings of a pool.

use std::time::Duration;

/// Distribution of connections over the addresses of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Balancing {
    /// Connects to every address and uses the connections in turn.
    #[default]
    RoundRobin,
    /// Connects to the first address that accepts.
    PickFirst,
}

/// Settings of a [`Pool`](super::Pool).
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Number of connections to each address, or to the picked address.
    pub connections: usize,
    /// Distribution of the connections.
    pub balancing: Balancing,
    /// Interval and timeout of HTTP/2 pings, and whether idle connections are pinged too.
    pub keepalive: Option<(Duration, Duration, bool)>,
    /// Whether a request waits while the target is unreachable, instead of failing.
    pub wait_for_ready: bool,
    /// Flow control window for data from the server, in bytes.
    pub receive_window: u32,
    /// Maximum number of request bytes buffered in the connection ahead of the socket.
    pub send_buffer: usize,
}
