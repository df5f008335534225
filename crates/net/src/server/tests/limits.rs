//! Tests of responses to clients that exceed a limit, byte by byte.

use bytes::Bytes;
use http::Response;
use http_body_util::Full;

use super::*;
use crate::server::frames::PREFACE;
use tributary_config::units;
use tributary_memory::Budget;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn greeting() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

/// Returns a complete GET of `/`.
fn get_on(stream: u32) -> Vec<u8> {
    // Static table (RFC 7541, A): :method GET, :scheme http, :path /; and a literal :authority.
    frame(HEADERS, 0x5, stream, b"\x82\x86\x84\x41\x01s")
}

/// Writes as many bytes as the server takes, then reads to the end of the connection.
async fn exchange(client: TcpStream, bytes: &[u8]) -> Vec<u8> {
    let (mut read, mut write) = client.into_split();
    let bytes = bytes.to_vec();
    let writing = tokio::spawn(async move {
        let _ = write.write_all(&bytes).await;
        write
    });
    let mut answer = Vec::new();
    let _ = read.read_to_end(&mut answer).await;
    writing.abort();
    answer
}

/// Returns the types of the frames, and the error code and text of a GOAWAY.
fn frames(mut bytes: &[u8]) -> (Vec<u8>, Option<(u32, String)>) {
    let (mut kinds, mut goodbye) = (Vec::new(), None);
    while bytes.len() >= 9 {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let (kind, payload) = (bytes[3], &bytes[9..9 + length]);
        if kind == GOAWAY {
            let code = u32::from_be_bytes(payload[4..8].try_into().unwrap());
            goodbye = Some((code, String::from_utf8(payload[8..].to_vec()).unwrap()));
        }
        kinds.push(kind);
        bytes = &bytes[9 + length..];
    }
    assert!(bytes.is_empty(), "the connection ends within a frame");
    (kinds, goodbye)
}

fn calm(bytes: &[u8]) -> Option<String> {
    let (_, goodbye) = frames(bytes);
    goodbye.and_then(|(code, text)| (code == ENHANCE_YOUR_CALM).then_some(text))
}

fn limited(limits: Limits) -> ServerOptions {
    ServerOptions {
        limits,
        ..ServerOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn clients_with_incomplete_head_are_disconnected() {
    let limits = Limits {
        handshake_timeout: units::Duration::secs(10),
        header_timeout: units::Duration::secs(20),
        ..Limits::default()
    };
    let (_server, address) = start(counting(), limited(limits.clone()));
    let (config, _) = tls();
    let (_secure, secure) = start(
        counting(),
        ServerOptions {
            tls: Some(Arc::new(config)),
            ..limited(limits)
        },
    );
    let block = [greeting(), frame(HEADERS, 0, 1, b"\x82")].concat();
    let began = [greeting(), get_on(1)[..12].to_vec()].concat();
    let next = [greeting(), vec![0]].concat();
    for (to, words, seconds) in [
        (address, &b""[..], 10),
        (address, b"PRI * HT", 10),
        (address, PREFACE, 10),
        (address, &greeting()[..30], 10),
        (address, b"GET / HTTP/1.1\r\nhost", 20),
        (address, &block, 20),
        (address, &began, 20),
        (address, &next, 20),
        (secure, b"", 10),
        (secure, b"\x16\x03\x01\x02\x00\x01", 10),
    ] {
        let mut client = TcpStream::connect(to).await.unwrap();
        client.write_all(words).await.unwrap();
        let time = Instant::now();
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        // One additional second for the closing message.
        let took = time.elapsed().as_secs();
        assert!(
            (seconds..=seconds + 1).contains(&took),
            "{words:?}: {took} s"
        );
        if words.starts_with(b"GET") {
            assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
        } else if seconds == 20 {
            let text = calm(&answer).unwrap();
            assert_eq!(text, "the client did not complete a frame in time");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_bytes_do_not_extend_head_timeout() {
    let (_server, address) = start(counting(), ServerOptions::default());
    for words in [
        b"GET / HTTP/1.1\r\nhost: server\r\nslow: ".to_vec(),
        [greeting(), frame(HEADERS, 0, 1, &[0x82; 4096])].concat(),
    ] {
        let client = TcpStream::connect(address).await.unwrap();
        let time = Instant::now();
        let (mut read, mut write) = client.into_split();
        let trickle = tokio::spawn(async move {
            for byte in words {
                if write.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        });
        let _ = read.read_to_end(&mut Vec::new()).await;
        let took = time.elapsed().as_secs();
        // The preface has a separate limit of ten seconds.
        assert!((10..=21).contains(&took), "closed after {took} s");
        trickle.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn head_timeout_starts_at_first_byte() {
    let (_server, address) = start(counting(), ServerOptions::default());
    let mut client = TcpStream::connect(address).await.unwrap();
    let mut answer = [0; 256];
    for number in [b'1', b'2'] {
        client.write_all(GET).await.unwrap();
        let read = client.read(&mut answer).await.unwrap();
        assert_eq!(answer[..read].last(), Some(&number));
        tokio::time::sleep(Duration::from_secs(200)).await;
    }
    client.write_all(&GET[..10]).await.unwrap();
    let time = Instant::now();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 408 "), "{answer:?}");
    assert!((10..=11).contains(&time.elapsed().as_secs()));
}

#[tokio::test]
async fn connection_above_limit_is_refused_in_its_protocol() {
    for limits in [
        Limits {
            max_connections: 1,
            ..Limits::default()
        },
        Limits {
            max_connections_per_peer: 1,
            ..Limits::default()
        },
    ] {
        let (_server, address) = start(counting(), limited(limits.clone()));
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(GET).await.unwrap();
        first.read_exact(&mut [0; 4]).await.unwrap();

        let second = TcpStream::connect(address).await.unwrap();
        let answer = String::from_utf8(exchange(second, GET).await).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(head.contains("\r\nretry-after: 5") && head.contains("\r\nconnection: close"));
        assert!(head.ends_with(&format!("content-length: {}", body.len())));

        let third = TcpStream::connect(address).await.unwrap();
        let answer = exchange(third, &[greeting(), get_on(1)].concat()).await;
        let (kinds, goodbye) = frames(&answer);
        assert_eq!(kinds, [SETTINGS, GOAWAY]);
        let text = "too many connections; try again later".to_owned();
        assert_eq!(goodbye, Some((ENHANCE_YOUR_CALM, text)));
        drop(first);
    }
}

#[tokio::test]
async fn tls_connection_over_limit_gets_an_alert() {
    let (config, connector) = tls();
    let options = ServerOptions {
        tls: Some(Arc::new(config)),
        ..limited(Limits {
            max_connections: 1,
            ..Limits::default()
        })
    };
    let (_server, address) = start(counting(), options);
    let name = || "server".try_into().unwrap();
    let first = TcpStream::connect(address).await.unwrap();
    let _first = connector.connect(name(), first).await.unwrap();
    let second = TcpStream::connect(address).await.unwrap();
    let error = connector.connect(name(), second).await.unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn stalled_tls_handshake_loses_its_slot() {
    let (config, connector) = tls();
    let options = ServerOptions {
        tls: Some(Arc::new(config)),
        ..limited(Limits {
            max_handshakes: 1,
            ..Limits::default()
        })
    };
    let (_server, address) = start(counting(), options);
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut stalled = TcpStream::connect(address).await.unwrap();
    stalled
        .write_all(b"\x16\x03\x01\x02\x00\x01")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let refused = TcpStream::connect(address).await.unwrap();
    let error = connector
        .connect("server".try_into().unwrap(), refused)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("InternalError"), "{error}");
    tokio::time::sleep(Duration::from_secs(11)).await;
    let welcome = TcpStream::connect(address).await.unwrap();
    connector
        .connect("server".try_into().unwrap(), welcome)
        .await
        .unwrap();
}

#[tokio::test]
async fn request_over_limit_is_refused_without_reading_body() {
    let (entered, release) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (inside, gate) = (entered.clone(), release.clone());
    let handler: SimpleHandler = Arc::new(move |_| {
        let (inside, gate) = (inside.clone(), gate.clone());
        Box::pin(async move {
            inside.add_permits(1);
            gate.acquire().await.unwrap().forget();
            Response::new(Full::default())
        })
    });
    let (_server, address) = start(
        handler,
        limited(Limits {
            max_requests: 1,
            ..Limits::default()
        }),
    );
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(GET).await.unwrap();
    entered.acquire().await.unwrap().forget();
    let second = TcpStream::connect(address).await.unwrap();
    let post = b"POST / HTTP/1.1\r\nhost: server\r\ncontent-length: 1000000\r\n\r\n";
    let answer = String::from_utf8(exchange(second, post).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("\r\nretry-after: 1\r\n"), "{answer}");
    release.add_permits(2);
    first.read_exact(&mut [0; 15]).await.unwrap();
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(client.send_request(get()).await.unwrap().status(), 200);
}

#[tokio::test]
async fn oversized_head_is_refused_with_431() {
    let (_server, address) = start(counting(), ServerOptions::default());
    let large = "x".repeat(17 << 10);
    let request = format!("GET / HTTP/1.1\r\nhost: server\r\nlarge: {large}\r\n\r\n");
    let client = TcpStream::connect(address).await.unwrap();
    let answer = String::from_utf8(exchange(client, request.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");

    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    // After a first request, the client knows the limits, and the server has its acknowledgement.
    assert_eq!(client.send_request(get()).await.unwrap().status(), 200);
    let mut request = get();
    request
        .headers_mut()
        .insert("large", large.parse().unwrap());
    match client.send_request(request).await {
        Ok(response) => assert_eq!(response.status(), 431),
        Err(error) => assert!(error.is_user() || !error.is_closed(), "{error}"),
    }
    assert_eq!(client.send_request(get()).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn flood_of_control_frames_ends_with_goaway() {
    let limits = Limits {
        max_control_frames: 10,
        ..Limits::default()
    };
    let (_server, address) = start(counting(), limited(limits));
    let rapid_reset = |number: u32| {
        let id = 2 * number + 1;
        [get_on(id), frame(RST_STREAM, 0, id, &[0, 0, 0, 8])].concat()
    };
    // The server resets a stream whose window update has an increment of zero (RFC 9113, 6.9).
    let made_you_reset = |number: u32| {
        let id = 2 * number + 1;
        [
            frame(HEADERS, 0x4, id, b"\x83\x86\x84\x41\x01s"),
            frame(WINDOW_UPDATE, 0, id, &[0; 4]),
        ]
        .concat()
    };
    type Flood<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    let floods: [(&str, Flood<'_>); 8] = [
        ("PING", &|_| frame(PING, 0, 0, &[1; 8])),
        ("PING ACK", &|_| frame(PING, 1, 0, &[1; 8])),
        ("SETTINGS", &|_| frame(SETTINGS, 0, 0, &[])),
        ("PRIORITY", &|_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE", &|_| {
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])
        }),
        ("unknown", &|_| frame(0x77, 0, 0, b"?")),
        ("rapid reset", &rapid_reset),
        ("made you reset", &made_you_reset),
    ];
    for (name, flood) in floods {
        let client = TcpStream::connect(address).await.unwrap();
        let bytes: Vec<u8> = (0..400).flat_map(flood).collect();
        let answer = exchange(client, &[greeting(), bytes].concat()).await;
        let text = calm(&answer);
        assert_eq!(text.as_deref(), Some("too many control frames"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_ended_by_h2_are_counted() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let _recorder = ::metrics::set_default_local_recorder(&recorder);
    let (_server, address) = start(counting(), ServerOptions::default());
    let post = frame(HEADERS, 0x4, 1, b"\x83\x86\x84\x41\x01s");
    // One large header, added to the table and then referenced repeatedly (HPACK bomb, CVE-2016-6581).
    let large = [
        &b"\x82\x86\x84\x41\x01s\x40\x01x\x7f\x81\x1e"[..],
        &[b'x'; 3968],
    ]
    .concat();
    let bomb = [frame(HEADERS, 0, 1, &large), frame(9, 4, 1, &[0xbe; 4000])].concat();
    let counted = |limit: &str| {
        let line = format!(",limit=\"{limit}\"}} ");
        let text = recorder.handle().render();
        let of_limit = text.lines().find_map(|text| text.split_once(&line));
        of_limit.map_or(0, |(_, count)| count.parse().unwrap())
    };
    for (limit, before, bytes) in [
        (
            "max_control_frames",
            0,
            [
                frame(HEADERS, 0, 1, b"\x82"),
                frame(9, 0, 1, b"").repeat(400),
            ]
            .concat(),
        ),
        (
            "max_control_frames",
            1,
            [post, frame(0, 0, 1, b"").repeat(400)].concat(),
        ),
        ("max_header_size", 0, bomb),
    ] {
        assert_eq!(counted(limit), before);
        let client = TcpStream::connect(address).await.unwrap();
        let answer = exchange(client, &[greeting(), bytes].concat()).await;
        assert!(calm(&answer).is_some(), "{limit}: {:?}", frames(&answer));
        assert_eq!(counted(limit), before + 1);
    }
}

#[tokio::test]
async fn client_may_ping_and_acknowledge_every_response() {
    let limits = Limits {
        max_control_frames: 1,
        ..Limits::default()
    };
    let (_server, address) = start(counting(), limited(limits));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&greeting()).await.unwrap();
    client.write_all(&frame(SETTINGS, 1, 0, &[])).await.unwrap();
    for number in 0..200 {
        let id = 2 * number + 1;
        client.write_all(&get_on(id)).await.unwrap();
        loop {
            let mut head = [0; 9];
            client.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            client.read_exact(&mut payload).await.unwrap();
            assert_ne!(head[3], GOAWAY, "after {number} requests");
            if head[3] <= HEADERS && head[4] & 1 != 0 {
                break;
            }
        }
        for control in [
            frame(PING, 0, 0, &[1; 8]),
            frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 3]),
        ] {
            client.write_all(&control).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unread_response_is_dropped_after_timeout() {
    let (_server, address) = start(counting(), ServerOptions::default());
    let client = TcpStream::connect(address).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE 0: responses have heads but no bodies.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let time = Instant::now();
    let answer = exchange(client, &[PREFACE, &settings, &get_on(1)].concat()).await;
    assert_eq!(
        calm(&answer).unwrap(),
        "the client did not read a response in time"
    );
    let took = time.elapsed().as_secs();
    assert!((29..=32).contains(&took), "closed after {took} s");
}

#[tokio::test(start_paused = true)]
async fn client_that_stops_reading_is_disconnected() {
    let body = Bytes::from(vec![b'x'; 64 << 20]);
    let handler: SimpleHandler = Arc::new(move |_| {
        let body = body.clone();
        Box::pin(async move { Response::new(Full::new(body)) })
    });
    let (server, address) = start(handler, ServerOptions::default());
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(GET).await.unwrap();
    while server.tasks.len() < 2 {
        tokio::task::yield_now().await;
    }
    let time = Instant::now();
    while server.tasks.len() > 1 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(
            time.elapsed().as_secs() < 60,
            "the connection is still open"
        );
    }
    assert!(time.elapsed().as_secs() >= 29);
}

#[tokio::test(start_paused = true)]
async fn incomplete_data_frame_is_dropped_after_timeout() {
    let handler: SimpleHandler = Arc::new(|_| Box::pin(std::future::pending()));
    let (_server, address) = start(handler, ServerOptions::default());
    let client = TcpStream::connect(address).await.unwrap();
    let post = frame(HEADERS, 0x4, 1, b"\x83\x86\x84\x41\x01s");
    let half = &frame(0, 0, 1, &[0; 16 << 10])[..9000];
    let time = Instant::now();
    let answer = exchange(client, &[greeting(), post, half.to_vec()].concat()).await;
    assert!(calm(&answer).is_some());
    let took = time.elapsed().as_secs();
    assert!((31..=32).contains(&took), "closed after {took} s");
}

#[tokio::test(start_paused = true)]
async fn incomplete_large_frames_wait_for_memory() {
    let handler: SimpleHandler = Arc::new(|request| {
        Box::pin(async move {
            let _ = request.into_body().collect().await;
            Response::new(Full::default())
        })
    });
    let options = ServerOptions {
        budget: Some(Budget::new(1)),
        stream_window: 2 << 20,
        ..ServerOptions::default()
    };
    let (_server, address) = start(handler, options);
    let post = frame(HEADERS, 0x4, 1, b"\x83\x86\x84\x41\x01s");
    let data = frame(0, 1, 1, &vec![0; 1 << 20]);
    let acknowledged = [greeting(), frame(SETTINGS, 1, 0, &[]), post].concat();
    let mut stalled = Vec::new();
    // From one address, which gets half of the four MiB.
    for _ in 0..2 {
        let mut client = TcpStream::connect(address).await.unwrap();
        let half = [&acknowledged, &data[..500_000]].concat();
        client.write_all(&half).await.unwrap();
        stalled.push(client);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let time = Instant::now();
    let mut third = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = third.split();
    let send = async {
        write
            .write_all(&[acknowledged, data.clone()].concat())
            .await
    };
    let answered = async {
        loop {
            let mut head = [0; 9];
            read.read_exact(&mut head).await.unwrap();
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            read.read_exact(&mut vec![0; length as usize])
                .await
                .unwrap();
            if head[3] == HEADERS {
                return;
            }
        }
    };
    let complete_one = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        stalled[0].write_all(&data[500_000..]).await.unwrap();
    };
    let (sent, (), ()) = tokio::join!(send, answered, complete_one);
    sent.unwrap();
    assert!(
        (4..=6).contains(&time.elapsed().as_secs()),
        "{:?}",
        time.elapsed()
    );
}

const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ENHANCE_YOUR_CALM: u32 = 11;
