//! The stage: requests are forwarded with the available symbols, or buffered until more are
//! available.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::config::{Config, HoldConfig};
use super::metrics::Metrics;
use super::symbolizer::{Binaries, Symbolizer};
use crate::component::{BufferingStage, BuildContext};
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::buffer::{
    Buffer, BufferEntrance, BufferLifecycle, Buffered as _, BufferingConsumer, BufferingProcessor,
    Collected, Deliveries,
};
use crate::pipeline::senders::{CLOSED, PendingOutcome, Senders};
use crate::pipeline::{Consumer, Idle, Next, buffer};
use futures_util::future::{BoxFuture, join_all};
use tributary_symbols::library::{Library, LookupAttempt, Pending};

pub(super) fn connect(
    config: &Config,
    cx: &BuildContext,
    library: Arc<Library>,
    next: Next,
) -> BufferingStage {
    let metrics = Metrics::new(&cx.id);
    let call_sites = config.call_sites.clone();
    let symbolizer = Symbolizer::new(library, call_sites, metrics, cx.budget.clone());
    let waiting_stage = WaitingStage {
        symbolizer,
        wait: config.wait.0,
        next: next.clone(),
    };
    let Some(hold) = &*config.hold else {
        return (Arc::new(waiting_stage), Box::new(Idle));
    };
    let buffer = Arc::new(SymbolBuffer {
        waiting_stage,
        hold: hold.clone(),
        buffer: Buffer::new(next),
    });
    let life = BufferLifecycle::new(buffer.clone());
    (Arc::new(BufferEntrance(buffer)), Box::new(life))
}

/// Forwards each batch with the symbols that are available, after at most `wait`.
struct WaitingStage {
    symbolizer: Symbolizer,
    wait: Duration,
    next: Next,
}

impl WaitingStage {
    /// Looks up the binaries of a batch, within `wait`.
    async fn binaries(&self, batch: &Batch) -> Binaries {
        let mut binaries = self.symbolizer.binaries(batch, LookupAttempt::First).await;
        if binaries.pending.is_empty() || self.wait.is_zero() {
            return binaries;
        }
        let pending = std::mem::take(&mut binaries.pending);
        // The decoded addresses take more memory than the batch, so they are dropped during the
        // wait.
        drop(binaries);
        let settled = pending.into_iter().map(Pending::finished);
        // The available symbols are used, whether or not all have arrived.
        let _ = timeout(self.wait, join_all(settled)).await;
        self.symbolizer
            .binaries(batch, LookupAttempt::Repeated)
            .await
    }
}

impl Consumer for WaitingStage {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let binaries = self.binaries(&batch).await;
            let batch = self.symbolizer.symbolize(batch, binaries).await;
            self.next.consumer.consume(batch).await
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.consumer.clone()]
    }
}

/// Buffers batches whose symbols have not arrived within `wait`, for at most `hold.max_wait`.
struct SymbolBuffer {
    waiting_stage: WaitingStage,
    hold: HoldConfig,
    buffer: Buffer<Gathered, BufferedBatch>,
}

#[derive(Default)]
struct Gathered {
    waiting: Vec<WaitingBatch>,
    bytes: usize,
    /// Counter that identifies the next batch.
    number: u64,
}

struct WaitingBatch {
    number: u64,
    due: Instant,
    batch: BufferedBatch,
}

struct BufferedBatch(Batch, Senders);

impl buffer::Buffered for BufferedBatch {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn can_wait(&self) -> bool {
        self.1.can_wait()
    }
}

impl SymbolBuffer {
    /// Buffers a batch until its symbols have arrived. The inner error returns the batch if there is no room.
    fn hold(
        self: &Arc<Self>,
        mut batch: Batch,
        pending: Vec<Pending>,
    ) -> Result<Result<PendingOutcome, Batch>, Nack> {
        let mut state = self.buffer.state();
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let bytes = state.gathered.bytes.saturating_add(batch.bytes());
        let full = state.ready.is_full(self.hold.max_bytes.as_usize());
        if full || state.ending || bytes > self.hold.max_bytes.as_usize() {
            return Ok(Err(batch));
        }
        let (senders, answer) = Senders::of(&mut batch, false);
        state.acknowledged += senders.held();
        let gathered = &mut state.gathered;
        gathered.bytes = bytes;
        let number = gathered.number;
        gathered.number += 1;
        gathered.waiting.push(WaitingBatch {
            number,
            due: Instant::now() + self.hold.max_wait.0,
            batch: BufferedBatch(batch, senders),
        });
        drop(state);
        self.buffer.wake();
        let stage = self.clone();
        tokio::spawn(async move {
            let settled = pending.into_iter().map(Pending::finished);
            // After the wait, the batch is due, whichever symbols have arrived.
            let _ = timeout(stage.hold.max_wait.0, join_all(settled)).await;
            let mut state = stage.buffer.state();
            let mut waiting = state.gathered.waiting.iter_mut();
            if let Some(waiting) = waiting.find(|waiting| waiting.number == number) {
                waiting.due = Instant::now();
            }
            drop(state);
            stage.buffer.wake();
        });
        Ok(Ok(answer))
    }
}

impl BufferingProcessor for SymbolBuffer {
    type Gathered = Gathered;
    type Ready = BufferedBatch;

    const MAX_DELIVERIES: Deliveries = Deliveries {
        count: 4,
        bytes: usize::MAX,
    };

    fn buffer(&self) -> &Buffer<Gathered, BufferedBatch> {
        &self.buffer
    }

    async fn collect(&self) -> Collected {
        let mut state = self.buffer.state();
        let state = &mut *state;
        let (now, urgent) = (Instant::now(), state.is_urgent());
        let gathered = &mut state.gathered;
        let due = |waiting: &mut WaitingBatch| urgent || waiting.due <= now;
        for waiting in gathered.waiting.extract_if(.., due) {
            gathered.bytes = gathered.bytes.saturating_sub(waiting.batch.bytes());
            state.ready.push(waiting.batch);
        }
        Collected {
            due: gathered.waiting.iter().map(|waiting| waiting.due).min(),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, BufferedBatch(batch, mut senders): BufferedBatch) {
        let symbolizer = &self.waiting_stage.symbolizer;
        let binaries = symbolizer.binaries(&batch, LookupAttempt::Repeated).await;
        let batch = symbolizer.symbolize(batch, binaries).await;
        let outcome = self.buffer.hand_on(batch, &mut senders).await;
        senders.report(&outcome);
    }
}

impl BufferingConsumer for SymbolBuffer {
    async fn enter(self: &Arc<Self>, mut batch: Batch) -> Result<(), Nack> {
        let WaitingStage {
            symbolizer, next, ..
        } = &self.waiting_stage;
        let mut binaries = self.waiting_stage.binaries(&batch).await;
        if !binaries.pending.is_empty() {
            let pending = std::mem::take(&mut binaries.pending);
            match self.hold(batch, pending)? {
                Ok(answer) => return answer.outcome().await,
                Err(back) => batch = back,
            }
        }
        let batch = symbolizer.symbolize(batch, binaries).await;
        next.consumer.consume(batch).await
    }
}
