//! Item counters of pipelines, exporters and connectors.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tributary_config::ComponentId;
use tributary_otlp::Signal;

use crate::pipeline::batch::Batch;
use crate::pipeline::flow::Flow;

/// Reason why accepted items were not delivered: the `reason` label of `*_dropped_items`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A processor dropped the items on purpose.
    Filtered,
    /// The items had been delivered before.
    Duplicate,
    /// The next hop refused the items permanently.
    Permanent,
    /// The time limit for retries expired.
    RetriesExhausted,
    /// The next hop accepted the request but not these items.
    PartialSuccess,
    /// The process ended before the items were delivered.
    Shutdown,
    /// The sending queue was full and is configured to drop.
    QueueFull,
    /// The stored record is damaged.
    Damaged,
    /// The items failed repeatedly while other data was delivered, and went to the dead letters of the queue on disk.
    DeadLetter,
    /// The items were merged into other items, which are counted separately. No data is lost.
    Merged,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 10] = [
        DropReason::Filtered,
        DropReason::Duplicate,
        DropReason::Permanent,
        DropReason::RetriesExhausted,
        DropReason::PartialSuccess,
        DropReason::Shutdown,
        DropReason::QueueFull,
        DropReason::Damaged,
        DropReason::DeadLetter,
        DropReason::Merged,
    ];

    /// The label's value.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Filtered => "filtered",
            DropReason::Duplicate => "duplicate",
            DropReason::Permanent => "permanent",
            DropReason::RetriesExhausted => "retries_exhausted",
            DropReason::PartialSuccess => "partial_success",
            DropReason::Shutdown => "shutdown",
            DropReason::QueueFull => "queue_full",
            DropReason::Damaged => "damaged",
            DropReason::DeadLetter => "dead_letter",
            DropReason::Merged => "merged",
        }
    }
}

impl Account {
    /// Returns the account of a pipeline.
    pub fn of_pipeline(pipeline: &str) -> Self {
        Account::new(
            "tributary_pipeline",
            "forwarded",
            &[("pipeline", pipeline.to_owned())],
        )
    }

    /// Returns the account of a connector that buffers acknowledged items.
    pub fn of_connector(connector: &ComponentId) -> Self {
        Account::new(
            "tributary_connector",
            "delivered",
            &[("connector", connector.to_string())],
        )
    }
}

/// Counters of one pipeline or connector, in items: received = passed + dropped + refused + in flight.
#[derive(Clone)]
pub struct Account {
    received: Counter,
    passed: Counter,
    refused: Counter,
    dropped: [Counter; DropReason::ALL.len()],
    pub(crate) in_flight: Gauge,
}

impl Account {
    pub(crate) fn new(prefix: &str, passed: &str, labels: &[(&'static str, String)]) -> Self {
        let items = |outcome: &str| counter!(format!("{prefix}_{outcome}_items"), labels);
        Account {
            received: items("received"),
            passed: items(passed),
            refused: items("refused"),
            dropped: DropReason::ALL.map(|reason| {
                let mut labels = labels.to_vec();
                labels.push(("reason", reason.name().to_owned()));
                counter!(format!("{prefix}_dropped_items"), &labels)
            }),
            in_flight: gauge!(format!("{prefix}_in_flight_items"), labels),
        }
    }

    /// Counts items that enter. The items are in flight from now on.
    pub fn received(&self, items: usize) {
        self.received.increment(items as u64);
        self.in_flight.increment(items as f64);
    }

    /// Counts items that the next stage accepted.
    pub fn passed(&self, items: usize) {
        self.passed.increment(items as u64);
        self.in_flight.decrement(items as f64);
    }

    /// Counts items that were refused, so that the sender still has them.
    pub fn refused(&self, items: usize) {
        self.refused.increment(items as u64);
        self.in_flight.decrement(items as f64);
    }

    /// Counts items that were dropped.
    pub fn dropped(&self, items: usize, reason: DropReason) {
        self.dropped[reason as usize].increment(items as u64);
        self.in_flight.decrement(items as f64);
    }
}

/// Counters of items whose outcome the next stage decides.
pub(crate) trait Decided {
    /// Counts items that the next stage accepted.
    fn accepted(&self, items: usize);

    /// Counts items that the upstream sender still has.
    fn refused(&self, items: usize);
}

impl Decided for &Account {
    /// Does nothing: the next stage counts accepted items.
    fn accepted(&self, _items: usize) {}

    fn refused(&self, items: usize) {
        Account::refused(self, items);
    }
}

/// Items without a known outcome. On drop, the items count as refused; the sender may have stopped waiting.
pub(crate) struct Pending<C: Decided> {
    counters: C,
    items: Option<usize>,
}

impl<C: Decided> Pending<C> {
    /// Begins to wait for the outcome.
    pub(crate) fn new(counters: C, items: usize) -> Self {
        Pending {
            counters,
            items: Some(items),
        }
    }

    pub(crate) fn items(&self) -> usize {
        self.items.unwrap_or_default()
    }

    pub(crate) fn counters(&self) -> &C {
        &self.counters
    }

    /// Counts the items as accepted.
    pub(crate) fn accepted(mut self) {
        if let Some(items) = self.items.take() {
            self.counters.accepted(items);
        }
    }
}

impl<C: Decided> Drop for Pending<C> {
    fn drop(&mut self) {
        if let Some(items) = self.items {
            self.counters.refused(items);
        }
    }
}

/// Metrics of one processor, recorded by the pipeline.
#[derive(Clone)]
pub struct ProcessorMetrics {
    incoming: Counter,
    outgoing: Counter,
    internal: Histogram,
    /// Counters of the edge into the processor.
    flow: Arc<Flow>,
}

impl ProcessorMetrics {
    /// Returns the metrics of a processor for one signal. `flow` counts the batches that enter the processor.
    pub fn new(processor: &ComponentId, signal: Signal, flow: Arc<Flow>) -> Self {
        let items = |direction: &str| {
            counter!(
                format!("otelcol_processor_{direction}_items"),
                "processor" => processor.to_string(),
                "otel_signal" => signal.name()
            )
        };
        ProcessorMetrics {
            incoming: items("incoming"),
            outgoing: items("outgoing"),
            internal: histogram!(
                "otelcol_processor_internal_duration",
                "processor" => processor.to_string(),
                "otel_signal" => signal.name()
            ),
            flow,
        }
    }

    /// Counts a batch that entered the processor.
    pub fn incoming(&self, batch: &Batch) {
        self.incoming.increment(batch.items() as u64);
        self.flow.passes(batch);
    }

    /// Records the time that the processor took for a batch.
    pub fn worked(&self, time: Duration) {
        self.internal.record(time.as_secs_f64());
    }

    /// Counts items that left the processor for the next stage.
    pub fn outgoing(&self, items: usize) {
        self.outgoing.increment(items as u64);
    }
}

#[cfg(test)]
mod tests;
