//! The inside of a pipeline: its entry, its processors, its exit. Each counts what passes, so no component has to.

use std::sync::Arc;

use super::{BoxFuture, Consumer, Processor};
use crate::batch::{Batch, Nack};
use crate::telemetry::{Account, DropReason, ProcessorMetrics};

/// Where a pipeline begins: opens the account of every batch.
pub struct Entry {
    account: Account,
    first: Arc<dyn Consumer>,
}

impl Entry {
    /// The entry in front of the first stage.
    pub fn new(account: Account, first: Arc<dyn Consumer>) -> Self {
        Entry { account, first }
    }
}

impl Consumer for Entry {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let items = Received::new(&self.account, batch.items());
            self.first.consume(batch).await?;
            items.taken();
            Ok(())
        })
    }
}

/// Items that are refused unless somebody took them, also when the sender stops waiting.
struct Received<'a> {
    account: &'a Account,
    items: Option<usize>,
}

impl<'a> Received<'a> {
    fn new(account: &'a Account, items: usize) -> Self {
        account.received(items);
        Received {
            account,
            items: Some(items),
        }
    }

    fn taken(mut self) {
        self.items = None;
    }
}

impl Drop for Received<'_> {
    fn drop(&mut self) {
        if let Some(items) = self.items {
            self.account.refused(items);
        }
    }
}

/// Processors that edit batches in passing, one after the other in the caller's own task.
pub struct Chain {
    processors: Vec<(Box<dyn Processor>, ProcessorMetrics)>,
    account: Account,
    next: Arc<dyn Consumer>,
}

impl Chain {
    /// A chain in front of `next`.
    pub fn new(
        processors: Vec<(Box<dyn Processor>, ProcessorMetrics)>,
        account: Account,
        next: Arc<dyn Consumer>,
    ) -> Self {
        Chain {
            processors,
            account,
            next,
        }
    }
}

impl Consumer for Chain {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let before = batch.items();
            let mut left = Some(batch);
            for (processor, metrics) in &self.processors {
                let Some(batch) = left else { break };
                metrics.incoming(batch.items());
                left = processor.process(batch)?;
                metrics.outgoing(left.as_ref().map_or(0, Batch::items));
            }
            let after = left.as_ref().map_or(0, Batch::items);
            if let Some(batch) = left {
                self.next.consume(batch).await?;
            }
            // Only now: had the next stage refused, the sender would still have all of it.
            if let Some(dropped) = before.checked_sub(after).filter(|dropped| *dropped > 0) {
                self.account.dropped(dropped, DropReason::Filtered);
            }
            Ok(())
        })
    }
}

/// Counts what enters (or, in front of the next stage, leaves) a processor that holds batches.
pub struct Counted {
    count: fn(&ProcessorMetrics, usize),
    metrics: ProcessorMetrics,
    next: Arc<dyn Consumer>,
}

impl Counted {
    /// Counts what enters the processor `next`.
    pub fn incoming(metrics: ProcessorMetrics, next: Arc<dyn Consumer>) -> Self {
        Counted {
            count: ProcessorMetrics::incoming,
            metrics,
            next,
        }
    }

    /// Counts what a processor hands on to `next`.
    pub fn outgoing(metrics: ProcessorMetrics, next: Arc<dyn Consumer>) -> Self {
        Counted {
            count: ProcessorMetrics::outgoing,
            metrics,
            next,
        }
    }
}

impl Consumer for Counted {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        (self.count)(&self.metrics, batch.items());
        self.next.consume(batch)
    }
}

/// Where a pipeline ends: what the exporters took has been forwarded.
pub struct Exit {
    account: Account,
    exporters: Arc<dyn Consumer>,
}

impl Exit {
    /// The exit in front of the pipeline's exporters.
    pub fn new(account: Account, exporters: Arc<dyn Consumer>) -> Self {
        Exit { account, exporters }
    }
}

impl Consumer for Exit {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            let items = batch.items();
            self.exporters.consume(batch).await?;
            self.account.passed(items);
            Ok(())
        })
    }
}
