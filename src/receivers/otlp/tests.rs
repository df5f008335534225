//! The receiver as clients see it: real sockets, real clients, a consumer that says what it was told to say.

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

use super::status::{RetryInfo, Status};
use super::*;
use crate::batch::{Batch, Code, Nack, Signal};
use crate::memory::Budget;
use crate::net::listeners::Listeners;
use crate::pipeline::Consumer;

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const MIB: usize = 1 << 20;

/// Keeps what it is given, and answers as told; with a gate, after it was opened.
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
        let yaml = format!(
            "protocols:
  grpc: {{endpoint: '127.0.0.1:0', include_metadata: true}}
  http: {{endpoint: '127.0.0.1:0', include_metadata: true, {http}}}
"
        );
        let config: Config = serde_yaml::from_str(&yaml).unwrap();
        let cx = BuildContext {
            id: "otlp".parse().unwrap(),
            budget: Budget::new(64 * MIB),
            listeners: Listeners::default(),
            health: Arc::default(),
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

    /// A gRPC call with `body` as it is, prefix included.
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

/// What a gRPC call came to.
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
    let status = Status::decode(status).unwrap();
    let info = RetryInfo::decode(status.details.first()?.value.as_slice()).unwrap();
    Some(info.retry_delay?.try_into().unwrap())
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

// ---- gRPC ----

#[tokio::test]
async fn a_grpc_client_gets_its_data_into_the_pipeline_however_it_is_sent() {
    let fixture = Fixture::new();
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", fixture.grpc))
        .unwrap()
        .connect()
        .await
        .unwrap();
    for encoding in [
        None,
        Some(CompressionEncoding::Gzip),
        Some(CompressionEncoding::Zstd),
    ] {
        let mut client = TraceServiceClient::new(channel.clone());
        if let Some(encoding) = encoding {
            client = client.send_compressed(encoding);
        }
        for count in [1, 1000, 10_000] {
            let mut request = tonic::Request::new(spans(count));
            request
                .metadata_mut()
                .insert("tenant", "acme".parse().unwrap());
            let response = client.export(request).await.unwrap().into_inner();
            assert_eq!(response.partial_success, None);
            let mut batch = fixture.sink.taken.lock().unwrap().pop().unwrap();
            assert_eq!(batch.items(), count);
            assert_eq!(batch.wire().to_bytes(), encoded(count));
            assert_eq!(batch.metadata.as_ref().unwrap()["tenant"], ["acme"]);
            assert!(fixture.budget.used() >= encoded(count).len());
        }
    }
    assert_eq!(fixture.budget.used(), 0, "the batches are gone");
}

#[tokio::test]
async fn snappy_over_grpc_may_be_framed_or_a_block() {
    let fixture = Fixture::new();
    let block = snap::raw::Encoder::new().compress_vec(&encoded(7)).unwrap();
    for body in [snappy_framed(&encoded(7)), block] {
        let reply = fixture
            .call(EXPORT, &[("grpc-encoding", "snappy")], framed(1, &body))
            .await;
        assert_eq!(reply.code, Some(0), "{reply:?}");
    }
    assert_eq!(fixture.items(), [7, 7]);
}

#[tokio::test]
async fn an_empty_grpc_request_is_fine_and_no_batch() {
    let fixture = Fixture::new();
    assert_eq!(
        fixture.call(EXPORT, &[], framed(0, b"")).await.code,
        Some(0)
    );
    assert_eq!(fixture.items(), [0; 0]);
}

#[tokio::test]
async fn what_a_grpc_client_does_wrong_is_answered_as_the_specification_says() {
    let fixture = Fixture::new();
    let good = framed(0, &encoded(1));
    let two = [good.clone(), good.clone()].concat();
    let cut = good[..good.len() - 1].to_vec();
    let grpc = "application/grpc";
    let cases: Vec<(&str, Vec<(&str, &str)>, Vec<u8>, Code, &str)> = vec![
        (
            EXPORT,
            vec![],
            framed(0, b"\xff\xff"),
            Code::InvalidArgument,
            "malformed traces request",
        ),
        (EXPORT, vec![], two, Code::Internal, "more than one message"),
        (
            EXPORT,
            vec![],
            cut,
            Code::Internal,
            "ends within the message",
        ),
        (EXPORT, vec![], vec![], Code::Internal, "no message"),
        (
            EXPORT,
            vec![],
            vec![0, 0],
            Code::Internal,
            "ends within the message prefix",
        ),
        (
            EXPORT,
            vec![],
            framed(2, b""),
            Code::Internal,
            "compressed flag",
        ),
        (
            EXPORT,
            vec![],
            framed(1, b"x"),
            Code::Internal,
            "no grpc-encoding",
        ),
        (
            EXPORT,
            vec![("grpc-encoding", "gzip")],
            framed(1, b"x"),
            Code::InvalidArgument,
            "ends early",
        ),
        (
            EXPORT,
            vec![("grpc-encoding", "br")],
            good.clone(),
            Code::Unimplemented,
            "`br` is not supported",
        ),
        (
            EXPORT,
            vec![("grpc-timeout", "soon")],
            good.clone(),
            Code::Internal,
            "grpc-timeout",
        ),
        (
            EXPORT,
            vec![],
            framed(0, &vec![0; 4 * MIB + 1]),
            Code::ResourceExhausted,
            "max_recv_msg_size_mib",
        ),
        (
            EXPORT,
            vec![("grpc-encoding", "gzip")],
            framed(1, &gzip(&vec![0; 30 * MIB])),
            Code::ResourceExhausted,
            "max_recv_msg_size_mib",
        ),
        (
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            vec![],
            good.clone(),
            Code::Unimplemented,
            "no metrics pipeline",
        ),
        (
            "/opentelemetry.proto.collector.trace.v1.TraceService/Import",
            vec![],
            good.clone(),
            Code::Unimplemented,
            "unknown method",
        ),
        (
            "/",
            vec![("content-type", grpc)],
            good.clone(),
            Code::Unimplemented,
            "unknown method",
        ),
    ];
    for (path, headers, body, code, message) in cases {
        let reply = fixture.call(path, &headers, body).await;
        assert_eq!(reply.http, StatusCode::OK);
        assert_eq!(reply.code, Some(code as i32), "{message} {reply:?}");
        assert!(reply.message.contains(message), "{message} {reply:?}");
        assert_eq!(reply.retry_delay(), None, "it is final: {message}");
    }
    let reply = fixture
        .call(EXPORT, &[("grpc-encoding", "br")], good.clone())
        .await;
    assert_eq!(
        reply.headers["grpc-accept-encoding"],
        "identity,gzip,zstd,snappy"
    );
    let reply = fixture
        .call(
            EXPORT,
            &[("content-type", "application/grpc-web")],
            good.clone(),
        )
        .await;
    assert_eq!(reply.http, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let reply = fixture
        .call(EXPORT, &[("content-type", "application/grpc+proto")], good)
        .await;
    assert_eq!(reply.code, Some(0));
    assert_eq!(
        fixture.budget.used(),
        fixture.sink.taken.lock().unwrap()[0].bytes()
    );
}

#[tokio::test]
async fn a_refusal_of_the_pipeline_reaches_the_grpc_client_with_its_time_to_retry() {
    let second = Duration::from_secs(1);
    for (nack, code, delay) in [
        (Nack::unavailable("queue full"), Code::Unavailable, None),
        (
            Nack::exhausted("queue full", 3 * second),
            Code::ResourceExhausted,
            Some(3 * second),
        ),
        (Nack::invalid("no"), Code::InvalidArgument, None),
    ] {
        let fixture = Fixture::answering(nack.clone());
        let reply = fixture.call(EXPORT, &[], framed(0, &encoded(1))).await;
        assert_eq!(
            (reply.code, reply.retry_delay()),
            (Some(code as i32), delay)
        );
        assert_eq!(reply.message, nack.reason);
        assert_eq!(fixture.budget.used(), 0);
    }
}

#[tokio::test]
async fn without_memory_a_client_is_told_to_come_back_before_its_body_is_read() {
    let fixture = Fixture::new();
    fixture.budget.set_limit(100);
    let reply = fixture.call(EXPORT, &[], framed(0, &encoded(100))).await;
    assert_eq!(reply.code, Some(Code::ResourceExhausted as i32));
    assert_eq!(reply.retry_delay(), Some(Duration::from_secs(1)));
    let (status, headers, body) = fixture.post("/v1/traces", &[], encoded(100)).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(retry_delay(&body), Some(Duration::from_secs(1)));
    // What is small arrives, and what it unpacks to is refused.
    let small = gzip(&encoded(1000));
    fixture.budget.set_limit(small.len() + 1000);
    let reply = fixture
        .call(EXPORT, &[("grpc-encoding", "gzip")], framed(1, &small))
        .await;
    assert_eq!(
        reply.code,
        Some(Code::ResourceExhausted as i32),
        "{reply:?}"
    );
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_clients_deadline_ends_the_call_and_the_data_is_not_taken() {
    let fixture = Fixture::with("", Ok(()), true);
    let reply = fixture
        .call(EXPORT, &[("grpc-timeout", "100m")], framed(0, &encoded(1)))
        .await;
    assert_eq!(reply.code, Some(Code::DeadlineExceeded as i32));
    assert_eq!(
        fixture.budget.used(),
        0,
        "the pipeline's future was dropped"
    );
}

// ---- HTTP ----

#[tokio::test]
async fn an_http_client_gets_its_data_into_the_pipeline_however_it_is_encoded() {
    use crate::compression::Codec;
    let fixture = Fixture::new();
    let plain = encoded(2000);
    let zlib = {
        use std::io::Write;
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    };
    let lz4 = {
        use std::io::Write;
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(&plain).unwrap();
        encoder.finish().unwrap()
    };
    let _ = Codec::Gzip;
    for (name, body) in [
        ("identity", plain.clone()),
        ("gzip", gzip(&plain)),
        ("zstd", zstd::bulk::compress(&plain, 1).unwrap()),
        ("zlib", zlib.clone()),
        ("deflate", zlib),
        ("lz4", lz4),
        (
            "snappy",
            snap::raw::Encoder::new().compress_vec(&plain).unwrap(),
        ),
        ("snappy", snappy_framed(&plain)),
        ("x-snappy-framed", snappy_framed(&plain)),
    ] {
        let headers = [
            ("content-encoding", name),
            ("content-type", "application/x-protobuf; v=1"),
        ];
        let (status, headers, reply) = fixture.post("/v1/traces", &headers, body).await;
        assert_eq!(status, StatusCode::OK, "{name} {reply:?}");
        assert_eq!(headers["content-type"], PROTOBUF);
        assert_eq!(reply, "");
        let batch = fixture.sink.taken.lock().unwrap().pop().unwrap();
        assert_eq!(batch.items(), 2000, "{name}");
        assert_eq!(batch.into_wire().to_bytes(), plain, "{name}");
    }
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test]
async fn http2_without_tls_works_on_the_http_port() {
    let fixture = Fixture::new();
    let request = request(
        Method::POST,
        "/v1/traces",
        &[],
        &[("content-type", PROTOBUF)],
    );
    let request = request.body(Full::new(encoded(3).into())).unwrap();
    assert_eq!(http2(fixture.http, request).await.0, StatusCode::OK);
    assert_eq!(fixture.items(), [3]);
}

#[tokio::test]
async fn what_an_http_client_does_wrong_is_answered_with_a_status_it_can_read() {
    let fixture = Fixture::with("max_request_body_size: 100000", Ok(()), false);
    let good = encoded(1);
    let cases: Vec<(&str, Vec<(&str, &str)>, Vec<u8>, u16, &str)> = vec![
        (
            "/v1/traces",
            vec![],
            b"\xff\xff".to_vec(),
            400,
            "malformed traces request",
        ),
        (
            "/v1/traces",
            vec![("content-encoding", "br")],
            good.clone(),
            400,
            "supported is one of: identity, gzip",
        ),
        (
            "/v1/traces",
            vec![("content-encoding", "gzip, gzip")],
            good.clone(),
            400,
            "unsupported Content-Encoding",
        ),
        (
            "/v1/traces",
            vec![("content-encoding", "gzip")],
            good.clone(),
            400,
            "corrupt",
        ),
        (
            "/v1/traces",
            vec![],
            vec![0; 100_001],
            413,
            "max_request_body_size",
        ),
        (
            "/v1/traces",
            vec![("content-encoding", "gzip")],
            gzip(&vec![0; MIB]),
            413,
            "max_request_body_size",
        ),
        (
            "/v1/traces",
            vec![("content-type", "text/plain")],
            good.clone(),
            415,
            "supported: [application/json",
        ),
        (
            "/v1/metrics",
            vec![],
            good.clone(),
            404,
            "no metrics pipeline",
        ),
        (
            "/v1/trace",
            vec![],
            good.clone(),
            404,
            "/v1/traces, /v1/logs, /v1development/profiles",
        ),
    ];
    for (path, headers, body, expected, message) in cases {
        let (status, headers, body) = fixture.post(path, &headers, body).await;
        assert_eq!(status.as_u16(), expected, "{message}");
        let said = if headers["content-type"] == PROTOBUF {
            let status = Status::decode(body).unwrap();
            assert_ne!(status.code, 0);
            status.message
        } else {
            String::from_utf8(body.to_vec()).unwrap()
        };
        assert!(said.contains(message), "{message} {said}");
    }
    let get = request(Method::GET, "/v1/traces", &[], &[])
        .body(Full::default())
        .unwrap();
    let (status, headers, _) = http1(fixture.http, get).await;
    assert_eq!(
        (status.as_u16(), headers["allow"].to_str().unwrap()),
        (405, "POST")
    );
    assert_eq!(fixture.budget.used(), 0);
    assert_eq!(fixture.items(), [0; 0]);
}

#[tokio::test]
async fn a_refusal_of_json_is_json() {
    let fixture = Fixture::new();
    let headers = [("content-type", "application/json; charset=utf-8")];
    let (status, headers, body) = fixture.post("/v1/traces", &headers, "nonsense").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(headers["content-type"], "application/json");
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["code"], Code::InvalidArgument as i32);
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .starts_with("malformed traces request")
    );
}

#[tokio::test]
async fn a_refusal_of_the_pipeline_reaches_the_http_client_with_its_time_to_retry() {
    for (nack, status, retry_after) in [
        (Nack::unavailable("queue full"), 503, None),
        (
            Nack::exhausted("queue full", Duration::from_millis(2500)),
            429,
            Some("3"),
        ),
        (Nack::invalid("no"), 400, None),
    ] {
        let fixture = Fixture::answering(nack.clone());
        let (answered, headers, body) = fixture.post("/v1/traces", &[], encoded(1)).await;
        assert_eq!(answered.as_u16(), status);
        let header = headers
            .get("retry-after")
            .map(|value| value.to_str().unwrap());
        assert_eq!(header, retry_after);
        assert_eq!(Status::decode(body).unwrap().message, nack.reason);
    }
}

#[tokio::test]
async fn bodies_may_come_in_chunks_and_after_100_continue() {
    let fixture = Fixture::new();
    let body = encoded(2);
    let mut stream = TcpStream::connect(fixture.http).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: application/x-protobuf\r\n\
        expect: 100-continue\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    for piece in body.chunks(50) {
        stream
            .write_all(format!("{:x}\r\n", piece.len()).as_bytes())
            .await
            .unwrap();
        stream.write_all(piece).await.unwrap();
        stream.write_all(b"\r\n").await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(fixture.items(), [2]);
}

#[tokio::test]
async fn chunks_without_end_are_refused_at_the_limit() {
    let fixture = Fixture::with("max_request_body_size: 1000", Ok(()), false);
    let mut stream = TcpStream::connect(fixture.http).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: application/x-protobuf\r\n\
        transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..30 {
        stream
            .write_all(format!("64\r\n{}\r\n", "x".repeat(100)).as_bytes())
            .await
            .unwrap();
    }
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_is_given_up_and_its_memory_freed() {
    let fixture = Fixture::new();
    let mut stream = TcpStream::connect(fixture.http).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: application/x-protobuf\r\n\
        content-length: 1000000\r\n\r\nsome";
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = Instant::now();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 503");
    assert!(
        (29..35).contains(&began.elapsed().as_secs()),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn write_timeout_answers_for_a_pipeline_that_does_not() {
    let fixture = Fixture::with("write_timeout: 5s", Ok(()), true);
    let (status, _, body) = fixture.post("/v1/traces", &[], encoded(1)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        Status::decode(body)
            .unwrap()
            .message
            .contains("write_timeout")
    );
    assert_eq!(fixture.budget.used(), 0);
}

#[tokio::test]
async fn browsers_are_answered_as_the_cors_policy_says() {
    let fixture = Fixture::with(
        "cors: {allowed_origins: ['https://*.example.com'], allowed_headers: [X-Tenant], \
         exposed_headers: [X-Seen], max_age: 600}, response_headers: {x-seen: 'yes'}",
        Ok(()),
        false,
    );
    let preflight = |origin: &'static str, headers: &'static str| {
        let asked = [
            ("origin", origin),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", headers),
        ];
        let request = request(Method::OPTIONS, "/v1/traces", &[], &asked);
        http1(fixture.http, request.body(Full::default()).unwrap())
    };
    let (status, headers, _) = preflight("https://app.example.com", "content-type,x-tenant").await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    assert_eq!(
        headers["access-control-allow-origin"],
        "https://app.example.com"
    );
    assert_eq!(headers["access-control-allow-credentials"], "true");
    assert_eq!(
        headers["access-control-allow-headers"],
        "content-type,x-tenant"
    );
    assert_eq!(headers["access-control-allow-methods"], "POST");
    assert_eq!(headers["access-control-max-age"], "600");
    for (origin, wanted) in [
        ("https://evil.com", "content-type"),
        ("https://app.example.com", "x-other"),
    ] {
        let (_, headers, _) = preflight(origin, wanted).await;
        assert!(
            !headers.contains_key("access-control-allow-origin"),
            "{origin} {wanted}"
        );
    }

    let origin = [("origin", "https://app.example.com")];
    let (status, headers, _) = fixture.post("/v1/traces", &origin, encoded(1)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(
        headers["access-control-allow-origin"],
        "https://app.example.com"
    );
    assert_eq!(headers["access-control-expose-headers"], "X-Seen");
    assert_eq!(headers["x-seen"], "yes");
    let (status, headers, _) = fixture.post("/v1/traces", &[], encoded(1)).await;
    assert_eq!(status, StatusCode::OK);
    assert!(!headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn only_the_configured_compression_is_accepted() {
    let fixture = Fixture::with("compression_algorithms: [gzip]", Ok(()), false);
    let gzipped = [("content-encoding", "gzip")];
    let (status, ..) = fixture
        .post("/v1/traces", &gzipped, gzip(&encoded(1)))
        .await;
    assert_eq!(status, StatusCode::OK);
    let (status, ..) = fixture.post("/v1/traces", &[], encoded(1)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

// ---- both ----

#[tokio::test]
async fn shutdown_lets_requests_under_way_finish_and_takes_no_new_ones() {
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
