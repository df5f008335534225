//! The other end of a connection, and what it has under way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::gate::{Gate, Limit, Network};
use tributary_memory::Share;

/// The other end of a connection.
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Who it is, from its verified certificate: the first URI of the subject alternative names (a SPIFFE id), else the
    /// first DNS name, else the common name. None without mutual TLS.
    pub identity: Option<Arc<str>>,
    /// The largest piece of a request that this connection brought. Buffers are about that large, and a slice of one
    /// keeps all of it: whoever keeps slices compares.
    pub largest_piece: AtomicUsize,
    /// What its requests hold while they arrive.
    pub unfinished: Share,
    /// Its turns at work that takes long: as many at once as there are cores, so that it cannot keep all others
    /// waiting by asking for more.
    pub turns: Semaphore,
    /// Whether a request was answered before all of it was read.
    answered_early: AtomicBool,
    gate: Arc<Gate>,
    /// What all connections of its network have; none when it was not let in.
    pub(super) network: Option<Arc<Network>>,
    pub(super) opened: Instant,
    requests_begun: AtomicU64,
    requests_under_way: AtomicUsize,
    /// Milliseconds after `opened` at which the last request ended.
    last_request: AtomicU64,
}

impl Peer {
    pub(super) fn new(address: SocketAddr, gate: Arc<Gate>) -> Self {
        Peer {
            address,
            identity: None,
            largest_piece: AtomicUsize::new(0),
            unfinished: Share::default(),
            turns: Semaphore::new(cores()),
            answered_early: AtomicBool::new(false),
            gate,
            network: None,
            opened: Instant::now(),
            requests_begun: AtomicU64::new(0),
            requests_under_way: AtomicUsize::new(0),
            last_request: AtomicU64::new(0),
        }
    }

    /// A peer without a connection.
    #[cfg(any(test, fuzzing, feature = "testing"))]
    pub fn nobody() -> Self {
        use std::net::Ipv4Addr;
        let id = "otlp".parse().unwrap_or_else(|_| unreachable!());
        let owner = super::Owner::new(&id, "receiver").over("http");
        let gate = Gate::new(super::Limits::default(), 1000, owner, None);
        Peer::new((Ipv4Addr::LOCALHOST, 0).into(), gate)
    }

    /// Counts that this client went over a limit and was refused or given up, in `tributary_server_limited` and in the
    /// log.
    pub fn limited(&self, limit: Limit) {
        self.gate.limited(limit, self);
    }

    /// Tells that a request is answered while the client may still be sending it. Over HTTP/1 the connection ends with
    /// such an answer, and it must not end before the client has seen it: see `linger`.
    pub fn answered_early(&self) {
        self.answered_early.store(true, Relaxed);
    }

    /// Whether the connection must not close at once.
    pub(super) fn lingers(&self) -> bool {
        self.answered_early.load(Relaxed)
    }

    pub(super) fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Requests that this connection brought so far.
    pub(super) fn begun(&self) -> u64 {
        self.requests_begun.load(Relaxed)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.requests_under_way.load(Relaxed) > 0
    }

    /// Since when there was no request; now while there is one.
    pub(super) fn idle_since(&self) -> Instant {
        if self.is_busy() {
            return Instant::now();
        }
        self.opened + Duration::from_millis(self.last_request.load(Relaxed))
    }
}

/// How many threads do work that takes long.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    });
    *CORES
}

/// A request is under way until this is dropped.
pub(super) struct UnderWay {
    pub(super) peer: Arc<Peer>,
    /// Whether it is one of those that `max_requests` allows.
    pub(super) admitted: bool,
}

impl UnderWay {
    pub(super) fn new(peer: &Arc<Peer>) -> Self {
        peer.requests_begun.fetch_add(1, Relaxed);
        peer.requests_under_way.fetch_add(1, Relaxed);
        let admitted = peer.gate.begin_request();
        if !admitted {
            peer.limited(Limit::MaxRequests);
        }
        UnderWay {
            peer: peer.clone(),
            admitted,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let peer = &self.peer;
        let age = u64::try_from(peer.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        peer.last_request.store(age, Relaxed);
        peer.requests_under_way.fetch_sub(1, Relaxed);
        if self.admitted {
            peer.gate.end_request();
        }
    }
}
