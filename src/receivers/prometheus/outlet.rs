//! The way of requests to the pipelines, and the counters of a receiver.

use std::sync::Arc;

use metrics::{Counter, counter};
use tracing::{debug, warn};

use super::encode::{Encoded, Unencoded};
use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Nack};
use crate::receivers::metrics::ReceiverMetrics;
use crate::serving::body::out_of_memory;
use tributary_config::ComponentId;
use tributary_memory::{Budget, Permit};
use tributary_net::sampled_log::SampledLog;
use tributary_otlp::Signal;

/// The way to the pipelines, which all targets of a receiver share.
pub(super) struct Outlet {
    pub(super) id: ComponentId,
    pub(super) budget: Arc<Budget>,
    consumer: Arc<dyn Consumer>,
    metrics: ReceiverMetrics,
    /// Log of failed scrapes.
    pub(super) failures: SampledLog,
    refusals: SampledLog,
}

/// Counters of the scrapes of a job.
pub(super) struct JobCounters {
    pub(super) succeeded: Counter,
    pub(super) failed: Counter,
}

impl Outlet {
    /// Creates the way of the receiver `id`.
    pub(super) fn new(id: &ComponentId, budget: Arc<Budget>, consumer: Arc<dyn Consumer>) -> Self {
        Outlet {
            id: id.clone(),
            budget,
            consumer,
            metrics: ReceiverMetrics::of(id, "http", &[Signal::Metrics]),
            failures: SampledLog::default(),
            refusals: SampledLog::default(),
        }
    }

    /// Returns the counters of a job.
    pub(super) fn counters(&self, job: &str) -> JobCounters {
        let scrapes = |outcome: &'static str| {
            counter!(
                "tributary_receiver_prometheus_scrapes",
                "receiver" => self.id.to_string(),
                "job" => job.to_owned(),
                "outcome" => outcome
            )
        };
        JobCounters {
            succeeded: scrapes("success"),
            failed: scrapes("failure"),
        }
    }

    /// Sends a request to the pipelines. A refused request is dropped, because the next scrape follows soon.
    pub(super) async fn send(&self, request: Result<(Encoded, Permit), Unencoded>, target: &str) {
        let (points, outcome) = match request {
            Err(Unencoded { points, no_room }) => (points, Err(out_of_memory(no_room))),
            Ok((Encoded { points: 0, .. }, _)) => return,
            Ok((Encoded { request, points }, permit)) => {
                let mut batch = Batch::new(Signal::Metrics, points, bytes::Bytes::from(request));
                batch.hold(permit);
                (points, self.consumer.consume(batch).await)
            }
        };
        match outcome {
            Ok(()) => self.metrics.accepted(Signal::Metrics, points),
            Err(refused) => self.refused(points, &refused, target),
        }
    }

    fn refused(&self, points: usize, refused: &Nack, target: &str) {
        self.metrics.refused(Signal::Metrics, points);
        match self.refusals.admit() {
            Some(suppressed) => warn!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                url = target,
                points,
                error = %refused,
                suppressed,
                "Dropped the metrics of a scrape, because the pipeline refused them"
            ),
            None => debug!(
                otelcol.component.id = %self.id,
                otelcol.component.kind = "receiver",
                url = target,
                points,
                error = %refused,
                "Dropped the metrics of a scrape"
            ),
        }
    }
}

impl JobCounters {
    /// Counts a scrape.
    pub(super) fn count(&self, has_failed: bool) {
        match has_failed {
            true => self.failed.increment(1),
            false => self.succeeded.increment(1),
        }
    }
}
