//! The exporter against servers on loopback.

use crate::exporters::otlp_http::response::retry_after;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use std::time::SystemTime;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;

use super::CookiesConfig;
use super::response::{JSON, PROTOBUF};
use super::*;
use crate::queue::Sender;
use tributary_compression::http::Compression;
use tributary_net::client::test_server::{
    Answer, TestServer, answer, certificates, header_map as pairs,
};
use tributary_net::rpc::Status;
use tributary_net::tls::ServerTls;

fn config(server: &TestServer) -> Config {
    Config {
        endpoint: format!("http://{}", server.address),
        compression: Compression::None,
        ..Config::default()
    }
}

fn id() -> ComponentId {
    "otlp_http".parse().unwrap()
}

fn exporter(config: &Config) -> Exporter {
    Exporter::new(config, &Signal::ALL, &id()).unwrap()
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

fn respond(status: u16, headers: &[(&'static str, &str)], body: &[u8]) -> Option<Answer> {
    Some(answer(status, pairs(headers), body, HeaderMap::new()))
}

fn ok() -> Option<Answer> {
    respond(200, &[("content-type", PROTOBUF)], b"")
}

fn expand(encoding: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match encoding {
        None => {
            out.extend(body);
            Ok(0)
        }
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut out),
        Some("zlib" | "deflate") => flate2::read::ZlibDecoder::new(body).read_to_end(&mut out),
        Some("x-snappy-framed") => snap::read::FrameDecoder::new(body).read_to_end(&mut out),
        Some("lz4") => lz4_flex::frame::FrameDecoder::new(body).read_to_end(&mut out),
        Some("snappy") => {
            out = snap::raw::Decoder::new().decompress_vec(body).unwrap();
            Ok(0)
        }
        Some("zstd") => {
            out = zstd::stream::decode_all(body).unwrap();
            Ok(0)
        }
        Some(other) => panic!("{other}"),
    }
    .unwrap();
    out
}

#[tokio::test]
async fn bytes_arrive_unchanged_with_every_compression() {
    let server = TestServer::start(None, |_| ok()).await;
    let part =
        |len: &usize| Bytes::from((0..*len).map(|_| fastrand::u8(0..9)).collect::<Vec<u8>>());
    let requests: Requests = [3, 40_000, 10, 20, 50_000].iter().map(part).collect();
    for compression in [
        Compression::None,
        Compression::Gzip,
        Compression::Zstd,
        Compression::Snappy,
        Compression::SnappyFramed,
        Compression::Zlib,
        Compression::Deflate,
        Compression::Lz4,
    ] {
        let exporter = exporter(&Config {
            compression,
            ..config(&server)
        });
        for (signal, path) in [
            (Signal::Traces, "/v1/traces"),
            (Signal::Metrics, "/v1/metrics"),
            (Signal::Logs, "/v1/logs"),
            (Signal::Profiles, "/v1development/profiles"),
        ] {
            send(&exporter, signal, requests.clone()).await.unwrap();
            let request = server.requests.lock().unwrap().pop().unwrap();
            assert_eq!(
                (request.method(), request.uri().path()),
                (&Method::POST, path)
            );
            assert_eq!(request.headers()["content-type"], PROTOBUF);
            let encoding = request.headers().get("content-encoding");
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
async fn json_equals_transcoded_batch() {
    let server = TestServer::start(None, |_| ok()).await;
    let exporter = exporter(&Config {
        encoding: Encoding::Json,
        compression: Compression::Gzip,
        ..config(&server)
    });
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![Span {
                    name: "a-span".to_owned(),
                    ..Span::default()
                }],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    let part = Bytes::from(request.encode_to_vec());
    let requests: Requests = [part.clone(), part].into_iter().collect();
    send(&exporter, Signal::Traces, requests.clone())
        .await
        .unwrap();
    let sent = server.requests.lock().unwrap().pop().unwrap();
    assert_eq!(sent.headers()["content-type"], JSON);
    let json = expand(Some("gzip"), sent.body());
    assert_eq!(
        tributary_otlp::json::to_wire(Signal::Traces, &json).unwrap(),
        requests.to_bytes()
    );
    let error = send(
        &exporter,
        Signal::Traces,
        Bytes::from_static(b"\xff").into(),
    )
    .await;
    assert!(!error.unwrap_err().retryable);
}

#[tokio::test]
async fn requests_have_configured_and_own_headers() {
    let server = TestServer::start(None, |_| ok()).await;
    let mut config = config(&server);
    config.headers = serde_yaml::from_str("{x-tenant: a, content-type: no}").unwrap();
    send(&exporter(&config), Signal::Logs, some_request())
        .await
        .unwrap();
    config.headers = serde_yaml::from_str("{user-agent: me, content-encoding: no}").unwrap();
    send(&exporter(&config), Signal::Logs, some_request())
        .await
        .unwrap();
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests[0].headers()["x-tenant"], "a");
    assert_eq!(requests[0].headers()["content-type"], PROTOBUF);
    assert!(
        requests[0].headers()["user-agent"]
            .to_str()
            .unwrap()
            .starts_with("tributary/")
    );
    assert_eq!(requests[0].headers()["content-length"], "7");
    assert_eq!(requests[1].headers()["user-agent"], "me");
    assert!(!requests[1].headers().contains_key("content-encoding"));
}

#[tokio::test]
async fn four_statuses_are_retried_with_retry_delay() {
    let status = Status {
        message: "come back".to_owned(),
        ..Status::default()
    };
    let status = status.encode_to_vec();
    let server = TestServer::start(None, move |request| {
        let number: u16 = std::str::from_utf8(request.body())
            .unwrap()
            .parse()
            .unwrap();
        respond(
            number,
            &[("retry-after", "7"), ("content-type", PROTOBUF)],
            &status,
        )
    })
    .await;
    let exporter = exporter(&config(&server));
    let mut retried = Vec::new();
    let mut faults = Vec::new();
    for number in [
        301, 400, 401, 403, 404, 408, 413, 422, 429, 500, 501, 502, 503, 504,
    ] {
        let requests = Bytes::from(number.to_string()).into();
        let error = send(&exporter, Signal::Traces, requests).await.unwrap_err();
        let expected = format!(
            "error exporting items, request to http://{}/v1/traces responded with HTTP Status Code \
             {number}, Message=come back",
            server.address
        );
        assert_eq!(error.reason, expected);
        let wait = error.retryable.then_some(Duration::from_secs(7));
        assert_eq!(error.throttle, wait);
        if error.retryable {
            retried.push(number);
        }
        if error.fault != Fault::Elsewhere {
            faults.push((number, error.fault));
        }
    }
    assert_eq!(retried, [429, 502, 503, 504]);
    let expected = [
        (400, Fault::Content),
        (413, Fault::Size),
        (422, Fault::Content),
        (500, Fault::Unclear),
    ];
    assert_eq!(faults, expected);
}

#[tokio::test]
async fn error_contains_server_message_in_any_format() {
    let server = TestServer::start(None, |request| match &request.body()[..] {
        b"json" => respond(
            400,
            &[("content-type", "application/json; charset=utf-8")],
            br#"{"code": 3, "message": "bad span", "details": [{"a": 1}]}"#,
        ),
        b"text" => respond(400, &[("content-type", "text/plain")], b"bad span\n"),
        b"html" => respond(400, &[("content-type", "text/html")], b"<html>"),
        _ => respond(400, &[("content-type", "text/plain")], &[b'x'; 200_000]),
    })
    .await;
    let exporter = exporter(&config(&server));
    let mut said = Vec::new();
    for case in [&b"json"[..], b"text", b"html", b"long"] {
        let error = send(&exporter, Signal::Traces, Bytes::from_static(case).into()).await;
        let reason = error.unwrap_err().reason;
        said.push(reason.split_once("Code 400").unwrap().1.to_owned());
    }
    assert_eq!(said[0], r#", Message=bad span, Details=[{"a":1}]"#);
    assert_eq!(said[1], ", Message=bad span");
    assert_eq!(said[2], "");
    assert_eq!(said[3], format!(", Message={}...", "x".repeat(1024)));
}

#[tokio::test]
async fn partial_success_is_read_in_both_encodings() {
    let server = TestServer::start(None, |request| match &request.body()[..] {
        b"proto" => respond(
            200,
            &[("content-type", PROTOBUF)],
            b"\x0a\x07\x08\x03\x12\x03bad",
        ),
        b"json" => respond(
            200,
            &[("content-type", JSON)],
            br#"{"partialSuccess": {"rejectedDataPoints": "3", "errorMessage": "bad"}}"#,
        ),
        b"number" => respond(
            202,
            &[("content-type", JSON)],
            br#"{"partialSuccess": {"rejectedSpans": 3, "errorMessage": "bad"}}"#,
        ),
        b"endless" => respond(200, &[("content-type", PROTOBUF)], &[0xff; 100_000]),
        b"empty" => respond(200, &[("content-type", JSON)], b"{}"),
        b"other" => respond(200, &[("content-type", "text/html")], b"<html>"),
        _ => respond(200, &[("content-type", PROTOBUF)], b"<html>"),
    })
    .await;
    let exporter = exporter(&config(&server));
    let answer = async |case: &'static [u8]| {
        send(&exporter, Signal::Metrics, Bytes::from_static(case).into()).await
    };
    let some = Outcome {
        rejected_items: 3,
        message: "bad".to_owned(),
    };
    for case in [&b"proto"[..], b"json", b"number"] {
        assert_eq!(answer(case).await.unwrap(), some);
    }
    for case in [&b"empty"[..], b"other"] {
        assert_eq!(answer(case).await.unwrap(), Outcome::default());
    }
    assert_eq!(answer(b"endless").await.unwrap(), Outcome::default());
    assert!(!answer(b"junk").await.unwrap_err().retryable);
}

#[tokio::test]
async fn broken_connections_are_retryable_and_replaced() {
    let cut = AtomicUsize::new(1);
    let server = TestServer::start(None, move |_| match cut.fetch_sub(1, SeqCst) {
        1 => None,
        _ => ok(),
    })
    .await;
    let exporter = exporter(&config(&server));
    let error = send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap_err();
    assert_eq!((error.retryable, error.code), (true, Code::Unavailable));
    for _ in 0..3 {
        send(&exporter, Signal::Traces, some_request())
            .await
            .unwrap();
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn unreachable_server_is_retryable_with_reason() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let exporter = exporter(&Config {
        endpoint,
        ..Config::default()
    });
    let error = send(&exporter, Signal::Traces, some_request())
        .await
        .unwrap_err();
    assert!(
        error.retryable && error.reason.contains("refused"),
        "{error}"
    );
}

#[tokio::test]
async fn connections_are_limited_and_reused_as_configured() {
    let server = TestServer::start(None, |_| ok()).await;
    let fresh = exporter(&Config {
        disable_keep_alives: true,
        ..config(&server)
    });
    for _ in 0..3 {
        send(&fresh, Signal::Traces, some_request()).await.unwrap();
    }
    assert_eq!(server.connections(), 3);
    let limited = exporter(&Config {
        max_conns_per_host: 1,
        ..config(&server)
    });
    let sends = (0..5).map(|at| send(&limited, Signal::ALL[at % 4], some_request()));
    for outcome in futures_util::future::join_all(sends).await {
        outcome.unwrap();
    }
    assert!(server.connections() <= 3 + 2, "{}", server.connections());
}

#[tokio::test]
async fn tls_uses_http2_by_default() {
    let (ca, cert, key) = certificates();
    let tls = ServerTls {
        cert_pem: cert,
        key_pem: key.as_str().into(),
        ..ServerTls::default()
    };
    let tls = tls.build(&[b"h2", b"http/1.1"]).unwrap();
    let server = TestServer::start(Some(tls), |_| ok()).await;
    let mut config = config(&server);
    config.endpoint = format!("https://localhost:{}", server.address.port());
    config.tls.ca_pem = ca;
    let version = async |config: &Config| {
        send(&exporter(config), Signal::Traces, some_request())
            .await
            .unwrap();
        server.requests.lock().unwrap().pop().unwrap().version()
    };
    assert_eq!(version(&config).await, http::Version::HTTP_2);
    config.force_attempt_http2 = false;
    assert_eq!(version(&config).await, http::Version::HTTP_11);
    config.tls.ca_pem = certificates().0;
    let error = send(&exporter(&config), Signal::Traces, some_request())
        .await
        .unwrap_err();
    assert!(
        error.retryable && error.reason.contains("invalid peer certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn server_closing_idle_connections_loses_no_request() {
    for http2 in [false, true] {
        let (ca, cert, key) = certificates();
        let tls = ServerTls {
            cert_pem: cert,
            key_pem: key.as_str().into(),
            ..ServerTls::default()
        };
        let tls = tls.build(&[b"h2", b"http/1.1"]).unwrap();
        let server = TestServer::start(Some(tls), |_| ok()).await;
        let mut config = config(&server);
        config.endpoint = format!("https://localhost:{}", server.address.port());
        config.tls.ca_pem = ca;
        config.force_attempt_http2 = http2;
        let exporter = exporter(&config);
        for round in 0..40 {
            send(&exporter, Signal::Traces, some_request())
                .await
                .unwrap();
            // The next request races with the end of the connection.
            server.goaway();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
        }
        assert!(server.connections() > 1);
        assert_eq!(server.requests.lock().unwrap().len(), 40);
    }
}

#[tokio::test(start_paused = true)]
async fn changed_certificates_apply_to_later_requests() {
    let (ca, cert, key) = certificates();
    let tls = ServerTls {
        cert_pem: cert,
        key_pem: key.as_str().into(),
        ..ServerTls::default()
    };
    let tls = tls.build(&[b"http/1.1"]).unwrap();
    let server = TestServer::start(Some(tls), |_| ok()).await;
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&server);
    config.endpoint = format!("https://localhost:{}", server.address.port());
    config.tls.ca_file = directory.path().join("ca.pem");
    let trust = async |pem: &str| {
        std::fs::write(&config.tls.ca_file, pem).unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
    };
    trust(&ca).await;
    let exporter = exporter(&config);
    let send = async || {
        let sent = send(&exporter, Signal::Traces, some_request()).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        sent
    };
    for _ in 0..5 {
        send().await.unwrap();
    }
    assert_eq!(server.connections(), 1);
    let other = certificates().0;
    trust(&format!("{other}{ca}")).await;
    for _ in 0..5 {
        send().await.unwrap();
    }
    assert_eq!(server.connections(), 2);
    trust(&other).await;
    assert!(
        send().await.unwrap_err().retryable,
        "the idle connection is not trusted"
    );
}

#[test]
fn signals_without_an_endpoint_cannot_be_built() {
    let config = Config {
        logs_endpoint: "http://a".to_owned(),
        ..Config::default()
    };
    assert!(Exporter::new(&config, &[Signal::Logs], &id()).is_ok());
    let error = Exporter::new(&config, &[Signal::Logs, Signal::Traces], &id())
        .err()
        .unwrap();
    assert!(error.contains("traces_endpoint"), "{error}");
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let parse = |text: &str| retry_after(&text.parse().unwrap());
    assert_eq!(parse("120"), Some(Duration::from_secs(120)));
    assert_eq!(parse("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
    let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
    let wait = parse(&soon).unwrap().as_secs();
    assert!((90..=100).contains(&wait), "{wait}");
    for bad in ["", "-1", "1.5", "soon"] {
        assert_eq!(parse(bad), None, "{bad}");
    }
}

#[tokio::test]
async fn cookie_of_response_is_returned_only_if_enabled() {
    let server = TestServer::start(None, |_| {
        respond(200, &[("set-cookie", "route=7; Path=/")], b"")
    })
    .await;
    let with_cookies = exporter(&Config {
        cookies: tributary_config::Section(Some(CookiesConfig::default())),
        ..config(&server)
    });
    let without = exporter(&config(&server));
    for exporter in [&with_cookies, &with_cookies, &without, &without] {
        send(exporter, Signal::Logs, some_request()).await.unwrap();
    }
    let requests = server.requests.lock().unwrap();
    let cookies = requests
        .iter()
        .map(|request| request.headers().get("cookie"));
    let cookies: Vec<Option<&str>> = cookies
        .map(|value| value.map(|value| value.to_str().unwrap()))
        .collect();
    assert_eq!(cookies, [None, Some("route=7"), None, None]);
}

#[tokio::test]
async fn plaintext_request_to_proxy_has_absolute_form() {
    let proxy = TestServer::start(None, |_| ok()).await;
    let exporter = exporter(&Config {
        endpoint: "http://no.such.host.test:4318".to_owned(),
        proxy_url: format!("http://u:p@{}", proxy.address),
        ..Config::default()
    });
    send(&exporter, Signal::Logs, some_request()).await.unwrap();
    let requests = proxy.requests.lock().unwrap();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    assert_eq!(request.uri(), "http://no.such.host.test:4318/v1/logs");
    assert_eq!(request.headers()["host"], "no.such.host.test:4318");
    assert_eq!(request.headers()["proxy-authorization"], "Basic dTpw");
}

/// Passes every tunnel on to `server`, whatever its target; returns the address of the proxy and the requested
/// targets.
async fn tunneling_proxy(
    server: std::net::SocketAddr,
    tls: Option<rustls::ServerConfig>,
) -> (std::net::SocketAddr, Arc<std::sync::Mutex<Vec<String>>>) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_util::either::Either;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let acceptor = tls.map(|tls| tokio_rustls::TlsAcceptor::from(Arc::new(tls)));
    let seen = asked.clone();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let mut client = match &acceptor {
                None => Either::Left(tcp),
                Some(acceptor) => Either::Right(acceptor.accept(tcp).await.unwrap()),
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            seen.lock().unwrap().push(String::from_utf8(head).unwrap());
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            client.flush().await.unwrap();
            let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, asked)
}

#[tokio::test]
async fn https_endpoint_is_reached_through_proxy_tunnel() {
    let (ca, cert, key) = certificates();
    let tls = ServerTls {
        cert_pem: cert,
        key_pem: key.as_str().into(),
        ..ServerTls::default()
    };
    let server = TestServer::start(Some(tls.build(&[b"h2", b"http/1.1"]).unwrap()), |_| ok()).await;
    for scheme in ["http", "https"] {
        let proxy_tls = (scheme == "https").then(|| tls.build(&[b"http/1.1"]).unwrap());
        let (proxy, asked) = tunneling_proxy(server.address, proxy_tls).await;
        let mut config = config(&server);
        // A port that only the proxy can reach.
        config.endpoint = "https://localhost:1".to_owned();
        config.proxy_url = format!("{scheme}://u:p@{proxy}");
        config.tls.ca_pem = ca.clone();
        send(&exporter(&config), Signal::Logs, some_request())
            .await
            .unwrap();
        let request = server.requests.lock().unwrap().pop().unwrap();
        assert_eq!(request.version(), http::Version::HTTP_2);
        assert!(!request.headers().contains_key("proxy-authorization"));
        assert_eq!(
            asked.lock().unwrap().as_slice(),
            [
                "CONNECT localhost:1 HTTP/1.1\r\nHost: localhost:1\r\nProxy-Authorization: Basic \
              dTpw\r\n\r\n"
            ]
        );
    }
}
