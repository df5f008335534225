//! Single flight: several processors with the same cache do not fetch the same binary twice.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::build_id::BuildId;

type Flights = HashMap<(PathBuf, BuildId), Weak<Turn<()>>>;

/// Fetches in progress, by cache directory. Global, because pipelines share a cache but no other state.
static FLIGHTS: LazyLock<Mutex<Flights>> = LazyLock::new(Mutex::default);

/// Permission to fetch a build id; exclusive until dropped.
pub(super) struct Flight {
    waited: bool,
    _turn: OwnedMutexGuard<()>,
}

impl Flight {
    /// Whether another fetch was in progress; if so, the file may be in the cache now.
    pub(super) fn has_waited(&self) -> bool {
        self.waited
    }
}

/// Waits until no other fetch of this build id into this directory is in progress.
pub(super) async fn enter(directory: &Path, id: &BuildId) -> Flight {
    let turn = {
        let mut flights = FLIGHTS.lock();
        flights.retain(|_, turn| turn.strong_count() > 0);
        let known = flights.entry((directory.to_owned(), id.clone()));
        let known = known.or_default();
        match known.upgrade() {
            Some(turn) => turn,
            None => {
                let turn = Arc::new(Turn::new(()));
                *known = Arc::downgrade(&turn);
                turn
            }
        }
    };
    match turn.clone().try_lock_owned() {
        Ok(turn) => Flight {
            waited: false,
            _turn: turn,
        },
        Err(_) => Flight {
            waited: true,
            _turn: turn.lock_owned().await,
        },
    }
}
