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
use crate::pipeline::holding::{
    Bytes as _, Collected, Deliveries, Entered, Entrance, Holder, Holding, Life,
};
use crate::pipeline::senders::{CLOSED, PendingOutcome, Senders};
use crate::pipeline::{Consumer, Idle, Next, holding};
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
    let passing = Passing {
        symbolizer,
        wait: config.wait.0,
        next: next.clone(),
    };
    let Some(hold) = &*config.hold else {
        return (Arc::new(passing), Box::new(Idle));
    };
    let holding = Arc::new(Keeper {
        passing,
        hold: hold.clone(),
        holding: Holding::new(next),
    });
    let life = Life::new(holding.clone());
    (Arc::new(Entrance(holding)), Box::new(life))
}

/// Forwards each batch with the symbols that are available, after at most `wait`.
struct Passing {
    symbolizer: Symbolizer,
    wait: Duration,
    next: Next,
}

impl Passing {
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

impl Consumer for Passing {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let binaries = self.binaries(&batch).await;
            let batch = self.symbolizer.name(batch, binaries).await;
            self.next.consumer.consume(batch).await
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.consumer.clone()]
    }
}

/// Buffer of batches that wait for symbols.
struct Keeper {
    passing: Passing,
    hold: HoldConfig,
    holding: Holding<Gathered, Kept>,
}

#[derive(Default)]
struct Gathered {
    waiting: Vec<Waiting>,
    bytes: usize,
    /// Counter that identifies the next batch.
    number: u64,
}

struct Waiting {
    number: u64,
    due: Instant,
    kept: Kept,
}

struct Kept(Batch, Senders);

impl holding::Bytes for Kept {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn can_wait(&self) -> bool {
        self.1.can_wait()
    }
}

impl Keeper {
    /// Buffers a batch until its symbols have arrived. If there is no room, the batch is returned.
    fn keep(
        self: &Arc<Self>,
        mut batch: Batch,
        pending: Vec<Pending>,
    ) -> Result<Result<PendingOutcome, Batch>, Nack> {
        let mut state = self.holding.state();
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let bytes = state.gathered.bytes.saturating_add(batch.bytes());
        let full = state.ready.is_full(self.hold.max_bytes.as_usize());
        if full || state.ending || bytes > self.hold.max_bytes.as_usize() {
            return Ok(Err(batch));
        }
        let (senders, answer) = Senders::of(&mut batch, false);
        state.held += senders.held();
        let gathered = &mut state.gathered;
        gathered.bytes = bytes;
        let number = gathered.number;
        gathered.number += 1;
        gathered.waiting.push(Waiting {
            number,
            due: Instant::now() + self.hold.max_wait.0,
            kept: Kept(batch, senders),
        });
        drop(state);
        self.holding.wake();
        let keeper = self.clone();
        tokio::spawn(async move {
            let settled = pending.into_iter().map(Pending::finished);
            // After the wait, the batch is due, whichever symbols have arrived.
            let _ = timeout(keeper.hold.max_wait.0, join_all(settled)).await;
            let mut state = keeper.holding.state();
            let mut waiting = state.gathered.waiting.iter_mut();
            if let Some(waiting) = waiting.find(|waiting| waiting.number == number) {
                waiting.due = Instant::now();
            }
            drop(state);
            keeper.holding.wake();
        });
        Ok(Ok(answer))
    }
}

impl Holder for Keeper {
    type Gathered = Gathered;
    type Ready = Kept;

    const MAX_DELIVERIES: Deliveries = Deliveries {
        count: 4,
        bytes: usize::MAX,
    };

    fn holding(&self) -> &Holding<Gathered, Kept> {
        &self.holding
    }

    async fn collect(&self) -> Collected {
        let mut state = self.holding.state();
        let state = &mut *state;
        let (now, urgent) = (Instant::now(), state.is_urgent());
        let gathered = &mut state.gathered;
        let due = |waiting: &mut Waiting| urgent || waiting.due <= now;
        for waiting in gathered.waiting.extract_if(.., due) {
            gathered.bytes = gathered.bytes.saturating_sub(waiting.kept.bytes());
            state.ready.push(waiting.kept);
        }
        Collected {
            due: gathered.waiting.iter().map(|waiting| waiting.due).min(),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, Kept(batch, mut senders): Kept) {
        let symbolizer = &self.passing.symbolizer;
        let binaries = symbolizer.binaries(&batch, LookupAttempt::Repeated).await;
        let batch = symbolizer.name(batch, binaries).await;
        let outcome = self.holding.hand_on(batch, &mut senders).await;
        senders.report(&outcome);
    }
}

impl Entered for Keeper {
    async fn enter(self: &Arc<Self>, mut batch: Batch) -> Result<(), Nack> {
        let Passing {
            symbolizer, next, ..
        } = &self.passing;
        let mut binaries = self.passing.binaries(&batch).await;
        if !binaries.pending.is_empty() {
            let pending = std::mem::take(&mut binaries.pending);
            match self.keep(batch, pending)? {
                Ok(answer) => return answer.outcome().await,
                Err(back) => batch = back,
            }
        }
        let batch = symbolizer.name(batch, binaries).await;
        next.consumer.consume(batch).await
    }
}
