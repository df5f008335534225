//! Accounting for the memory of frames and responses.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::Peer;
use super::gate::{ANSWERS_SHARE, Gate, Network};
use tributary_memory::Budget;

/// Purpose of bytes that are counted in addition to the budget's permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ByteKind {
    Frame,
    Answer,
}

/// The right to hold bytes in addition to the budget's permits, released on drop.
#[derive(Debug)]
pub(super) struct BufferedBytes {
    budget: Arc<Budget>,
    network: Option<Arc<Network>>,
    kind: ByteKind,
    pub(super) bytes: usize,
}

impl BufferedBytes {
    fn new(gate: &Gate, peer: &Peer, kind: ByteKind, bytes: usize) -> Self {
        let buffered = BufferedBytes {
            budget: gate.budget.clone(),
            network: peer.network.clone(),
            kind,
            bytes,
        };
        buffered.of_all().fetch_add(bytes, Relaxed);
        if let Some(of_network) = buffered.of_network() {
            of_network.fetch_add(bytes, Relaxed);
        }
        buffered
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

    /// Returns the bytes of this kind that other holders have.
    fn other_bytes(&self) -> usize {
        self.of_all().load(Relaxed).saturating_sub(self.bytes)
    }

    /// Returns the bytes of this kind for the client's network, without this value.
    fn bytes_of_network(&self) -> usize {
        let all = self.of_network().map_or(0, |count| count.load(Relaxed));
        all.saturating_sub(self.bytes)
    }
}

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.of_all().fetch_sub(self.bytes, Relaxed);
        if let Some(of_network) = self.of_network() {
            of_network.fetch_sub(self.bytes, Relaxed);
        }
    }
}

/// Share of the memory limit for partly received frames (one part in this many), and its minimum in bytes.
pub(super) const FRAMES_SHARE: usize = 8;
pub(super) const MIN_FRAMES_BYTES: usize = 4 << 20;

impl Gate {
    /// Takes a slot for a large, partly received frame. Returns `None` if there are too many such frames. One network
    /// gets half of the slots, so that a client that never completes its frames cannot block all other clients.
    pub(super) fn begin_frame(&self, peer: &Peer, bytes: usize) -> Option<BufferedBytes> {
        let most = (self.budget.limit() / FRAMES_SHARE).max(MIN_FRAMES_BYTES);
        let buffered = BufferedBytes::new(self, peer, ByteKind::Frame, bytes);
        let (before, of_network) = (buffered.other_bytes(), buffered.bytes_of_network());
        (before.saturating_add(bytes) <= most && of_network.saturating_add(bytes) <= most / 2)
            .then_some(buffered)
    }

    /// Takes a slot for a large head or response. Returns `None` if there are too many. One network gets half of the
    /// slots. A single large item is always allowed: otherwise a page above the limit could never be sent.
    pub(super) fn begin_answer(&self, peer: &Peer, bytes: usize) -> Option<BufferedBytes> {
        let most = self.budget.limit() / ANSWERS_SHARE;
        let buffered = BufferedBytes::new(self, peer, ByteKind::Answer, bytes);
        let fits = |others: usize, most| others == 0 || others.saturating_add(bytes) <= most;
        (fits(buffered.other_bytes(), most) && fits(buffered.bytes_of_network(), most / 2))
            .then_some(buffered)
    }
}
