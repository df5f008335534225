//! Tracks the outcome of a batch whose rows are in one or several files.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::partition::Key;
use crate::queue::{Identity, LaterOutcome, Outcome, SendError};

/// The rows of a batch for one file. A batch with rows for more files than may be open is written
/// in several steps, each with a limited number of partitions. The assignment depends on the batch
/// alone, so a repeated batch has the same shares.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Share {
    pub(super) key: Key,
    pub(super) step: usize,
}

/// An accepted batch. Every file with rows of the batch has a clone; dropping the last clone
/// reports the outcome to the queue.
pub(super) struct Ticket {
    batch: Weak<Identity>,
    state: Mutex<State>,
    tell: Option<oneshot::Sender<Result<Outcome, SendError>>>,
    partial: Arc<PartialDeliveries>,
}

#[derive(Default)]
struct State {
    /// Shares of the batch that are in files.
    written: HashSet<Share>,
    finished: Finished,
    failed: Option<SendError>,
    /// Whether rows are in shared partitions. The partitions that share a file may differ when the
    /// batch comes again, so all its rows are written again then.
    has_overflow: bool,
}

/// Batches that are only partly in finished files because another file with some of their rows
/// failed. When such a batch is retried, its finished shares are skipped.
pub(super) type PartialDeliveries = crate::queue::PartialDeliveries<Finished>;

type Finished = HashSet<Share>;

impl Ticket {
    /// Returns a ticket for the batch of that identity, and the outcome that the queue waits for.
    pub(super) fn new(
        batch: &Arc<Identity>,
        partial: &Arc<PartialDeliveries>,
    ) -> (Arc<Self>, LaterOutcome) {
        let (tell, outcome) = oneshot::channel();
        let state = State {
            finished: partial.take(batch).unwrap_or_default(),
            ..State::default()
        };
        let ticket = Arc::new(Ticket {
            batch: Arc::downgrade(batch),
            state: Mutex::new(State {
                written: state.finished.clone(),
                ..state
            }),
            tell: Some(tell),
            partial: partial.clone(),
        });
        (ticket, outcome)
    }

    /// Whether the share is in a file already, finished or not.
    pub(super) fn has(&self, share: &Share) -> bool {
        self.lock().written.contains(share)
    }

    /// Whether any rows are in a file.
    pub(super) fn has_rows(&self) -> bool {
        !self.lock().written.is_empty()
    }

    /// Records that rows of the batch are in shared partitions.
    pub(super) fn overflows(&self) {
        self.lock().has_overflow = true;
    }

    pub(super) fn written(&self, share: Share) {
        self.lock().written.insert(share);
    }

    pub(super) fn finished(&self, share: Share) {
        self.lock().finished.insert(share);
    }

    /// Records that a file with rows of the batch is lost.
    pub(super) fn failed(&self, error: &SendError) {
        self.lock().failed.get_or_insert_with(|| error.clone());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let state = std::mem::take(state);
        let Some(tell) = self.tell.take() else {
            return;
        };
        let is_complete = state.finished.len() == state.written.len();
        let finished = match state.has_overflow {
            true => Finished::default(),
            false => state.finished,
        };
        let outcome = match state.failed {
            None if is_complete => Ok(Outcome::default()),
            // A shutdown dropped a file without an outcome. Dropping `tell` informs the queue.
            None => {
                self.partial.remember(&self.batch, finished);
                return;
            }
            Some(error) => {
                self.partial.remember(&self.batch, finished);
                Err(error)
            }
        };
        // The receiver is gone if the client has disconnected.
        let _ = tell.send(outcome);
    }
}
