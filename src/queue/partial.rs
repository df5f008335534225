//! Progress of partly delivered batches, for senders.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Identity;

/// Progress of partly delivered batches, by their [`identity`](super::Encoded::identity). An entry lives as long as the
/// identity. A retry skips the parts that are already delivered.
#[derive(Debug)]
pub struct PartialDeliveries<T>(Mutex<Vec<(Weak<Identity>, T)>>);

impl<T> Default for PartialDeliveries<T> {
    fn default() -> Self {
        PartialDeliveries(Mutex::default())
    }
}

impl<T> PartialDeliveries<T> {
    /// Removes and returns the progress of the batch, if there is any.
    pub fn take(&self, batch: &Arc<Identity>) -> Option<T> {
        let mut all = self.0.lock();
        // While a weak reference exists, no other batch can have the address.
        let at = all
            .iter()
            .position(|(known, _)| std::ptr::eq(known.as_ptr(), Arc::as_ptr(batch)))?;
        Some(all.swap_remove(at).1)
    }

    /// Records the progress of the batch.
    pub fn remember(&self, batch: &Weak<Identity>, done: T) {
        let mut all = self.0.lock();
        // A batch without strong references was dropped and will not be retried.
        all.retain(|(batch, _)| batch.strong_count() > 0);
        all.push((batch.clone(), done));
    }
}
