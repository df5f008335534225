//! The `zipkin` receiver: spans of Zipkin v1 and v2 over HTTP.
//!
//! A path that contains `api/v1/spans` means v1, every other path v2, as in the Collector. The content type tells the
//! encoding: Thrift for v1, protobuf for v2, and JSON otherwise.

use tributary_config::{Endpoint, ExtensionUse, Problems, Validate};
use tributary_net::Owner;
use tributary_net::sampled_log::SampledLog;
use tributary_net::server::{BoundServer, Protocol, ServerOptions, tls_source};
use tributary_otlp::Signal;
use tributary_span_formats::SpanFormat;

use crate::component::auth;
use crate::component::{
    BuildContext, BuildError, Entry, Origin, Outputs, ReceiverConfig, Stability,
};
use crate::metric::shared;
use crate::pipeline::Component;
use crate::pipeline::episode::Episode;
use crate::receivers::metrics::ReceiverMetrics;
use crate::receivers::otlp::intake::{Format, Intake, identity_stamp};
use crate::receivers::spans_http::{Misdirected, SpanRoutes, SpanServer};
use crate::serving::body::BodyRate;
use crate::serving::front::Front;
use crate::serving::keys::http_server_section;
use crate::serving::{DEFAULT_ITEMS, Serving};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ReceiverConfig> = crate::entry!(
    dyn ReceiverConfig,
    Config,
    "zipkin",
    aliases: &[],
    "Receives spans of Zipkin v1 and v2 as JSON, Thrift and protobuf over HTTP.",
    &[(Signal::Traces, Stability::Beta)],
    collector: Origin::Contrib,
    metrics: &[shared::RECEIVER, shared::SERVER, shared::TLS]
);

http_server_section! {
    /// Receives spans of Zipkin over HTTP.
    pub struct Config {
        /// Address to listen on. Default: `localhost:9411`.
        endpoint = "localhost:9411",
        /// Whether texts of tags and binary annotations become integers, floating-point numbers or booleans if they
        /// look like one. Default: false.
        parse_string_tags: bool = false,
        /// Maximum number of spans in a request; 0 means the default. A request with more is refused permanently.
        /// Default: 1000000. (The Collector has no such key.)
        max_items_per_request: usize = DEFAULT_ITEMS,
    }
}

impl Validate for Config {
    fn validate(&self, problems: &mut Problems) {
        self.validate_server("0.0.0.0:9411", problems);
    }

    fn listens_on(&self) -> Vec<(Vec<&'static str>, Endpoint)> {
        vec![(vec!["endpoint"], self.endpoint.clone())]
    }

    fn uses_extensions(&self) -> Vec<ExtensionUse> {
        let auth = self.auth.as_ref();
        auth.map(|auth| auth.server_use(&["auth"]))
            .into_iter()
            .collect()
    }
}

impl ReceiverConfig for Config {
    fn build(&self, cx: &BuildContext, outputs: Outputs) -> Result<Box<dyn Component>, BuildError> {
        let owner = Owner::new(&cx.id, "receiver").with_transport("http");
        let guard = auth::guard(self.auth.as_ref(), cx, &owner)
            .map_err(|error| BuildError(error.to_string()))?;
        let tls = tls_source(&self.tls, Protocol::Either, &owner)
            .map_err(|error| BuildError(error.to_string()))?;
        let stamp = identity_stamp(&self.tls);
        let intake = |transport| Intake {
            id: cx.id.clone(),
            outputs: outputs.clone(),
            budget: cx.budget.clone(),
            metrics: ReceiverMetrics::of(&cx.id, transport, &[Signal::Traces]),
            introspection: cx.introspection.clone(),
            refusals: SampledLog::default(),
            no_memory: Episode::default(),
            stamp: stamp.clone(),
            include_metadata: self.include_metadata,
            body_rate: BodyRate::new(&self.limits, self.read_timeout.unless_zero()),
            limit: self.max_body(),
            limit_key: "max_request_body_size",
            max_items: crate::serving::max_items(self.max_items_per_request),
        };
        let server = SpanServer {
            front: Front::new(
                guard,
                &self.compression_algorithms,
                self.cors.as_ref(),
                &self.response_headers,
                self.write_timeout.unless_zero(),
            ),
            routes: Routes {
                parse_string_tags: self.parse_string_tags,
                v1_thrift: intake("http_v1_thrift"),
                v1_json: intake("http_v1_json"),
                v2_json: intake("http_v2_json"),
                v2_proto: intake("http_v2_proto"),
            },
        };
        let options = ServerOptions {
            tls,
            budget: Some(cx.budget.clone()),
            ..self.server_options()
        };
        let bound = cx
            .listeners
            .bind(&cx.id, &self.endpoint)
            .and_then(|listener| BoundServer::new(listener, server, options, "HTTP", owner))
            .map_err(|error| BuildError(error.to_string()))?;
        Ok(Box::new(Serving::new(bound)))
    }
}

/// The formats of Zipkin, each with its own counters, as in the Collector.
struct Routes {
    parse_string_tags: bool,
    v1_thrift: Intake,
    v1_json: Intake,
    v2_json: Intake,
    v2_proto: Intake,
}

impl SpanRoutes for Routes {
    fn route(&self, path: &str, content_type: &str) -> Result<(&Intake, Format), Misdirected> {
        let (intake, format) = match (path.contains("api/v1/spans"), content_type) {
            (true, "application/x-thrift") => (&self.v1_thrift, SpanFormat::ZipkinV1Thrift),
            (true, _) => (&self.v1_json, SpanFormat::ZipkinV1Json),
            (false, "application/x-protobuf") => (&self.v2_proto, SpanFormat::ZipkinV2Proto),
            (false, _) => (&self.v2_json, SpanFormat::ZipkinV2Json),
        };
        Ok((intake, Format::Spans(format, self.parse_string_tags)))
    }

    fn any(&self) -> &Intake {
        &self.v2_json
    }
}
