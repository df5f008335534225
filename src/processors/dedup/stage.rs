//! The stage: duplicates are dropped, items in flight are waited for, and all other items are
//! forwarded and remembered once they are accepted.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::Config;
use super::keys::{DUPLICATE, NONE};
use super::memory::Memory;
use super::offer::Offer;
use crate::component::BuildContext;
use crate::pipeline::Consumer;
use crate::pipeline::Next;
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack, PersistedUpstream};
use futures_util::future::BoxFuture;
use tributary_memory::Budget;
use tributary_otlp::Signal;

/// The processor in its pipeline.
pub(super) struct Dedup {
    memory: Arc<Memory>,
    budget: Arc<Budget>,
    next: Next,
}

/// Memory of an item while it is examined and in flight, in bytes: its key in a list and, at worst,
/// in two tables that have just grown.
const ITEM_BYTES: usize = 16 + 2 * 80;

impl Dedup {
    pub(super) fn new(config: &Config, cx: &BuildContext, signal: Signal, next: Next) -> Self {
        Dedup {
            memory: Memory::of(config, cx, signal),
            budget: cx.budget.clone(),
            next,
        }
    }

    async fn deliver(&self, batch: Batch) -> Result<(), Nack> {
        let before = batch.items();
        let mut offer = Offer::new(&batch, &self.memory.keys);
        let mut known = match batch.signal() {
            Signal::Profiles => self.drop_requests(&mut offer),
            _ => 0,
        };
        if offer.is_empty() {
            self.dropped(known, 0);
            return Ok(());
        }
        let examined = before.saturating_sub(known);
        let needed = examined.saturating_mul(ITEM_BYTES);
        let Ok(mut working) = self.budget.acquire(needed) else {
            // Forward without examination: duplicates are better than losses.
            self.memory.metrics.unexamined.increment(examined as u64);
            let (items, requests) = (examined, offer.requests());
            self.next
                .consumer
                .consume(batch.with_wire(items, requests))
                .await?;
            self.dropped(known, 0);
            return Ok(());
        };
        let keys = &self.memory.keys;
        let unexamined = offer.examine(examined, keys, &self.budget).await;
        if unexamined > 0 {
            let metrics = &self.memory.metrics;
            metrics.unexamined.increment(unexamined as u64);
        }
        if batch.signal() != Signal::Profiles {
            known += self.drop_requests(&mut offer);
            if offer.is_empty() {
                self.dropped(known, 0);
                return Ok(());
            }
        }
        let persisted_upstream = batch.persisted_upstream.clone();
        let claim = self.claim(&mut offer, persisted_upstream.as_deref()).await;
        // Replace the estimated size by the actual size before the next steps, which may take long.
        working.shrink_to(claim.keys.len().saturating_mul(ITEM_BYTES));
        let rest = offer.rest(&claim.keys, &self.budget).await;
        if !rest.requests.is_empty() {
            let items = before.saturating_sub(known + rest.dropped);
            let batch = batch.with_wire(items, rest.requests);
            self.next.consumer.consume(batch).await?;
        }
        claim.accepted();
        self.dropped(known, rest.dropped);
        Ok(())
    }

    /// Drops requests that are duplicates as a whole; returns the number of their items.
    fn drop_requests(&self, offer: &mut Offer) -> usize {
        let mut state = self.memory.state();
        state.seen.advance(Instant::now());
        offer.drop_requests(|key| state.seen.contains(key))
    }

    /// Marks duplicates, and registers all other items as in flight. Waits while another delivery
    /// has some of them in flight.
    async fn claim(
        &self,
        offer: &mut Offer,
        persisted_upstream: Option<&PersistedUpstream>,
    ) -> Claim<'_> {
        loop {
            let settled = self.memory.settled.notified();
            if let Some((delivery, count)) = self.memory.state().claim(&mut offer.keys) {
                let keys = std::mem::take(&mut offer.keys);
                return Claim {
                    memory: &self.memory,
                    delivery,
                    count,
                    requests: offer.request_keys(&keys),
                    keys,
                    accepted: false,
                };
            }
            if let Some(persisted_upstream) = persisted_upstream {
                // Waiting for the other delivery may take as long as that delivery.
                persisted_upstream.mark_buffered();
            }
            settled.await;
        }
    }

    fn dropped(&self, by_request: usize, by_item: usize) {
        if by_request + by_item > 0 {
            let metrics = &self.memory.metrics;
            metrics.by_request.increment(by_request as u64);
            metrics.by_item.increment(by_item as u64);
            let account = &self.next.account;
            account.dropped(by_request + by_item, DropReason::Duplicate);
        }
    }
}

impl Consumer for Dedup {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(self.deliver(batch))
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.consumer.clone()]
    }
}

/// Keys of a delivery in flight. Unless the delivery is accepted, its keys are released.
struct Claim<'a> {
    memory: &'a Memory,
    delivery: u64,
    /// Keys of all items, including [`NONE`] and [`DUPLICATE`], and the number of all other keys.
    keys: Vec<u128>,
    count: usize,
    /// Keys of whole requests.
    requests: SmallVec<[u128; 1]>,
    accepted: bool,
}

impl Claim<'_> {
    fn accepted(mut self) {
        self.accepted = true;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.memory.state();
        let state = &mut *state;
        if !state.in_flight.clear(self.count) {
            state.in_flight.release(&self.keys, self.delivery);
        }
        if self.accepted {
            let pass = |key: &u128| *key != DUPLICATE && *key != NONE;
            let keys = self.keys.iter().copied().filter(pass);
            let requests = self.requests.iter().copied();
            state.seen.remember(keys.chain(requests), Instant::now());
        }
        self.memory.metrics.tell(state);
        self.memory.settled.notify_waiters();
    }
}
