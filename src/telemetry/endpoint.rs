//! Serves the collector's own metrics to Prometheus.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use tokio::time::Instant;

use super::exposition::{Exposition, labelled, with_totals};
use crate::component::auth;
use crate::component::identity::resource;
use crate::component::{BuildContext, Extensions, Host};
use crate::telemetry::config::ResourceLabels;
use crate::telemetry::config::{MetricsLevel, TelemetryConfig};
use tributary_config::{ComponentId, InvalidId};
use tributary_memory::Budget;
use tributary_net::Owner;
use tributary_net::auth::Guarded;
use tributary_net::server::{
    BoundServer, Protocol, Server, ServerOptions, SharedPage, SimpleHandler, plain, tls_source,
};

/// `/metrics` on the address of `service.telemetry.metrics`.
pub struct MetricsEndpoint {
    server: Server,
}

const TEXT_FORMAT: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Longest time for a scrape in progress when the endpoint closes.
const GRACE: Duration = Duration::from_secs(1);

impl MetricsEndpoint {
    /// Binds the address and serves metrics, unless the configuration disables them. `extensions`
    /// are the running ones.
    ///
    /// # Errors
    /// Returns an error that names the address or the TLS file that cannot be used.
    pub fn serve(
        config: &TelemetryConfig,
        host: &Host,
        extensions: Extensions,
        exposition: &Exposition,
    ) -> Result<Option<Self>, String> {
        let metrics = &config.metrics;
        let Some(endpoint) = metrics.listen() else {
            return Ok(None);
        };
        let at = |problem: String| format!("service.telemetry.metrics: {problem}");
        let id: ComponentId = "service"
            .parse()
            .map_err(|error: InvalidId| at(error.to_string()))?;
        let cx = BuildContext {
            extensions,
            ..host.context(&id)
        };
        let owner = Owner::new(&id, "service").with_transport("http");
        let options = ServerOptions {
            protocol: Protocol::Either,
            tls: tls_source(&metrics.tls, Protocol::Either, &owner)
                .map_err(|error| at(error.to_string()))?,
            limits: metrics.limits.clone(),
            budget: Some(host.budget.clone()),
            ..ServerOptions::default()
        };
        let guard = auth::guard(metrics.auth.as_ref(), &cx, &owner);
        let handler = Guarded {
            guard: guard.map_err(|error| at(error.to_string()))?,
            handler: handler(
                exposition.clone(),
                (metrics.level, metrics.has_type_suffix()),
                host.budget.clone(),
                resource(&config.resource),
                metrics.labels(),
            ),
        };
        let bound = host
            .listeners
            .bind(&id, &endpoint)
            .and_then(|listener| BoundServer::new(listener, handler, options, "metrics", owner));
        let bound = bound.map_err(|error| at(error.to_string()))?;
        Ok(Some(MetricsEndpoint {
            server: bound.start(),
        }))
    }

    /// Stops serving.
    pub async fn shutdown(self) {
        self.server.shutdown(Instant::now() + GRACE).await;
    }
}

fn handler(
    exposition: Exposition,
    (level, has_type_suffix): (MetricsLevel, bool),
    budget: Arc<Budget>,
    resource: Vec<(String, String)>,
    labels: ResourceLabels,
) -> SimpleHandler {
    let constant = resource.iter().filter(|(key, _)| labels.has(key));
    let constant: Vec<_> = constant.cloned().collect();
    let render = Arc::new(move || {
        let mut page = exposition.render(level, &budget, &resource);
        if has_type_suffix {
            page = with_totals(&page);
        }
        Bytes::from(labelled(page, &constant))
    });
    let shared = Arc::new(SharedPage::default());
    Arc::new(move |request| {
        let response = match (request.method(), request.uri().path()) {
            (&Method::GET | &Method::HEAD, "/metrics" | "/") => {
                let (render, shared) = (render.clone(), shared.clone());
                return Box::pin(async move {
                    let Some(page) = shared.get(move || render()).await else {
                        return plain(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
                    };
                    let mut response = Response::new(Full::from(page));
                    response.headers_mut().insert(CONTENT_TYPE, TEXT_FORMAT);
                    response
                });
            }
            (&Method::GET | &Method::HEAD, _) => {
                plain(StatusCode::NOT_FOUND, "metrics are at /metrics\n")
            }
            _ => {
                let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
                response
                    .headers_mut()
                    .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
                response
            }
        };
        Box::pin(async { response })
    })
}
