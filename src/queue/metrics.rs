//! Metrics of exporters.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tributary_otlp::Signal;

use crate::component::BuildContext;
use crate::pipeline::account::{Account, DropReason};
use crate::pipeline::health::{Arrived, ExporterHealth};

/// Metrics of an exporter for one signal.
#[derive(Clone)]
pub struct ExporterMetrics {
    sent: Counter,
    send_failed: Counter,
    enqueue_failed: Counter,
    account: Account,
    recovered: Counter,
    kept: Counter,
    failed_attempts: Counter,
    health: Arc<ExporterHealth>,
    /// `tributary_exporter_set_aside_records`: records of a stored queue that are retried beside the consumers.
    pub set_aside: Gauge,
    /// `otelcol_exporter_queue_size`, in the units of the queue's sizer.
    pub queue_size: Gauge,
    /// `otelcol_exporter_queue_capacity`, in the same units.
    pub queue_capacity: Gauge,
    /// `otelcol_exporter_in_flight_requests`, including requests that wait for a retry.
    pub in_flight_requests: Gauge,
    /// `otelcol_exporter_queue_batch_send_size`: items per batch that left the queue.
    pub batch_send_size: Histogram,
    /// `otelcol_exporter_queue_batch_send_size_bytes`: encoded, uncompressed bytes per batch that left the queue.
    pub batch_send_bytes: Histogram,
    /// `tributary_exporter_queue_wait_seconds`: time from the acceptance of a request to its first attempt.
    pub queue_wait_seconds: Histogram,
    /// `tributary_exporter_send_seconds`: duration of one attempt, by success.
    send_seconds: [Histogram; 2],
}

impl ExporterMetrics {
    /// Creates the metrics of an exporter for one signal.
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
            queue_wait_seconds: histogram!("tributary_exporter_queue_wait_seconds", &labels),
            send_seconds: ["failure", "success"].map(|outcome| {
                let [exporter, data_type] = labels.clone();
                let labels = [exporter, data_type, ("outcome", outcome.to_owned())];
                histogram!("tributary_exporter_send_seconds", &labels)
            }),
            account: Account::new("tributary_exporter", "delivered", &labels),
            recovered: counter!("tributary_exporter_recovered_items", &labels),
            kept: counter!("tributary_exporter_kept_items", &labels),
            failed_attempts: counter!("tributary_exporter_failed_attempts", &labels),
            set_aside: gauge!("tributary_exporter_set_aside_records", &labels),
            health: cx.health.exporter(exporter, signal),
        }
    }

    /// Records the duration of an attempt.
    pub fn attempted(&self, took: Duration, is_success: bool) {
        self.send_seconds[usize::from(is_success)].record(took.as_secs_f64());
    }

    /// Counts a failed attempt that will be retried.
    pub fn attempt_failed(&self) {
        self.failed_attempts.increment(1);
    }

    /// Reports to the health check that the next hop did not accept data.
    pub fn not_accepted(&self) {
        self.health.record_failure();
    }

    /// Records the error of a failed attempt.
    pub fn failed_with(&self, error: &impl Display) {
        self.health.record_error(error);
    }

    /// Records the arrival of a request. The request has no outcome until the result is dropped.
    pub fn arrived(&self) -> Arc<Arrived> {
        self.health.record_arrival()
    }

    /// Counts items from a pipeline. The items are in flight until another method counts their outcome.
    pub fn received(&self, items: usize) {
        self.account.received(items);
    }

    /// Counts items that were refused to the upstream sender.
    pub fn refused(&self, items: usize) {
        self.health.record_failure();
        self.enqueue_failed.increment(items as u64);
        self.account.refused(items);
    }

    /// Counts items found in the stored queue. The items are in flight from now on.
    pub fn recovered(&self, items: usize) {
        self.recovered.increment(items as u64);
        self.account.in_flight.increment(items as f64);
    }

    /// Counts items that stay in the stored queue when it closes.
    pub fn kept(&self, items: usize) {
        self.kept.increment(items as u64);
        self.account.in_flight.decrement(items as f64);
    }

    /// Counts undelivered items whose waiting sender got the error and still has the items.
    pub fn returned(&self, items: usize) {
        self.send_failed.increment(items as u64);
        self.account.refused(items);
    }

    /// Counts items that the next hop acknowledged.
    pub fn delivered(&self, items: usize) {
        self.health.record_delivery();
        self.sent.increment(items as u64);
        self.account.passed(items);
    }

    /// Counts items that are lost.
    pub fn dropped(&self, items: usize, reason: DropReason) {
        self.health.record_failure();
        match reason {
            DropReason::QueueFull => self.enqueue_failed.increment(items as u64),
            _ => self.send_failed.increment(items as u64),
        }
        self.account.dropped(items, reason);
    }
}
