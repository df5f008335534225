//! OTLP over HTTP.

use super::*;

#[tokio::test]
async fn http_requests_in_all_encodings_arrive() {
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
async fn http_client_errors_have_readable_statuses() {
    let fixture = Fixture::with("max_request_body_size: 100000", Ok(()), false);
    let good = encoded(1);
    // Path, headers, body; status, part of the message.
    type Case = (
        &'static str,
        Vec<(&'static str, &'static str)>,
        Vec<u8>,
        u16,
        &'static str,
    );
    let cases: Vec<Case> = vec![
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
async fn http_refusal_has_a_retry_delay() {
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
async fn stalled_body_is_refused_and_memory_freed() {
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
async fn slow_body_is_refused_after_the_grace() {
    let limits = "limits: {body_grace: 5s, min_body_rate: 1KiB}";
    let fixture = Fixture::with(limits, Ok(()), false);
    let mut stream = TcpStream::connect(fixture.http).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: application/x-protobuf\r\n\
        content-length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.split();
    let began = Instant::now();
    let trickle = async {
        loop {
            writer.write_all(b"x").await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let mut status = [0; 12];
    tokio::select! {
        () = trickle => {}
        read = reader.read_exact(&mut status) => { read.unwrap(); }
    }
    assert_eq!(&status, b"HTTP/1.1 503");
    let took = began.elapsed().as_secs();
    assert!((5..7).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn without_a_minimum_rate_a_body_may_take_its_time() {
    let fixture = Fixture::with("limits: {min_body_rate: 0}", Ok(()), false);
    let body = encoded(1);
    let mut stream = TcpStream::connect(fixture.http).await.unwrap();
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: {PROTOBUF}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    stream.write_all(&body).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
}

#[tokio::test]
async fn oversized_sender_can_read_the_refusal() {
    let fixture = Fixture::with("max_request_body_size: 1000", Ok(()), false);
    for head in ["content-length: 41943040", "transfer-encoding: chunked"] {
        let mut stream = TcpStream::connect(fixture.http).await.unwrap();
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: {PROTOBUF}\r\n{head}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = [b"100000\r\n", vec![b'x'; MIB].as_slice(), b"\r\n"].concat();
        for _ in 0..39 {
            stream.write_all(&chunk).await.unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(answer.contains("max_request_body_size"), "{answer}");
    }
}

#[tokio::test]
async fn expect_continue_with_large_body_is_refused_early() {
    let fixture = Fixture::with("max_request_body_size: 1000", Ok(()), false);
    let mut stream = TcpStream::connect(fixture.http).await.unwrap();
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nhost: c\r\ncontent-type: {PROTOBUF}\r\n\
         expect: 100-continue\r\ncontent-length: 1001\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn write_timeout_responds_for_stuck_pipeline() {
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
async fn browsers_get_cors_policy() {
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

#[tokio::test]
async fn client_on_wrong_port_gets_hint() {
    let fixture = Fixture::new();
    let get = request(
        Method::POST,
        "/v1/traces",
        &[],
        &[("content-type", PROTOBUF)],
    );
    let get = get.body(Full::new(encoded(1).into())).unwrap();
    let (status, _, body) = http1(fixture.grpc, get).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.starts_with(b"this port speaks OTLP/gRPC") && body.ends_with(b"4318\n"));

    let call = request(
        Method::POST,
        "/",
        &[],
        &[("content-type", "application/grpc")],
    );
    let call = call.body(Full::new(framed(0, &encoded(1)).into())).unwrap();
    let reply = Reply::of(http2(fixture.http, call).await);
    assert_eq!(reply.code, Some(Code::Unimplemented as i32));
    assert!(
        reply.message.starts_with("this port speaks OTLP/HTTP"),
        "{reply:?}"
    );
}

#[tokio::test]
async fn the_answer_to_a_large_refused_body_arrives_over_http1() {
    let fixture = Fixture::new();
    fixture.budget.reset_limit(1000);
    for path in ["/v1/traces", "/wrong"] {
        let (status, ..) = fixture.post(path, &[], vec![0; 15 * MIB]).await;
        assert!(matches!(status.as_u16(), 404 | 413), "{status}");
    }
}

#[tokio::test]
async fn unauthenticated_request_is_refused_before_its_body() {
    let fixture = Fixture::with(
        "auth: {authenticator: bearertokenauth}, max_request_body_size: 1000",
        Ok(()),
        false,
    );
    let bearer = format!("Bearer {TOKEN}");
    let known = [("authorization", bearer.as_str()), ("tenant", "acme")];
    let (status, ..) = fixture.post("/v1/traces", &known, encoded(3)).await;
    assert_eq!(status, StatusCode::OK);
    let batch = fixture.sink.taken.lock().unwrap().pop().unwrap();
    let metadata = batch.metadata.clone().unwrap();
    assert_eq!(metadata["tenant"], ["acme"]);
    assert!(!metadata.contains_key("authorization"), "{metadata:?}");
    drop(batch);

    // An unauthenticated client gets the same response, whatever else is wrong with the request.
    for (path, body) in [
        ("/v1/traces", encoded(3)),
        ("/v1/traces", vec![0xff; 100_000]),
        ("/v1/metrics", Vec::new()),
        ("/nowhere", Vec::new()),
    ] {
        let (status, headers, reply) = fixture.post(path, &[], body).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(headers["www-authenticate"], "Bearer realm=\"collector\"");
        assert_eq!(Status::decode(reply).unwrap().code, 16);
    }
    // A client that announces a body with `Expect: 100-continue` never has to send it.
    let mut client = TcpStream::connect(fixture.http).await.unwrap();
    let head = "POST /v1/traces HTTP/1.1\r\nhost: a\r\ncontent-length: 900\r\nexpect: 100-continue\r\n\r\n";
    client.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    assert!(fixture.sink.taken.lock().unwrap().is_empty());
    assert_eq!(fixture.budget.used(), 0);
}
