//! The `jaeger` receiver: spans of Jaeger over gRPC, HTTP and UDP.

mod agent;
mod config;

use futures_util::future::BoxFuture;
use http::StatusCode;
use tokio::time::Instant;
use tributary_config::{Endpoint, Section};
use tributary_net::Owner;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::{BoundServer, Handler, ServerOptions, tls_source};
use tributary_net::tls::ServerTls;
use tributary_otlp::Signal;
use tributary_span_formats::SpanFormat;

use self::agent::Agent;
use self::config::AgentSettings;
pub use self::config::{
    BinaryConfig, CompactConfig, Config, JaegerGrpcConfig, JaegerProtocols, ThriftHttpConfig,
};
use crate::component::auth;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig, Stability,
};
use crate::metric::{self, Metric, shared};
use crate::pipeline::calls::CallMetrics;
use crate::pipeline::episode::Episode;
use crate::pipeline::{Component, Undelivered};
use crate::receivers::metrics::ReceiverMetrics;
use crate::receivers::otlp::grpc::Grpc;
use crate::receivers::otlp::intake::{Format, Intake, identity_stamp};
use crate::receivers::spans_http::{Misdirected, SpanRoutes, SpanServer};
use crate::serving::Serving;
use crate::serving::body::BodyRate;
use crate::serving::front::Front;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "jaeger",
    aliases: &[],
    "Receives spans of Jaeger over gRPC, HTTP and UDP.",
    &[(Signal::Traces, Stability::Beta)],
    collector: Origin::Contrib,
    metrics: &[
        shared::RECEIVER,
        shared::SERVER,
        shared::TLS,
        shared::CALLS_IN,
        METRICS
    ]
);

/// Metrics of this component.
const METRICS: &[Metric] = &[metric::counter(
    "tributary_receiver_dropped_packets",
    "Number of UDP packets that were dropped, by reason: `queue_full`, `memory`, `too_large`, `malformed`, `refused` by the pipeline, or `shutdown`",
)];

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let builder = Builder { cx, outputs };
        let protocols = &self.protocols;
        let mut parts: Vec<Box<dyn Component>> = Vec::new();
        if let Some(grpc) = &*protocols.grpc {
            let part = builder.grpc(grpc);
            parts.push(part.map_err(|error| within("grpc", error))?);
        }
        if let Some(http) = &*protocols.thrift_http {
            let part = builder.thrift_http(http);
            parts.push(part.map_err(|error| within("thrift_http", error))?);
        }
        let compact = (*protocols.thrift_compact)
            .as_ref()
            .map(CompactConfig::settings);
        let binary = (*protocols.thrift_binary)
            .as_ref()
            .map(BinaryConfig::settings);
        for (settings, key, format) in [
            (compact, "thrift_compact", SpanFormat::JaegerAgentCompact),
            (binary, "thrift_binary", SpanFormat::JaegerAgentBinary),
        ] {
            if let Some(settings) = settings {
                let part = builder.agent(settings, key, format);
                parts.push(part.map_err(|error| within(key, error))?);
            }
        }
        Ok(Box::new(Receiver { parts }))
    }
}

/// Inputs to the construction of the protocols.
struct Builder<'a> {
    cx: &'a BuildContext,
    outputs: Outputs,
}

impl Builder<'_> {
    fn grpc(&self, config: &JaegerGrpcConfig) -> Result<Box<dyn Component>, BuildError> {
        let owner = Owner::new(&self.cx.id, "receiver").with_transport("grpc");
        let handler = Grpc {
            intake: Intake {
                stamp: identity_stamp(&config.tls),
                include_metadata: config.include_metadata,
                body_rate: BodyRate::new(&config.limits, None),
                limit: config.max_message(),
                limit_key: "max_recv_msg_size_mib",
                max_items: config.max_items(),
                ..self.intake("grpc")
            },
            guard: auth::guard(config.auth.as_ref(), self.cx, &owner).map_err(text)?,
            calls: CallMetrics::of_server_method(POST_SPANS),
            route: |path| {
                let is_post_spans = path.strip_prefix('/') == Some(POST_SPANS);
                let format = Format::Spans(SpanFormat::JaegerProto, false);
                is_post_spans.then_some((Signal::Traces, format))
            },
        };
        let options = config.server_options();
        self.bind(
            "grpc",
            &config.endpoint,
            handler,
            &config.tls,
            options,
            owner,
        )
    }

    fn thrift_http(&self, config: &ThriftHttpConfig) -> Result<Box<dyn Component>, BuildError> {
        let owner = Owner::new(&self.cx.id, "receiver").with_transport("http");
        let guard = auth::guard(config.auth.as_ref(), self.cx, &owner).map_err(text)?;
        let handler = SpanServer {
            front: Front::new(
                guard,
                &config.compression_algorithms,
                config.cors.as_ref(),
                &config.response_headers,
                config.write_timeout.unless_zero(),
            ),
            routes: Routes(Intake {
                stamp: identity_stamp(&config.tls),
                include_metadata: config.include_metadata,
                body_rate: BodyRate::new(&config.limits, config.read_timeout.unless_zero()),
                limit: config.max_body(),
                limit_key: "max_request_body_size",
                max_items: crate::serving::max_items(config.max_items_per_request),
                ..self.intake("collector_http")
            }),
        };
        let options = config.server_options();
        self.bind(
            "thrift_http",
            &config.endpoint,
            handler,
            &config.tls,
            options,
            owner,
        )
    }

    fn agent(
        &self,
        settings: AgentSettings,
        key: &'static str,
        format: SpanFormat,
    ) -> Result<Box<dyn Component>, BuildError> {
        let transport = match format {
            SpanFormat::JaegerAgentCompact => "udp_thrift_compact",
            _ => "udp_thrift_binary",
        };
        let socket = self.socket(key);
        let sockets = self
            .cx
            .listeners
            .bind_datagrams(&socket, &settings.endpoint);
        let sockets = sockets.map_err(text)?;
        let intake = Intake {
            limit: settings.max_packet_size,
            limit_key: "max_packet_size",
            max_items: usize::MAX,
            ..self.intake(transport)
        };
        let agent = Agent::new(sockets, intake, format, transport, settings).map_err(text)?;
        Ok(Box::new(agent))
    }

    /// Returns an intake without the settings of a protocol.
    fn intake(&self, transport: &'static str) -> Intake {
        let cx = self.cx;
        Intake {
            id: cx.id.clone(),
            outputs: self.outputs.clone(),
            budget: cx.budget.clone(),
            metrics: ReceiverMetrics::of(&cx.id, transport, &[Signal::Traces]),
            introspection: cx.introspection.clone(),
            refusals: SampledLog::default(),
            no_memory: Episode::default(),
            stamp: None,
            include_metadata: false,
            body_rate: BodyRate::default(),
            limit: 0,
            limit_key: "",
            max_items: 0,
        }
    }

    /// Returns the name of a socket. With port 0, the name distinguishes the sockets of this receiver.
    fn socket(&self, key: &str) -> tributary_config::ComponentId {
        let socket = format!("{}/protocols/{key}", self.cx.id);
        socket.parse().unwrap_or_else(|_| self.cx.id.clone())
    }

    fn bind(
        &self,
        key: &'static str,
        endpoint: &Endpoint,
        handler: impl Handler,
        tls: &Section<ServerTls>,
        mut options: ServerOptions,
        owner: Owner,
    ) -> Result<Box<dyn Component>, BuildError> {
        options.tls = tls_source(tls, options.protocol, &owner).map_err(text)?;
        options.budget = Some(self.cx.budget.clone());
        let name = if key == "grpc" { "GRPC" } else { "HTTP" };
        let listener = self.cx.listeners.bind(&self.socket(key), endpoint);
        let bound = listener
            .and_then(|listener| BoundServer::new(listener, handler, options, name, owner))
            .map_err(text)?;
        Ok(Box::new(Serving::new(bound)))
    }
}

/// The only method that clients of Jaeger call.
const POST_SPANS: &str = "jaeger.api_v2.CollectorService/PostSpans";

fn text(error: impl std::fmt::Display) -> BuildError {
    BuildError(error.to_string())
}

/// Creates an error of one protocol.
fn within(protocol: &str, error: impl std::fmt::Display) -> BuildError {
    BuildError(format!("protocols::{protocol}::{error}"))
}

/// Requests of clients that send Thrift over HTTP.
struct Routes(Intake);

impl SpanRoutes for Routes {
    fn route(&self, path: &str, content_type: &str) -> Result<(&Intake, Format), Misdirected> {
        if path != "/api/traces" {
            let message = "404 page not found; the path for spans of Jaeger is /api/traces";
            return Err(Misdirected(StatusCode::NOT_FOUND, message));
        }
        match content_type {
            "application/x-thrift" | "application/vnd.apache.thrift.binary" => {
                Ok((&self.0, Format::Spans(SpanFormat::JaegerThrift, false)))
            }
            _ => Err(Misdirected(
                StatusCode::BAD_REQUEST,
                "400 unsupported content type, supported: [application/x-thrift, application/vnd.apache.thrift.binary]",
            )),
        }
    }

    fn any(&self) -> &Intake {
        &self.0
    }
}

/// All protocols of the receiver.
struct Receiver {
    parts: Vec<Box<dyn Component>>,
}

impl Component for Receiver {
    fn start(&mut self) {
        for part in &mut self.parts {
            part.start();
        }
    }

    fn shutdown(self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            let parts = self.parts.into_iter();
            let parts = parts.map(|part| part.shutdown(deadline));
            let all = futures_util::future::join_all(parts).await;
            all.into_iter().sum()
        })
    }
}
