//! Every own metric's name, in one place, and the handles the components count with.
//!
//! Names and labels are the Collector's where it has one, so that existing dashboards and alerts work. What it has no
//! name for begins with `tributary_`. Handles are resolved once, when a component is built: looking one up costs more
//! than counting.
//!
//! Two equations hold at any quiet moment, in items; the integration tests assert them:
//!
//! ```text
//! tributary_pipeline_*{pipeline}:            received = forwarded + dropped + refused + in_flight
//! tributary_exporter_*{exporter,data_type}:  received = delivered + dropped + refused + in_flight
//! tributary_connector_*{connector}:          received = delivered + dropped + refused + in_flight
//! ```
//!
//! An exporter with a stored queue begins with what that has: `received + recovered = delivered + dropped + refused + kept +
//! in_flight`, where `kept` is what it leaves there when it ends before the process does.
//!
//! Of connectors, those have an account that hold what they have taken.
//!
//! A pipeline forwards what all its exporters took responsibility for, so the two chain up.

mod certificates;
#[cfg(test)]
mod dashboards;
pub mod endpoint;
pub mod exposition;
mod help;
pub(crate) mod identity;
pub mod logs;
mod process;
mod processors;
mod refusals;
pub(crate) mod sampled_log;
mod storage;

use std::sync::Arc;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::batch::Signal;
use crate::component::BuildContext;
use crate::config::ComponentId;
use crate::health::Trouble;
use crate::net::Owner;
use crate::net::server::Limit;
use crate::net::tls::reason::Reason;

pub use self::processors::{FilterMetrics, SamplerMetrics};
pub use self::refusals::Refusals;
pub use self::storage::StorageMetrics;

/// Why items that were accepted did not go on: the `reason` label of `*_dropped_items`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A processor dropped them on purpose.
    Filtered,
    /// They had been delivered before.
    Duplicate,
    /// The next hop refused them for good.
    Permanent,
    /// The time for retries was used up.
    RetriesExhausted,
    /// The next hop accepted the request but not these items.
    PartialSuccess,
    /// The process ended before they could be delivered.
    Shutdown,
    /// The sending queue was full, and was told to drop rather than to refuse.
    QueueFull,
    /// What they were stored in is damaged.
    Damaged,
    /// They became part of other items, which are counted where these were: nothing of them is lost.
    Merged,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 9] = [
        DropReason::Filtered,
        DropReason::Duplicate,
        DropReason::Permanent,
        DropReason::RetriesExhausted,
        DropReason::PartialSuccess,
        DropReason::Shutdown,
        DropReason::QueueFull,
        DropReason::Damaged,
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
            DropReason::Merged => "merged",
        }
    }
}

/// What a receiver counts, for one transport (`grpc`, `http`).
#[derive(Clone)]
pub struct ReceiverMetrics {
    accepted: [Counter; 4],
    refused: [Counter; 4],
    unreadable: [Counter; 4],
    refusals: Refusals,
}

impl ReceiverMetrics {
    /// The handles of a receiver of all signals.
    pub fn new(receiver: &ComponentId, transport: &'static str) -> Self {
        ReceiverMetrics::of(receiver, transport, &Signal::ALL)
    }

    /// The handles of a receiver of these signals. Others are not counted: there are no series of theirs.
    pub fn of(receiver: &ComponentId, transport: &'static str, signals: &[Signal]) -> Self {
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
    pub fn accepted(&self, signal: Signal, items: usize) {
        self.accepted[signal.index()].increment(items as u64);
    }

    /// The items were refused, and the client was told. A request that could not be read counts no item.
    pub fn refused(&self, signal: Signal, items: usize) {
        self.refused[signal.index()].increment(items as u64);
    }

    /// A request of this client, if it is known who it is, was answered with a refusal of any kind.
    pub fn refused_request(&self, client: Option<&Arc<str>>) {
        self.refusals.count(client);
    }

    /// A request was refused before its items could be counted: malformed, too large, no memory to unpack it.
    pub fn unreadable(&self, signal: Signal) {
        self.unreadable[signal.index()].increment(1);
    }
}

/// What a server with TLS counts.
#[derive(Clone)]
pub struct HandshakeFailures([Counter; Reason::ALL.len()]);

impl HandshakeFailures {
    /// The handles of one server.
    pub fn new(owner: &Owner) -> Self {
        HandshakeFailures(Reason::ALL.map(|reason| {
            let labels = with(owner, "reason", reason.name());
            counter!("tributary_tls_handshake_failures", &labels)
        }))
    }

    /// A TLS handshake failed.
    pub fn count(&self, reason: Reason) {
        self.0[reason as usize].increment(1);
    }
}

/// The labels of a server or client, and one more.
fn with(owner: &Owner, name: &'static str, value: &str) -> Vec<(&'static str, String)> {
    let mut labels = owner.labels();
    labels.push((name, value.to_owned()));
    labels
}

/// What a listening server counts.
pub struct ServerMetrics {
    limited: [Counter; Limit::ALL.len()],
    /// `tributary_server_connections`, open now.
    pub connections: Gauge,
    /// `tributary_server_requests`, under way now.
    pub requests: Gauge,
}

impl ServerMetrics {
    /// The handles of one server.
    pub fn new(owner: &Owner) -> Self {
        let labels = owner.labels();
        ServerMetrics {
            limited: Limit::ALL.map(|limit| {
                let labels = with(owner, "limit", limit.key());
                counter!("tributary_server_limited", &labels)
            }),
            connections: gauge!("tributary_server_connections", &labels),
            requests: gauge!("tributary_server_requests", &labels),
        }
    }

    /// A connection or a request was refused or cut because of this limit.
    pub fn limited(&self, limit: Limit) {
        self.limited[limit as usize].increment(1);
    }
}

/// What an exporter counts, for one signal.
#[derive(Clone)]
pub struct ExporterMetrics {
    sent: Counter,
    send_failed: Counter,
    enqueue_failed: Counter,
    account: Account,
    recovered: Counter,
    kept: Counter,
    trouble: Arc<Trouble>,
    /// `otelcol_exporter_queue_size`, in the units of the queue's sizer.
    pub queue_size: Gauge,
    /// `otelcol_exporter_queue_capacity`, in the same units.
    pub queue_capacity: Gauge,
    /// `otelcol_exporter_in_flight_requests`, those that wait for their next attempt included.
    pub in_flight_requests: Gauge,
    /// `otelcol_exporter_queue_batch_send_size`: items of the batches that were merged.
    pub batch_send_size: Histogram,
    /// `otelcol_exporter_queue_batch_send_size_bytes`: their encoded bytes, uncompressed.
    pub batch_send_bytes: Histogram,
}

impl ExporterMetrics {
    /// The handles of an exporter for one signal.
    pub fn new(cx: &BuildContext, signal: Signal) -> Self {
        let exporter = &cx.id;
        let items = |outcome: &str| {
            counter!(
                format!("otelcol_exporter_{outcome}_{}", signal.items_name()),
                "exporter" => exporter.to_string()
            )
        };
        let labels = [
            ("exporter", exporter.to_string()),
            ("data_type", signal.name().to_owned()),
        ];
        ExporterMetrics {
            sent: items("sent"),
            send_failed: items("send_failed"),
            enqueue_failed: items("enqueue_failed"),
            queue_size: gauge!("otelcol_exporter_queue_size", &labels),
            queue_capacity: gauge!("otelcol_exporter_queue_capacity", &labels),
            in_flight_requests: gauge!("otelcol_exporter_in_flight_requests", &labels),
            batch_send_size: histogram!("otelcol_exporter_queue_batch_send_size", &labels[..1]),
            batch_send_bytes: histogram!(
                "otelcol_exporter_queue_batch_send_size_bytes",
                &labels[..1]
            ),
            account: Account::new("tributary_exporter", "delivered", &labels),
            recovered: counter!("tributary_exporter_recovered_items", &labels),
            kept: counter!("tributary_exporter_kept_items", &labels),
            trouble: cx.health.exporter(exporter, signal),
        }
    }

    /// Items came in from a pipeline; they are in flight until one of the calls below.
    pub fn received(&self, items: usize) {
        self.account.received(items);
    }

    /// The items were not taken, and the sender was told.
    pub fn refused(&self, items: usize) {
        self.trouble.begins();
        self.enqueue_failed.increment(items as u64);
        self.account.refused(items);
    }

    /// The items were in the stored queue, and are in flight from now on.
    pub fn recovered(&self, items: usize) {
        self.recovered.increment(items as u64);
        self.account.in_flight.increment(items as f64);
    }

    /// The items stay in the stored queue, which is closed.
    pub fn kept(&self, items: usize) {
        self.kept.increment(items as u64);
        self.account.in_flight.decrement(items as f64);
    }

    /// The items could not be delivered, and the sender, who waited for the outcome and has them still, was told.
    pub fn returned(&self, items: usize) {
        self.send_failed.increment(items as u64);
        self.account.refused(items);
    }

    /// The next hop acknowledged the items.
    pub fn delivered(&self, items: usize) {
        self.trouble.over();
        self.sent.increment(items as u64);
        self.account.passed(items);
    }

    /// The items are lost, for this reason.
    pub fn dropped(&self, items: usize, reason: DropReason) {
        self.trouble.begins();
        match reason {
            DropReason::QueueFull => self.enqueue_failed.increment(items as u64),
            _ => self.send_failed.increment(items as u64),
        }
        self.account.dropped(items, reason);
    }
}

/// What the pipeline counts for one of its processors.
#[derive(Clone)]
pub struct ProcessorMetrics {
    incoming: Counter,
    outgoing: Counter,
}

impl ProcessorMetrics {
    /// The handles of a processor for one signal.
    pub fn new(processor: &ComponentId, signal: Signal) -> Self {
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
        }
    }

    /// Items entered the processor.
    pub fn incoming(&self, items: usize) {
        self.incoming.increment(items as u64);
    }

    /// Items left the processor for the next stage.
    pub fn outgoing(&self, items: usize) {
        self.outgoing.increment(items as u64);
    }
}

/// What one TLS section of a component counts.
#[derive(Clone)]
pub struct TlsMetrics {
    succeeded: Counter,
    failed: Counter,
    distrusted: Counter,
}

impl TlsMetrics {
    /// The handles of one server or client.
    pub fn new(owner: &Owner) -> Self {
        let reloads = |outcome| counter!("tributary_tls_reloads", &with(owner, "outcome", outcome));
        TlsMetrics {
            succeeded: reloads("success"),
            failed: reloads("failure"),
            distrusted: counter!("tributary_tls_distrusted_connections", &owner.labels()),
        }
    }

    /// Files had changed, and could be used or not.
    pub fn reloaded(&self, successfully: bool) {
        match successfully {
            true => self.succeeded.increment(1),
            false => self.failed.increment(1),
        }
    }

    /// A connection was closed because its client is no longer trusted.
    pub fn distrusted(&self) {
        self.distrusted.increment(1);
    }
}

impl Account {
    /// The account of a pipeline.
    pub fn of_pipeline(pipeline: &str) -> Self {
        Account::new(
            "tributary_pipeline",
            "forwarded",
            &[("pipeline", pipeline.to_owned())],
        )
    }

    /// The account of a connector that holds what it has taken.
    pub fn of_connector(connector: &ComponentId) -> Self {
        Account::new(
            "tributary_connector",
            "delivered",
            &[("connector", connector.to_string())],
        )
    }
}

/// One side of the conservation equation, in items: received = passed + dropped + refused + in flight.
#[derive(Clone)]
pub struct Account {
    received: Counter,
    passed: Counter,
    refused: Counter,
    dropped: [Counter; DropReason::ALL.len()],
    in_flight: Gauge,
}

impl Account {
    fn new(prefix: &str, passed: &str, labels: &[(&'static str, String)]) -> Self {
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

    /// Items came in and are in flight from now on.
    pub fn received(&self, items: usize) {
        self.received.increment(items as u64);
        self.in_flight.increment(items as f64);
    }

    /// Items left for the next stage, which took responsibility.
    pub fn passed(&self, items: usize) {
        self.passed.increment(items as u64);
        self.in_flight.decrement(items as f64);
    }

    /// Items were given back to the sender.
    pub fn refused(&self, items: usize) {
        self.refused.increment(items as u64);
        self.in_flight.decrement(items as f64);
    }

    /// Items were dropped.
    pub fn dropped(&self, items: usize, reason: DropReason) {
        self.dropped[reason as usize].increment(items as u64);
        self.in_flight.decrement(items as f64);
    }
}
