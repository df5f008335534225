//! Metrics of receivers.

use std::sync::Arc;

use metrics::{Counter, counter};
use tributary_config::ComponentId;
use tributary_otlp::Signal;

use super::refusals::Refusals;
use crate::pipeline::account::Decided;

/// Item counters of a receiver for one signal.
pub(crate) struct OfSignal<'a> {
    metrics: &'a ReceiverMetrics,
    signal: Signal,
}

impl Decided for OfSignal<'_> {
    fn accepted(&self, items: usize) {
        self.metrics.accepted(self.signal, items);
    }

    fn refused(&self, items: usize) {
        self.metrics.refused(self.signal, items);
    }
}

/// Metrics of a receiver for one transport (`grpc`, `http`).
#[derive(Clone)]
pub(crate) struct ReceiverMetrics {
    accepted: [Counter; 4],
    refused: [Counter; 4],
    unreadable: [Counter; 4],
    refusals: Refusals,
}

impl ReceiverMetrics {
    /// Returns the item counters of one signal.
    pub(crate) fn of_signal(&self, signal: Signal) -> OfSignal<'_> {
        OfSignal {
            metrics: self,
            signal,
        }
    }

    /// Creates the metrics of a receiver of all signals.
    pub(crate) fn new(receiver: &ComponentId, transport: &'static str) -> Self {
        ReceiverMetrics::of(receiver, transport, &Signal::ALL)
    }

    /// Creates the metrics of a receiver of these signals. Other signals have no series.
    pub(crate) fn of(receiver: &ComponentId, transport: &'static str, signals: &[Signal]) -> Self {
        let each = |outcome: &str| {
            Signal::ALL.map(|signal| match signals.contains(&signal) {
                true => counter!(
                    format!("otelcol_receiver_{outcome}_{}", signal.items_name()),
                    "receiver" => receiver.to_string(),
                    "transport" => transport
                ),
                false => Counter::noop(),
            })
        };
        // Always 0, as in the Collector: every failure counts as refused. Dashboards of the Collector use this
        // metric.
        let _ = each("failed");
        ReceiverMetrics {
            refusals: Refusals::new(receiver, transport),
            accepted: each("accepted"),
            refused: each("refused"),
            unreadable: Signal::ALL.map(|signal| match signals.contains(&signal) {
                true => counter!(
                    "tributary_receiver_unreadable_requests",
                    "receiver" => receiver.to_string(),
                    "transport" => transport,
                    "otel_signal" => signal.name()
                ),
                false => Counter::noop(),
            }),
        }
    }

    pub(crate) fn accepted(&self, signal: Signal, items: usize) {
        self.accepted[signal.index()].increment(items as u64);
    }

    /// Counts items that were refused to the client. A request that could not be decoded has no
    /// items.
    pub(crate) fn refused(&self, signal: Signal, items: usize) {
        self.refused[signal.index()].increment(items as u64);
    }

    /// Counts a refused request of a client, which may be unknown.
    pub(crate) fn refused_request(&self, client: Option<&Arc<str>>) {
        self.refusals.count(client);
    }

    /// Counts a request that was refused before its items were counted: the request is malformed or
    /// too large, or there is no memory to decompress it.
    pub(crate) fn unreadable(&self, signal: Signal) {
        self.unreadable[signal.index()].increment(1);
    }
}
