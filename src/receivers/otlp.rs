//! The `otlp` receiver: OTLP over gRPC and HTTP.
//!
//! The steps of a request: memory permit, body, decompression, JSON to protobuf, validation,
//! pipeline, response. A request is acknowledged only after the pipeline has accepted it. The
//! receiver refuses invalid requests.

mod config;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub(super) mod grpc;
mod http;
pub(super) mod intake;

use tokio::time::Instant;

pub use self::config::{Config, GrpcConfig, HttpConfig, Protocols};
use self::grpc::Grpc;
use self::http::Http;
use self::intake::{Intake, identity_stamp};
use crate::component::auth;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig, Stability,
};
use crate::metric::shared;
use crate::pipeline::calls::CallMetrics;
use crate::pipeline::episode::Episode;
use crate::pipeline::{Component, Undelivered};
use crate::receivers::metrics::ReceiverMetrics;
use crate::serving::body::BodyRate;
pub use crate::serving::cors::Cors;
use crate::serving::front::Front;
pub use crate::serving::grpc_keys::{EnforcementPolicy, ServerKeepalive, ServerParameters};
use futures_util::future::BoxFuture;
use tributary_config::{Endpoint, Section};
use tributary_net::Owner;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::{BoundServer, Handler, Server, ServerOptions, tls_source};
use tributary_net::tls::ServerTls;
use tributary_otlp::Signal;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "otlp",
    aliases: &[],
    "Receives OTLP requests over gRPC and HTTP.",
    &[
        (Signal::Traces, Stability::Stable),
        (Signal::Metrics, Stability::Stable),
        (Signal::Logs, Stability::Stable),
        (Signal::Profiles, Stability::Alpha),
    ],
    collector: Origin::Core,
    metrics: &[shared::RECEIVER, shared::SERVER, shared::TLS, shared::CALLS_IN]
);

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let intake = |transport,
                      tls: &Section<ServerTls>,
                      include_metadata,
                      body_rate,
                      limit,
                      limit_key,
                      items| {
            Intake {
                id: cx.id.clone(),
                outputs: outputs.clone(),
                budget: cx.budget.clone(),
                metrics: ReceiverMetrics::new(&cx.id, transport),
                introspection: cx.introspection.clone(),
                refusals: SampledLog::default(),
                no_memory: Episode::default(),
                stamp: identity_stamp(tls),
                include_metadata,
                body_rate,
                limit,
                limit_key,
                max_items: items,
            }
        };
        let receiver = Owner::new(&cx.id, "receiver");
        let mut waiting: Vec<Start> = Vec::new();
        if let Some(grpc) = &*self.protocols.grpc {
            let owner = receiver.with_transport("grpc");
            let handler = Grpc {
                intake: intake(
                    "grpc",
                    &grpc.tls,
                    grpc.include_metadata,
                    BodyRate::new(&grpc.limits, None),
                    grpc.max_message(),
                    "max_recv_msg_size_mib",
                    grpc.max_items(),
                ),
                guard: auth::guard(grpc.auth.as_ref(), cx, &owner)
                    .map_err(|error| within("grpc", error))?,
                calls: CallMetrics::of_server(),
                route: grpc::route,
            };
            let mut options = grpc.server_options();
            options.tls = tls_source(&grpc.tls, options.protocol, &owner)
                .map_err(|error| within("grpc", error))?;
            options.budget = Some(cx.budget.clone());
            waiting.push(bind(cx, &grpc.endpoint, handler, options, "GRPC", owner)?);
        }
        if let Some(http) = &*self.protocols.http {
            let owner = receiver.with_transport("http");
            let guard = auth::guard(http.auth.as_ref(), cx, &owner)
                .map_err(|error| within("http", error))?;
            let handler = Http::new(
                http,
                intake(
                    "http",
                    &http.tls,
                    http.include_metadata,
                    BodyRate::new(&http.limits, http.read_timeout.unless_zero()),
                    http.max_body(),
                    "max_request_body_size",
                    http.max_items(),
                ),
                Front::new(
                    guard,
                    &http.compression_algorithms,
                    http.cors.as_ref(),
                    &http.response_headers,
                    http.write_timeout.unless_zero(),
                ),
            );
            let mut options = http.server_options();
            options.tls = tls_source(&http.tls, options.protocol, &owner)
                .map_err(|error| within("http", error))?;
            options.budget = Some(cx.budget.clone());
            waiting.push(bind(cx, &http.endpoint, handler, options, "HTTP", owner)?);
        }
        Ok(Box::new(Receiver {
            waiting,
            running: Vec::new(),
        }))
    }
}

type Start = Box<dyn FnOnce() -> Server + Send>;

struct Receiver {
    waiting: Vec<Start>,
    running: Vec<Server>,
}

impl Component for Receiver {
    fn start(&mut self) {
        self.running
            .extend(self.waiting.drain(..).map(|start| start()));
    }

    /// Stops the servers. Requests in flight at the deadline were not acknowledged, so their clients
    /// still have the data.
    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let servers = self.running.into_iter();
            futures_util::future::join_all(servers.map(|server| server.shutdown(deadline))).await;
            Undelivered::default()
        })
    }
}

fn bind(
    cx: &BuildContext,
    endpoint: &Endpoint,
    handler: impl Handler,
    options: ServerOptions,
    name: &'static str,
    owner: Owner,
) -> Result<Start, BuildError> {
    // With port 0, the id distinguishes sockets, and this receiver has two of them.
    let socket = format!("{}/protocols/{}", cx.id, name.to_ascii_lowercase());
    let socket = socket.parse().unwrap_or_else(|_| cx.id.clone());
    let listener = cx.listeners.bind(&socket, endpoint);
    let bound = listener
        .and_then(|listener| BoundServer::new(listener, handler, options, name, owner))
        .map_err(|error| BuildError(error.to_string()))?;
    Ok(Box::new(move || bound.start()))
}

fn within(protocol: &str, error: impl std::fmt::Display) -> BuildError {
    BuildError(format!("protocols::{protocol}::{error}"))
}

#[cfg(test)]
mod tests;
