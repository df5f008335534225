//! Export of the collector's own metrics and log lines by OTLP (`service.telemetry`).
//!
//! Each destination is an `otlp_http` or `otlp_grpc` exporter without a sending queue. A failed export of metrics is
//! made good by the next one, because metrics are cumulative. A failed export of log lines is retried until its time
//! limit, then dropped.

mod destination;
mod logs;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;

use self::destination::Destination;
pub(super) use self::metrics::MetricsSource;
use crate::component::Host;
use crate::component::identity::resource;
use crate::telemetry::config::TelemetryConfig;
use crate::telemetry::logs::export::{LogQueue, OWN_EXPORTER};
use tributary_otlp::Signal;

/// Longest time for the last exports of a process or of a replaced configuration.
const LAST_EXPORT: Duration = Duration::from_secs(2);

/// The tasks that export own telemetry.
pub(super) struct OwnTelemetry {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl OwnTelemetry {
    /// Builds the exporters of `config` and starts to export. `queues` are the log lines, one queue for each processor.
    ///
    /// # Errors
    /// Returns an error that names the reader or processor whose exporter cannot be built.
    pub(super) fn start(
        config: &TelemetryConfig,
        host: &Host,
        source: &Arc<MetricsSource>,
        queues: Vec<LogQueue>,
    ) -> Result<Self, String> {
        let mut tasks = JoinSet::new();
        let stop = watch::Sender::new(false);
        let attributes = resource(&config.resource);
        for (index, reader) in config.metrics.periodic().enumerate() {
            let name = format!("{OWN_EXPORTER}.metrics.{index}");
            let destination = Destination::new(&name, &reader.exporter, Signal::Metrics, host)?;
            let source = source.with(config.metrics.level, attributes.clone());
            let task = metrics::export(source, reader.clone(), destination, stop.subscribe());
            tasks.spawn(task);
        }
        for (index, queue) in queues.into_iter().enumerate() {
            let name = format!("{OWN_EXPORTER}.logs.{index}");
            let exporter = queue.processor.settings().exporter;
            let destination = Destination::new(&name, &exporter, Signal::Logs, host)?;
            tasks.spawn(logs::export(queue, attributes.clone(), destination));
        }
        Ok(OwnTelemetry { tasks, stop })
    }

    /// Exports what is left and stops. The queues of log lines must have ended.
    pub(super) async fn shutdown(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(LAST_EXPORT, ended).await.is_err() {
            warn!(
                unfinished_exports = self.tasks.len(),
                "Own telemetry was not exported completely."
            );
        }
    }
}
