//! The account of incoming items until the queue accepts or refuses them.

use std::sync::Arc;

use super::delivery::Delivery;
use super::ledger::Ledger;
use crate::pipeline::account::{Decided, DropReason, Pending};

/// Incoming items that the queue has neither accepted nor refused yet.
pub(super) struct Arrival(Pending<Arc<Ledger>>);

impl Decided for Arc<Ledger> {
    /// Does nothing: the entries of the queue count accepted items.
    fn accepted(&self, _items: usize) {}

    fn refused(&self, items: usize) {
        self.metrics.refused(items);
    }
}

impl Arrival {
    /// Counts incoming items. On drop, the items count as refused.
    pub(super) fn new(ledger: &Arc<Ledger>, items: usize) -> Self {
        ledger.metrics.received(items);
        Arrival(Pending::new(ledger.clone(), items))
    }

    pub(super) fn items(&self) -> usize {
        self.0.items()
    }

    /// Counts the items as dropped, because the queue is full and configured to drop.
    pub(super) fn dropped(self, delivery: &Delivery) {
        let items = self.items();
        self.accepted().dropped(items, DropReason::QueueFull);
        delivery.log_full(items, true);
    }

    /// Ends this account, because the queue has accepted the items.
    pub(super) fn accepted(self) -> Arc<Ledger> {
        let ledger = self.0.counters().clone();
        self.0.accepted();
        ledger
    }
}
