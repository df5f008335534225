//! `prometheus`: keeps the last value of every series for Prometheus to scrape.
//!
//! A point is acknowledged, and counts as delivered, when it is in the table: the sender does not
//! learn whether it is scraped. A point that cannot be exposed (no room, conflicting type, out of
//! order, invalid) is dropped and counted; the rest of its request is accepted.
//! `docs/prometheus.md` has the rules.

mod config;
mod ends;
mod exemplar;
mod exponential;
mod family;
#[cfg(fuzzing)]
mod fuzzing;
mod hash;
mod kind;
mod labels;
mod naming;
mod negotiate;
mod origin;
mod page;
mod points;
mod protobuf;
mod room;
mod server;
mod slot;
mod table;
#[cfg(any(test, fuzzing))]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod value;

pub use self::config::{Config, ResourceConversion, ResourceLabelFilter, Strategy};
#[cfg(fuzzing)]
#[doc(hidden)]
pub use self::fuzzing::pages;

use std::sync::Arc;

use metrics::{Counter, counter};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use self::server::Scrapes;
use self::slot::Rejection;
use self::table::Table;
use crate::component::{
    BuildContext, BuildError, Entry, ExporterConfig, Origin, Outputs, Stability, Terminal,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::account::DropReason;
use crate::pipeline::batch::{Batch, Nack};
use crate::pipeline::{Component, Consumer, Undelivered};
use crate::queue::metrics::ExporterMetrics;
use futures_util::future::BoxFuture;
use tributary_net::server::{BoundServer, Server};
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExporterConfig> = crate::entry!(
    dyn ExporterConfig,
    Config,
    "prometheus",
    aliases: &[],
    "Exposes the last value of each metric for scraping by Prometheus.",
    &[(Signal::Metrics, Stability::Beta)],
    collector: Origin::Contrib,
    metrics: &[shared::EXPORTER, shared::SERVER, shared::TLS, METRICS]
);

const METRICS: &[Metric] = &[
    metric::counter(
        "tributary_exporter_prometheus_rejected_points",
        "Number of points that could not be exposed, by reason: no room, out of order, invalid, or in conflict \
         with another metric",
    ),
    metric::counter(
        "tributary_exporter_prometheus_scrapes",
        "Number of scrapes served, by exposition format",
    ),
    metric::gauge(
        "tributary_exporter_prometheus_series",
        "Number of exposed series, as Prometheus counts them",
    ),
    metric::gauge(
        "tributary_exporter_prometheus_memory_bytes",
        "Memory of the exposed series, in bytes",
    ),
];

impl ExporterConfig for Config {
    fn build(&self, cx: &BuildContext, signals: &[Signal]) -> Result<Terminal, BuildError> {
        let table = Arc::new(Table::new(self, cx));
        let bound = server::bind(self, cx, &table)?;
        let mut inputs = Outputs::default();
        for signal in signals {
            let intake = Intake {
                table: table.clone(),
                metrics: ExporterMetrics::new(cx, *signal),
                rejected: Rejection::ALL.map(|reason| {
                    counter!(
                        "tributary_exporter_prometheus_rejected_points",
                        "exporter" => cx.id.to_string(),
                        "reason" => reason.name()
                    )
                }),
            };
            inputs.set(*signal, Arc::new(intake));
        }
        Ok(Terminal {
            inputs,
            component: Box::new(Exporter {
                table,
                bound: Some(bound),
                server: None,
                stop: CancellationToken::new(),
            }),
        })
    }
}

/// The entry of batches.
struct Intake {
    table: Arc<Table>,
    metrics: ExporterMetrics,
    rejected: [Counter; Rejection::ALL.len()],
}

impl Consumer for Intake {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            self.metrics.received(batch.items());
            let items = batch.items();
            let mut rejected = 0;
            for request in batch.wire().parts() {
                let counts = self.table.take(request);
                for (counter, points) in self.rejected.iter().zip(counts.0) {
                    if points > 0 {
                        counter.increment(points as u64);
                    }
                }
                rejected += counts.total();
            }
            self.table.show();
            let rejected = rejected.min(items);
            if rejected > 0 {
                self.metrics.dropped(rejected, DropReason::PartialSuccess);
            }
            if rejected < items {
                self.metrics.delivered(items - rejected);
            }
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// The running exporter: its server, and the task that removes expired series.
struct Exporter {
    table: Arc<Table>,
    bound: Option<BoundServer<Scrapes>>,
    server: Option<Server>,
    stop: CancellationToken,
}

impl Component for Exporter {
    fn start(&mut self) {
        self.server = self.bound.take().map(BoundServer::start);
        tokio::spawn(expire(self.table.clone(), self.stop.clone()));
    }

    /// Points in the table were delivered when they arrived. Scrapes in flight may finish.
    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.stop.cancel();
            if let Some(server) = self.server {
                server.shutdown(deadline).await;
            }
            Undelivered::default()
        })
    }
}

/// Removes expired series periodically, independent of scrapes.
async fn expire(table: Arc<Table>, stop: CancellationToken) {
    let mut every = interval(table.expiry_interval());
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = every.tick() => {
                let table = table.clone();
                // Expiry visits every series, so it runs outside of the async threads.
                let _ = spawn_blocking(move || table.expire()).await;
            }
        }
    }
}
