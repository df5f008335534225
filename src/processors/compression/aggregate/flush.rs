//! The task that ends windows, sums them up and hands them on.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use super::{Pending, Ready, Shared};
use crate::batch::{Batch, Nack, Progress, Signal};
use crate::processors::offer::{away, offer};
use crate::telemetry::DropReason;
use crate::wire::{self, Limit};

/// How many summaries may wait for the next stage at once, so that one that waits does not hold up the others.
const MAX_UNDER_WAY: usize = 4;

/// Into how many pieces a summary is cut that was refused for good.
const PIECES: usize = 16;

/// Runs until the processor is closed and empty.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut under_way = FuturesUnordered::new();
    loop {
        let (due, closed) = end_window(&shared).await;
        let done = {
            let mut state = shared.state();
            while under_way.len() < MAX_UNDER_WAY
                && let Some(ready) = state.ready.pop_front()
            {
                state.ready_bytes = state.ready_bytes.saturating_sub(ready.bytes());
                under_way.push(hand_on(&shared, ready));
                shared.gone.notify_waiters();
            }
            closed && state.ready.is_empty() && under_way.is_empty()
        };
        if done {
            return;
        }
        tokio::select! {
            () = shared.wake.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(()) = under_way.next() => {}
        }
    }
}

/// Ends the window when it is due, or when there will be no other. Returns when that will be, and whether the processor
/// was closed, so that nothing is added any more.
async fn end_window(shared: &Shared) -> (Option<Instant>, bool) {
    let mut window = shared.window.lock().await;
    // Who adds looks at this while the window is locked, too.
    let closed = shared.state().closed;
    if closed || window.due.is_some_and(|due| due <= Instant::now()) {
        if window.pending.is_some() {
            shared.metrics.in_time.increment(1);
        }
        shared.close_window(&mut window);
    }
    (window.due, closed)
}

async fn hand_on(shared: &Shared, ready: Ready) {
    let batch = match ready {
        Ready::Batch(batch) => Some(batch),
        Ready::Window(pending) => sum_up(shared, *pending).await,
    };
    let Some(mut batch) = batch else {
        return;
    };
    let items = batch.items();
    let progress = Arc::new(Progress::default());
    let (next, closing) = (&shared.next, &shared.closing);
    let Err(nack) = offer(next, closing, batch.clone(), progress.clone()).await else {
        return settle(shared, items);
    };
    let limit = Limit {
        items: items.div_ceil(PIECES),
        bytes: usize::MAX,
    };
    let whole = batch.wire().to_bytes();
    let pieces = wire::split(Signal::Profiles, &whole, limit);
    if pieces.len() < 2 {
        give_up(shared, items, &nack);
        return settle(shared, items);
    }
    warn!(
        error = %nack,
        pieces = pieces.len(),
        "A summary was refused for good. Offering it in pieces."
    );
    for (items, piece) in pieces {
        let piece = batch.remade(items, piece);
        if let Err(nack) = offer(next, closing, piece, Arc::new(progress.fork())).await {
            give_up(shared, items, &nack);
        }
        // One by one: a shutdown in between must count only what is left.
        settle(shared, items);
    }
}

/// A window as a request. Its memory is exactly that request's from here on.
async fn sum_up(shared: &Shared, pending: Pending) -> Option<Batch> {
    let Pending {
        aggregator,
        items,
        permit,
        others,
    } = pending;
    let (bytes, left) = away(aggregator.bytes(), move || aggregator.finish()).await?;
    shared.merged(items, left);
    settle(shared, items.saturating_sub(left));
    let mut batch = Batch::new(Signal::Profiles, left, bytes);
    batch.mark_joined();
    if let Some(mut permit) = permit {
        permit.shrink_to(batch.bytes());
        batch.hold(permit);
    }
    // Given back only now: the budget counts what is here, not what will be.
    drop(others);
    Some(batch)
}

fn give_up(shared: &Shared, items: usize, nack: &Nack) {
    error!(error = %nack, dropped_items = items, "Sender failed. Dropping data.");
    shared.next.account.dropped(items, DropReason::Permanent);
}

fn settle(shared: &Shared, items: usize) {
    let mut state = shared.state();
    state.held = state.held.saturating_sub(items);
}
