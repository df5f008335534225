//! Enforces the limits on the clients of one listener: counts, refuses, and reports to the operator.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

pub use super::client_limit::ClientLimit;
use super::limits::Limits;
use super::metrics::ServerMetrics;
use crate::Owner;
use crate::sampled_log::SampledLog;
use tributary_memory::clients::REQUEST_COST;
use tributary_memory::{Budget, clients};

pub(super) struct Gate {
    pub(super) limits: Limits,
    /// HTTP/2: maximum number of open requests per connection. h2 refuses more.
    pub(super) streams: u32,
    pub(super) owner: Owner,
    pub(super) metrics: ServerMetrics,
    /// Counts usage by the clients of all listeners that share the budget.
    pub(super) budget: Arc<Budget>,
    pub(super) connections: AtomicUsize,
    pub(super) handshakes: AtomicUsize,
    requests: AtomicUsize,
    pub(super) farewells: AtomicUsize,
    /// Networks with open connections only, so `max_connections` bounds the map.
    networks: Mutex<HashMap<IpAddr, Arc<Network>>>,
    pub(super) log: [SampledLog; ClientLimit::ALL.len()],
}

/// Usage of one listener by the clients of one network.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) connections: AtomicUsize,
    pub(super) handshakes: AtomicUsize,
    pub(super) requests: AtomicUsize,
    /// Usage of all listeners by the same network.
    pub(super) process: Arc<clients::Network>,
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
    pub(super) fn affordable_requests(&self) -> usize {
        (self.budget.limit() / REQUESTS_SHARE / REQUEST_COST).max(MIN_REQUESTS)
    }

    /// Whether three quarters of a limit on requests or responses are used. In this case clients that do not read their
    /// responses are disconnected sooner.
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

    pub(super) fn networks(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Network>>> {
        self.networks.lock()
    }
}

/// Increments the count unless the result would exceed the limit. A limit of 0 means no limit.
pub(super) fn enter(count: &AtomicUsize, limit: usize) -> bool {
    // Adding first takes one instruction instead of a loop. The count is too high only for a moment.
    let fits = count.fetch_add(1, Relaxed) < limit || limit == 0;
    if !fits {
        count.fetch_sub(1, Relaxed);
    }
    fits
}

/// Share of the memory limit for open HTTP/2 requests (one part in this many), and the number of requests that is
/// always allowed.
const REQUESTS_SHARE: usize = 8;
const MIN_REQUESTS: usize = 64;

#[cfg(test)]
mod tests;

/// Share of the memory limit for large heads and responses: one part in this many.
pub(super) const ANSWERS_SHARE: usize = 8;
