//! Delivery of flushed data to the next stage, and its account.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::{error, warn};

use super::Holding;
use super::ready::Bytes;
use crate::pipeline::account::{Account, DropReason};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::offer::{Last, offer};
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::split::{Fault, Search};

impl<G, R: Bytes> Holding<G, R> {
    /// Offers a batch to the next stage until the stage accepts it. The batch is offered only once if all of its
    /// senders wait and some cannot wait for long, and not at all if all have stopped waiting. If the batch is
    /// refused permanently, its parts are offered instead, so that the data at fault does not take other data with
    /// it. The data at fault is dropped. A batch that cannot be split is returned to its only sender.
    ///
    /// # Errors
    ///
    /// The refusal for the senders that wait.
    pub(crate) async fn hand_on(
        &self,
        mut batch: Batch,
        senders: &mut Senders,
    ) -> Result<(), Nack> {
        let last = Last {
            first: senders.need_outcome_soon(),
            at_the_end: senders.all_wait(),
        };
        if senders.have_stopped_waiting() {
            return Err(Nack::unavailable(CLOSED));
        }
        batch.progress = Some(Arc::default());
        let budget = batch.memory().first().map(|permit| permit.budget().clone());
        let (mut search, mut is_whole) = (Search::default(), true);
        let mut todo = VecDeque::from([batch]);
        while let Some(mut batch) = todo.pop_front() {
            let items = batch.items();
            batch.persisted_upstream = senders.persisted_upstream();
            let nack = match offer(&self.next, &self.closing, &batch, last).await {
                Ok(()) => {
                    search.accepted();
                    // Settled one by one, so that a shutdown in between counts only the remaining parts.
                    self.release(senders.passed(items));
                    continue;
                }
                Err(nack) if nack.retryable => return Err(nack),
                Err(nack) => nack,
            };
            match search.refused(batch, Fault::of(nack.code), budget.as_ref()) {
                Ok(parts) => {
                    if is_whole {
                        warn!(error = %nack, "The next stage refused a merged batch permanently; sending its \
                                              requests separately.");
                    }
                    is_whole = false;
                    todo.extend(parts);
                }
                Err(_) if is_whole && senders.is_single_waiting_sender() => return Err(nack),
                Err(_) => {
                    self.give_up(items, &nack);
                    self.release(senders.passed(items));
                }
            }
        }
        Ok(())
    }

    fn give_up(&self, items: usize, nack: &Nack) {
        error!(error = %nack, dropped_items = items, "Sender failed. Dropping data.");
        self.next.account.dropped(items, DropReason::Permanent);
    }

    /// Counts items that were merged into others.
    pub(crate) fn merged(&self, before: usize, after: usize) {
        let fewer = before.saturating_sub(after);
        if fewer > 0 {
            self.next.account.dropped(fewer, DropReason::Merged);
        }
    }

    /// Counts items of these senders that are merged into others. If all senders wait, the items are counted only once
    /// the merged items have been delivered.
    pub(crate) fn merging(&self, before: usize, after: usize, senders: &Senders) -> Merging<'_> {
        let waits = senders.all_wait();
        if !waits {
            self.merged(before, after);
        }
        Merging {
            account: &self.next.account,
            fewer: if waits {
                before.saturating_sub(after)
            } else {
                0
            },
        }
    }
}

/// Items that are being merged into others. See [`Holding::merging`].
pub(crate) struct Merging<'a> {
    account: &'a Account,
    fewer: usize,
}

impl Merging<'_> {
    /// Records the outcome of the merged items.
    pub(crate) fn over(self, outcome: &Result<(), Nack>) {
        if outcome.is_ok() && self.fewer > 0 {
            self.account.dropped(self.fewer, DropReason::Merged);
        }
    }
}
