//! Lifecycle of a processor that buffers data, and its task that delivers flushed data.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::ready::{Buffered as _, Deliveries};
use super::{BufferingProcessor, Collected};
use crate::pipeline::account::DropReason;
use crate::pipeline::{Component, Undelivered};

/// The task that delivers flushed data. Runs until the processor is closed and empty.
async fn flush<H: BufferingProcessor>(processor: Arc<H>) {
    let buffer = processor.buffer();
    let mut in_flight = FuturesUnordered::new();
    let (mut in_flight_count, mut in_flight_bytes) = (0, 0);
    loop {
        let Collected { due, closed } = processor.collect().await;
        let done = {
            let mut state = buffer.state();
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
                let delivered = processor.hand_on(ready);
                in_flight.push(async move {
                    delivered.await;
                    delivery
                });
                buffer.room_freed.notify_waiters();
            }
            closed && state.ready.is_empty() && in_flight.is_empty()
        };
        if done {
            return;
        }
        tokio::select! {
            () = buffer.wake.notified() => {}
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            Some(delivery) = in_flight.next() => {
                in_flight_count -= delivery.count;
                in_flight_bytes -= delivery.bytes;
            }
        }
    }
}

pub(crate) struct BufferLifecycle<H: BufferingProcessor> {
    processor: Arc<H>,
    flusher: Option<JoinHandle<()>>,
}

impl<H: BufferingProcessor> BufferLifecycle<H> {
    pub(crate) fn new(processor: Arc<H>) -> Self {
        BufferLifecycle {
            processor,
            flusher: None,
        }
    }
}

impl<H: BufferingProcessor> Component for BufferLifecycle<H> {
    fn start(&mut self) {
        self.flusher
            .get_or_insert_with(|| tokio::spawn(flush(self.processor.clone())));
    }

    fn idle(&self) -> bool {
        self.processor.buffer().state().acknowledged == 0
    }

    fn flush(&self) {
        let buffer = self.processor.buffer();
        buffer.state().ending = true;
        buffer.wake();
    }

    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let processor = self.processor.clone();
            let buffer = processor.buffer();
            {
                // Set both under one lock: `BufferingProcessor::collect` must flush everything when it sees `closed`.
                let mut state = buffer.state();
                state.closed = true;
                state.ending = true;
            }
            buffer.closing.cancel();
            buffer.wake();
            if let Some(flusher) = &mut self.flusher
                && timeout_at(deadline, &mut *flusher).await.is_err()
            {
                // Wait for the end of the task: a delivery after this point would be counted twice.
                flusher.abort();
                let _ = flusher.await;
            }
            let left = std::mem::take(&mut buffer.state().acknowledged);
            if left > 0 {
                buffer.next.account.dropped(left, DropReason::Shutdown);
            }
            Undelivered { items: left }
        })
    }
}

impl<H: BufferingProcessor> Drop for BufferLifecycle<H> {
    fn drop(&mut self) {
        if let Some(flusher) = &self.flusher {
            flusher.abort();
        }
    }
}
