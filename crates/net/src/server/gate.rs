//! Enforces the limits on the clients of one listener: counts, refuses, and informs the operator.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::Peer;
use super::limits::Limits;
use super::metrics::ServerMetrics;
use crate::sampled_log::SampledLog;
use crate::{Owner, network};
use tributary_memory::Budget;
use tributary_memory::clients;
use tributary_memory::clients::{
    CONNECTION_COST, ConnectionState, FREE_REQUESTS, REQUEST_COST, Scope,
};

/// A limit on clients: the keys of [`Limits`], and the memory budget.
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
    const fn advice(self) -> &'static str {
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

/// Counts of one listener.
pub(super) struct Gate {
    pub(super) limits: Limits,
    /// HTTP/2: maximum number of open requests per connection. h2 refuses more.
    pub(super) streams: u32,
    pub(super) owner: Owner,
    metrics: ServerMetrics,
    /// Counts usage by the clients of all listeners that share the budget.
    budget: Arc<Budget>,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    requests: AtomicUsize,
    farewells: AtomicUsize,
    /// Networks with open connections only, so `max_connections` bounds the map.
    networks: Mutex<HashMap<IpAddr, Arc<Network>>>,
    /// Rate limiters of the log, by limit.
    log: [SampledLog; ClientLimit::ALL.len()],
}

/// Usage of one listener by the clients of one network.
#[derive(Debug)]
pub(super) struct Network {
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    requests: AtomicUsize,
    /// Usage of all listeners by the same network.
    process: Arc<clients::Network>,
}

impl Gate {
    pub(super) fn new(
        limits: Limits,
        streams: u32,
        owner: Owner,
        budget: Option<Arc<Budget>>,
    ) -> Arc<Self> {
        Arc::new(Gate {
            metrics: ServerMetrics::new(&owner),
            limits,
            streams,
            owner,
            budget: budget.unwrap_or_else(|| Budget::new(usize::MAX)),
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            farewells: AtomicUsize::new(0),
            networks: Mutex::new(HashMap::new()),
            log: std::array::from_fn(|_| SampledLog::of_one_line()),
        })
    }

    /// Admits a connection, or returns the limit that it exceeds. If an idle connection of an unauthenticated client
    /// can be closed instead, the new connection is admitted. The connection has to end when `leave` is cancelled.
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

    /// Returns the first limit that the connection exceeds, and the scope of connections that count for it.
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
        if self.connections.load(Relaxed) <= FEWEST_CONNECTIONS {
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

    /// Counts one more open request if the limit allows it. The clients of one network get half of all requests.
    pub(super) fn begin_request(&self, network: Option<&Network>) -> bool {
        let most = self.limits.max_requests;
        if !enter(&self.requests, most) {
            return false;
        }
        if network.is_some_and(|network| !enter(&network.requests, most.div_ceil(2))) {
            self.requests.fetch_sub(1, Relaxed);
            return false;
        }
        self.metrics.requests.increment(1.0);
        true
    }

    pub(super) fn end_request(&self, network: Option<&Network>, took: Duration) {
        self.metrics.request_seconds.record(took.as_secs_f64());
        self.requests.fetch_sub(1, Relaxed);
        if let Some(network) = network {
            network.requests.fetch_sub(1, Relaxed);
        }
        self.metrics.requests.decrement(1.0);
    }

    /// Returns the maximum number of HTTP/2 requests, beyond [`FREE_REQUESTS`] per connection, that the memory limit
    /// allows.
    fn affordable_requests(&self) -> usize {
        (self.budget.limit() / REQUESTS_SHARE / REQUEST_COST).max(LEAST_REQUESTS)
    }

    /// Counts one more open HTTP/2 request if the memory limit allows it for the process and for the client network.
    fn begin_stream(&self, network: Option<&Network>) -> bool {
        let affordable = self.affordable_requests();
        if !enter(&self.budget.clients.requests, affordable) {
            return false;
        }
        let fits = network.is_none_or(|network| enter(&network.process.requests, affordable / 2));
        if !fits {
            self.budget.clients.requests.fetch_sub(1, Relaxed);
        }
        fits
    }

    fn end_streams(&self, network: Option<&Network>, count: usize) {
        self.budget.clients.requests.fetch_sub(count, Relaxed);
        if let Some(network) = network {
            network.process.requests.fetch_sub(count, Relaxed);
        }
    }

    /// Whether three quarters of a limit on requests or responses are used. Clients that do not read their responses
    /// are then disconnected sooner.
    pub(super) fn is_short(&self, network: Option<&Network>) -> bool {
        let scarce =
            |count: &AtomicUsize, most: usize| count.load(Relaxed) >= (most - most / 4).max(1);
        let (clients, process) = (
            &self.budget.clients,
            network.map(|network| &network.process),
        );
        let (requests, answers) = (
            self.affordable_requests(),
            self.budget.limit() / ANSWERS_SHARE,
        );
        let most = match self.limits.max_requests {
            0 => usize::MAX,
            most => most,
        };
        scarce(&clients.requests, requests)
            || scarce(&clients.answers, answers)
            || scarce(&self.requests, most)
            || process.is_some_and(|process| {
                scarce(&process.requests, requests / 2) || scarce(&process.answers, answers / 2)
            })
            || network.is_some_and(|network| scarce(&network.requests, most.div_ceil(2)))
    }

    /// Takes a slot for refusing a client with a message. Returns `None` if too many refusals are in
    /// progress.
    pub(super) fn begin_refusal(self: &Arc<Self>) -> Option<RefusalPermit> {
        enter(&self.farewells, MAX_REFUSALS_WITH_MESSAGE).then(|| RefusalPermit(self.clone()))
    }

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

    /// Returns the configured value of the limit, as text.
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

    /// Takes a slot for a large, partly received frame. Returns `None` if there are too many. One network
    /// gets half of the slots, so that a client that never completes its frames cannot block all others.
    pub(super) fn begin_frame(&self, peer: &Peer, bytes: usize) -> Option<Held> {
        let most = (self.budget.limit() / FRAMES_SHARE).max(LEAST_FRAMES);
        let held = Held::new(self, peer, ByteKind::Frame, bytes);
        let (before, of_network) = (held.others(), held.others_of_network());
        (before.saturating_add(bytes) <= most && of_network.saturating_add(bytes) <= most / 2)
            .then_some(held)
    }

    /// Takes a slot for a large head or response. Returns `None` if there are too many. One network gets half
    /// of the slots. A single large item is always allowed: otherwise a page above the limit could never be
    /// sent.
    pub(super) fn begin_answer(&self, peer: &Peer, bytes: usize) -> Option<Held> {
        let most = self.budget.limit() / ANSWERS_SHARE;
        let held = Held::new(self, peer, ByteKind::Answer, bytes);
        let fits = |others: usize, most| others == 0 || others.saturating_add(bytes) <= most;
        (fits(held.others(), most) && fits(held.others_of_network(), most / 2)).then_some(held)
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Network>>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slot of a connection. Connections do not take permits of the budget but have a share of the limit in
/// addition. Otherwise idle connections would displace telemetry, and a flood of telemetry would refuse
/// connections. A refused connection, unlike a request, often cannot be told to retry.
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
            // Removed under the lock, so that no connection is admitted in between.
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
    /// Takes the right to a TLS handshake. Returns `None` if too many are in progress. One network gets a quarter of
    /// them, so that a client that never completes its handshakes cannot lock out all others.
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

/// Purpose of bytes that are counted in addition to the budget's permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteKind {
    Frame,
    Answer,
}

/// The right to hold bytes in addition to the budget's permits, released on drop.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    network: Option<Arc<Network>>,
    kind: ByteKind,
    pub(super) bytes: usize,
}

impl Held {
    fn new(gate: &Gate, peer: &Peer, kind: ByteKind, bytes: usize) -> Self {
        let held = Held {
            budget: gate.budget.clone(),
            network: peer.network.clone(),
            kind,
            bytes,
        };
        held.of_all().fetch_add(bytes, Relaxed);
        if let Some(of_network) = held.of_network() {
            of_network.fetch_add(bytes, Relaxed);
        }
        held
    }

    fn of_all(&self) -> &AtomicUsize {
        match self.kind {
            ByteKind::Frame => &self.budget.clients.frames,
            ByteKind::Answer => &self.budget.clients.answers,
        }
    }

    fn of_network(&self) -> Option<&AtomicUsize> {
        let process = &self.network.as_ref()?.process;
        Some(match self.kind {
            ByteKind::Frame => &process.frames,
            ByteKind::Answer => &process.answers,
        })
    }

    /// Returns the other bytes of this kind.
    fn others(&self) -> usize {
        self.of_all().load(Relaxed).saturating_sub(self.bytes)
    }

    /// Returns the bytes of this kind that the client's network already holds.
    fn others_of_network(&self) -> usize {
        let all = self.of_network().map_or(0, |count| count.load(Relaxed));
        all.saturating_sub(self.bytes)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of_all().fetch_sub(self.bytes, Relaxed);
        if let Some(of_network) = self.of_network() {
            of_network.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Slots of one connection's HTTP/2 requests, from their first frame until their responses are sent. Released
/// on drop.
pub(super) struct RequestSlots {
    gate: Arc<Gate>,
    network: Option<Arc<Network>>,
    /// Requests beyond [`FREE_REQUESTS`] that have a slot.
    count: usize,
}

/// Decision about a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Admitted,
    /// The request is refused at once.
    Refused,
    /// The request waits, because refusals of earlier requests are not sent yet.
    Waits,
}

impl RequestSlots {
    pub(super) fn new(peer: &Peer) -> Self {
        RequestSlots {
            gate: peer.gate().clone(),
            network: peer.network.clone(),
            count: 0,
        }
    }

    /// Decides about a new request, with `open` requests open on the connection.
    pub(super) fn open(&mut self, open: usize) -> Opening {
        self.keep(open);
        let placed = FREE_REQUESTS + self.count;
        if open < placed {
            Opening::Admitted
        } else if open == placed && self.gate.begin_stream(self.network.as_deref()) {
            self.count += 1;
            Opening::Admitted
        } else if open < placed + MAX_REFUSALS {
            Opening::Refused
        } else {
            Opening::Waits
        }
    }

    /// Releases the slots that `open` requests do not need.
    pub(super) fn keep(&mut self, open: usize) {
        let surplus = self
            .count
            .saturating_sub(open.saturating_sub(FREE_REQUESTS));
        if surplus > 0 {
            self.count -= surplus;
            self.gate.end_streams(self.network.as_deref(), surplus);
        }
    }
}

impl Drop for RequestSlots {
    fn drop(&mut self) {
        self.keep(0);
    }
}

/// Increments the count unless that would exceed the limit. A limit of 0 means none.
fn enter(count: &AtomicUsize, limit: usize) -> bool {
    // Adding first is one instruction instead of a loop. The count is too high only for a moment.
    let fits = count.fetch_add(1, Relaxed) < limit || limit == 0;
    if !fits {
        count.fetch_sub(1, Relaxed);
    }
    fits
}

/// Share of the memory limit for all connections, in addition to the permits: one part in this many.
const CONNECTIONS_SHARE: usize = 4;
/// Number of connections of a listener that are always allowed. A client that fills one listener must not lock out the
/// health probes of another.
const FEWEST_CONNECTIONS: usize = 64;
/// Share of the memory limit for partly received frames (one part in this many), and its minimum in bytes.
const FRAMES_SHARE: usize = 8;
const LEAST_FRAMES: usize = 4 << 20;
/// Share of the memory limit for open HTTP/2 requests (one part in this many), and the number always allowed.
const REQUESTS_SHARE: usize = 8;
const LEAST_REQUESTS: usize = 64;
/// Share of the memory limit for large heads and responses: one part in this many.
const ANSWERS_SHARE: usize = 8;
/// Requests without a slot that one connection may have open until their refusals are sent. A client that
/// reads its responses frees them at once.
const MAX_REFUSALS: usize = 4;
/// Maximum number of concurrent refusals with a message. Further connections are just closed.
const MAX_REFUSALS_WITH_MESSAGE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(limits: Limits, budget: Option<Arc<Budget>>) -> Arc<Gate> {
        let owner = Owner::new(&"otlp".parse().unwrap(), "receiver");
        Gate::new(limits, 1000, owner.over("grpc"), budget)
    }

    fn admit(gate: &Arc<Gate>, address: &str) -> Result<Admission, ClientLimit> {
        gate.admit(at(address), CancellationToken::new())
    }

    fn at(address: &str) -> SocketAddr {
        (address.parse::<IpAddr>().unwrap(), 1).into()
    }

    #[test]
    fn connections_are_counted_in_total_and_per_address() {
        let limits = Limits {
            max_connections: 3,
            max_connections_per_peer: 2,
            ..Limits::default()
        };
        let gate = gate(limits, None);
        let first = admit(&gate, "2001:db8::1").unwrap();
        let _second = admit(&gate, "2001:db8::2:1").unwrap();
        let refused = admit(&gate, "2001:db8::3").err();
        assert_eq!(refused, Some(ClientLimit::MaxConnectionsPerPeer));
        let third = admit(&gate, "10.0.0.1").unwrap();
        assert_eq!(
            admit(&gate, "10.0.0.2").err(),
            Some(ClientLimit::MaxConnections)
        );
        drop((first, third));
        let _again = admit(&gate, "::ffff:10.0.0.1").unwrap();
        let networks = gate.networks();
        assert_eq!(networks.len(), 2, "only those with a connection");
        let network = networks.get(&at("10.0.0.1").ip()).unwrap();
        assert_eq!(network.connections.load(Relaxed), 1);
    }

    #[test]
    fn one_peer_cannot_take_all_handshakes() {
        let limits = Limits {
            max_handshakes: 8,
            ..Limits::default()
        };
        let gate = gate(limits, None);
        let (one, other) = (
            admit(&gate, "10.0.0.1").unwrap(),
            admit(&gate, "10.0.0.2").unwrap(),
        );
        let held = (one.handshake(), one.handshake());
        assert!(held.0.is_some() && held.1.is_some());
        assert!(one.handshake().is_none() && other.handshake().is_some());
        drop(held);
        assert!(one.handshake().is_some());
        assert_eq!(gate.handshakes.load(Relaxed), 0);
    }

    fn many(gate: &Arc<Gate>, address: &str, count: usize) -> Vec<Admission> {
        let admitted = (0..count).map(|_| admit(gate, address).unwrap());
        admitted.collect()
    }

    #[test]
    fn connections_and_partial_frames_have_a_memory_share() {
        let budget = Budget::new(CONNECTIONS_SHARE * 200 * CONNECTION_COST);
        let gate = gate(Limits::default(), Some(budget.clone()));
        let mut open = many(&gate, "10.0.0.1", 100);
        assert_eq!(
            admit(&gate, "10.0.0.1").err(),
            Some(ClientLimit::Memory),
            "one address has half"
        );
        open.extend(many(&gate, "10.0.0.2", 100));
        assert_eq!(admit(&gate, "10.0.0.3").err(), Some(ClientLimit::Memory));
        open.pop();
        assert!(admit(&gate, "10.0.0.3").is_ok());
        assert_eq!(budget.used(), 0);
        open.push(admit(&gate, "10.0.0.3").unwrap());
        let probes = self::gate(Limits::default(), Some(budget.clone()));
        let few = many(&probes, "10.0.0.1", FEWEST_CONNECTIONS);
        assert_eq!(admit(&probes, "10.0.0.1").err(), Some(ClientLimit::Memory));
        drop(few);

        drop(open);
        let admissions = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| {
            let admission = admit(&gate, address).unwrap();
            let mut peer = Peer::new(at(address), gate.clone());
            peer.network = admission.network();
            (admission, peer)
        });
        let [one, other, third] = admissions.each_ref().map(|(_, peer)| peer);
        let half = budget.limit() / FRAMES_SHARE / 2;
        let held = gate.begin_frame(one, half);
        assert!(held.is_some() && gate.begin_frame(one, 1).is_none());
        let more = gate.begin_frame(other, half);
        assert!(more.is_some() && gate.begin_frame(third, 1).is_none());
        drop(held);
        assert!(gate.begin_frame(third, half).is_some());
        assert!(gate.begin_frame(one, half).is_some());
        drop(more);
        assert_eq!(budget.clients.frames.load(Relaxed), 0);
        drop(admissions);
        assert_eq!(budget.clients.connections.load(Relaxed), 0);
        assert_eq!(budget.clients.networks(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_strangers_make_room_for_newcomers() {
        let budget = Budget::new(CONNECTIONS_SHARE * 200 * CONNECTION_COST);
        let gate = gate(Limits::default(), Some(budget));
        let token = CancellationToken::new();
        let first = gate.admit(at("10.0.0.1"), token.clone()).unwrap();
        let _open = many(&gate, "10.0.0.1", 99);
        assert!(admit(&gate, "10.0.0.1").is_err(), "all have just come");
        tokio::time::advance(Duration::from_secs(2)).await;
        let _newcomer = admit(&gate, "10.0.0.1").unwrap();
        assert!(token.is_cancelled(), "the oldest left");
        drop(first);
        let limits = Limits {
            max_connections_per_peer: 1,
            ..Limits::default()
        };
        let small = self::gate(limits, Some(gate.budget.clone()));
        let idle = admit(&small, "10.0.0.7").unwrap();
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(admit(&small, "10.0.0.7").is_ok());
        assert!(idle.state.is_closing.load(Relaxed));
    }

    #[test]
    fn requests_share_memory_and_one_address_gets_half() {
        let limit = REQUESTS_SHARE * 100 * REQUEST_COST;
        let gate = gate(Limits::default(), Some(Budget::new(limit)));
        let peers = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| {
            let admission = admit(&gate, address).unwrap();
            let mut peer = Peer::new(at(address), gate.clone());
            peer.network = admission.network();
            (admission, peer)
        });
        let mut places = peers.each_ref().map(|(_, peer)| RequestSlots::new(peer));
        let [one, other, third] = &mut places;
        let admitted = |places: &mut RequestSlots| {
            let mut open = 0;
            while places.open(open) == Opening::Admitted {
                open += 1;
            }
            open
        };
        let half = FREE_REQUESTS + 50;
        assert_eq!((admitted(one), admitted(other)), (half, half));
        assert_eq!(admitted(third), FREE_REQUESTS);
        assert!(gate.is_short(peers[2].1.network.as_deref()));
        assert_eq!(one.open(half + MAX_REFUSALS - 1), Opening::Refused);
        assert_eq!(one.open(half + MAX_REFUSALS), Opening::Waits);
        one.keep(FREE_REQUESTS + 20);
        assert_eq!(admitted(third), FREE_REQUESTS + 30);
        drop(places);
        assert_eq!(gate.budget.clients.requests.load(Relaxed), 0);
        assert!(!gate.is_short(peers[0].1.network.as_deref()));
    }

    #[test]
    fn answers_have_a_share_of_memory_but_a_single_one() {
        let gate = gate(Limits::default(), Some(Budget::new(ANSWERS_SHARE * 1000)));
        let admission = admit(&gate, "10.0.0.1").unwrap();
        let mut peer = Peer::new(at("10.0.0.1"), gate.clone());
        peer.network = admission.network();
        let huge = gate.begin_answer(&peer, 5000);
        assert!(huge.is_some() && gate.begin_answer(&peer, 1).is_none());
        drop(huge);
        let half = [400, 100].map(|bytes| gate.begin_answer(&peer, bytes));
        assert!(half.iter().all(Option::is_some) && gate.begin_answer(&peer, 1).is_none());
        let stranger = Peer::new(at("10.0.0.2"), gate.clone());
        assert!(gate.begin_answer(&stranger, 500).is_some());
        assert!(gate.begin_answer(&stranger, 501).is_none());
    }

    #[test]
    fn an_address_gets_half_of_the_requests() {
        let limits = Limits {
            max_requests: 4,
            ..Limits::default()
        };
        let gate = gate(limits, None);
        let (one, other) = (
            admit(&gate, "10.0.0.1").unwrap().network(),
            admit(&gate, "10.0.0.2").unwrap().network(),
        );
        let begin = |network: &Option<Arc<Network>>| gate.begin_request(network.as_deref());
        assert_eq!([(); 3].map(|()| begin(&one)), [true, true, false]);
        assert_eq!([(); 3].map(|()| begin(&other)), [true, true, false]);
        gate.end_request(one.as_deref(), Duration::ZERO);
        assert!(!begin(&other) && begin(&one));
    }

    #[test]
    fn zero_is_no_limit() {
        let limits = Limits {
            max_connections: 0,
            max_connections_per_peer: 0,
            max_handshakes: 0,
            max_requests: 0,
            ..Limits::default()
        };
        let gate = gate(limits, None);
        let admission = admit(&gate, "10.0.0.1").unwrap();
        assert!(admission.handshake().is_some() && gate.begin_request(None));
    }
}
