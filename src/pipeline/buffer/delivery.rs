//! Delivery of flushed data to the next stage, and its account.

use std::collections::VecDeque;
use std::sync::Arc;

use tracing::{error, warn};

use super::Buffer;
use super::ready::Buffered;
use crate::pipeline::account::{Account, DropReason};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::offer::{FinalRefusal, offer};
use crate::pipeline::senders::{CLOSED, Senders};
use crate::pipeline::split::{Fault, Search};

impl<G, R: Buffered> Buffer<G, R> {
    /// Offers a batch to the next stage until the stage accepts it. If all senders wait and some of them cannot wait
    /// for long, the batch is offered only once. If all senders have stopped waiting, the batch is not offered. If the
    /// batch is refused permanently, its parts are offered separately and only the data at fault is dropped. A batch of
    /// a single waiting sender that cannot be split is refused to this sender.
    ///
    /// # Errors
    ///
    /// The refusal for the senders that wait.
    pub(crate) async fn hand_on(
        &self,
        mut batch: Batch,
        senders: &mut Senders,
    ) -> Result<(), Nack> {
        let last = FinalRefusal {
            first: senders.need_outcome_soon(),
            when_closing: senders.all_wait(),
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
                    // Release each part separately, so that a shutdown in between counts only the remaining parts.
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
                    self.drop_items(items, &nack);
                    self.release(senders.passed(items));
                }
            }
        }
        Ok(())
    }

    fn drop_items(&self, items: usize, nack: &Nack) {
        error!(error = %nack, dropped_items = items, "Sender failed. Dropping data.");
        self.next.account.dropped(items, DropReason::Permanent);
    }

    /// Counts items that were merged into other items.
    pub(crate) fn merged(&self, before: usize, after: usize) {
        let fewer = before.saturating_sub(after);
        if fewer > 0 {
            self.next.account.dropped(fewer, DropReason::Merged);
        }
    }

    /// Counts items of these senders that are merged into other items. If all senders wait, the items are counted only
    /// after the merged items have been delivered.
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

/// Items that are being merged into other items. See [`Buffer::merging`].
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
