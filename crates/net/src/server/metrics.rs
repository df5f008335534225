use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::Owner;
use crate::server::ClientLimit;
use crate::tls::reason::Reason;

#[derive(Clone)]
pub(super) struct HandshakeFailures([Counter; Reason::ALL.len()]);

impl HandshakeFailures {
    pub(super) fn new(owner: &Owner) -> Self {
        HandshakeFailures(Reason::ALL.map(|reason| {
            let labels = owner.labels_and("reason", reason.name());
            counter!("tributary_tls_handshake_failures", &labels)
        }))
    }

    pub(super) fn count(&self, reason: Reason) {
        self.0[reason as usize].increment(1);
    }
}

/// Metrics of a server: connections, requests and refusals.
pub(super) struct ServerMetrics {
    limited: [Counter; ClientLimit::ALL.len()],
    /// `tributary_server_connections`: open connections.
    pub connections: Gauge,
    /// `tributary_server_requests`: open requests.
    pub requests: Gauge,
    /// `tributary_server_request_seconds`: from the head of a request to the end of its response.
    pub request_seconds: Histogram,
}

impl ServerMetrics {
    pub(super) fn new(owner: &Owner) -> Self {
        let labels = owner.labels();
        ServerMetrics {
            limited: ClientLimit::ALL.map(|limit| {
                let labels = owner.labels_and("limit", limit.key());
                counter!("tributary_server_limited", &labels)
            }),
            connections: gauge!("tributary_server_connections", &labels),
            requests: gauge!("tributary_server_requests", &labels),
            request_seconds: histogram!("tributary_server_request_seconds", &labels),
        }
    }

    /// Counts a connection or request that was refused or cut because of this limit.
    pub(super) fn report_limit(&self, limit: ClientLimit) {
        self.limited[limit as usize].increment(1);
    }
}
