//! The other end of a connection, and what it has under way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::gate::{Gate, Limit, Network};
use tributary_memory::Share;
use tributary_memory::beside::Seat;

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
    /// The place of the connection among all.
    pub(super) seat: Arc<Seat>,
    requests_begun: AtomicU64,
    /// Requests that are to be refused because there is no memory for more.
    refusals: AtomicUsize,
    /// Whether the connection has ended.
    is_gone: AtomicBool,
    /// Whether the server is shutting down.
    is_hurried: AtomicBool,
}

impl Peer {
    /// A peer that was not let in, until it gets the seat and the network of an admission.
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
            seat: Arc::new(Seat::alone()),
            requests_begun: AtomicU64::new(0),
            refusals: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            is_hurried: AtomicBool::new(false),
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

    /// Tells that the client has proved who it is: its connection is not closed to make room for a newcomer.
    pub fn prove(&self) {
        // Written once per connection, and not for each request.
        if !self.seat.is_known.load(Relaxed) {
            self.seat.is_known.store(true, Relaxed);
        }
    }

    /// One request is to be refused.
    pub(super) fn refuse_one(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    /// No request is open: refusals that are left belong to requests that ended otherwise.
    pub(super) fn forget_refusals(&self) {
        if self.refusals.load(Relaxed) > 0 {
            self.refusals.store(0, Relaxed);
        }
    }

    /// Whether a request is to be refused, because there is no memory for as many as the connection has open.
    fn takes_refusal(&self) -> bool {
        // Nearly always 0: then nothing is written.
        self.refusals.load(Relaxed) > 0
            && self
                .refusals
                .fetch_update(Relaxed, Relaxed, |due| due.checked_sub(1))
                .is_ok()
    }

    /// The connection has ended: nobody will take an answer.
    pub(super) fn leave(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// The server is shutting down: answers have to be taken soon.
    pub(super) fn hurry(&self) {
        self.is_hurried.store(true, Relaxed);
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.is_hurried.load(Relaxed)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Whether the connection has to end to make room for a newcomer.
    pub(super) fn is_vacated(&self) -> bool {
        self.seat.is_vacated.load(Relaxed)
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
        self.seat.busy.load(Relaxed) > 0
    }

    /// When the connection began.
    pub(super) fn opened(&self) -> Instant {
        self.seat.opened
    }

    /// Since when there was no request; now while there is one.
    pub(super) fn idle_since(&self) -> Instant {
        self.seat.idle_since()
    }
}

/// How many threads do work that takes long.
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    });
    *CORES
}

/// A request whose handler runs until this is dropped.
pub(super) struct UnderWay {
    pub(super) peer: Arc<Peer>,
    /// The right to be handled; none if the request is refused.
    pub(super) admitted: Option<Admitted>,
}

impl UnderWay {
    pub(super) fn new(peer: &Arc<Peer>) -> Self {
        peer.requests_begun.fetch_add(1, Relaxed);
        peer.seat.busy.fetch_add(1, Relaxed);
        let refused = if peer.takes_refusal() {
            Some(Limit::RequestMemory)
        } else if peer.gate.begin_request(peer.network.as_deref()) {
            None
        } else {
            Some(Limit::MaxRequests)
        };
        if let Some(limit) = refused {
            peer.limited(limit);
        }
        UnderWay {
            peer: peer.clone(),
            admitted: refused
                .is_none()
                .then(|| Admitted(peer.clone(), Instant::now())),
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let seat = &self.peer.seat;
        let age = u64::try_from(seat.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        // 0 is for none yet.
        seat.last_request.store(age.max(1), Relaxed);
        seat.busy.fetch_sub(1, Relaxed);
    }
}

/// One of the requests that `max_requests` allows, until its answer has been taken; given back when dropped.
pub(super) struct Admitted(Arc<Peer>, Instant);

impl Drop for Admitted {
    fn drop(&mut self) {
        let Admitted(peer, begun) = self;
        peer.gate
            .end_request(peer.network.as_deref(), begun.elapsed());
    }
}
