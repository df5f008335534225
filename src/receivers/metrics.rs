//! Metrics of receivers.

use std::sync::Arc;

use metrics::{Counter, counter};
use tributary_config::ComponentId;
use tributary_otlp::Signal;

use super::refusals::Refusals;

/// Metrics of a receiver for one transport (`grpc`, `http`).
#[derive(Clone)]
pub(crate) struct ReceiverMetrics {
    accepted: [Counter; 4],
    refused: [Counter; 4],
    unreadable: [Counter; 4],
    refusals: Refusals,
}

impl ReceiverMetrics {
    /// The handles of a receiver of all signals.
    pub(crate) fn new(receiver: &ComponentId, transport: &'static str) -> Self {
        ReceiverMetrics::of(receiver, transport, &Signal::ALL)
    }

    /// The handles of a receiver of these signals. Others are not counted: there are no series of theirs.
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
        // For the Collector's dashboards, as its own 0: whatever fails here is a refusal.
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

    /// The next stage took the items.
    pub(crate) fn accepted(&self, signal: Signal, items: usize) {
        self.accepted[signal.index()].increment(items as u64);
    }

    /// The items were refused, and the client was told. A request that could not be read counts no item.
    pub(crate) fn refused(&self, signal: Signal, items: usize) {
        self.refused[signal.index()].increment(items as u64);
    }

    /// A request of this client, if it is known who it is, was answered with a refusal of any kind.
    pub(crate) fn refused_request(&self, client: Option<&Arc<str>>) {
        self.refusals.count(client);
    }

    /// A request was refused before its items could be counted: malformed, too large, no memory to unpack it.
    pub(crate) fn unreadable(&self, signal: Signal) {
        self.unreadable[signal.index()].increment(1);
    }
}
