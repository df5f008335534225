//! Serves health status for liveness and readiness probes.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::component::auth;
use crate::component::auth::Auth;
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::shared;
use crate::pipeline::health::{Health, Phase};
use crate::serving::Serving;
use tributary_config::units::{Duration, Endpoint};
use tributary_config::{ExtensionUse, Problems, Section, Validate};
use tributary_net::Owner;
use tributary_net::auth::Guarded;
use tributary_net::server::{
    BoundServer, Limits, Protocol, ServerOptions, SimpleHandler, tls_source,
};
use tributary_net::tls::ServerTls;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "health_check",
    aliases: &[],
    "Serves health status for liveness and readiness probes.",
    &[],
    collector: Origin::Contrib,
    metrics: &[shared::SERVER, shared::TLS]
);

/// HTTP endpoint that responds 200 while the collector is healthy and 503 otherwise.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address to listen on. Default: `localhost:13133`.
    pub endpoint: Endpoint,
    /// TLS of the server. Default: off, plain text.
    pub tls: Section<ServerTls>,
    /// Authentication of clients. Default: none, every client that reaches the address is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Limits on clients. (The Collector has no such key.)
    pub limits: Limits,
    /// Path of the endpoint. A path that ends in `/` includes all paths below it, so `/` matches every path. Must begin
    /// with `/`. Default: `/`.
    pub path: String,
    /// Response bodies in place of the JSON that describes the status. Default: JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<ResponseBody>,
    /// Time without a delivery, from the first failed attempt of an exporter, after which its pipelines count as
    /// unhealthy. `0s` disables the check: then only starting, stopping and a panicked stage are unhealthy. Default:
    /// 5m. (The Collector has no such key.)
    pub recovery_duration: Duration,
    /// The Collector's older check of exporter failures. Accepted without an effect: `recovery_duration` sets when
    /// exporters count as unhealthy. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_collector_pipeline: Option<CheckCollectorPipeline>,
}

/// The Collector's older check of exporter failures.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CheckCollectorPipeline {
    /// No effect; `true` causes a warning. Default: false.
    pub enabled: bool,
    /// No effect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Duration>,
    /// No effect. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exporter_failure_threshold: Option<u32>,
}

/// Response bodies in place of JSON.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResponseBody {
    /// Body of a 200 response. Default: empty.
    pub healthy: String,
    /// Body of a 503 response. Default: empty.
    pub unhealthy: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            endpoint: Endpoint("localhost:13133".to_owned()),
            tls: Section::default(),
            auth: None,
            limits: Limits::default(),
            path: "/".to_owned(),
            response_body: None,
            recovery_duration: Duration::secs(300),
            check_collector_pipeline: None,
        }
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        if !self.path.starts_with('/') {
            problems.error(&["path"], "must begin with `/`");
        }
        if let Some(tls) = &*self.tls {
            problems.within("tls", tls);
        }
        problems.within("limits", &self.limits);
        let pipeline = self.check_collector_pipeline.as_ref();
        if pipeline.is_some_and(|check| check.enabled) {
            problems.warning(
                &["check_collector_pipeline"],
                "has no effect: an exporter is unhealthy if it fails for longer than `recovery_duration`; remove it",
            );
        }
        let (auth, host) = (self.auth.as_ref(), self.endpoint.host());
        auth::warn_about_plaintext(auth, self.tls.is_some(), host, problems);
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.iter();
        auth.map(|auth| auth.server_use(&["auth"])).collect()
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        vec![(vec!["endpoint"], self.endpoint.clone())]
    }
}

impl ExtensionConfig for Config {
    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        let owner = Owner::new(&cx.id, "extension").with_transport("http");
        let handler = Guarded {
            guard: auth::guard(self.auth.as_ref(), cx, &owner)?,
            handler: handler(self.clone(), cx.health.clone()),
        };
        let options = ServerOptions {
            protocol: Protocol::Either,
            tls: tls_source(&self.tls, Protocol::Either, &owner)
                .map_err(|error| BuildError(error.to_string()))?,
            limits: self.limits.clone(),
            budget: Some(cx.budget.clone()),
            ..ServerOptions::default()
        };
        let bound = cx
            .listeners
            .bind(&cx.id, &self.endpoint)
            .and_then(|listener| BoundServer::new(listener, handler, options, "HTTP", owner))
            .map_err(|error| BuildError(error.to_string()))?;
        Ok(Extension {
            component: Box::new(Serving::new(bound)),
            services: Services::default(),
        })
    }
}

fn handler(config: Config, health: Arc<Health>) -> SimpleHandler {
    Arc::new(move |request| {
        let response = if answers_on(&config.path, request.uri().path()) {
            answer(&config, &health)
        } else {
            respond(StatusCode::NOT_FOUND, Bytes::new())
        };
        Box::pin(async { response })
    })
}

/// Matches paths like Go's `http.ServeMux`: with the default path, the Collector responds to probes
/// of `/healthz` and `/health/status`, and deployments rely on this.
fn answers_on(path: &str, requested: &str) -> bool {
    requested == path || (path.ends_with('/') && requested.starts_with(path))
}

fn answer(config: &Config, health: &Health) -> Response<Full<Bytes>> {
    let failing = match config.recovery_duration.is_zero() {
        true => Vec::new(),
        false => health.failing(*config.recovery_duration),
    };
    let phase = health.phase();
    let healthy = phase == Phase::Ready && failing.is_empty();
    let status = if healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    if let Some(body) = &config.response_body {
        let text = if healthy {
            &body.healthy
        } else {
            &body.unhealthy
        };
        return respond(status, text.clone());
    }
    let words = match phase {
        Phase::Starting => "Server is starting",
        Phase::Stopping => "Server is stopping",
        Phase::Failed => "A stage has panicked",
        Phase::Ready if healthy => "Server available",
        Phase::Ready => "Some exporters do not deliver",
    };
    let (since, uptime) = health.started();
    let since = since
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let failing: Vec<_> = failing
        .iter()
        .map(|(id, signal, lasting)| {
            serde_json::json!({
                "exporter": id.to_string(),
                "signal": signal.name(),
                "failingForSeconds": lasting.as_secs(),
            })
        })
        .collect();
    let body = serde_json::json!({
        "status": words,
        "upSinceUnixSeconds": since.as_secs(),
        "uptimeSeconds": uptime.as_secs(),
        "failing": failing,
    });
    let mut response = respond(status, body.to_string());
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn respond(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tributary_otlp::Signal;

    #[test]
    fn process_is_healthy_if_ready_and_exporters_deliver() {
        let health = Health::default();
        let config = Config::default();
        let at_once = Duration(std::time::Duration::from_nanos(1));
        let impatient = Config {
            recovery_duration: at_once,
            ..config.clone()
        };
        assert_eq!(answer(&config, &health).status(), 503);
        health.set_phase(Phase::Ready);
        assert_eq!(answer(&config, &health).status(), 200);

        let exporter = health.exporter(&"otlp_grpc".parse().unwrap(), Signal::Logs);
        exporter.record_failure();
        assert_eq!(answer(&config, &health).status(), 200);
        assert_eq!(answer(&impatient, &health).status(), 503);
        exporter.record_delivery();
        assert_eq!(answer(&impatient, &health).status(), 200);

        health.set_phase(Phase::Failed);
        assert_eq!(answer(&config, &health).status(), 503);
    }

    #[test]
    fn path_with_trailing_slash_matches_subpaths() {
        assert!(answers_on("/", "/") && answers_on("/", "/healthz"));
        assert!(answers_on("/health", "/health") && answers_on("/health/", "/health/status"));
        assert!(!answers_on("/health", "/health/status") && !answers_on("/health/", "/healthz"));
    }
}
