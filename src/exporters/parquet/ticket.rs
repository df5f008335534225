//! What becomes of a batch whose rows are in one or several files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

use super::partition::Key;
use crate::queue::{Outcome, SendError, Settled};

/// A batch that was taken over. Every file that has rows of it has a clone; the last one that is dropped tells the
/// queue.
pub(super) struct Ticket {
    batch: Weak<()>,
    state: Mutex<State>,
    tell: Option<oneshot::Sender<Result<Outcome, SendError>>>,
    partly: Arc<Partly>,
}

#[derive(Default)]
struct State {
    /// Files that have rows of it.
    files: usize,
    finished: Finished,
    failed: Option<SendError>,
}

/// Which batches are in finished files in part, because another file with rows of theirs has failed. When such a
/// batch comes again, what is finished is left out.
pub(super) type Partly = crate::queue::Partly<Finished>;

/// Finished files with rows of a batch, by what belongs into them.
type Finished = Vec<Key>;

impl Ticket {
    /// A ticket for the batch of that identity, and what the queue waits for.
    pub(super) fn new(batch: &Arc<()>, partly: &Arc<Partly>) -> (Arc<Self>, Settled) {
        let (tell, outcome) = oneshot::channel();
        let state = State {
            finished: partly.take(batch).unwrap_or_default(),
            ..State::default()
        };
        let ticket = Arc::new(Ticket {
            batch: Arc::downgrade(batch),
            state: Mutex::new(State {
                files: state.finished.len(),
                ..state
            }),
            tell: Some(tell),
            partly: partly.clone(),
        });
        (ticket, outcome)
    }

    /// Whether the rows that belong there are in a finished file already.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.lock().finished.contains(key)
    }

    /// Another file has rows of it.
    pub(super) fn add_file(&self) {
        self.lock().files += 1;
    }

    /// The file with the rows that belong there is finished.
    pub(super) fn finished(&self, key: &Key) {
        self.lock().finished.push(key.clone());
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
            None if state.finished.len() == state.files => Ok(Outcome::default()),
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
