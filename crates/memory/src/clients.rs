//! Memory of clients without permits: open connections, open requests, partly received frames, and unsent
//! responses. Each has a share of the limit, and one client network gets half of a share.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Counts usage by the clients of all listeners of the process.
#[derive(Debug, Default)]
pub struct ClientMemory {
    /// Open connections.
    pub connections: AtomicUsize,
    /// Open HTTP/2 requests beyond [`FREE_REQUESTS`] of each connection.
    pub requests: AtomicUsize,
    /// Bytes of large, partly received frames.
    pub frames: AtomicUsize,
    /// Bytes of request heads and of large unsent responses.
    pub answers: AtomicUsize,
    clients: Mutex<Clients>,
    next_seat: AtomicU64,
}

/// Clients with an open connection.
#[derive(Debug, Default)]
struct Clients {
    networks: HashMap<IpAddr, Arc<Network>>,
    seats: HashMap<u64, Arc<ConnectionState>>,
    /// Earliest time of the next search for an idle connection.
    no_idle_until: Option<Instant>,
}

/// Usage of all listeners by the clients of one network.
#[derive(Debug, Default)]
pub struct Network {
    /// Open connections.
    pub connections: AtomicUsize,
    /// Open HTTP/2 requests beyond [`FREE_REQUESTS`] of each connection.
    pub requests: AtomicUsize,
    /// Bytes of large, partly received frames.
    pub frames: AtomicUsize,
    /// Bytes of large unsent responses.
    pub answers: AtomicUsize,
}

/// An open connection, as a candidate for replacement when there is no room.
#[derive(Debug)]
pub struct ConnectionState {
    number: u64,
    network: IpAddr,
    listener: usize,
    /// Time of acceptance.
    pub opened: Instant,
    /// Requests whose handler is running.
    pub busy: AtomicUsize,
    /// Milliseconds after `opened` at which the last request ended; 0 before.
    pub last_request: AtomicU64,
    /// Whether the client is authenticated.
    pub is_known: AtomicBool,
    /// Whether the connection has to end.
    pub is_closing: AtomicBool,
    /// Cancelled to close the connection.
    leave: CancellationToken,
}

impl ConnectionState {
    /// Creates the state of a connection that is never closed for another.
    pub fn unregistered() -> Self {
        ConnectionState::new(0, Ipv4Addr::UNSPECIFIED.into(), 0, CancellationToken::new())
    }

    fn new(number: u64, network: IpAddr, listener: usize, leave: CancellationToken) -> Self {
        ConnectionState {
            number,
            network,
            listener,
            opened: Instant::now(),
            busy: AtomicUsize::new(0),
            last_request: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
            is_closing: AtomicBool::new(false),
            leave,
        }
    }

    /// Returns the end of the last request, or the current time while a request is running.
    pub fn idle_since(&self) -> Instant {
        if self.busy.load(Relaxed) > 0 {
            return Instant::now();
        }
        self.opened + Duration::from_millis(self.last_request.load(Relaxed))
    }

    /// Returns the idle time beyond the protected time, or `None` if the connection must not be closed.
    fn idle_beyond_protection(&self, now: Instant) -> Option<Duration> {
        let busy = self.busy.load(Relaxed) > 0;
        if busy || self.is_known.load(Relaxed) || self.is_closing.load(Relaxed) {
            return None;
        }
        let spared = match self.last_request.load(Relaxed) {
            0 => PROTECTED_BEFORE_REQUEST,
            _ => PROTECTED_AFTER_REQUEST,
        };
        now.duration_since(self.idle_since()).checked_sub(spared)
    }
}

/// Connections that may be closed for a new one.
#[derive(Debug, Clone, Copy)]
pub enum Scope {
    /// Connections of a listener.
    Listener(usize),
    /// Connections of a client network on a listener.
    NetworkOfListener(IpAddr, usize),
    /// Connections of a client network.
    Network(IpAddr),
    /// All connections.
    All,
}

impl Scope {
    fn has(self, state: &ConnectionState) -> bool {
        match self {
            Scope::Listener(listener) => state.listener == listener,
            Scope::NetworkOfListener(network, listener) => {
                state.network == network && state.listener == listener
            }
            Scope::Network(network) => state.network == network,
            Scope::All => true,
        }
    }
}

impl ClientMemory {
    /// Counts a new connection of `address` and returns the shared counts of its network. [`leave`](Self::leave) undoes
    /// the call.
    pub fn enter(&self, address: IpAddr) -> Arc<Network> {
        let mut clients = self.clients();
        let network = clients.networks.entry(address).or_default();
        network.connections.fetch_add(1, Relaxed);
        self.connections.fetch_add(1, Relaxed);
        network.clone()
    }

    /// Records the end of a connection of `address`.
    pub fn leave(&self, address: IpAddr, network: &Network) {
        let mut clients = self.clients();
        self.connections.fetch_sub(1, Relaxed);
        // Removed under the lock, so that no connection is added between the two steps.
        if network.connections.fetch_sub(1, Relaxed) == 1 {
            clients.networks.remove(&address);
        }
    }

    /// Registers an admitted connection, which must end when `leave` is cancelled.
    pub fn register(
        &self,
        network: IpAddr,
        listener: usize,
        leave: CancellationToken,
    ) -> Arc<ConnectionState> {
        let number = self.next_seat.fetch_add(1, Relaxed);
        let state = Arc::new(ConnectionState::new(number, network, listener, leave));
        self.clients().seats.insert(state.number, state.clone());
        state
    }

    /// Removes a connection.
    pub fn unregister(&self, state: &ConnectionState) {
        self.clients().seats.remove(&state.number);
    }

    /// Closes the unauthenticated connection that has been idle longest. Returns false if there was none. Connections
    /// are protected for one second before their first request and for ten seconds after a request.
    pub fn close_idle(&self, among: Scope) -> bool {
        let now = Instant::now();
        let mut clients = self.clients();
        if clients.no_idle_until.is_some_and(|until| now < until) {
            return false;
        }
        let seats = clients.seats.values().filter(|state| among.has(state));
        let longest = seats
            .filter_map(|state| Some((state.idle_beyond_protection(now)?, state)))
            .max_by_key(|(idle, state)| (*idle, Reverse(state.number)));
        let Some((_, state)) = longest else {
            // Searching all connections for each of many new ones would itself be a denial of service.
            clients.no_idle_until = Some(now + SEARCH_PAUSE);
            return false;
        };
        state.is_closing.store(true, Relaxed);
        state.leave.cancel();
        true
    }

    /// Returns the bytes that clients use in addition to the permits of the budget.
    pub(super) fn bytes(&self) -> usize {
        let connections = self.connections.load(Relaxed);
        let requests = self.requests.load(Relaxed);
        connections
            .saturating_mul(CONNECTION_COST)
            .saturating_add(requests.saturating_mul(REQUEST_COST))
            .saturating_add(self.frames.load(Relaxed))
            .saturating_add(self.answers.load(Relaxed))
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock()
    }

    /// Returns the number of client networks with any usage.
    #[cfg(any(test, feature = "testing"))]
    pub fn networks(&self) -> usize {
        self.clients().networks.len()
    }
}

/// Memory of an open connection with its [`FREE_REQUESTS`], in bytes: the buffers of hyper, h2 and rustls, and the
/// task. Measured on HTTP/2 before the first request: 25 KiB, with TLS 32 KiB; buffers grow with use. Kernel memory is
/// not included.
pub const CONNECTION_COST: usize = 48 << 10;
/// Memory of an open request without its body, in bytes: the task, the stream of h2, and a response of up to
/// [`SMALL_ANSWER`] bytes.
pub const REQUEST_COST: usize = 8 << 10;
/// HTTP/2 requests that every connection may have open, regardless of other connections.
pub const FREE_REQUESTS: usize = 4;
/// Responses and heads up to this size, in bytes, are part of [`REQUEST_COST`].
pub const SMALL_ANSWER: usize = 1 << 10;
/// Protected time of a connection before its first request. Active clients send a request within a few round trips.
const PROTECTED_BEFORE_REQUEST: Duration = Duration::from_secs(1);
/// Protected time after a request: twice the default interval between the batches of an SDK.
const PROTECTED_AFTER_REQUEST: Duration = Duration::from_secs(10);
/// Pause after an unsuccessful search.
const SEARCH_PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn register(beside: &ClientMemory, network: &str) -> (Arc<ConnectionState>, CancellationToken) {
        let token = CancellationToken::new();
        let state = beside.register(network.parse().unwrap(), 1, token.clone());
        (state, token)
    }

    #[tokio::test(start_paused = true)]
    async fn close_idle_takes_longest_idle_unknown_client_first() {
        let beside = ClientMemory::default();
        let (known, of_known) = register(&beside, "10.0.0.1");
        known.is_known.store(true, Relaxed);
        let (busy, of_busy) = register(&beside, "10.0.0.1");
        busy.busy.store(1, Relaxed);
        let (_idle, of_idle) = register(&beside, "10.0.0.1");
        tokio::time::advance(Duration::from_millis(600)).await;
        let (_newer, of_newer) = register(&beside, "10.0.0.2");
        assert!(
            !beside.close_idle(Scope::All),
            "all are newer than a second"
        );
        tokio::time::advance(Duration::from_millis(600)).await;
        let other = Scope::Network("10.0.0.2".parse().unwrap());
        assert!(!beside.close_idle(other));
        tokio::time::advance(Duration::from_millis(300)).await;
        assert!(beside.close_idle(Scope::All) && of_idle.is_cancelled());
        assert!(!beside.close_idle(Scope::All) && !of_newer.is_cancelled());
        tokio::time::advance(Duration::from_millis(300)).await;
        assert!(beside.close_idle(Scope::All) && of_newer.is_cancelled());
        assert!(!of_known.is_cancelled() && !of_busy.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn close_idle_protects_ten_seconds_after_a_request() {
        let beside = ClientMemory::default();
        let (state, token) = register(&beside, "10.0.0.1");
        state.last_request.store(2000, Relaxed);
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(!beside.close_idle(Scope::All));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(beside.close_idle(Scope::All) && token.is_cancelled());
        beside.unregister(&state);
        assert!(beside.clients().seats.is_empty());
    }
}
