//! Reports to the operator that a client reached a limit.

use std::time::Duration;

use tracing::{debug, warn};

use super::Peer;
use super::client_limit::ClientLimit;
use super::gate::Gate;
use crate::sampled_log::SampledLog;

impl Gate {
    /// Counts an exceeded limit, and logs it at most once in ten seconds.
    pub(super) fn report_limit(&self, limit: ClientLimit, peer: &Peer) {
        self.metrics.report_limit(limit);
        let (address, identity) = (peer.address, peer.identity.as_deref());
        let due = self.log.get(limit as usize).and_then(SampledLog::admit);
        let Some(suppressed) = due else {
            debug!(client.address = %address, client.identity = identity, limit = limit.key(), "A limit was \
                exceeded");
            return;
        };
        warn!(
            otelcol.component.id = %self.owner.id,
            otelcol.component.kind = self.owner.kind,
            transport = self.owner.transport,
            client.address = %address,
            client.identity = identity,
            limit = limit.key(),
            value = self.value(limit),
            suppressed,
            "{}; for the next ten seconds, such events are logged at debug level",
            limit.advice()
        );
    }

    fn value(&self, limit: ClientLimit) -> String {
        let limits = &self.limits;
        let time = |time: Duration| format!("{time:?}");
        match limit {
            ClientLimit::MaxConnections => limits.max_connections.to_string(),
            ClientLimit::MaxConnectionsPerPeer => limits.max_connections_per_peer.to_string(),
            ClientLimit::MaxHandshakes => limits.max_handshakes.to_string(),
            ClientLimit::HandshakeTimeout => time(*limits.handshake_timeout),
            ClientLimit::MaxRequests => limits.max_requests.to_string(),
            ClientLimit::MaxHeaderSize => limits.max_header_size.to_string(),
            ClientLimit::HeaderTimeout => time(*limits.header_timeout),
            ClientLimit::MinBodyRate => format!("{}/s", limits.min_body_rate),
            ClientLimit::SendTimeout => time(*limits.send_timeout),
            ClientLimit::MaxControlFrames => limits.max_control_frames.to_string(),
            ClientLimit::MaxConcurrentStreams => self.streams.to_string(),
            ClientLimit::Memory | ClientLimit::RequestMemory => self.budget.limit().to_string(),
        }
    }
}
