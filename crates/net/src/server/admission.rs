//! Admission of connections, and their counts.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use tokio_util::sync::CancellationToken;

use super::client_limit::ClientLimit;
use super::gate::{Gate, Network, enter};
use crate::network;
use tributary_memory::clients::{CONNECTION_COST, ConnectionState, Scope};

/// Slot of a connection. A connection has a share of the memory limit beside the budget, not
/// permits of the budget. Idle connections would displace telemetry otherwise, and a flood of
/// telemetry would refuse connections. A refused connection, unlike a refused request, often cannot
/// be told to retry.
struct ConnectionSlot {
    gate: Arc<Gate>,
    address: IpAddr,
    network: Arc<Network>,
}

impl ConnectionSlot {
    fn new(gate: &Arc<Gate>, address: IpAddr) -> Self {
        gate.connections.fetch_add(1, Relaxed);
        let process = gate.budget.clients.enter(address);
        let mut networks = gate.networks();
        let network = networks.entry(address).or_insert_with(|| {
            Arc::new(Network {
                connections: AtomicUsize::new(0),
                handshakes: AtomicUsize::new(0),
                requests: AtomicUsize::new(0),
                process,
            })
        });
        network.connections.fetch_add(1, Relaxed);
        ConnectionSlot {
            gate: gate.clone(),
            address,
            network: network.clone(),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let ConnectionSlot {
            gate,
            address,
            network,
        } = self;
        gate.connections.fetch_sub(1, Relaxed);
        {
            // Removed under the lock, so that no connection is admitted between the two steps.
            let mut networks = gate.networks();
            if network.connections.fetch_sub(1, Relaxed) == 1 {
                networks.remove(address);
            }
        }
        gate.budget.clients.leave(*address, &network.process);
    }
}

/// The right to an open connection, released on drop.
pub(super) struct Admission {
    place: ConnectionSlot,
    pub(super) state: Arc<ConnectionState>,
}

impl Admission {
    /// Takes the right to a TLS handshake. Returns `None` if too many handshakes are in progress. One network gets a
    /// quarter of the slots, so that a client that never completes its handshakes cannot lock out all other clients.
    pub(super) fn handshake(&self) -> Option<Handshake<'_>> {
        let ConnectionSlot { gate, network, .. } = &self.place;
        let all = gate.limits.max_handshakes;
        if !enter(&gate.handshakes, all) {
            return None;
        }
        let before = network.handshakes.fetch_add(1, Relaxed);
        let handshake = Handshake { admission: self };
        (all == 0 || before < all.div_ceil(4)).then_some(handshake)
    }

    /// Returns the shared counts of the connection's network.
    pub(super) fn network(&self) -> Option<Arc<Network>> {
        Some(self.place.network.clone())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let gate = &self.place.gate;
        gate.budget.clients.unregister(&self.state);
        gate.metrics.connections.decrement(1.0);
    }
}

/// The right to a TLS handshake, released on drop.
pub(super) struct Handshake<'a> {
    admission: &'a Admission,
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        let ConnectionSlot { gate, network, .. } = &self.admission.place;
        gate.handshakes.fetch_sub(1, Relaxed);
        network.handshakes.fetch_sub(1, Relaxed);
    }
}

/// The right to refuse one client with a message, released on drop.
pub(super) struct RefusalPermit(Arc<Gate>);

impl Drop for RefusalPermit {
    fn drop(&mut self) {
        self.0.farewells.fetch_sub(1, Relaxed);
    }
}

/// Share of the memory limit for all connections, in addition to the permits: one part in this many.
pub(super) const CONNECTIONS_SHARE: usize = 4;
/// Number of connections of a listener that are always allowed. A client that fills one listener must not lock out the
/// health probes of another listener.
pub(super) const MIN_CONNECTIONS: usize = 64;

/// Maximum number of concurrent refusals with a message. Further connections are just closed.
const MAX_REFUSALS_WITH_MESSAGE: usize = 64;

impl Gate {
    /// Admits a connection, or returns the exceeded limit. If an idle connection of an unauthenticated client can be
    /// closed instead, the new connection is admitted. The connection has to end when `leave` is cancelled.
    pub(super) fn admit(
        self: &Arc<Self>,
        address: SocketAddr,
        leave: CancellationToken,
    ) -> Result<Admission, ClientLimit> {
        let address = network(address.ip());
        let place = ConnectionSlot::new(self, address);
        if let Some((limit, among)) = self.exceeded(&place)
            && !self.budget.clients.close_idle(among)
        {
            return Err(limit);
        }
        self.metrics.connections.increment(1.0);
        let state = self
            .budget
            .clients
            .register(address, self.listener(), leave);
        Ok(Admission { place, state })
    }

    /// Returns the first limit that the connection exceeds, and the scope of the limit.
    fn exceeded(self: &Arc<Self>, place: &ConnectionSlot) -> Option<(ClientLimit, Scope)> {
        let over = |count: &AtomicUsize, limit: usize| limit > 0 && count.load(Relaxed) > limit;
        let (limits, address, network) = (&self.limits, place.address, &place.network);
        if over(&self.connections, limits.max_connections) {
            return Some((
                ClientLimit::MaxConnections,
                Scope::Listener(self.listener()),
            ));
        }
        if over(&network.connections, limits.max_connections_per_peer) {
            let among = Scope::NetworkOfListener(address, self.listener());
            return Some((ClientLimit::MaxConnectionsPerPeer, among));
        }
        if self.connections.load(Relaxed) <= MIN_CONNECTIONS {
            return None;
        }
        let affordable = self.budget.limit() / CONNECTIONS_SHARE / CONNECTION_COST;
        if self.budget.clients.connections.load(Relaxed) > affordable {
            return Some((ClientLimit::Memory, Scope::All));
        }
        let of_network = network.process.connections.load(Relaxed);
        (of_network > affordable / 2).then_some((ClientLimit::Memory, Scope::Network(address)))
    }

    fn listener(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).addr()
    }

    /// Takes a slot for refusing a client with a message. Returns `None` if too many refusals are in
    /// progress.
    pub(super) fn begin_refusal(self: &Arc<Self>) -> Option<RefusalPermit> {
        enter(&self.farewells, MAX_REFUSALS_WITH_MESSAGE).then(|| RefusalPermit(self.clone()))
    }
}
