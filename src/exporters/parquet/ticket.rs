//! What becomes of a batch whose rows are in one or several files.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

use super::partition::Key;
use crate::queue::{Identity, Outcome, SendError, Settled};

/// The rows of a batch that go into one file. A batch with rows for more files than may be open has them in several
/// steps, each with so many partitions; which rows these are follows from the batch alone, so it is the same when the
/// batch comes again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Share {
    pub(super) key: Key,
    pub(super) step: usize,
}

/// A batch that was taken over. Every file that has rows of it has a clone; the last one that is dropped tells the
/// queue.
pub(super) struct Ticket {
    batch: Weak<Identity>,
    state: Mutex<State>,
    tell: Option<oneshot::Sender<Result<Outcome, SendError>>>,
    partly: Arc<Partly>,
}

#[derive(Default)]
struct State {
    /// What of it is in files.
    written: HashSet<Share>,
    finished: Finished,
    failed: Option<SendError>,
}

/// Which batches are in finished files in part, because another file with rows of theirs has failed. When such a
/// batch comes again, what is finished is left out.
pub(super) type Partly = crate::queue::Partly<Finished>;

/// What of a batch is in finished files.
type Finished = HashSet<Share>;

impl Ticket {
    /// A ticket for the batch of that identity, and what the queue waits for.
    pub(super) fn new(batch: &Arc<Identity>, partly: &Arc<Partly>) -> (Arc<Self>, Settled) {
        let (tell, outcome) = oneshot::channel();
        let state = State {
            finished: partly.take(batch).unwrap_or_default(),
            ..State::default()
        };
        let ticket = Arc::new(Ticket {
            batch: Arc::downgrade(batch),
            state: Mutex::new(State {
                written: state.finished.clone(),
                ..state
            }),
            tell: Some(tell),
            partly: partly.clone(),
        });
        (ticket, outcome)
    }

    /// Whether these rows are in a file already, finished or not.
    pub(super) fn has(&self, share: &Share) -> bool {
        self.lock().written.contains(share)
    }

    /// Whether any rows are in a file.
    pub(super) fn has_rows(&self) -> bool {
        !self.lock().written.is_empty()
    }

    /// A file has these rows.
    pub(super) fn written(&self, share: Share) {
        self.lock().written.insert(share);
    }

    /// The file with these rows is finished.
    pub(super) fn finished(&self, share: Share) {
        self.lock().finished.insert(share);
    }

    /// A file with rows of it is lost.
    pub(super) fn failed(&self, error: &SendError) {
        self.lock().failed.get_or_insert_with(|| error.clone());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let state = std::mem::take(state.unwrap_or_else(PoisonError::into_inner));
        let Some(tell) = self.tell.take() else {
            return;
        };
        let outcome = match state.failed {
            None if state.finished.len() == state.written.len() => Ok(Outcome::default()),
            // A file was given up without a word, in the shutdown. Then the queue learns of it by `tell` being dropped.
            None => {
                self.partly.remember(&self.batch, state.finished);
                return;
            }
            Some(error) => {
                self.partly.remember(&self.batch, state.finished);
                Err(error)
            }
        };
        // Nobody listens when the client has gone.
        let _ = tell.send(outcome);
    }
}
