//! Permits of requests that are still arriving.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::budget::{Budget, NoRoom, Permit, SMALL_REQUEST};

/// Bytes of one connection for requests that have not arrived completely.
#[derive(Debug, Default)]
pub struct UnfinishedShare(pub(super) AtomicUsize);

/// The permit of a request that is still arriving. See [`Budget::begin`].
#[derive(Debug)]
pub struct UnfinishedPermit<'s> {
    permit: Permit,
    share: &'s UnfinishedShare,
}

impl UnfinishedPermit<'_> {
    /// Grows by `more` bytes, or stays unchanged on error.
    pub fn grow(&mut self, more: usize) -> Result<(), NoRoom> {
        let budget = &*self.permit.budget;
        let (own, limit) = (self.permit.bytes, budget.limit());
        let needed = own.saturating_add(more);
        // Concurrent calls may exceed the share slightly. The budget itself is exact.
        let exceeds = |all: &AtomicUsize, share: usize| {
            let others = all.load(Relaxed).saturating_sub(own);
            others > 0 && others.saturating_add(needed) > share
        };
        let for_all = needed > SMALL_REQUEST && exceeds(&budget.unfinished, limit / 2);
        if for_all || exceeds(&self.share.0, limit / 4) {
            return Err(NoRoom { needed, limit });
        }
        self.permit.grow(more)?;
        self.permit.budget.unfinished.fetch_add(more, Relaxed);
        self.share.0.fetch_add(more, Relaxed);
        Ok(())
    }

    /// Converts the permit of a complete request into an ordinary permit.
    pub fn finish(mut self) -> Permit {
        let nothing = self.permit.budget.empty_permit();
        self.leave();
        std::mem::replace(&mut self.permit, nothing)
    }

    fn leave(&self) {
        let own = self.permit.bytes;
        self.permit.budget.unfinished.fetch_sub(own, Relaxed);
        self.share.0.fetch_sub(own, Relaxed);
    }
}

impl Drop for UnfinishedPermit<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Budget {
    /// Returns a permit that grows with a request as it arrives. `share` belongs to the connection of the request.
    ///
    /// Two rules keep slow and stalled senders from blocking other senders. Beyond its first 64 KiB, an unfinished
    /// request gets memory only while all unfinished requests together have less than half of the budget. The other
    /// half stays free for small and complete requests. All unfinished requests of one connection together get a
    /// quarter. Neither rule applies to the only unfinished request, because otherwise a small budget could never
    /// accept a large request.
    pub fn begin<'s>(self: &Arc<Self>, share: &'s UnfinishedShare) -> UnfinishedPermit<'s> {
        UnfinishedPermit {
            permit: self.empty_permit(),
            share,
        }
    }
}
