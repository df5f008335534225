//! The backend: OTLP over gRPC and over HTTP, in two sinks. Each sink records which items arrived,
//! how often, and by which connection.

use std::convert::Infallible;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
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
use prost::Message as _;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::ServiceExt as _;
use tributary_otlp::Signal;

use super::arrivals::Arrivals;
use super::locked;
use super::status;
use super::telemetry::Telemetry;

/// Behaviour of a sink.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mood {
    /// Accepts everything.
    Fine,
    /// Refuses every second request with this response.
    Refuses(Refusal),
    /// Delays responses; the sink accepts the data before or after the delay.
    Slow { by: Duration, taken_before: bool },
    /// Closes the connection instead of every second response; `taken` says whether the data was
    /// accepted before.
    Resets { taken: bool },
    /// Accepts this many items per second with a burst of one second. Refuses further items with a
    /// retry delay.
    Limited { rate: u32 },
}

/// Burst of a limited backend: enough that it is never idle while its clients wait to retry.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A gRPC status and the corresponding HTTP status.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refusal {
    pub code: Code,
    pub http: u16,
    /// Retry delay for RetryInfo and `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether OTLP's specification forbids a retry.
    pub permanent: bool,
}

/// One server of the backend.
pub struct Sink {
    pub name: &'static str,
    pub address: SocketAddr,
    pub mood: watch::Sender<Mood>,
    pub arrivals: Arrivals,
    pace: std::sync::Mutex<Instant>,
}

impl Sink {
    /// Starts a gRPC sink.
    pub async fn grpc(began: std::time::Instant) -> std::io::Result<Arc<Self>> {
        Sink::open("grpc", began, |sink, stream, connection| {
            Box::pin(serve_grpc(sink, stream, connection))
        })
        .await
    }

    /// Starts an HTTP sink.
    pub async fn http(began: std::time::Instant) -> std::io::Result<Arc<Self>> {
        Sink::open("http", began, |sink, stream, connection| {
            Box::pin(serve_http(sink, stream, connection))
        })
        .await
    }

    async fn open<S>(
        name: &'static str,
        began: std::time::Instant,
        serve: S,
    ) -> std::io::Result<Arc<Self>>
    where
        S: Fn(Arc<Sink>, Stream, Connection) -> futures_util::future::BoxFuture<'static, ()>
            + Send
            + Sync
            + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let sink = Arc::new(Sink {
            name,
            address: listener.local_addr()?,
            mood: watch::Sender::new(Mood::Fine),
            arrivals: Arrivals::new(began),
            pace: std::sync::Mutex::new(Instant::now()),
        });
        let serving = sink.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let connection = Connection {
                    number: serving.arrivals.connected(),
                    close: CancellationToken::new(),
                };
                let close = connection.close.clone();
                let number = connection.number;
                let served = serve(serving.clone(), TokioIo::new(stream), connection);
                let sink = serving.clone();
                tokio::spawn(async move {
                    close.run_until_cancelled(served).await;
                    sink.arrivals.disconnected(number);
                });
            }
        });
        Ok(sink)
    }

    /// Returns the response to a request; `None` closes the connection.
    async fn decide(&self, telemetry: &Telemetry, connection: u32) -> Option<Result<(), Refusal>> {
        let numbers = match telemetry.numbers() {
            Ok(numbers) => numbers,
            Err(defect) => {
                self.arrivals.defect(defect);
                return Some(Ok(()));
            }
        };
        let mood = *self.mood.borrow();
        match mood {
            Mood::Refuses(refusal) if fastrand::bool() => {
                if refusal.permanent {
                    self.arrivals.refused_for_good(&numbers);
                }
                return Some(Err(refusal));
            }
            Mood::Slow { by, taken_before } => {
                if taken_before {
                    self.arrivals.arrived(&numbers, connection);
                }
                tokio::time::sleep(by).await;
                if taken_before {
                    return Some(Ok(()));
                }
            }
            Mood::Resets { taken } if fastrand::bool() => {
                if taken {
                    self.arrivals.arrived(&numbers, connection);
                }
                return None;
            }
            Mood::Limited { rate } => {
                let mut pace = locked(&self.pace);
                let now = Instant::now();
                let behind = pace.saturating_duration_since(now);
                // Regardless of the request's size: a delay would be a different fault.
                if behind < AT_ONCE {
                    let takes = Duration::from_secs_f64(numbers.len() as f64 / f64::from(rate));
                    *pace = now + behind + takes;
                    drop(pace);
                    self.arrivals.arrived(&numbers, connection);
                    return Some(Ok(()));
                }
                return Some(Err(Refusal {
                    code: Code::ResourceExhausted,
                    http: 429,
                    retry_after: Some(behind - AT_ONCE),
                    permanent: false,
                }));
            }
            _ => {}
        }
        self.arrivals.arrived(&numbers, connection);
        Some(Ok(()))
    }
}

type Stream = TokioIo<tokio::net::TcpStream>;

#[derive(Clone)]
struct Connection {
    number: u32,
    close: CancellationToken,
}

async fn serve_grpc(sink: Arc<Sink>, stream: Stream, connection: Connection) {
    let services = Services { sink, connection };
    macro_rules! service {
        ($server:ident) => {
            $server::new(services.clone())
                .accept_compressed(Gzip)
                .max_decoding_message_size(usize::MAX)
        };
    }
    let routes = Routes::new(service!(TraceServiceServer))
        .add_service(service!(MetricsServiceServer))
        .add_service(service!(LogsServiceServer))
        .add_service(service!(ProfilesServiceServer))
        .prepare();
    let service = service_fn(move |request: Request<Incoming>| routes.clone().oneshot(request));
    let server = auto::Builder::new(TokioExecutor::new()).http2_only();
    let _ = server.serve_connection(stream, service).await;
}

#[derive(Clone)]
struct Services {
    sink: Arc<Sink>,
    connection: Connection,
}

impl Services {
    async fn take(&self, telemetry: Telemetry) -> Result<(), Status> {
        match self.sink.decide(&telemetry, self.connection.number).await {
            Some(Ok(())) => Ok(()),
            Some(Err(refusal)) => {
                let details = refusal.retry_after.map(|delay| {
                    let code = refusal.code as i32;
                    status::Status::new(code, REFUSED, Some(delay)).encode_to_vec()
                });
                let details = details.unwrap_or_default().into();
                Err(Status::with_details(refusal.code, REFUSED, details))
            }
            None => {
                self.connection.close.cancel();
                std::future::pending().await
            }
        }
    }
}

const REFUSED: &str = "the backend is in no mood";

macro_rules! serve {
    ($service:ident, $module:ident, $request:ident, $response:ident, $wrap:expr) => {
        #[tonic::async_trait]
        impl $service for Services {
            async fn export(
                &self,
                request: tonic::Request<$module::$request>,
            ) -> Result<tonic::Response<$module::$response>, Status> {
                self.take($wrap(request.into_inner())).await?;
                Ok(tonic::Response::new($module::$response::default()))
            }
        }
    };
}

serve!(
    TraceService,
    trace,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    Telemetry::Traces
);
serve!(
    MetricsService,
    metrics,
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
    Telemetry::Metrics
);
serve!(
    LogsService,
    logs,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
    Telemetry::Logs
);
serve!(
    ProfilesService,
    profiles,
    ExportProfilesServiceRequest,
    ExportProfilesServiceResponse,
    Telemetry::Profiles
);

async fn serve_http(sink: Arc<Sink>, stream: Stream, connection: Connection) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (sink, connection) = (sink.clone(), connection.clone());
        async move {
            let Some(answer) = answer(&sink, request, connection.number).await else {
                connection.close.cancel();
                return std::future::pending().await;
            };
            Ok::<_, Infallible>(answer)
        }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(stream, service).await;
}

async fn answer(
    sink: &Sink,
    request: Request<Incoming>,
    connection: u32,
) -> Option<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    // A client that disconnects within a body gets no response.
    let body = body.collect().await.ok()?.to_bytes();
    let mut plain = Vec::new();
    let signal = Signal::ALL
        .into_iter()
        .find(|signal| super::path(*signal) == head.uri.path());
    let telemetry = match head.headers.get("content-encoding") {
        None => Ok(body.to_vec()),
        Some(_) => flate2::read::GzDecoder::new(body.as_ref())
            .read_to_end(&mut plain)
            .map(|_| plain),
    };
    let telemetry = telemetry
        .ok()
        .zip(signal)
        .and_then(|(body, signal)| Telemetry::decode(signal, &body).ok());
    let Some(telemetry) = telemetry else {
        let uri = &head.uri;
        sink.arrivals
            .defect(format!("a request to {uri} cannot be read"));
        return None;
    };
    let mut answer = Response::builder().header("content-type", "application/x-protobuf");
    let body = match sink.decide(&telemetry, connection).await? {
        Ok(()) => Vec::new(),
        Err(refusal) => {
            answer = answer.status(refusal.http);
            if let Some(delay) = refusal.retry_after {
                answer = answer.header("retry-after", delay.as_secs());
            }
            status::Status::new(refusal.code as i32, REFUSED, None).encode_to_vec()
        }
    };
    answer.body(Full::from(body)).ok()
}
