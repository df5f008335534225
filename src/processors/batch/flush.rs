//! The task that hands finished batches on, and tries again.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::{Shared, profiles};
use crate::batch::{Batch, Nack, Progress};
use crate::processors::offer::offer;
use crate::telemetry::DropReason;
use crate::wire;

/// How many batches may wait for the next stage at once, so that one that waits does not hold up the others.
pub(super) const MAX_UNDER_WAY: usize = 8;

/// Runs until the processor is closed and empty.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut under_way = FuturesUnordered::new();
    let mut bytes_under_way = 0;
    loop {
        let (due, done) = {
            let mut state = shared.state();
            let due = state.collect_due(&shared, Instant::now());
            while let Some(batch) = state.next_ready(under_way.len(), bytes_under_way) {
                let bytes = batch.bytes();
                bytes_under_way += bytes;
                let handed_on = hand_on(&shared, batch);
                under_way.push(async move {
                    handed_on.await;
                    bytes
                });
                shared.gone.notify_waiters();
            }
            (
                due,
                state.closed && state.ready.is_empty() && under_way.is_empty(),
            )
        };
        if done {
            return;
        }
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(bytes) = under_way.next() => bytes_under_way -= bytes,
        }
    }
}

async fn hand_on(shared: &Shared, batch: Batch) {
    for (batch, parts) in profiles::whole(batch, shared.sizes.most).await {
        hand_on_one(shared, batch, parts).await;
    }
}

/// Hands on a batch that was made of the requests in `parts`.
async fn hand_on_one(shared: &Shared, batch: Batch, parts: Batch) {
    shared.metrics.send_size.record(batch.items() as f64);
    shared.metrics.send_size_bytes.record(batch.bytes() as f64);
    let progress = Arc::new(Progress::default());
    let items = batch.items();
    let (next, closing) = (&shared.next, &shared.closing);
    let Err(nack) = offer(next, closing, batch, progress.clone()).await else {
        return settle(shared, items);
    };
    let batch = parts;
    let requests = batch.clone().into_wire();
    if requests.parts().len() == 1 {
        give_up(shared, batch.items(), &nack);
        return settle(shared, batch.items());
    }
    warn!(
        error = %nack,
        requests = requests.parts().len(),
        "A batch was refused for good. Offering its requests one by one."
    );
    for part in requests.into_parts() {
        let items = wire::count(batch.signal(), &part);
        let part = batch.clone().with_wire(items, part);
        if let Err(nack) = offer(next, closing, part, Arc::new(progress.fork())).await {
            give_up(shared, items, &nack);
        }
        // One by one: a shutdown in between must count only what is left.
        settle(shared, items);
    }
}

fn give_up(shared: &Shared, items: usize, nack: &Nack) {
    error!(error = %nack, dropped_items = items, "Sender failed. Dropping data.");
    shared.next.account.dropped(items, DropReason::Permanent);
}

fn settle(shared: &Shared, items: usize) {
    let mut state = shared.state();
    state.held = state.held.saturating_sub(items);
}
