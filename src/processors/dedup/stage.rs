//! The stage: what is known is dropped, what is under way is waited for, the rest goes on and is known once it was
//! accepted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, counter, gauge};
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Config;
use super::keys::{DUPLICATE, Keys, NONE};
use super::offer::Offer;
use super::seen::{Seen, Taken, UnderWay};
use crate::batch::{Batch, Nack, Signal};
use crate::component::{BuildContext, Next};
use crate::memory::Budget;
use crate::pipeline::{BoxFuture, Consumer};
use crate::telemetry::DropReason;

/// The processor in its pipeline.
pub(super) struct Dedup {
    keys: Keys,
    budget: Arc<Budget>,
    next: Next,
    metrics: Metrics,
    /// A plain mutex: it is held for some look-ups per item and never across an await.
    state: Mutex<State>,
    /// Told when the outcome of a delivery is known.
    settled: Notify,
}

struct State {
    seen: Seen,
    under_way: UnderWay,
    /// How many deliveries there were.
    deliveries: u64,
    /// What the metrics have been told.
    told: (usize, u64),
}

/// What one item takes while it is examined and under way, in bytes: its key in a list and, at worst, in two tables
/// that have just grown.
const ITEM_BYTES: usize = 16 + 2 * 80;

impl Dedup {
    pub(super) fn new(config: &Config, cx: &BuildContext, signal: Signal, next: Next) -> Self {
        // Nothing always fits.
        let permit = cx.budget.nothing();
        let max_bytes = config.max_bytes.as_usize();
        Dedup {
            keys: Keys::new(config.ignore_resource_attributes.clone()),
            budget: cx.budget.clone(),
            next,
            metrics: Metrics::new(cx, signal),
            state: Mutex::new(State {
                seen: Seen::new(config.window.0, max_bytes, permit),
                under_way: UnderWay::default(),
                deliveries: 0,
                told: (0, 0),
            }),
            settled: Notify::new(),
        }
    }

    async fn deliver(&self, mut batch: Batch) -> Result<(), Nack> {
        let before = batch.items();
        let mut offer = Offer::new(&mut batch, &self.keys);
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
        let Ok(_working) = self.budget.acquire(needed) else {
            // Better twice than not at all: nobody knows whether there will be memory later.
            self.metrics.unexamined.increment(examined as u64);
            let (items, requests) = (examined, offer.requests());
            self.next
                .consumer
                .consume(batch.with_wire(items, requests))
                .await?;
            self.dropped(known, 0);
            return Ok(());
        };
        let unexamined = offer.examine(examined, &self.keys, &self.budget).await;
        if unexamined > 0 {
            self.metrics.unexamined.increment(unexamined as u64);
        }
        if batch.signal() != Signal::Profiles {
            known += self.drop_requests(&mut offer);
            if offer.is_empty() {
                self.dropped(known, 0);
                return Ok(());
            }
        }
        let claim = self.claim(&mut offer).await;
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

    /// Drops requests that were delivered before as a whole; returns how many items they have.
    fn drop_requests(&self, offer: &mut Offer) -> usize {
        let mut state = self.state();
        state.seen.advance(Instant::now());
        offer.drop_requests(|key| state.seen.contains(key))
    }

    /// Marks duplicates, and puts the others down as under way; waits while some of them are on another's way.
    async fn claim(&self, offer: &mut Offer) -> Claim<'_> {
        loop {
            let settled = self.settled.notified();
            if let Some((delivery, count)) = self.state().claim(&mut offer.keys) {
                let keys = std::mem::take(&mut offer.keys);
                return Claim {
                    dedup: self,
                    delivery,
                    count,
                    requests: offer.request_keys(&keys),
                    keys,
                    accepted: false,
                };
            }
            settled.await;
        }
    }

    fn dropped(&self, by_request: usize, by_item: usize) {
        if by_request + by_item > 0 {
            self.metrics.by_request.increment(by_request as u64);
            self.metrics.by_item.increment(by_item as u64);
            let account = &self.next.account;
            account.dropped(by_request + by_item, DropReason::Duplicate);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Consumer for Dedup {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(self.deliver(batch))
    }
}

impl Drop for Dedup {
    fn drop(&mut self) {
        let (remembered, _) = self.state().told;
        self.metrics.remembered.decrement(remembered as f64);
    }
}

impl State {
    /// The number of a new delivery and how many keys it has, if none of them is under way in another one: those that are
    /// known have been replaced by [`DUPLICATE`], the others are under way now.
    fn claim(&mut self, keys: &mut [u128]) -> Option<(u64, usize)> {
        self.deliveries += 1;
        let delivery = self.deliveries;
        // First all that has to be fetched from far: one by one it would be waited for each time.
        for key in keys.iter_mut() {
            if self.seen.contains(*key) {
                *key = DUPLICATE;
            }
        }
        let mut other = None;
        let mut count = 0;
        for (at, key) in keys.iter_mut().enumerate() {
            if *key == NONE || *key == DUPLICATE {
                continue;
            }
            match self.under_way.take(*key, delivery) {
                Ok(()) => count += 1,
                Err(Taken::Own) => *key = DUPLICATE,
                Err(Taken::Other) => {
                    other = Some(at);
                    break;
                }
            }
        }
        let Some(at) = other else {
            return Some((delivery, count));
        };
        // Who waits holds nothing: else two could wait for each other.
        let taken = keys.get(..at).unwrap_or_default();
        self.under_way.give_back(taken, delivery);
        None
    }
}

/// The keys of a delivery that is under way. Unless it is accepted, it leaves no trace.
struct Claim<'a> {
    dedup: &'a Dedup,
    delivery: u64,
    /// Those of all items, with [`NONE`] and [`DUPLICATE`] among them, and how many there are besides these.
    keys: Vec<u128>,
    count: usize,
    /// Those of whole requests.
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
        let mut state = self.dedup.state();
        let state = &mut *state;
        if !state.under_way.clear(self.count) {
            state.under_way.give_back(&self.keys, self.delivery);
        }
        if self.accepted {
            let pass = |key: &u128| *key != DUPLICATE && *key != NONE;
            let keys = self.keys.iter().copied().filter(pass);
            let requests = self.requests.iter().copied();
            state.seen.remember(keys.chain(requests), Instant::now());
        }
        self.dedup.metrics.tell(state);
        self.dedup.settled.notify_waiters();
    }
}

struct Metrics {
    by_request: Counter,
    by_item: Counter,
    unexamined: Counter,
    remembered: Gauge,
    forgotten: Counter,
}

impl Metrics {
    fn new(cx: &BuildContext, signal: Signal) -> Self {
        let labels = [
            ("processor", cx.id.to_string()),
            ("otel_signal", signal.name().to_owned()),
        ];
        let duplicates = |known_by: &str| {
            let known_by = [("known_by", known_by.to_owned())];
            let labels: Vec<_> = labels.iter().cloned().chain(known_by).collect();
            counter!("tributary_processor_dedup_duplicate_items", &labels)
        };
        Metrics {
            by_request: duplicates("request"),
            by_item: duplicates("item"),
            unexamined: counter!("tributary_processor_dedup_unexamined_items", &labels),
            remembered: gauge!("tributary_processor_dedup_remembered_items", &labels),
            forgotten: counter!("tributary_processor_dedup_forgotten_items", &labels),
        }
    }

    fn tell(&self, state: &mut State) {
        let (remembered, forgotten) = (state.seen.len(), state.seen.forgotten());
        let (before, forgotten_before) = state.told;
        if remembered != before {
            self.remembered.increment(remembered as f64 - before as f64);
        }
        if forgotten != forgotten_before {
            self.forgotten.increment(forgotten - forgotten_before);
        }
        state.told = (remembered, forgotten);
    }
}
