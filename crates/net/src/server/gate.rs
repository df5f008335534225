//! Counts what the clients of one listener hold, says when it is too much, and tells the operator.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{debug, warn};

use super::Peer;
use super::limits::Limits;
use super::metrics::ServerMetrics;
use crate::sampled_log::SampledLog;
use crate::{Owner, network};
use tributary_memory::Budget;

/// What a client can have too much of: the keys of [`Limits`], and the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields of `Limits` say what they are")]
pub enum Limit {
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
    /// A key of the protocol, beside this section.
    MaxConcurrentStreams,
    /// Not a key of this section: the memory of the whole process.
    Memory,
}

impl Limit {
    /// All limits.
    pub const ALL: [Limit; 12] = [
        Limit::MaxConnections,
        Limit::MaxConnectionsPerPeer,
        Limit::MaxHandshakes,
        Limit::HandshakeTimeout,
        Limit::MaxRequests,
        Limit::MaxHeaderSize,
        Limit::HeaderTimeout,
        Limit::MinBodyRate,
        Limit::SendTimeout,
        Limit::MaxControlFrames,
        Limit::MaxConcurrentStreams,
        Limit::Memory,
    ];

    /// Its key in the configuration, which is also the value of the label `limit`.
    pub const fn key(self) -> &'static str {
        match self {
            Limit::MaxConnections => "max_connections",
            Limit::MaxConnectionsPerPeer => "max_connections_per_peer",
            Limit::MaxHandshakes => "max_handshakes",
            Limit::HandshakeTimeout => "handshake_timeout",
            Limit::MaxRequests => "max_requests",
            Limit::MaxHeaderSize => "max_header_size",
            Limit::HeaderTimeout => "header_timeout",
            Limit::MinBodyRate => "min_body_rate",
            Limit::SendTimeout => "send_timeout",
            Limit::MaxControlFrames => "max_control_frames",
            Limit::MaxConcurrentStreams => "max_concurrent_streams",
            Limit::Memory => "memory",
        }
    }

    /// What happened, and what an operator can do about it.
    const fn advice(self) -> &'static str {
        match self {
            Limit::MaxConnections => {
                "Refused a connection. If all clients are welcome, raise the limit or add servers"
            }
            Limit::MaxConnectionsPerPeer => {
                "Refused a connection. If many clients share this address (NAT, a load balancer), raise the limit"
            }
            Limit::MaxHandshakes => {
                "Refused a TLS handshake. If many clients reconnect at once, they will get in when they try again"
            }
            Limit::HandshakeTimeout => {
                "Closed a connection that did not begin to speak in time. Look for a port scan, a probe that only \
                 connects, or packet loss"
            }
            Limit::MaxRequests => {
                "Refused a request. The exporters may be slower than the clients, or the limit is too low"
            }
            Limit::MaxHeaderSize => "Refused a request with too large a head",
            Limit::HeaderTimeout => {
                "Closed a connection whose client was too slow to send a request head"
            }
            Limit::MinBodyRate => "Gave up a request whose client was too slow to send the body",
            Limit::SendTimeout => "Closed a connection whose client did not take its answers",
            Limit::MaxConcurrentStreams => {
                "Refused a request: the client has too many at once on one connection. It will send it again"
            }
            Limit::MaxControlFrames => {
                "Closed a connection that sent too many HTTP/2 frames without a request. This is an attack or a broken \
                 client"
            }
            Limit::Memory => {
                "Refused a connection: open connections may take a quarter of the memory limit. Raise the limit of \
                 `memory_limiter`, or add servers"
            }
        }
    }
}

/// The counts of one listener.
pub(super) struct Gate {
    pub(super) limits: Limits,
    /// HTTP/2: requests at once on one connection; h2 refuses more.
    pub(super) streams: u32,
    pub(super) owner: Owner,
    metrics: ServerMetrics,
    /// Where connections and frames of all listeners are counted that share it.
    budget: Option<Arc<Budget>>,
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    requests: AtomicUsize,
    farewells: AtomicUsize,
    /// Only those that have a connection open, so `max_connections` bounds this too.
    networks: Mutex<HashMap<IpAddr, Arc<Network>>>,
    /// What is written about each limit.
    log: [SampledLog; Limit::ALL.len()],
}

/// What the clients of one address hold.
#[derive(Debug, Default)]
pub(super) struct Network {
    connections: AtomicUsize,
    handshakes: AtomicUsize,
    /// Bytes of large frames of which a part has arrived.
    frames: AtomicUsize,
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
            budget,
            connections: AtomicUsize::new(0),
            handshakes: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            farewells: AtomicUsize::new(0),
            networks: Mutex::new(HashMap::new()),
            log: std::array::from_fn(|_| SampledLog::of_one_line()),
        })
    }

    /// Lets a connection in, or says which limit it is over.
    pub(super) fn admit(self: &Arc<Self>, address: SocketAddr) -> Result<Admission, Limit> {
        if !enter(&self.connections, self.limits.max_connections) {
            return Err(Limit::MaxConnections);
        }
        let place = Place(self.clone());
        if let Some(budget) = &self.budget {
            let all = budget.connections.fetch_add(1, Relaxed) + 1;
            let affordable = budget.limit() / CONNECTIONS_SHARE / CONNECTION_COST;
            if all > affordable && self.connections.load(Relaxed) > FEWEST_CONNECTIONS {
                return Err(Limit::Memory);
            }
        }
        let address = network(address.ip());
        let network = {
            let mut networks = self.networks();
            let network = networks.entry(address).or_default();
            enter(&network.connections, self.limits.max_connections_per_peer)
                .then(|| network.clone())
        };
        let Some(network) = network else {
            return Err(Limit::MaxConnectionsPerPeer);
        };
        self.metrics.connections.increment(1.0);
        Ok(Admission {
            place,
            address,
            network,
        })
    }

    /// Whether one more request may be under way; it is counted if so.
    pub(super) fn begin_request(&self) -> bool {
        let fits = enter(&self.requests, self.limits.max_requests);
        if fits {
            self.metrics.requests.increment(1.0);
        }
        fits
    }

    pub(super) fn end_request(&self) {
        self.requests.fetch_sub(1, Relaxed);
        self.metrics.requests.decrement(1.0);
    }

    /// A place for telling a client that there is no place; none when too many are being told.
    pub(super) fn farewell(self: &Arc<Self>) -> Option<Farewell> {
        enter(&self.farewells, MAX_FAREWELLS).then(|| Farewell(self.clone()))
    }

    /// Counts something that was refused or cut, and logs it once in ten seconds.
    pub(super) fn limited(&self, limit: Limit, peer: &Peer) {
        self.metrics.limited(limit);
        let (address, identity) = (peer.address, peer.identity.as_deref());
        let due = self.log.get(limit as usize).and_then(SampledLog::admit);
        let Some(suppressed) = due else {
            debug!(client.address = %address, client.identity = identity, limit = limit.key(), "Over the limit");
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
            "{}; more of these are logged at debug level only for ten seconds",
            limit.advice()
        );
    }

    /// The limit as the configuration has it.
    fn value(&self, limit: Limit) -> String {
        let limits = &self.limits;
        let time = |time: Duration| format!("{time:?}");
        match limit {
            Limit::MaxConnections => limits.max_connections.to_string(),
            Limit::MaxConnectionsPerPeer => limits.max_connections_per_peer.to_string(),
            Limit::MaxHandshakes => limits.max_handshakes.to_string(),
            Limit::HandshakeTimeout => time(*limits.handshake_timeout),
            Limit::MaxRequests => limits.max_requests.to_string(),
            Limit::MaxHeaderSize => limits.max_header_size.to_string(),
            Limit::HeaderTimeout => time(*limits.header_timeout),
            Limit::MinBodyRate => format!("{}/s", limits.min_body_rate),
            Limit::SendTimeout => time(*limits.send_timeout),
            Limit::MaxControlFrames => limits.max_control_frames.to_string(),
            Limit::MaxConcurrentStreams => self.streams.to_string(),
            Limit::Memory => self
                .budget
                .as_ref()
                .map_or_else(String::new, |budget| budget.limit().to_string()),
        }
    }

    /// A place for a large frame of which a part has arrived; none when there are too many. One address gets half of
    /// them: else a single one that never completes its own could keep everybody waiting.
    pub(super) fn begin_frame(self: &Arc<Self>, peer: &Peer, bytes: usize) -> Option<LargeFrame> {
        let budget = self.budget.clone();
        let (limit, before) = budget.as_ref().map_or((usize::MAX, 0), |budget| {
            let share = (budget.limit() / FRAMES_SHARE).max(LEAST_FRAMES);
            (share, budget.frames.fetch_add(bytes, Relaxed))
        });
        let network = peer.network.clone();
        let of_network = network.as_ref().map_or(0, |network| {
            network
                .frames
                .fetch_add(bytes, Relaxed)
                .saturating_add(bytes)
        });
        let frame = LargeFrame {
            budget,
            network,
            bytes,
        };
        (before.saturating_add(bytes) <= limit && of_network <= limit / 2).then_some(frame)
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Network>>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection's place among all. Connections take no permits of the budget: those that are idle would then take the
/// place of telemetry, and a flood of telemetry would refuse connections, which cannot be told as well as requests that
/// they should come back. They have a share of the limit beside it.
struct Place(Arc<Gate>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
        if let Some(budget) = &self.0.budget {
            budget.connections.fetch_sub(1, Relaxed);
        }
    }
}

/// The right to an open connection; given back when dropped.
pub(super) struct Admission {
    place: Place,
    address: IpAddr,
    network: Arc<Network>,
}

impl Admission {
    /// The right to a TLS handshake, unless too many are under way. One peer gets a quarter of them: else a single one
    /// that never completes its own could keep everybody out.
    pub(super) fn handshake(&self) -> Option<Handshake<'_>> {
        let gate = &self.place.0;
        let all = gate.limits.max_handshakes;
        if !enter(&gate.handshakes, all) {
            return None;
        }
        let before = self.network.handshakes.fetch_add(1, Relaxed);
        let handshake = Handshake { admission: self };
        (all == 0 || before < all.div_ceil(4)).then_some(handshake)
    }

    /// What all connections of its network have.
    pub(super) fn network(&self) -> Option<Arc<Network>> {
        Some(self.network.clone())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        {
            // Under the lock: nobody may come in between.
            let mut networks = self.place.0.networks();
            if self.network.connections.fetch_sub(1, Relaxed) == 1 {
                networks.remove(&self.address);
            }
        }
        self.place.0.metrics.connections.decrement(1.0);
    }
}

/// The right to a TLS handshake; given back when dropped.
pub(super) struct Handshake<'a> {
    admission: &'a Admission,
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        let Admission { place, network, .. } = self.admission;
        place.0.handshakes.fetch_sub(1, Relaxed);
        network.handshakes.fetch_sub(1, Relaxed);
    }
}

/// The right to tell one client that there is no place; given back when dropped.
pub(super) struct Farewell(Arc<Gate>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.farewells.fetch_sub(1, Relaxed);
    }
}

/// The right to hold a part of a large frame; given back when dropped.
pub(super) struct LargeFrame {
    budget: Option<Arc<Budget>>,
    network: Option<Arc<Network>>,
    pub(super) bytes: usize,
}

impl Drop for LargeFrame {
    fn drop(&mut self) {
        if let Some(budget) = &self.budget {
            budget.frames.fetch_sub(self.bytes, Relaxed);
        }
        if let Some(network) = &self.network {
            network.frames.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Adds one, unless that would be above the limit. 0 means no limit.
fn enter(count: &AtomicUsize, limit: usize) -> bool {
    // Adding first is one instruction instead of a loop; the sum is only ever too high for a moment.
    let fits = count.fetch_add(1, Relaxed) < limit || limit == 0;
    if !fits {
        count.fetch_sub(1, Relaxed);
    }
    fits
}

/// What a connection without requests takes, in bytes: the buffers of hyper, h2 and rustls, and the task. Measured on
/// HTTP/2 before the first request: 25 KiB, with TLS 32 KiB; buffers grow with use. The kernel's are not in it.
const CONNECTION_COST: usize = 48 << 10;
/// All connections may take this part of the memory limit, beside what the budget counts.
const CONNECTIONS_SHARE: usize = 4;
/// So many connections of a listener are always affordable: who fills one must not shut out the probes of another.
const FEWEST_CONNECTIONS: usize = 64;
/// Frames that have arrived in part may take this part of the limit, and at least so many bytes.
const FRAMES_SHARE: usize = 8;
const LEAST_FRAMES: usize = 4 << 20;
/// Clients that are being told at once that there is no place. Others see their connection closed.
const MAX_FAREWELLS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(limits: Limits, budget: Option<Arc<Budget>>) -> Arc<Gate> {
        let owner = Owner::new(&"otlp".parse().unwrap(), "receiver");
        Gate::new(limits, 1000, owner.over("grpc"), budget)
    }

    fn at(address: &str) -> SocketAddr {
        (address.parse::<IpAddr>().unwrap(), 1).into()
    }

    #[test]
    fn connections_are_counted_in_all_and_per_address_and_forgotten_when_closed() {
        let limits = Limits {
            max_connections: 3,
            max_connections_per_peer: 2,
            ..Limits::default()
        };
        let gate = gate(limits, None);
        let first = gate.admit(at("2001:db8::1")).unwrap();
        let _second = gate.admit(at("2001:db8::2:1")).unwrap();
        let refused = gate.admit(at("2001:db8::3")).err();
        assert_eq!(refused, Some(Limit::MaxConnectionsPerPeer));
        let third = gate.admit(at("10.0.0.1")).unwrap();
        assert_eq!(
            gate.admit(at("10.0.0.2")).err(),
            Some(Limit::MaxConnections)
        );
        drop((first, third));
        let _again = gate.admit(at("::ffff:10.0.0.1")).unwrap();
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
            gate.admit(at("10.0.0.1")).unwrap(),
            gate.admit(at("10.0.0.2")).unwrap(),
        );
        let held = (one.handshake(), one.handshake());
        assert!(held.0.is_some() && held.1.is_some());
        assert!(one.handshake().is_none() && other.handshake().is_some());
        drop(held);
        assert!(one.handshake().is_some());
        assert_eq!(gate.handshakes.load(Relaxed), 0);
    }

    #[test]
    fn connections_and_parts_of_frames_have_a_share_of_the_memory_limit() {
        let budget = Budget::new(CONNECTIONS_SHARE * 100 * CONNECTION_COST);
        let gate = gate(Limits::default(), Some(budget.clone()));
        let mut open: Vec<_> = (0..100)
            .map(|_| gate.admit(at("10.0.0.1")).unwrap())
            .collect();
        assert_eq!(gate.admit(at("10.0.0.1")).err(), Some(Limit::Memory));
        open.pop();
        assert!(gate.admit(at("10.0.0.1")).is_ok());
        assert_eq!(budget.used(), 0);
        open.push(gate.admit(at("10.0.0.1")).unwrap());
        let probes = self::gate(Limits::default(), Some(budget.clone()));
        let few: Vec<_> = (0..FEWEST_CONNECTIONS)
            .map(|_| probes.admit(at("10.0.0.1")).unwrap())
            .collect();
        assert_eq!(probes.admit(at("10.0.0.1")).err(), Some(Limit::Memory));
        drop(few);

        drop(open);
        let admissions = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|address| {
            let admission = gate.admit(at(address)).unwrap();
            let mut peer = Peer::new(at(address), gate.clone());
            peer.network = admission.network();
            (admission, peer)
        });
        let [one, other, third] = admissions.each_ref().map(|(_, peer)| peer);
        let held = gate.begin_frame(one, 2 << 20);
        assert!(held.is_some() && gate.begin_frame(one, 1).is_none());
        let more = gate.begin_frame(other, 2 << 20);
        assert!(more.is_some() && gate.begin_frame(third, 1).is_none());
        drop(held);
        assert!(gate.begin_frame(third, 2 << 20).is_some());
        assert!(gate.begin_frame(one, 2 << 20).is_some());
        drop(more);
        assert_eq!(budget.frames.load(Relaxed), 0);
        drop(admissions);
        assert_eq!(budget.connections.load(Relaxed), 0);
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
        let admission = gate.admit(at("10.0.0.1")).unwrap();
        assert!(admission.handshake().is_some() && gate.begin_request());
    }
}
