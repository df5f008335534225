//! The stages of a pipeline: its entry, its processors and its exit. They count items, so components do not.

use std::sync::Arc;
use std::time::Instant;

use super::{Consumer, Processor};
use crate::pipeline::account::{Account, DropReason, Pending, ProcessorMetrics};
use crate::pipeline::batch::{Batch, Nack};
use futures_util::future::BoxFuture;

/// Start of a pipeline: opens the account of every batch.
pub struct PipelineEntry {
    account: Account,
    first: Arc<dyn Consumer>,
    finishes: bool,
}

impl PipelineEntry {
    /// Creates the entry in front of the first stage. If `finishes` is set, a batch passes the whole pipeline even if
    /// its sender stops waiting.
    pub fn new(account: Account, first: Arc<dyn Consumer>, finishes: bool) -> Self {
        PipelineEntry {
            account,
            first,
            finishes,
        }
    }
}

impl Consumer for PipelineEntry {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        if !self.finishes {
            return Box::pin(enter(&self.account, &self.first, batch));
        }
        let (account, first) = (self.account.clone(), self.first.clone());
        Box::pin(async move {
            let entering = tokio::spawn(async move { enter(&account, &first, batch).await });
            let ended = || Err(Nack::unavailable("the collector is shutting down"));
            entering.await.unwrap_or_else(|_| ended())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.first.clone()]
    }
}

async fn enter(account: &Account, first: &Arc<dyn Consumer>, batch: Batch) -> Result<(), Nack> {
    account.received(batch.items());
    let items = Pending::new(account, batch.items());
    first.consume(batch).await?;
    items.accepted();
    Ok(())
}

/// Processors that edit batches, run in sequence in the caller's task.
pub struct Chain {
    processors: Vec<(Box<dyn Processor>, ProcessorMetrics)>,
    account: Account,
    next: Arc<dyn Consumer>,
}

impl Chain {
    /// Creates a chain in front of `next`.
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
                metrics.incoming(&batch);
                let began = Instant::now();
                let processed = processor.process(batch);
                metrics.worked(began.elapsed());
                left = processed?;
                metrics.outgoing(left.as_ref().map_or(0, Batch::items));
            }
            let after = left.as_ref().map_or(0, Batch::items);
            if let Some(batch) = left {
                self.next.consume(batch).await?;
            }
            // Count only after the next stage accepted the batch. If the next stage refuses, the sender still has all
            // items.
            if let Some(dropped) = before.checked_sub(after).filter(|dropped| *dropped > 0) {
                self.account.dropped(dropped, DropReason::Filtered);
            }
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }
}

/// Counts items on entry to, or exit from, a processor that buffers batches.
pub struct Counted {
    side: Side,
    metrics: ProcessorMetrics,
    next: Arc<dyn Consumer>,
}

impl Counted {
    /// Counts items that enter the processor `next`.
    pub fn incoming(metrics: ProcessorMetrics, next: Arc<dyn Consumer>) -> Self {
        Counted {
            side: Side::Incoming,
            metrics,
            next,
        }
    }

    /// Counts items that `next` accepts from a processor. The processor may retry.
    pub fn outgoing(metrics: ProcessorMetrics, next: Arc<dyn Consumer>) -> Self {
        Counted {
            side: Side::Outgoing,
            metrics,
            next,
        }
    }
}

impl Consumer for Counted {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        match self.side {
            Side::Incoming => {
                self.metrics.incoming(&batch);
                self.next.consume(batch)
            }
            Side::Outgoing => Box::pin(async move {
                let items = batch.items();
                self.next.consume(batch).await?;
                self.metrics.outgoing(items);
                Ok(())
            }),
        }
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.next.clone()]
    }
}

#[derive(Clone, Copy)]
enum Side {
    Incoming,
    Outgoing,
}

/// End of a pipeline: counts the items that the exporters accepted.
pub struct Exit {
    account: Account,
    exporters: Arc<dyn Consumer>,
}

impl Exit {
    /// Creates the exit in front of the pipeline's exporters.
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

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        vec![self.exporters.clone()]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

    use super::*;
    use crate::pipeline::testing::{Scripted, spans};

    /// Drops every batch with fewer than two items, and half of the items of other batches.
    struct Half;

    impl Processor for Half {
        fn process(&self, batch: Batch) -> Result<Option<Batch>, Nack> {
            let half = batch.items() / 2;
            let requests = batch.clone().into_wire();
            Ok((half > 0).then(|| batch.with_wire(half, requests)))
        }
    }

    /// Creates a pipeline with the processor [`Half`], and the handle of its metrics.
    fn pipeline(exporter: Arc<Scripted>) -> (PipelineEntry, PrometheusHandle) {
        pipeline_with(false, exporter)
    }

    fn pipeline_with(finishes: bool, exporter: Arc<Scripted>) -> (PipelineEntry, PrometheusHandle) {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let entry = metrics::with_local_recorder(&recorder, || {
            let account = Account::of_pipeline("traces");
            let exit = Arc::new(Exit::new(account.clone(), exporter));
            let id = "half".parse().unwrap();
            let metrics =
                ProcessorMetrics::new(&id, tributary_otlp::Signal::Traces, Arc::default());
            let chain = Chain::new(vec![(Box::new(Half), metrics)], account.clone(), exit);
            PipelineEntry::new(account, Arc::new(chain), finishes)
        });
        (entry, handle)
    }

    /// Counts of items: received, forwarded, dropped on purpose, refused, in flight.
    fn account(handle: &PrometheusHandle) -> [u64; 5] {
        let page = handle.render();
        let value = |outcome: &str, reason: &str| {
            let name = format!("tributary_pipeline_{outcome}_items{{");
            let mut lines = page.lines().filter(|line| line.starts_with(&name));
            let line = lines.find(|line| line.contains(reason)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        [
            value("received", ""),
            value("forwarded", ""),
            value("dropped", "filtered"),
            value("refused", ""),
            value("in_flight", ""),
        ]
    }

    #[tokio::test]
    async fn processor_drops_are_counted_and_rest_is_forwarded() {
        let (entry, metrics) = pipeline(Scripted::new([]));
        entry.consume(spans(["a", "b", "c"])).await.unwrap();
        entry.consume(spans(["d"])).await.unwrap();
        assert_eq!(account(&metrics), [4, 1, 3, 0, 0]);
        let page = metrics.render();
        assert!(page.contains(
            "otelcol_processor_incoming_items{processor=\"half\",otel_signal=\"traces\"} 4"
        ));
        assert!(page.contains(
            "otelcol_processor_outgoing_items{processor=\"half\",otel_signal=\"traces\"} 1"
        ));
    }

    #[tokio::test]
    async fn retried_batch_leaves_processor_once() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let exporter = Scripted::new([Err(Nack::unavailable("full"))]);
        let outgoing = metrics::with_local_recorder(&recorder, || {
            let id = "batch".parse().unwrap();
            let metrics =
                ProcessorMetrics::new(&id, tributary_otlp::Signal::Traces, Arc::default());
            Counted::outgoing(metrics, exporter)
        });
        outgoing.consume(spans(["a"])).await.unwrap_err();
        outgoing.consume(spans(["a"])).await.unwrap();
        let page = recorder.handle().render();
        assert!(page.contains(
            "otelcol_processor_outgoing_items{processor=\"batch\",otel_signal=\"traces\"} 1"
        ));
    }

    #[tokio::test]
    async fn exporter_refusal_refuses_whole_batch() {
        let (entry, metrics) = pipeline(Scripted::new([Err(Nack::unavailable("full"))]));
        entry.consume(spans(["a", "b", "c"])).await.unwrap_err();
        assert_eq!(account(&metrics), [3, 0, 0, 3, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn batch_of_disconnected_client_is_refused() {
        let (entry, metrics) = pipeline(Scripted::slow(Duration::from_secs(10)));
        let batch = entry.consume(spans(["a", "b"]));
        tokio::time::timeout(Duration::from_secs(1), batch)
            .await
            .unwrap_err();
        assert_eq!(account(&metrics), [2, 0, 0, 2, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn batch_of_disconnected_client_arrives_behind_dedup() {
        let exporter = Scripted::slow(Duration::from_secs(10));
        let (entry, metrics) = pipeline_with(true, exporter.clone());
        let batch = entry.consume(spans(["a", "b"]));
        tokio::time::timeout(Duration::from_secs(1), batch)
            .await
            .unwrap_err();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(exporter.taken(), [1]);
        assert_eq!(account(&metrics), [2, 1, 1, 0, 0]);
    }
}
