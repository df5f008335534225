//! Tests the receiver from outside: real sockets, real clients, and a scripted consumer.

mod grpc;
mod http;
mod layouts;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::http::{HeaderMap, Method, Request, StatusCode};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tonic::codec::CompressionEncoding;

use super::*;
use crate::component::{ExtensionConfig, Extensions, Host, Services};
use crate::extensions::bearertokenauth;
use crate::pipeline::Consumer;
use crate::pipeline::batch::{Batch, Code, Nack};
use tributary_config::ComponentId;
use tributary_memory::Budget;
use tributary_net::listeners::Listeners;
use tributary_net::rpc::Status;
use tributary_otlp::Signal;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const MIB: usize = 1 << 20;
const TOKEN: &str = "token-of-the-test";

/// Records batches, and returns scripted outcomes; with a gate, only after the gate is opened.
struct Sink {
    taken: Mutex<Vec<Batch>>,
    answer: Result<(), Nack>,
    gate: Option<Semaphore>,
    entered: Semaphore,
}

impl Consumer for Sink {
    fn consume(&self, batch: Batch) -> BoxFuture<'_, Result<(), Nack>> {
        Box::pin(async move {
            self.entered.add_permits(1);
            if let Some(gate) = &self.gate {
                gate.acquire().await.unwrap().forget();
            }
            self.answer.clone()?;
            self.taken.lock().unwrap().push(batch);
            Ok(())
        })
    }

    fn behind(&self) -> Vec<Arc<dyn Consumer>> {
        Vec::new()
    }
}

/// The extension `bearertokenauth`, for tests with authentication.
fn authenticator() -> (ComponentId, Services) {
    let config = bearertokenauth::Config {
        token: TOKEN.into(),
        ..bearertokenauth::Config::default()
    };
    let id: ComponentId = "bearertokenauth".parse().unwrap();
    let built = config.build(&Host::for_tests().context(&id)).unwrap();
    (id, built.services)
}

struct Fixture {
    receiver: Box<dyn Component>,
    sink: Arc<Sink>,
    budget: Arc<Budget>,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Fixture {
    fn new() -> Self {
        Fixture::with("", Ok(()), false)
    }

    fn answering(answer: Nack) -> Self {
        Fixture::with("", Err(answer), false)
    }

    /// `http` is more configuration of the HTTP side.
    fn with(http: &str, answer: Result<(), Nack>, gated: bool) -> Self {
        Fixture::configured("", http, answer, gated)
    }

    fn configured(grpc: &str, http: &str, answer: Result<(), Nack>, gated: bool) -> Self {
        let yaml = format!(
            "protocols:
  grpc: {{endpoint: '127.0.0.1:0', include_metadata: true, {grpc}}}
  http: {{endpoint: '127.0.0.1:0', include_metadata: true, {http}}}
"
        );
        let config: Config = serde_yaml::from_str(&yaml).unwrap();
        let cx = BuildContext {
            id: "otlp".parse().unwrap(),
            budget: Budget::new(64 * MIB),
            listeners: Listeners::default(),
            stored_queues: Default::default(),
            profile_stores: Default::default(),
            introspection: Default::default(),
            health: Arc::default(),
            extensions: Extensions::from_iter([authenticator()]),
            pipeline: String::new(),
        };
        let sink = Arc::new(Sink {
            taken: Mutex::default(),
            answer,
            gate: gated.then(|| Semaphore::new(0)),
            entered: Semaphore::new(0),
        });
        let mut outputs = Outputs::default();
        for signal in [Signal::Traces, Signal::Logs, Signal::Profiles] {
            outputs.set(signal, sink.clone());
        }
        let mut receiver = config.build(&cx, outputs).unwrap();
        receiver.start();
        let address = |protocol: &str| {
            let owner = format!("otlp/protocols/{protocol}").parse().unwrap();
            let any = Endpoint("127.0.0.1:0".to_owned());
            let listener = cx.listeners.bind(&owner, &any).unwrap();
            listener.local_addr().unwrap()
        };
        Fixture {
            grpc: address("grpc"),
            http: address("http"),
            receiver,
            sink,
            budget: cx.budget.clone(),
        }
    }

    fn items(&self) -> Vec<usize> {
        self.sink
            .taken
            .lock()
            .unwrap()
            .iter()
            .map(Batch::items)
            .collect()
    }

    /// Makes a gRPC call with the unmodified `body`, which includes the prefix.
    async fn call(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Reply {
        let request = request(
            Method::POST,
            path,
            &[("content-type", "application/grpc")],
            headers,
        );
        Reply::of(http2(self.grpc, request.body(Full::new(body.into())).unwrap()).await)
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let request = request(Method::POST, path, &[("content-type", PROTOBUF)], headers);
        http1(self.http, request.body(Full::new(body.into())).unwrap()).await
    }
}

const PROTOBUF: &str = "application/x-protobuf";

fn request(
    method: Method,
    path: &str,
    defaults: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> ::http::request::Builder {
    let mut request = Request::builder()
        .method(method)
        .uri(format!("http://collector{path}"));
    request = request.header("host", "collector");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    for (name, value) in defaults {
        if headers.iter().all(|(given, _)| given != name) {
            request = request.header(*name, *value);
        }
    }
    request
}

type Answer = (StatusCode, HeaderMap, Bytes);

async fn http1(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let (head, body) = response.into_parts();
    (
        head.status,
        head.headers,
        body.collect().await.unwrap().to_bytes(),
    )
}

/// Trailers, if any, are added to the headers.
async fn http2(address: SocketAddr, request: Request<Full<Bytes>>) -> Answer {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = sender.send_request(request).await.unwrap();
    let (mut head, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    head.headers
        .extend(body.trailers().cloned().unwrap_or_default());
    (head.status, head.headers, body.to_bytes())
}

/// Outcome of a gRPC call.
#[derive(Debug)]
struct Reply {
    http: StatusCode,
    code: Option<i32>,
    message: String,
    headers: HeaderMap,
}

impl Reply {
    fn of((http, headers, _): Answer) -> Self {
        let text = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        Reply {
            http,
            code: text("grpc-status").map(|code| code.parse().unwrap()),
            message: text("grpc-message").unwrap_or_default(),
            headers,
        }
    }

    fn retry_delay(&self) -> Option<Duration> {
        let details = self.headers.get("grpc-status-details-bin")?;
        retry_delay(&STANDARD_NO_PAD.decode(details).unwrap())
    }
}

fn retry_delay(status: &[u8]) -> Option<Duration> {
    Status::decode(status).unwrap().retry_delay()
}

fn spans(count: usize) -> ExportTraceServiceRequest {
    let span = Span {
        name: "a span with a name that compresses well, well, well, well".to_owned(),
        ..Span::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![span; count],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn encoded(count: usize) -> Vec<u8> {
    spans(count).encode_to_vec()
}

fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let mut framed = vec![flag];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

fn gzip(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn snappy_framed(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data).unwrap();
    encoder.into_inner().unwrap()
}

#[tokio::test]
async fn shutdown_finishes_open_requests_only() {
    let fixture = Fixture::with("", Ok(()), true);
    let (grpc, http) = (fixture.grpc, fixture.http);
    let sink = fixture.sink.clone();
    let call = request(
        Method::POST,
        EXPORT,
        &[],
        &[("content-type", "application/grpc")],
    );
    let call = call.body(Full::new(framed(0, &encoded(1)).into())).unwrap();
    let call = tokio::spawn(async move { Reply::of(http2(grpc, call).await) });
    let post = request(
        Method::POST,
        "/v1/traces",
        &[],
        &[("content-type", PROTOBUF)],
    );
    let post = post.body(Full::new(encoded(2).into())).unwrap();
    let post = tokio::spawn(http1(http, post));
    sink.entered.acquire_many(2).await.unwrap().forget();

    let deadline = Instant::now() + Duration::from_secs(60);
    let shutdown = tokio::spawn(fixture.receiver.shutdown(deadline));
    tokio::task::yield_now().await;
    assert!(!shutdown.is_finished());
    sink.gate.as_ref().unwrap().add_permits(2);
    assert_eq!(call.await.unwrap().code, Some(0));
    assert_eq!(post.await.unwrap().0, StatusCode::OK);
    assert_eq!(shutdown.await.unwrap(), Undelivered::default());
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_beyond_its_deadline() {
    let fixture = Fixture::with("", Ok(()), true);
    let http = fixture.http;
    let post = request(
        Method::POST,
        "/v1/traces",
        &[],
        &[("content-type", PROTOBUF)],
    );
    let post = post.body(Full::<Bytes>::new(encoded(2).into())).unwrap();
    let io = TokioIo::new(TcpStream::connect(http).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    let post = tokio::spawn(async move { sender.send_request(post).await.map(|_| ()) });
    fixture.sink.entered.acquire().await.unwrap().forget();
    let began = Instant::now();
    fixture
        .receiver
        .shutdown(began + Duration::from_secs(5))
        .await;
    assert_eq!(began.elapsed().as_secs(), 5);
    assert!(
        post.await.unwrap().is_err(),
        "the client hears that its data was not taken"
    );
}

#[tokio::test]
async fn with_tls_only_clients_with_a_trusted_certificate_are_served() {
    let certified = rcgen::generate_simple_self_signed(["collector".to_owned()]).unwrap();
    let certificate = certified.cert.pem();
    let key = certified.signing_key.serialize_pem();
    let authority = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(authority.path(), &certificate).unwrap();
    let tls = format!(
        "tls: {{cert_pem: {certificate:?}, key_pem: {key:?}, client_ca_file: {:?}}}",
        authority.path()
    );
    let fixture = Fixture::with(&tls, Ok(()), false);
    for (own, served) in [
        ((certificate.clone(), key), true),
        (Default::default(), false),
    ] {
        let client = tributary_net::tls::ClientTls {
            ca_pem: certificate.clone(),
            cert_pem: own.0,
            key_pem: own.1.as_str().into(),
            ..Default::default()
        };
        let connector = tokio_rustls::TlsConnector::from(Arc::new(client.build(&[b"h2"]).unwrap()));
        let stream = TcpStream::connect(fixture.http).await.unwrap();
        let stream = connector
            .connect("collector".try_into().unwrap(), stream)
            .await
            .unwrap();
        let io = TokioIo::new(stream);
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .unwrap();
        tokio::spawn(connection);
        let post = request(
            Method::POST,
            "/v1/traces",
            &[],
            &[("content-type", PROTOBUF)],
        );
        let post = post.body(Full::<Bytes>::new(encoded(1).into())).unwrap();
        let status = sender
            .send_request(post)
            .await
            .map(|response| response.status());
        assert_eq!(status.ok() == Some(StatusCode::OK), served);
    }
    assert_eq!(fixture.items(), [1]);
}
