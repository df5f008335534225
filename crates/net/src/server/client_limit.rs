//! Names of the limits on clients.

/// A limit on clients: the keys of [`Limits`](super::Limits), and the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of `Limits` say what they are")]
pub enum ClientLimit {
    MaxConnections,
    MaxConnectionsPerPeer,
    MaxHandshakes,
    HandshakeTimeout,
    MaxRequests,
    MaxHeaderSize,
    HeaderTimeout,
    MinBodyRate,
    SendTimeout,
    MaxControlFrames,
    /// A key of the protocol section, outside `limits`.
    MaxConcurrentStreams,
    /// The memory of all connections of the process. Not a configuration key.
    Memory,
    /// The memory of all requests and responses of the process. Not a configuration key.
    RequestMemory,
}

impl ClientLimit {
    /// All limits.
    pub const ALL: [ClientLimit; 13] = [
        ClientLimit::MaxConnections,
        ClientLimit::MaxConnectionsPerPeer,
        ClientLimit::MaxHandshakes,
        ClientLimit::HandshakeTimeout,
        ClientLimit::MaxRequests,
        ClientLimit::MaxHeaderSize,
        ClientLimit::HeaderTimeout,
        ClientLimit::MinBodyRate,
        ClientLimit::SendTimeout,
        ClientLimit::MaxControlFrames,
        ClientLimit::MaxConcurrentStreams,
        ClientLimit::Memory,
        ClientLimit::RequestMemory,
    ];

    /// Returns the configuration key, which is also the value of the label `limit`.
    pub const fn key(self) -> &'static str {
        match self {
            ClientLimit::MaxConnections => "max_connections",
            ClientLimit::MaxConnectionsPerPeer => "max_connections_per_peer",
            ClientLimit::MaxHandshakes => "max_handshakes",
            ClientLimit::HandshakeTimeout => "handshake_timeout",
            ClientLimit::MaxRequests => "max_requests",
            ClientLimit::MaxHeaderSize => "max_header_size",
            ClientLimit::HeaderTimeout => "header_timeout",
            ClientLimit::MinBodyRate => "min_body_rate",
            ClientLimit::SendTimeout => "send_timeout",
            ClientLimit::MaxControlFrames => "max_control_frames",
            ClientLimit::MaxConcurrentStreams => "max_concurrent_streams",
            ClientLimit::Memory => "memory",
            ClientLimit::RequestMemory => "request_memory",
        }
    }

    /// Describes the event and the possible remedies, for the operator.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            ClientLimit::MaxConnections => {
                "Refused a connection, or closed an idle connection to accept it. If the clients are legitimate, \
                 raise the limit or add servers"
            }
            ClientLimit::MaxConnectionsPerPeer => {
                "Refused a connection, or closed an idle connection to accept it. If many clients share this \
                 address (NAT, a load balancer), raise the limit"
            }
            ClientLimit::MaxHandshakes => {
                "Refused a TLS handshake. If many clients reconnect at once, their retries will succeed"
            }
            ClientLimit::HandshakeTimeout => {
                "Closed a connection whose client sent nothing in time. Check for a port scan, a probe that only \
                 connects, or packet loss"
            }
            ClientLimit::MaxRequests => {
                "Refused a request. The exporters may be slower than the clients, or the limit is too low"
            }
            ClientLimit::MaxHeaderSize => "Refused a request whose head is too large",
            ClientLimit::HeaderTimeout => {
                "Closed a connection whose client was too slow to send a request head"
            }
            ClientLimit::MinBodyRate => {
                "Refused a request whose client was too slow to send the body"
            }
            ClientLimit::SendTimeout => {
                "Closed a connection whose client did not read its responses"
            }
            ClientLimit::MaxConcurrentStreams => {
                "Refused a request: the client has too many open requests on one connection. The client should retry"
            }
            ClientLimit::MaxControlFrames => {
                "Closed a connection whose client sent too many HTTP/2 frames without a request: an attack or a \
                 defective client"
            }
            ClientLimit::Memory => {
                "Refused a connection, or closed an idle connection to accept it: open connections may use a \
                 quarter of the memory limit, and those of one address an eighth. Raise the limit of \
                 `memory_limiter`, or add servers"
            }
            ClientLimit::RequestMemory => {
                "Refused a request: open requests and unread responses may each use an eighth of the memory limit, \
                 and those of one address half of that. Check for clients that do not read responses, raise the \
                 limit of `memory_limiter`, or add servers"
            }
        }
    }
}
