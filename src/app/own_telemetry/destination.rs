//! A server that own telemetry is exported to.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use crate::component::{ExporterConfig, Host, Terminal};
use crate::exporters::{otlp_grpc, otlp_http};
use crate::pipeline::batch::Batch;
use crate::pipeline::health::Health;
use crate::pipeline::{Component, Consumer};
use crate::queue::RetryConfig;
use crate::telemetry::config::{PushCompression, PushExporter, PushOtlp, Transport};
use tributary_compression::http::Compression;
use tributary_config::Section;
use tributary_otlp::Signal;

/// An exporter of own telemetry of one signal.
pub(super) struct Destination {
    name: String,
    signal: Signal,
    consumer: Arc<dyn Consumer>,
    component: Box<dyn Component>,
    time_limit: Duration,
    is_failing: bool,
}

impl Destination {
    /// Builds the exporter. `name` tells the exporter from those of the pipelines.
    ///
    /// # Errors
    /// Returns an error that contains `name` if the exporter cannot be built.
    pub(super) fn new(
        name: &str,
        exporter: &PushExporter,
        signal: Signal,
        host: &Host,
    ) -> Result<Self, String> {
        let at = |problem: String| format!("{name}: {problem}");
        let Some((transport, otlp)) = exporter.selected() else {
            return Err(at("no exporter is configured".to_owned()));
        };
        let (kind, config): (_, Box<dyn ExporterConfig>) = match transport {
            Transport::Http { is_json } => ("otlp_http", Box::new(http(otlp, is_json, signal))),
            Transport::Grpc => ("otlp_grpc", Box::new(grpc(otlp, signal))),
        };
        let id = format!("{kind}/{name}").parse();
        let id = id.map_err(|error: tributary_config::InvalidId| at(error.to_string()))?;
        // A server of own telemetry that fails does not make the collector unhealthy.
        let health = Arc::new(Health::default());
        let host = Host {
            health,
            ..host.clone()
        };
        let built = config.build(&host.context(&id), &[signal]);
        let Terminal {
            inputs,
            mut component,
        } = built.map_err(|error| at(error.0))?;
        let consumer = inputs.get(signal).cloned();
        component.start();
        Ok(Destination {
            name: name.to_owned(),
            signal,
            consumer: consumer.ok_or_else(|| at(format!("does not take {signal}")))?,
            component,
            time_limit: otlp.time_limit(),
            is_failing: false,
        })
    }

    /// Exports a request within a time limit. The log reports the first failure and the first success after it.
    pub(super) async fn export(&mut self, items: usize, request: Bytes, limit: Duration) -> bool {
        let batch = Batch::new(self.signal, items, request);
        let limit = limit.min(self.time_limit);
        let sent = timeout(limit, self.consumer.consume(batch)).await;
        let problem = match sent {
            Ok(Ok(())) => None,
            Ok(Err(nack)) => Some(nack.to_string()),
            Err(_) => Some(format!("no success within {} ms", limit.as_millis())),
        };
        let (name, signal) = (&self.name, self.signal);
        match &problem {
            Some(error) if !self.is_failing => {
                warn!(exporter = name, error, "Cannot export own {signal}.");
            }
            None if self.is_failing => info!(exporter = name, "Own {signal} are exported again."),
            _ => {}
        }
        self.is_failing = problem.is_some();
        problem.is_none()
    }

    /// Closes the connections.
    pub(super) async fn shutdown(self) {
        self.component.shutdown(Instant::now()).await;
    }
}

fn http(otlp: &PushOtlp, is_json: bool, signal: Signal) -> otlp_http::Config {
    let mut config = otlp_http::Config {
        encoding: match is_json {
            true => otlp_http::Encoding::Json,
            false => otlp_http::Encoding::Proto,
        },
        compression: match otlp.compression {
            Some(PushCompression::Gzip) => Compression::Gzip,
            _ => Compression::None,
        },
        headers: otlp.all_headers(),
        tls: otlp.client_tls(),
        sending_queue: Section(None),
        retry_on_failure: retries(signal),
        ..otlp_http::Config::default()
    };
    // As OpenTelemetry's SDKs: a path of the endpoint is used as it is.
    let has_path = otlp
        .endpoint
        .parse::<http::Uri>()
        .is_ok_and(|url| !matches!(url.path(), "" | "/"));
    let endpoint = match signal {
        Signal::Metrics if has_path => &mut config.metrics_endpoint,
        Signal::Logs if has_path => &mut config.logs_endpoint,
        _ => &mut config.endpoint,
    };
    endpoint.clone_from(&otlp.endpoint);
    config
}

/// Returns the retries of failed exports. Metrics have none: the next export has the same counters.
fn retries(signal: Signal) -> Section<RetryConfig> {
    Section((signal != Signal::Metrics).then(RetryConfig::default))
}

fn grpc(otlp: &PushOtlp, signal: Signal) -> otlp_grpc::Config {
    otlp_grpc::Config {
        endpoint: otlp.endpoint.clone(),
        compression: match otlp.compression {
            Some(PushCompression::Gzip) => otlp_grpc::GrpcCompression::Gzip,
            _ => otlp_grpc::GrpcCompression::None,
        },
        headers: otlp.all_headers(),
        tls: otlp.client_tls(),
        sending_queue: Section(None),
        retry_on_failure: retries(signal),
        ..otlp_grpc::Config::default()
    }
}
