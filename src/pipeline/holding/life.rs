//! Lifecycle of a processor that buffers data, and its task that delivers flushed data.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::ready::{Bytes as _, Deliveries};
use super::{Collected, Holder};
use crate::pipeline::account::DropReason;
use crate::pipeline::{Component, Undelivered};

/// The task that delivers flushed data. Runs until the processor is closed and empty.
async fn flush<H: Holder>(holder: Arc<H>) {
    let holding = holder.holding();
    let mut in_flight = FuturesUnordered::new();
    let (mut in_flight_count, mut in_flight_bytes) = (0, 0);
    loop {
        let Collected { due, closed } = holder.collect().await;
        let done = {
            let mut state = holding.state();
            loop {
                let now = Deliveries {
                    count: in_flight_count,
                    bytes: in_flight_bytes,
                };
                let Some(ready) = state.ready.pop(H::MAX_DELIVERIES, now) else {
                    break;
                };
                let delivery = Deliveries {
                    count: usize::from(!ready.can_wait()),
                    bytes: ready.bytes(),
                };
                in_flight_count += delivery.count;
                in_flight_bytes += delivery.bytes;
                let delivered = holder.hand_on(ready);
                in_flight.push(async move {
                    delivered.await;
                    delivery
                });
                holding.room_freed.notify_waiters();
            }
            closed && state.ready.is_empty() && in_flight.is_empty()
        };
        if done {
            return;
        }
        tokio::select! {
            () = holding.wake.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(delivery) = in_flight.next() => {
                in_flight_count -= delivery.count;
                in_flight_bytes -= delivery.bytes;
            }
        }
    }
}

/// Lifecycle of a processor that buffers data.
pub(crate) struct Life<H: Holder> {
    holder: Arc<H>,
    flusher: Option<JoinHandle<()>>,
}

impl<H: Holder> Life<H> {
    pub(crate) fn new(holder: Arc<H>) -> Self {
        Life {
            holder,
            flusher: None,
        }
    }
}

impl<H: Holder> Component for Life<H> {
    fn start(&mut self) {
        self.flusher
            .get_or_insert_with(|| tokio::spawn(flush(self.holder.clone())));
    }

    fn idle(&self) -> bool {
        self.holder.holding().state().held == 0
    }

    fn flush(&self) {
        let holding = self.holder.holding();
        holding.state().ending = true;
        holding.wake();
    }

    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let holder = self.holder.clone();
            let holding = holder.holding();
            {
                // Set both under one lock: `Holder::collect` must flush everything when it sees `closed`.
                let mut state = holding.state();
                state.closed = true;
                state.ending = true;
            }
            holding.closing.cancel();
            holding.wake();
            if let Some(flusher) = &mut self.flusher
                && timeout_at(deadline, &mut *flusher).await.is_err()
            {
                // Wait for the end of the task: a delivery after this point would be counted twice.
                flusher.abort();
                let _ = flusher.await;
            }
            let left = std::mem::take(&mut holding.state().held);
            if left > 0 {
                holding.next.account.dropped(left, DropReason::Shutdown);
            }
            Undelivered { items: left }
        })
    }
}

impl<H: Holder> Drop for Life<H> {
    fn drop(&mut self) {
        if let Some(flusher) = &self.flusher {
            flusher.abort();
        }
    }
}
