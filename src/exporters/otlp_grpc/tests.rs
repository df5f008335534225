//! The exporter against servers on loopback.

use std::io::Read;

use opentelemetry_proto::tonic::collector::trace::v1 as trace;
use tonic::service::Routes;

use super::*;
use crate::queue::Sender;
use tributary_config::units::Duration as Setting;
use tributary_net::client::test_server::{Answer, TestServer, answer, certificates, header_map};
use tributary_net::tls::ServerTls;

fn config(server: &TestServer) -> Config {
    let mut config = Config {
        endpoint: server.address.to_string(),
        compression: GrpcCompression::None,
        ..Config::default()
    };
    config.tls.insecure = true;
    config
}

fn build(config: &Config) -> Result<Exporter, String> {
    let tls = config.tls_source(&"otlp_grpc".parse().unwrap())?;
    Exporter::new(config, tls, None)
}

async fn send(
    exporter: &Exporter,
    signal: Signal,
    requests: Requests,
) -> Result<Outcome, SendError> {
    let memory =
        crate::pipeline::output_memory::OutputMemory::new(&tributary_memory::Budget::new(1 << 30));
    let chunks = exporter.encode(signal, &requests, &memory)?.into();
    let batch = Encoded {
        signal,
        items: 1,
        chunks,
        retained_bytes: 0,
        identity: Arc::default(),
    };
    exporter.send(&batch).await
}

fn some_request() -> Requests {
    Bytes::from_static(b"payload").into()
}

/// gRPC: OK with a response message.
fn ok(message: &[u8]) -> Option<Answer> {
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    let headers = header_map(&[("content-type", "application/grpc")]);
    Some(answer(
        200,
        headers,
        &frame,
        header_map(&[("grpc-status", "0")]),
    ))
}

/// gRPC: a refusal without a message, its status in the headers.
fn refusal(pairs: &[(&'static str, &str)]) -> Option<Answer> {
    Some(answer(200, header_map(pairs), b"", HeaderMap::new()))
}

fn expand(encoding: Option<&str>, frame: &[u8]) -> Vec<u8> {
    let (head, message) = frame.split_at(5);
    assert_eq!(head[0], u8::from(encoding.is_some()));
    let len = u32::from_be_bytes(head[1..].try_into().unwrap());
    assert_eq!(len as usize, message.len());
    let mut out = Vec::new();
    match encoding {
        None => out.extend(message),
        Some("gzip") => {
            flate2::read::GzDecoder::new(message)
                .read_to_end(&mut out)
                .unwrap();
        }
        Some("snappy") => {
            snap::read::FrameDecoder::new(message)
                .read_to_end(&mut out)
                .unwrap();
        }
        Some("zstd") => out = zstd::stream::decode_all(message).unwrap(),
        Some(other) => panic!("{other}"),
    }
    out
}

#[tokio::test]
async fn bytes_arrive_unchanged_with_every_compression() {
    let server = TestServer::start(None, |_| ok(b"")).await;
    let parts = [3, 100_000, 10, 20, 300_000];
    let part =
        |len: &usize| Bytes::from((0..*len).map(|_| fastrand::u8(0..9)).collect::<Vec<u8>>());
    let requests: Requests = parts.iter().map(part).collect();
    for compression in [
        GrpcCompression::None,
        GrpcCompression::Gzip,
        GrpcCompression::Snappy,
        GrpcCompression::Zstd,
    ] {
        let config = Config {
            compression,
            ..config(&server)
        };
        let exporter = build(&config).unwrap();
        for signal in Signal::ALL {
            let outcome = send(&exporter, signal, requests.clone()).await.unwrap();
            assert_eq!(outcome, Outcome::default());
            let request = server.requests.lock().unwrap().pop().unwrap();
            assert_eq!(request.uri().path(), format!("/{}/Export", service(signal)));
            let encoding = request.headers().get("grpc-encoding");
            let encoding = encoding.map(|encoding| encoding.to_str().unwrap());
            assert_eq!(encoding, compression.name());
            assert!(
                expand(encoding, request.body()) == requests.to_bytes(),
                "{compression:?}"
            );
        }
    }
}

#[tokio::test]
async fn requests_have_protocol_and_configured_headers() {
    let server = TestServer::start(None, |_| ok(b"")).await;
    let mut config = Config {
        timeout: Setting::millis(1500),
        authority: "tempo.example".to_owned(),
        ..config(&server)
    };
    config.headers = serde_yaml::from_str("{x-scope-orgid: a, te: no, content-type: no}").unwrap();
    let exporter = build(&config).unwrap();
    send(&exporter, Signal::Logs, some_request()).await.unwrap();
    let request = server.requests.lock().unwrap().pop().unwrap();
    let header = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/grpc");
    assert_eq!(header("te"), "trailers");
    assert_eq!(header("grpc-timeout"), "1500000u");
    assert_eq!(header("x-scope-orgid"), "a");
    assert!(header("user-agent").starts_with("tributary/"));
    assert_eq!(request.uri().authority().unwrap(), "tempo.example");
}

struct Traces;

#[tonic::async_trait]
impl trace::trace_service_server::TraceService for Traces {
    async fn export(
        &self,
        request: tonic::Request<trace::ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<trace::ExportTraceServiceResponse>, tonic::Status> {
        let spans = request.into_inner().resource_spans.len();
        if spans == 0 {
            return Err(tonic::Status::invalid_argument("n\u{f6} spans"));
        }
        let partial_success = Some(trace::ExportTracePartialSuccess {
            rejected_spans: i64::try_from(spans).unwrap(),
            error_message: "too old".to_owned(),
        });
        Ok(tonic::Response::new(trace::ExportTraceServiceResponse {
            partial_success,
        }))
    }
}

#[tokio::test]
async fn generated_server_is_compatible() {
    use hyper_util::service::TowerToHyperService;
    let service = trace::trace_service_server::TraceServiceServer::new(Traces)
        .accept_compressed(tonic::codec::CompressionEncoding::Gzip)
        .send_compressed(tonic::codec::CompressionEncoding::Gzip);
    let service = TowerToHyperService::new(Routes::new(service).prepare());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let executor = hyper_util::rt::TokioExecutor::new();
        hyper::server::conn::http2::Builder::new(executor)
            .serve_connection(hyper_util::rt::TokioIo::new(tcp), service)
            .await
    });
    let mut config = Config {
        endpoint: address.to_string(),
        ..Config::default()
    };
    config.tls.insecure = true;
    let exporter = build(&config).unwrap();

    let two = Bytes::from_static(b"\x0a\x00\x0a\x00");
    let outcome = send(&exporter, Signal::Traces, two.into()).await.unwrap();
    let expected = Outcome {
        rejected_items: 2,
        message: "too old".to_owned(),
    };
    assert_eq!(outcome, expected);
    let error = send(&exporter, Signal::Traces, Bytes::new().into())
        .await
        .unwrap_err();
    assert_eq!(
        (error.retryable, error.code),
        (false, Code::InvalidArgument)
    );
    assert_eq!(
        error.reason,
        "rpc error: code = InvalidArgument desc = n\u{f6} spans"
    );
    let error = send(&exporter, Signal::Logs, some_request())
        .await
        .unwrap_err();
    assert_eq!((error.retryable, error.code), (false, Code::Unimplemented));
}

#[tokio::test]
async fn statuses_follow_specification() {
    let delay = Status::new(
        Code::ResourceExhausted,
        "",
        Some(Duration::from_millis(7500)),
    );
    let delay = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD_NO_PAD,
        delay.encode_to_vec(),
    );
    let server = TestServer::start(None, move |request| match request.body().slice(5..)[..] {
        [b'1'] => refusal(&[("grpc-status", "14"), ("grpc-message", "come%20back")]),
        [b'2'] => refusal(&[("grpc-status", "8")]),
        [b'3'] => refusal(&[("grpc-status", "8"), ("grpc-status-details-bin", &delay)]),
        [b'4'] => Some(answer(503, HeaderMap::new(), b"busy", HeaderMap::new())),
        [b'5'] => Some(answer(401, HeaderMap::new(), b"", HeaderMap::new())),
        [b'6'] => Some(answer(
            200,
            HeaderMap::new(),
            b"",
            header_map(&[("grpc-status", "13")]),
        )),
        [b'7'] => Some(answer(200, HeaderMap::new(), b"<html>", HeaderMap::new())),
        _ => None,
    })
    .await;
    let exporter = build(&config(&server)).unwrap();
    let mut errors = Vec::new();
    for case in [&b"1"[..], b"2", b"3", b"4", b"5", b"6", b"7"] {
        let requests = Bytes::from_static(case).into();
        let error = send(&exporter, Signal::Traces, requests).await.unwrap_err();
        errors.push((error.retryable, error.code, error.fault, error.throttle));
    }
    let wait = Some(Duration::from_millis(7500));
    assert_eq!(
        errors,
        [
            (true, Code::Unavailable, Fault::Elsewhere, None),
            (false, Code::ResourceExhausted, Fault::Size, None),
            (true, Code::ResourceExhausted, Fault::Elsewhere, wait),
            (true, Code::Unavailable, Fault::Elsewhere, None),
            (false, Code::Unauthenticated, Fault::Elsewhere, None),
            (false, Code::Internal, Fault::Unclear, None),
            (false, Code::Unknown, Fault::Unclear, None),
        ]
    );
}

#[tokio::test]
async fn goaway_loses_no_request() {
    let server = TestServer::start(None, |_| ok(b"")).await;
    let exporter = build(&config(&server)).unwrap();
    for round in 0..40 {
        send(&exporter, Signal::Traces, some_request())
            .await
            .unwrap();
        // The next request races with the GOAWAY.
        server.goaway();
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
    }
    assert!(server.connections() > 1);
    assert_eq!(server.requests.lock().unwrap().len(), 40);
}

#[tokio::test]
async fn broken_connection_is_replaced() {
    let cut = std::sync::atomic::AtomicBool::new(true);
    let server = TestServer::start(None, move |request| {
        let asked = request.body().ends_with(b"cut");
        match asked && cut.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => None,
            false => ok(b""),
        }
    })
    .await;
    let exporter = build(&config(&server)).unwrap();
    // A request on a reused connection that fails is retried at once on a new connection.
    send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap();
    let cut = || Requests::from(Bytes::from_static(b"cut"));
    send(&exporter, Signal::Traces, cut()).await.unwrap();
    assert_eq!(server.connections(), 2);
    assert_eq!(server.requests.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn connection_is_abandoned_after_timeout() {
    let held = tokio_util::sync::CancellationToken::new();
    let server = TestServer::start(None, |_| ok(b"")).await;
    // A server that accepts connections and never sends.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = config(&server);
    config.endpoint = silent.local_addr().unwrap().to_string();
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    tokio::spawn({
        let (held, accepted) = (held.clone(), accepted.clone());
        async move {
            let mut open = Vec::new();
            while let Some(Ok(stream)) = held.run_until_cancelled(silent.accept()).await {
                accepted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                open.push(stream);
            }
        }
    });
    let exporter = build(&config).unwrap();
    for attempt in 1..=3 {
        let patience = Duration::from_millis(100);
        let waiting = send(&exporter, Signal::Traces, some_request());
        assert!(tokio::time::timeout(patience, waiting).await.is_err());
        assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), attempt);
    }
    held.cancel();
}

#[tokio::test]
async fn broken_new_connection_is_left_to_queue() {
    let server = TestServer::start(None, |_| None).await;
    let exporter = build(&config(&server)).unwrap();
    let error = send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap_err();
    assert_eq!((error.retryable, error.code), (true, Code::Unavailable));
    assert_eq!(server.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn server_closing_new_connections_is_retried_with_pauses() {
    let server = TestServer::start(None, |_| None).await;
    let exporter = build(&config(&server)).unwrap();
    let began = std::time::Instant::now();
    for _ in 0..100 {
        let error = send(&exporter, Signal::Traces, some_request())
            .await
            .unwrap_err();
        assert!(error.retryable, "{error:?}");
        assert!(
            error.reason.contains("the connection was closed"),
            "{error:?}"
        );
    }
    // The second attempt follows at once; the pauses begin with half a second.
    let pauses = began.elapsed().as_millis() / 500;
    let connections = server.connections() as u128;
    assert!((2..=3 + pauses).contains(&connections), "{connections}");
}

#[tokio::test]
async fn unreachable_server_fails_at_once_without_wait_for_ready() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = free.local_addr().unwrap().to_string();
    drop(free);
    let mut config = Config {
        endpoint: endpoint.clone(),
        ..Config::default()
    };
    config.tls.insecure = true;
    let exporter = build(&config).unwrap();
    for _ in 0..2 {
        let error = send(&exporter, Signal::Traces, some_request())
            .await
            .unwrap_err();
        assert!(
            error.retryable && error.reason.contains(&endpoint),
            "{error}"
        );
    }
    config.wait_for_ready = true;
    let exporter = build(&config).unwrap();
    let patience = Duration::from_millis(50);
    let waiting = send(&exporter, Signal::Traces, some_request());
    assert!(tokio::time::timeout(patience, waiting).await.is_err());
}

#[tokio::test]
async fn as_many_connections_as_asked_for_are_used() {
    let server = TestServer::start(None, |_| ok(b"")).await;
    let config = Config {
        connections: 3,
        ..config(&server)
    };
    let exporter = build(&config).unwrap();
    for _ in 0..30 {
        send(&exporter, Signal::Traces, some_request())
            .await
            .unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn tls_is_default_and_trusts_only_configured_authorities() {
    let (ca, cert, key) = certificates();
    let tls = ServerTls {
        cert_pem: cert,
        key_pem: key.as_str().into(),
        ..ServerTls::default()
    };
    let server = TestServer::start(Some(tls.build(&[b"h2"]).unwrap()), |_| ok(b"")).await;
    let mut config = config(&server);
    config.tls.insecure = false;
    config.tls.ca_pem = ca;
    let exporter = build(&config).unwrap();
    send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap();
    let request = server.requests.lock().unwrap().pop().unwrap();
    assert_eq!(request.uri().scheme_str(), Some("https"));

    config.tls.ca_pem = certificates().0;
    let exporter = build(&config).unwrap();
    let error = send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap_err();
    assert!(
        error.retryable && error.reason.contains("invalid peer certificate"),
        "{error}"
    );
    config.tls.insecure_skip_verify = true;
    let exporter = build(&config).unwrap();
    send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap();

    let mut config = self::config(&server);
    config.endpoint = format!("https://localhost:{}", server.address.port());
    config.tls.ca_pem = certificates().0;
    assert!(build(&config).is_ok());
}

#[tokio::test(start_paused = true)]
async fn changed_certificates_lose_no_request() {
    let (ca, cert, key) = certificates();
    let tls = ServerTls {
        cert_pem: cert,
        key_pem: key.as_str().into(),
        ..ServerTls::default()
    };
    let server = TestServer::start(Some(tls.build(&[b"h2"]).unwrap()), |_| ok(b"")).await;
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&server);
    config.tls.insecure = false;
    config.tls.ca_file = directory.path().join("ca.pem");
    let trust = async |pem: &str| {
        std::fs::write(&config.tls.ca_file, pem).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    trust(&ca).await;
    let exporter = build(&config).unwrap();
    let send = async || {
        for _ in 0..20 {
            send(&exporter, Signal::Traces, some_request())
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    send().await;
    assert_eq!(server.connections(), 1);
    let other = certificates().0;
    trust(&format!("{other}{ca}")).await;
    send().await;
    assert_eq!(server.connections(), 2);
    // The new trust store matches no server, so the client keeps the previous connection.
    trust(&other).await;
    send().await;
    assert_eq!(server.requests.lock().unwrap().len(), 60);
    assert_eq!(server.connections(), 3, "the third was not completed");
    trust(&ca).await;
    send().await;
    assert_eq!(server.connections(), 4);
}

#[test]
fn timeouts_have_at_most_eight_digits() {
    let text = |millis| grpc_timeout(Duration::from_millis(millis));
    assert_eq!(text(5000), "5000000u");
    assert_eq!(text(99_999), "99999000u");
    assert_eq!(text(100_000), "100000m");
    assert_eq!(text(100_000_000), "100000S");
    assert_eq!(grpc_timeout(Duration::MAX), "99999999S");
}
