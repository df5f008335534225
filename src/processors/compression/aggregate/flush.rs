//! Closes windows, summarizes them, and delivers the summaries.

use tokio::time::Instant;

use super::{Gatherer, Pending, Ready};
use crate::pipeline::batch::Batch;
use crate::pipeline::buffer::{Buffer, BufferingProcessor, Collected, Deliveries};
use crate::pipeline::senders::Senders;
use crate::pipeline::turns::on_a_turn_if_large;
use tributary_otlp::Signal;

impl BufferingProcessor for Gatherer {
    type Gathered = ();
    type Ready = Ready;

    const MAX_DELIVERIES: Deliveries = Deliveries {
        count: 4,
        bytes: usize::MAX,
    };

    fn buffer(&self) -> &Buffer<(), Ready> {
        &self.buffer
    }

    /// Closes the window when it is due, or when the processor is ending.
    async fn collect(&self) -> Collected {
        let mut window = self.window.lock().await;
        // Adding a request checks the same state while the window is locked.
        let (closed, urgent) = {
            let mut state = self.buffer.state();
            (state.closed, state.is_urgent())
        };
        if urgent || window.due.is_some_and(|due| due <= Instant::now()) {
            if window.pending.is_some() {
                self.metrics.in_time.increment(1);
            }
            self.close_window(&mut window);
        }
        Collected {
            due: window.due,
            closed,
        }
    }

    async fn hand_on(&self, ready: Ready) {
        let ready = match ready {
            Ready::Batch(batch, senders) => Some((batch.items(), batch, senders)),
            Ready::Window(pending) => sum_up(self, *pending).await,
        };
        if let Some((items, batch, mut senders)) = ready {
            let merging = self.buffer.merging(items, batch.items(), &senders);
            let outcome = self.buffer.hand_on(batch, &mut senders).await;
            merging.over(&outcome);
            senders.report(&outcome);
        }
    }
}

/// Converts a window into a request. Also returns the number of summarized items. The permit then covers the request
/// only.
async fn sum_up(gatherer: &Gatherer, pending: Pending) -> Option<(usize, Batch, Senders)> {
    let Pending {
        aggregator,
        items,
        mut senders,
        permit,
        others,
    } = pending;
    let summary = on_a_turn_if_large(aggregator.bytes(), move || aggregator.finish()).await?;
    let left = summary.samples;
    gatherer.metrics.saturated.increment(summary.saturated);
    let held = senders.held();
    senders.became(left);
    gatherer.buffer.became(held, senders.held());
    let mut batch = Batch::new(Signal::Profiles, left, summary.request);
    batch.mark_joined();
    if let Some(mut permit) = permit {
        permit.shrink_to(batch.bytes());
        batch.hold(permit);
    }
    // Released only now, because the budget accounts for the current memory, not the future one.
    drop(others);
    Some((items, batch, senders))
}
