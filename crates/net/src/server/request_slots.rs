//! The open requests of one connection.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Peer;
use super::gate::{Gate, Network, enter};
use tributary_memory::clients::FREE_REQUESTS;

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
        self.release_beyond(open);
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
    pub(super) fn release_beyond(&mut self, open: usize) {
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
        self.release_beyond(0);
    }
}

impl Gate {
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
}

/// Requests without a slot that one connection may have open until their refusals are sent. A client that reads its
/// responses frees these slots at once.
pub(super) const MAX_REFUSALS: usize = 4;
