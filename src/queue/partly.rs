//! What a sender remembers of batches that it could deliver in part only.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Identity;

/// What is done of batches that come again, by their [`identity`](super::Encoded::identity), for as long as these
/// live. When one comes again, what is done need not be done again.
#[derive(Debug)]
pub struct Partly<T>(Mutex<Vec<(Weak<Identity>, T)>>);

impl<T> Default for Partly<T> {
    fn default() -> Self {
        Partly(Mutex::default())
    }
}

impl<T> Partly<T> {
    /// What is done of the batch, if anything is.
    pub fn take(&self, batch: &Arc<Identity>) -> Option<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // As long as there is a weak reference no other batch has the address.
        let at = all
            .iter()
            .position(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(batch)))?;
        Some(all.swap_remove(at).1)
    }

    /// So much of the batch is done.
    pub fn remember(&self, batch: &Weak<Identity>, done: T) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that were given up do not come again.
        all.retain(|(batch, _)| batch.strong_count() > 0);
        all.push((batch.clone(), done));
    }
}
