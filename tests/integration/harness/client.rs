//! A client of the collector: OTLP over gRPC (tonic) or HTTP (hyper). It records acknowledged items.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::profiles::v1development::profiles_service_client::ProfilesServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};

use super::status::Status;
use super::{Oracle, Signal, Telemetry, WAIT_LIMIT, codec, raw, within};

/// A client that sends telemetry and records what it sent.
pub struct Client {
    /// The beginning of the ids of all its items.
    name: String,
    transport: Transport,
    oracle: Oracle,
    next: AtomicUsize,
}

enum Transport {
    Grpc(Channel, Option<CompressionEncoding>),
    Http(Box<Posting>, &'static str),
}

/// Endpoint and options of HTTP requests.
struct Posting {
    address: SocketAddr,
    client: legacy::Client<HttpConnector, Full<Bytes>>,
}

/// Reason why a request was not acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// The gRPC code; over HTTP the code in the body.
    pub code: Code,
    /// The HTTP status; `None` over gRPC.
    pub http: Option<u16>,
    pub message: String,
    /// RetryInfo or `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// Whether a client may retry the request (OTLP specification, "Failures").
    pub fn is_retryable(&self) -> bool {
        match (self.http, self.code) {
            (Some(status), _) => matches!(status, 429 | 502 | 503 | 504),
            (None, Code::ResourceExhausted) => self.retry_after.is_some(),
            (None, code) => matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
            ),
        }
    }
}

impl Client {
    /// A client over gRPC.
    pub async fn grpc(name: &str, address: SocketAddr, oracle: &Oracle) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = within("a connection to the collector", endpoint.connect()).await;
        Client::new(name, Transport::Grpc(channel.unwrap(), None), oracle)
    }

    /// Creates a client over gRPC that connects on its first request.
    pub fn lazy(name: &str, address: SocketAddr, oracle: &Oracle) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Client::new(name, Transport::Grpc(endpoint.connect_lazy(), None), oracle)
    }

    /// A client over HTTP.
    pub fn http(name: &str, address: SocketAddr, oracle: &Oracle) -> Self {
        let client = legacy::Client::builder(TokioExecutor::new()).build_http();
        let posting = Box::new(Posting { address, client });
        Client::new(name, Transport::Http(posting, "identity"), oracle)
    }

    /// The same client, compressing: `gzip` or `zstd` over gRPC, anything over HTTP.
    pub fn compressed(mut self, encoding: &'static str) -> Self {
        match &mut self.transport {
            Transport::Grpc(_, chosen) => {
                *chosen = match encoding {
                    "gzip" => Some(CompressionEncoding::Gzip),
                    "zstd" => Some(CompressionEncoding::Zstd),
                    other => panic!("tonic has no {other}"),
                }
            }
            Transport::Http(_, chosen) => *chosen = encoding,
        }
        self
    }

    fn new(name: &str, transport: Transport, oracle: &Oracle) -> Self {
        Client {
            name: name.to_owned(),
            transport,
            oracle: oracle.clone(),
            next: AtomicUsize::new(0),
        }
    }

    /// Returns a request of `items` new items.
    pub fn request(&self, signal: Signal, items: usize) -> Telemetry {
        let first = self.next.fetch_add(items, Relaxed);
        let ids: Vec<String> = (first..first + items)
            .map(|number| format!("{}-{signal}-{number}", self.name))
            .collect();
        Telemetry::of(signal, &ids)
    }

    /// Sends once. If the connection breaks before a response, the refusal is UNAVAILABLE, as clients see it.
    pub async fn send(&self, request: &Telemetry) -> Result<(), Refused> {
        let ids = request.ids();
        self.oracle.sent(&ids);
        let outcome = within("an answer of the collector", async {
            match &self.transport {
                Transport::Grpc(channel, encoding) => {
                    export(channel.clone(), *encoding, request.clone()).await
                }
                Transport::Http(posting, encoding) => post(posting, encoding, request).await,
            }
        })
        .await;
        if outcome.is_ok() {
            self.oracle.acknowledged(&ids);
        }
        outcome
    }

    /// Sends until the request is acknowledged, as an SDK would, but ignores long retry delays. Returns the refusals
    /// before the acknowledgement.
    pub async fn send_until_acknowledged(&self, request: &Telemetry) -> Vec<Refused> {
        let mut refusals = Vec::new();
        let began = tokio::time::Instant::now();
        while let Err(refused) = self.send(request).await {
            assert!(refused.is_retryable(), "refused for good: {refused:?}");
            assert!(
                began.elapsed() < WAIT_LIMIT,
                "refused for {WAIT_LIMIT:?}, at last: {refused:?}"
            );
            refusals.push(refused);
            tokio::time::sleep(RETRY).await;
        }
        refusals
    }
}

/// Interval between two attempts of [`Client::send_until_acknowledged`].
const RETRY: Duration = Duration::from_millis(20);

async fn export(
    channel: Channel,
    encoding: Option<CompressionEncoding>,
    request: Telemetry,
) -> Result<(), Refused> {
    macro_rules! call {
        ($client:ident, $request:expr) => {{
            let mut client = $client::new(channel).max_encoding_message_size(usize::MAX);
            if let Some(encoding) = encoding {
                client = client.send_compressed(encoding);
            }
            let response = client.export($request).await;
            response.map(|response| assert_eq!(response.into_inner().partial_success, None))
        }};
    }
    let outcome = match request {
        Telemetry::Traces(request) => call!(TraceServiceClient, request),
        Telemetry::Metrics(request) => call!(MetricsServiceClient, request),
        Telemetry::Logs(request) => call!(LogsServiceClient, request),
        Telemetry::Profiles(request) => call!(ProfilesServiceClient, request),
    };
    outcome.map_err(|status| {
        let details = Status::decode(status.details()).unwrap();
        Refused {
            code: status.code(),
            http: None,
            message: status.message().to_owned(),
            retry_after: details.retry_after(),
        }
    })
}

async fn post(posting: &Posting, encoding: &str, request: &Telemetry) -> Result<(), Refused> {
    let Posting { address, client } = posting;
    let path = raw::path(request.signal());
    let body = codec::compress(encoding, &request.encode());
    let mut post = Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/x-protobuf");
    if encoding != "identity" {
        post = post.header("content-encoding", encoding);
    }
    let broken = |error: &dyn std::error::Error| Refused {
        code: Code::Unavailable,
        http: Some(503),
        message: format!("no answer: {error}"),
        retry_after: None,
    };
    let response = client.request(post.body(Full::from(body)).unwrap()).await;
    let (head, body) = response.map_err(|error| broken(&error))?.into_parts();
    let body = body
        .collect()
        .await
        .map_err(|error| broken(&error))?
        .to_bytes();
    if head.status == StatusCode::OK {
        return Ok(());
    }
    let retry_after = head.headers.get("retry-after").map(|value| {
        let seconds = value.to_str().unwrap().parse().unwrap();
        Duration::from_secs(seconds)
    });
    let status = Status::decode(body).unwrap();
    Err(Refused {
        code: Code::from_i32(status.code),
        http: Some(head.status.as_u16()),
        message: status.message,
        retry_after,
    })
}
