//! The two protocols of a backend.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use opentelemetry_proto::tonic::collector::logs::v1 as logs;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1 as metrics;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::profiles::v1development as profiles;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_server::{
    ProfilesService, ProfilesServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1 as trace;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use prost::Message;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding::{Gzip, Zstd};
use tonic::service::Routes;
use tower::ServiceExt;

use super::door::Serve;
use super::{Answer, Shared};
use crate::harness::status::Status;
use crate::harness::{Signal, Telemetry, codec, raw};

/// Serves gRPC.
pub fn grpc(shared: Arc<Shared>) -> Serve {
    let services = Services(shared);
    macro_rules! service {
        ($server:ident) => {
            $server::new(services.clone())
                .accept_compressed(Gzip)
                .accept_compressed(Zstd)
                .max_decoding_message_size(usize::MAX)
        };
    }
    let routes = Routes::new(service!(TraceServiceServer))
        .add_service(service!(MetricsServiceServer))
        .add_service(service!(LogsServiceServer))
        .add_service(service!(ProfilesServiceServer))
        .prepare();
    Box::new(move |stream, close| {
        let routes = routes.clone();
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(close.clone());
            routes.clone().oneshot(request)
        });
        Box::pin(async move {
            let server = auto::Builder::new(TokioExecutor::new()).http2_only();
            let _ = server.serve_connection(stream, service).await;
        })
    })
}

#[derive(Clone)]
struct Services(Arc<Shared>);

impl Services {
    /// Returns the number of rejected items and the reason.
    async fn take<T>(
        &self,
        request: tonic::Request<T>,
        wrap: fn(T) -> Telemetry,
    ) -> Result<Option<(i64, String)>, tonic::Status> {
        let (metadata, extensions, message) = request.into_parts();
        let answer = self.0.decide(metadata.into_headers(), wrap(message)).await;
        match answer {
            Answer::Accept => Ok(None),
            Answer::Partial { rejected, message } => {
                Ok(Some((rejected.try_into().unwrap(), message.to_owned())))
            }
            Answer::Refuse(refusal) => {
                let code = refusal.grpc;
                let details = Status::new(code as i32, refusal.message, refusal.retry_after);
                Err(match refusal.retry_after {
                    None => tonic::Status::new(code, refusal.message),
                    Some(_) => {
                        let details = details.encode_to_vec().into();
                        tonic::Status::with_details(code, refusal.message, details)
                    }
                })
            }
            Answer::Disconnect | Answer::AcceptAndDisconnect => {
                extensions.get::<CancellationToken>().unwrap().cancel();
                std::future::pending().await
            }
        }
    }
}

macro_rules! serve {
    ($service:ident, $module:ident, $request:ident, $response:ident, $partial:ident, $rejected:ident, $wrap:expr) => {
        #[tonic::async_trait]
        impl $service for Services {
            async fn export(
                &self,
                request: tonic::Request<$module::$request>,
            ) -> Result<tonic::Response<$module::$response>, tonic::Status> {
                let partial = self.take(request, $wrap).await?;
                let partial_success = partial.map(|(rejected, message)| $module::$partial {
                    $rejected: rejected,
                    error_message: message,
                });
                Ok(tonic::Response::new($module::$response { partial_success }))
            }
        }
    };
}

serve!(
    TraceService,
    trace,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    ExportTracePartialSuccess,
    rejected_spans,
    Telemetry::Traces
);
serve!(
    MetricsService,
    metrics,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
    ExportMetricsPartialSuccess,
    rejected_data_points,
    Telemetry::Metrics
);
serve!(
    LogsService,
    logs,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
    ExportLogsPartialSuccess,
    rejected_log_records,
    Telemetry::Logs
);
serve!(
    ProfilesService,
    profiles,
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
    ExportProfilesPartialSuccess,
    rejected_profiles,
    Telemetry::Profiles
);

/// Serves HTTP.
pub fn http(shared: Arc<Shared>) -> Serve {
    Box::new(move |stream, close| {
        let shared = shared.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (shared, close) = (shared.clone(), close.clone());
            async move { Ok::<_, Infallible>(answer(&shared, request, &close).await) }
        });
        Box::pin(async move {
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(stream, service).await;
        })
    })
}

async fn answer(
    shared: &Shared,
    request: Request<Incoming>,
    close: &CancellationToken,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let signal = Signal::ALL
        .into_iter()
        .find(|signal| raw::path(*signal) == head.uri.path());
    let Some(signal) = signal else {
        return respond(404, "text/plain", "no such path");
    };
    // The client may disconnect in the middle of its body.
    let Ok(body) = body.collect().await else {
        return respond(400, "text/plain", "half a body");
    };
    let json = header(&head.headers, "content-type") == "application/json";
    let body = codec::decompress(header(&head.headers, "content-encoding"), &body.to_bytes());
    let body = match json {
        true => tributary_otlp::json::to_wire(signal, &body).unwrap(),
        false => body,
    };
    let telemetry = Telemetry::decode(signal, &body).unwrap();
    match shared.decide(head.headers, telemetry).await {
        Answer::Accept if json => respond(200, JSON, "{}"),
        Answer::Accept => respond(200, PROTOBUF, ""),
        Answer::Partial { rejected, message } => {
            // The four responses have the same field numbers.
            let response = trace::ExportTraceServiceResponse {
                partial_success: Some(trace::ExportTracePartialSuccess {
                    rejected_spans: rejected.try_into().unwrap(),
                    error_message: message.to_owned(),
                }),
            };
            respond(200, PROTOBUF, response.encode_to_vec())
        }
        Answer::Refuse(refusal) => {
            let status = Status::new(refusal.grpc as i32, refusal.message, None);
            let mut response = respond(refusal.http, PROTOBUF, status.encode_to_vec());
            if let Some(delay) = refusal.retry_after {
                let seconds = delay.as_secs().to_string().parse().unwrap();
                response.headers_mut().insert("retry-after", seconds);
            }
            response
        }
        Answer::Disconnect | Answer::AcceptAndDisconnect => {
            close.cancel();
            std::future::pending().await
        }
    }
}

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

fn respond(status: u16, content_type: &str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .body(Full::new(body.into()))
        .unwrap()
}
