//! The stage: requests pass with the names that are known, or are held until more are.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::config::{Config, HoldConfig};
use super::metrics::Metrics;
use super::symbolizer::{Binaries, Symbolizer};
use crate::batch::{Batch, Nack};
use crate::component::{BuildContext, Held, Next};
use crate::pipeline::{BoxFuture, Consumer, Idle};
use crate::processors::holding::{CLOSED, Collected, Holder, Holding, Life, Most, in_pieces};
use crate::symbols::library::{Asked, Library, Pending};

pub(super) fn connect(
    config: &Config,
    cx: &BuildContext,
    library: Arc<Library>,
    next: Next,
) -> Held {
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

/// Hands on what comes with the names that are known, at the latest after `wait`.
struct Passing {
    symbolizer: Symbolizer,
    wait: Duration,
    next: Next,
}

impl Passing {
    /// What is known of the binaries of a batch, at the latest after `wait`.
    async fn binaries(&self, batch: &mut Batch) -> Binaries {
        let mut binaries = self.symbolizer.binaries(batch, Asked::First).await;
        if binaries.pending.is_empty() || self.wait.is_zero() {
            return binaries;
        }
        let pending = std::mem::take(&mut binaries.pending);
        // What was read takes more memory than the batch: in the meantime it goes.
        drop(binaries);
        let settled = pending.into_iter().map(Pending::settled);
        // Whether all or some are there: what there is now counts.
        let _ = timeout(self.wait, join_all(settled)).await;
        self.symbolizer.binaries(batch, Asked::Again).await
    }
}

impl Consumer for Passing {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let binaries = self.binaries(&mut batch).await;
            let batch = self.symbolizer.name(batch, binaries).await;
            self.next.consumer.consume(batch).await
        })
    }
}

/// Keeps what waits for symbols.
struct Keeper {
    passing: Passing,
    hold: HoldConfig,
    holding: Holding<Gathered, Batch>,
}

#[derive(Default)]
struct Gathered {
    waiting: Vec<Waiting>,
    bytes: usize,
    /// Counts up: the name of the next one.
    number: u64,
}

struct Waiting {
    number: u64,
    due: Instant,
    batch: Batch,
}

impl Keeper {
    /// Keeps a batch until its symbols are there, if there is room; otherwise it is given back.
    fn keep(self: &Arc<Self>, batch: Batch, pending: Vec<Pending>) -> Result<Option<Batch>, Nack> {
        let mut state = self.holding.state();
        if state.closed {
            return Err(Nack::unavailable(CLOSED));
        }
        let bytes = state.gathered.bytes.saturating_add(batch.bytes());
        let full = state.ready.is_full(self.hold.max_bytes.as_usize());
        if full || state.ending || bytes > self.hold.max_bytes.as_usize() {
            return Ok(Some(batch));
        }
        state.held += batch.items();
        let gathered = &mut state.gathered;
        gathered.bytes = bytes;
        let number = gathered.number;
        gathered.number += 1;
        gathered.waiting.push(Waiting {
            number,
            due: Instant::now() + self.hold.max_wait.0,
            batch,
        });
        drop(state);
        self.holding.wake();
        let keeper = self.clone();
        tokio::spawn(async move {
            let settled = pending.into_iter().map(Pending::settled);
            // After that it is due, whatever is there.
            let _ = timeout(keeper.hold.max_wait.0, join_all(settled)).await;
            let mut state = keeper.holding.state();
            let mut waiting = state.gathered.waiting.iter_mut();
            if let Some(waiting) = waiting.find(|waiting| waiting.number == number) {
                waiting.due = Instant::now();
            }
            drop(state);
            keeper.holding.wake();
        });
        Ok(None)
    }
}

impl Holder for Keeper {
    type Gathered = Gathered;
    type Ready = Batch;

    const UNDER_WAY: Most = Most {
        count: 4,
        bytes: usize::MAX,
    };

    fn holding(&self) -> &Holding<Gathered, Batch> {
        &self.holding
    }

    async fn collect(&self) -> Collected {
        let mut state = self.holding.state();
        let state = &mut *state;
        let (now, ending) = (Instant::now(), state.ending);
        let gathered = &mut state.gathered;
        let due = |waiting: &mut Waiting| ending || waiting.due <= now;
        for waiting in gathered.waiting.extract_if(.., due) {
            gathered.bytes = gathered.bytes.saturating_sub(waiting.batch.bytes());
            state.ready.push(waiting.batch);
        }
        Collected {
            due: gathered.waiting.iter().map(|waiting| waiting.due).min(),
            closed: state.closed,
        }
    }

    async fn hand_on(&self, mut batch: Batch) {
        let symbolizer = &self.passing.symbolizer;
        let binaries = symbolizer.binaries(&mut batch, Asked::Again).await;
        let batch = symbolizer.name(batch, binaries).await;
        let pieces = batch.clone();
        self.holding.hand_on(batch, || in_pieces(pieces)).await;
    }
}

struct Entrance(Arc<Keeper>);

impl Consumer for Entrance {
    fn consume(&self, mut batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let Passing {
                symbolizer, next, ..
            } = &self.0.passing;
            let mut binaries = self.0.passing.binaries(&mut batch).await;
            if !binaries.pending.is_empty() {
                let pending = std::mem::take(&mut binaries.pending);
                match self.0.keep(batch, pending)? {
                    None => return Ok(()),
                    Some(back) => batch = back,
                }
            }
            let batch = symbolizer.name(batch, binaries).await;
            next.consumer.consume(batch).await
        })
    }
}
