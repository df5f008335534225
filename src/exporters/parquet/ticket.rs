//! What becomes of a batch whose rows are in one or several files.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::oneshot;

use super::partition::Key;
use crate::queue::{Identity, Outcome, SendError, Settled};

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
    /// Files that have rows of it, by what belongs into them.
    files: HashSet<Key>,
    finished: Finished,
    failed: Option<SendError>,
}

/// Which batches are in finished files in part, because another file with rows of theirs has failed. When such a
/// batch comes again, what is finished is left out.
pub(super) type Partly = crate::queue::Partly<Finished>;

/// Finished files with rows of a batch, by what belongs into them.
type Finished = HashSet<Key>;

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
                files: state.finished.clone(),
                ..state
            }),
            tell: Some(tell),
            partly: partly.clone(),
        });
        (ticket, outcome)
    }

    /// Whether the rows that belong there are in a file already, finished or not.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.lock().files.contains(key)
    }

    /// A file has all rows of it that belong there.
    pub(super) fn add_file(&self, key: Key) {
        self.lock().files.insert(key);
    }

    /// The file with the rows that belong there is finished.
    pub(super) fn finished(&self, key: &Key) {
        self.lock().finished.insert(key.clone());
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
            None if state.finished.len() == state.files.len() => Ok(Outcome::default()),
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
