//! The client of a connection, and its open requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::client_limit::ClientLimit;
use super::gate::{Gate, Network};
use tributary_memory::UnfinishedShare;
use tributary_memory::clients::ConnectionState;

/// The client of a connection.
pub struct Peer {
    /// Address of the client.
    pub address: SocketAddr,
    /// Identity from the verified certificate: the first URI of the subject alternative names (a SPIFFE id), else the
    /// first DNS name, else the common name. `None` without mutual TLS.
    pub identity: Option<Arc<str>>,
    /// Size of the largest chunk of a request on this connection. Buffers have about this size, and a slice keeps its
    /// whole buffer in memory. Code that keeps slices compares sizes to decide whether to copy.
    pub largest_chunk: AtomicUsize,
    /// Memory of requests that are still arriving.
    pub unfinished: UnfinishedShare,
    /// Limits CPU-heavy work of this connection to one task per core, so that one connection cannot delay all other
    /// connections.
    pub turns: Semaphore,
    /// Whether a response was sent before the request was completely read.
    answered_early: AtomicBool,
    gate: Arc<Gate>,
    /// Shared state of the connections of its network; `None` if the connection was not admitted.
    pub(super) network: Option<Arc<Network>>,
    /// State that the gate uses to replace idle connections.
    pub(super) state: Arc<ConnectionState>,
    requests_begun: AtomicU64,
    /// Number of requests to refuse because of the memory limit.
    refusals: AtomicUsize,
    is_gone: AtomicBool,
    is_shutting_down: AtomicBool,
}

/// Creates the peers of received datagrams, which have no connection.
pub struct DatagramPeers(Arc<Gate>);

impl DatagramPeers {
    /// Creates the source of peers for a component.
    pub fn new(owner: super::Owner) -> Self {
        DatagramPeers(Gate::new(super::Limits::default(), 0, owner, None))
    }

    /// Returns the peer that sent a datagram.
    pub fn peer(&self, address: SocketAddr) -> Peer {
        Peer::new(address, self.0.clone())
    }
}

impl Peer {
    /// Creates a peer that is not admitted. An admission adds the connection state and the network.
    pub(super) fn new(address: SocketAddr, gate: Arc<Gate>) -> Self {
        Peer {
            address,
            identity: None,
            largest_chunk: AtomicUsize::new(0),
            unfinished: UnfinishedShare::default(),
            turns: Semaphore::new(cores()),
            answered_early: AtomicBool::new(false),
            gate,
            network: None,
            state: Arc::new(ConnectionState::unregistered()),
            requests_begun: AtomicU64::new(0),
            refusals: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            is_shutting_down: AtomicBool::new(false),
        }
    }

    /// Creates a peer without a connection.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn unconnected() -> Self {
        use std::net::Ipv4Addr;
        let id = "otlp".parse().unwrap_or_else(|_| unreachable!());
        let owner = super::Owner::new(&id, "receiver").with_transport("http");
        let gate = Gate::new(super::Limits::default(), 1000, owner, None);
        Peer::new((Ipv4Addr::LOCALHOST, 0).into(), gate)
    }

    /// Records that this client exceeded a limit and was refused or disconnected, in `tributary_server_limited` and in
    /// the log.
    pub fn report_limit(&self, limit: ClientLimit) {
        self.gate.report_limit(limit, self);
    }

    /// Records a response to a request that the client may still be sending. Over HTTP/1 the connection ends with such
    /// a response, but only after the client has read it. See `linger`.
    pub fn answered_early(&self) {
        self.answered_early.store(true, Relaxed);
    }

    /// Records that the client is authenticated. The connection of an authenticated client is not closed to make room
    /// for a new connection.
    pub fn mark_authenticated(&self) {
        // Written once per connection instead of for each request.
        if !self.state.is_known.load(Relaxed) {
            self.state.is_known.store(true, Relaxed);
        }
    }

    pub(super) fn add_refusal(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    /// Clears pending refusals when no request is open, because their requests have ended in another way.
    pub(super) fn forget_refusals(&self) {
        if self.refusals.load(Relaxed) > 0 {
            self.refusals.store(0, Relaxed);
        }
    }

    fn take_refusal(&self) -> bool {
        // The number is nearly always 0, and the check avoids a write.
        self.refusals.load(Relaxed) > 0
            && self
                .refusals
                .fetch_update(Relaxed, Relaxed, |due| due.checked_sub(1))
                .is_ok()
    }

    /// Records the end of the connection. Pending responses will not be read.
    pub(super) fn mark_gone(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Records the shutdown of the server. Responses have to be read soon.
    pub(super) fn begin_shutdown(&self) {
        self.is_shutting_down.store(true, Relaxed);
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Relaxed)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.is_closing.load(Relaxed)
    }

    pub(super) fn needs_linger(&self) -> bool {
        self.answered_early.load(Relaxed)
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    pub(super) fn begun(&self) -> u64 {
        self.requests_begun.load(Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.state.busy.load(Relaxed) > 0
    }

    pub(super) fn opened(&self) -> Instant {
        self.state.opened
    }

    /// Returns the end of the last request, or the current time while a request is running.
    pub(super) fn idle_since(&self) -> Instant {
        self.state.idle_since()
    }
}

/// Returns the number of threads for CPU-heavy work.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    });
    *CORES
}

/// A request whose handler runs while this value lives.
pub(super) struct OpenRequest {
    pub(super) peer: Arc<Peer>,
    /// The right to be handled; `None` if the request is refused.
    pub(super) admitted: Option<Admitted>,
}

impl OpenRequest {
    pub(super) fn new(peer: &Arc<Peer>) -> Self {
        peer.requests_begun.fetch_add(1, Relaxed);
        peer.state.busy.fetch_add(1, Relaxed);
        let refused = if peer.take_refusal() {
            Some(ClientLimit::RequestMemory)
        } else if peer.gate.begin_request(peer.network.as_deref()) {
            None
        } else {
            Some(ClientLimit::MaxRequests)
        };
        if let Some(limit) = refused {
            peer.report_limit(limit);
        }
        OpenRequest {
            peer: peer.clone(),
            admitted: refused
                .is_none()
                .then(|| Admitted(peer.clone(), Instant::now())),
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let state = &self.peer.state;
        let age = u64::try_from(state.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        // 0 means that no request has ended.
        state.last_request.store(age.max(1), Relaxed);
        state.busy.fetch_sub(1, Relaxed);
    }
}

/// One of the requests that `max_requests` allows, until the response has been sent. Released on drop.
pub(super) struct Admitted(Arc<Peer>, Instant);

impl Drop for Admitted {
    fn drop(&mut self) {
        let Admitted(peer, begun) = self;
        peer.gate
            .end_request(peer.network.as_deref(), begun.elapsed());
    }
}
