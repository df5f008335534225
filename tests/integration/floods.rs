//! HTTP/2 attacks: for any input, the server responds within the protocol, closes abusive connections, uses little
//! memory and time, and serves other clients.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::harness::attacks::{self, Flood, stream, window_update};
use crate::harness::http2::{
    Attacker, COMPRESSION_ERROR, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, GOAWAY, HEADERS, PING, PREFACE, PRIORITY, PROTOCOL_ERROR,
    PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, call, field,
    frame, greeting, head,
};
use crate::harness::{Backend, Client, Collector, Oracle, Signal, grpc_to, raw, yaml};

/// A collector and a well-behaved client.
pub struct Arena {
    pub collector: Collector,
    backend: Backend,
    oracle: Oracle,
    grpc: Client,
    http: Client,
    memory: u64,
    processor: Duration,
}

impl Arena {
    /// `limits` are keys of the section `limits`, `grpc` other keys of the protocol.
    pub async fn start(limits: &str, grpc: &str) -> Self {
        let backend = Backend::start().await;
        let yaml = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])
            .replace(
                "max_recv_msg_size_mib: 8",
                &format!("limits: {{{limits}}}, {grpc}"),
            )
            .replace(
                "http: {endpoint: '127.0.0.1:0'}",
                &format!("http: {{endpoint: '127.0.0.1:0', limits: {{{limits}}}}}"),
            );
        let collector = Collector::start(&yaml).await;
        let oracle = Oracle::default();
        let grpc = Client::grpc("grpc", collector.grpc(), &oracle).await;
        let http = Client::http("http", collector.http(), &oracle);
        let mut arena = Arena {
            collector,
            backend,
            oracle,
            grpc,
            http,
            memory: 0,
            processor: Duration::ZERO,
        };
        arena.good().await;
        arena.memory = arena.collector.peak_memory();
        arena.processor = arena.collector.processor_time();
        arena
    }

    /// Sends telemetry as well-behaved clients do, and expects success.
    async fn good(&self) {
        for client in [&self.grpc, &self.http] {
            let request = client.request(Signal::Traces, 5);
            client.send(&request).await.unwrap();
        }
    }

    /// Runs an attack, while the good clients are served.
    pub async fn beside<T>(&self, attack: impl Future<Output = T>) -> T {
        let mut attack = pin!(attack);
        loop {
            tokio::select! {
                biased;
                done = attack.as_mut() => {
                    self.good().await;
                    return done;
                }
                () = self.good() => {}
            }
        }
    }

    /// Checks after the attack: little memory, little processor time, and no loss for other clients.
    pub async fn assert_unharmed(self) {
        let grown = self.collector.peak_memory().saturating_sub(self.memory);
        assert!(grown < MOST_MEMORY, "the process grew by {grown} bytes");
        let taken = self.collector.processor_time() - self.processor;
        assert!(taken < MOST_PROCESSOR_TIME, "the attack took {taken:?}");
        self.oracle.wait_for_delivery(&self.backend).await;
        self.collector.assert_conservation().await;
    }
}

/// Memory that an attack and the well-behaved clients may cost the process, in bytes; for an
/// unoptimized build, as in tests.
const MOST_MEMORY: u64 = 32 << 20;
const MOST_PROCESSOR_TIME: Duration = Duration::from_secs(10);

/// Two hundred control frames a second, and two thousand at once.
const STRICT: &str = "max_control_frames: 200";

fn path() -> &'static str {
    raw::method(Signal::Traces)
}

/// A whole call with an empty message, which is answered.
fn whole_call(stream: u32) -> Vec<u8> {
    [
        frame(HEADERS, END_HEADERS, stream, &call(path())),
        frame(DATA, END_STREAM, stream, &[0; 5]),
    ]
    .concat()
}

/// Floods a connection on which stream 1 is open, and expects the server to close it within the protocol.
async fn too_much(what: &str, flood: Flood) {
    let arena = Arena::start(STRICT, "").await;
    for address in [arena.collector.grpc(), arena.collector.http()] {
        let attack = async {
            let mut attacker = Attacker::greet(address).await;
            attacker
                .send_bytes(&frame(HEADERS, END_HEADERS, 1, &call(path())))
                .await
                .unwrap();
            let said = attacker.flood(10_000, flood).await;
            let code = attacker.ended().await;
            // If the connection was reset while frames were in flight, the final GOAWAY may be
            // lost.
            let told = code.is_none() && said < 10_000 || code == Some(ENHANCE_YOUR_CALM);
            assert!(told, "{what}: {code:?} after {said}");
        };
        arena.beside(attack).await;
    }
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn rapid_resets_end_the_connection() {
    too_much("CVE-2023-44487", attacks::rapid_reset).await;
}

#[tokio::test]
async fn stream_errors_by_the_client_end_the_connection() {
    too_much("CVE-2025-8671", attacks::made_you_reset).await;
}

#[tokio::test]
async fn unbounded_header_blocks_end_the_connection() {
    too_much("CVE-2024-27316", attacks::endless_block).await;
}

#[tokio::test]
async fn empty_continuations_end_the_connection() {
    too_much("empty CONTINUATION frames", attacks::empty_continuation).await;
}

#[tokio::test]
async fn flood_of_pings_ends_the_connection() {
    too_much("CVE-2019-9512", attacks::ping).await;
}

#[tokio::test]
async fn flood_of_settings_ends_the_connection() {
    too_much("CVE-2019-9515", attacks::settings).await;
}

#[tokio::test]
async fn flood_of_empty_data_ends_the_connection() {
    too_much("CVE-2019-9518", attacks::empty_data).await;
}

#[tokio::test]
async fn flood_of_priorities_ends_the_connection() {
    too_much("CVE-2019-9513", attacks::priority).await;
}

#[tokio::test]
async fn flood_of_window_updates_ends_the_connection() {
    too_much("WINDOW_UPDATE", attacks::small_window_update).await;
}

#[tokio::test]
async fn flood_of_unknown_frames_ends_the_connection() {
    too_much("frames of no known type", attacks::unknown_frame).await;
}

#[tokio::test]
async fn window_overflow_ends_the_stream_or_connection() {
    let arena = Arena::start("", "").await;
    let most = (1 << 31) - 1;
    let attack = async {
        let mut attacker = Attacker::greet(arena.collector.grpc()).await;
        let open = frame(HEADERS, END_HEADERS, 1, &call(path()));
        let overflow = [open, window_update(1, most), window_update(1, most)].concat();
        attacker.send_bytes(&overflow).await.unwrap();
        let code = attacker
            .wait_for("the end of the stream", |heard| heard.reset(1))
            .await;
        assert_eq!(code, FLOW_CONTROL_ERROR);
        assert!(attacker.is_alive().await, "only the stream is at fault");
        let overflow = [window_update(0, most), window_update(0, most)].concat();
        attacker.send_bytes(&overflow).await.unwrap();
        assert_eq!(attacker.ended().await, Some(FLOW_CONTROL_ERROR));
    };
    arena.beside(attack).await;
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn unread_responses_do_not_accumulate() {
    let arena = Arena::start("", "max_concurrent_streams: 100").await;
    let attack = async {
        // The window has no room for the data of any response.
        let mut windowless = Attacker::connect(arena.collector.grpc()).await;
        let no_window = greeting(&[0, 4, 0, 0, 0, 0]);
        windowless.send_bytes(&no_window).await.unwrap();
        windowless
            .flood(5000, |number| whole_call(stream(number)))
            .await;
        // The attacker does not read the refusals either.
        let mut deaf = Attacker::unread(arena.collector.grpc()).await;
        let flood = deaf.flood(5000, |number| whole_call(stream(number)));
        // At some point writes stall, because the server stops reading.
        let _ = timeout(Duration::from_secs(2), flood).await;
        (windowless, deaf)
    };
    let (mut windowless, _deaf) = arena.beside(attack).await;
    let (answers, refused) = windowless
        .wait_for("refusals", |heard| {
            let refused = heard.resets(REFUSED_STREAM);
            (refused > 0 || heard.closed).then(|| (heard.answers(), refused))
        })
        .await;
    assert!(answers <= 100, "{answers} answers are held");
    assert!(refused > 0);
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn header_bomb_is_refused() {
    let arena = Arena::start("", "").await;
    let bomb = attacks::header_bomb();
    let attack = async {
        for _ in 0..20 {
            let mut attacker = Attacker::greet(arena.collector.grpc()).await;
            attacker
                .flood(20, |number| {
                    frame(HEADERS, END_HEADERS | END_STREAM, stream(number), &bomb)
                })
                .await;
            let refused = attacker.wait_for("a refusal", |heard| {
                let status = heard.status(1).map(u32::from);
                status.or(heard.reset(1)).or(heard.goaway())
            });
            let refused = refused.await;
            let expected = [431, ENHANCE_YOUR_CALM, PROTOCOL_ERROR, COMPRESSION_ERROR];
            assert!(expected.contains(&refused), "{refused}");
        }
    };
    arena.beside(attack).await;
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn oversized_head_is_refused_and_next_request_served() {
    let arena = Arena::start("", "").await;
    let attack = async {
        let mut attacker = Attacker::greet(arena.collector.grpc()).await;
        let large = [call(path()), field("x", &"y".repeat(17 << 10))].concat();
        let (first, rest) = large.split_at(10 << 10);
        let frames = [
            frame(HEADERS, 0, 1, first),
            frame(CONTINUATION, END_HEADERS, 1, rest),
            whole_call(3),
        ];
        attacker.send_bytes(&frames.concat()).await.unwrap();
        assert_eq!(attacker.answered(1).await, Some(431));
        assert_eq!(attacker.answered(3).await, Some(200));
    };
    arena.beside(attack).await;
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn requests_above_concurrency_limit_are_refused() {
    let arena = Arena::start("", "max_concurrent_streams: 10").await;
    let attack = async {
        let mut attacker = Attacker::greet(arena.collector.grpc()).await;
        // The server's SETTINGS come first: streams opened before their acknowledgement count too.
        attacker
            .flood(15, |number| {
                frame(HEADERS, END_HEADERS, stream(number), &call(path()))
            })
            .await;
        for number in 10..15 {
            let code = attacker
                .wait_for("a refusal", |heard| heard.reset(stream(number)))
                .await;
            assert_eq!(code, REFUSED_STREAM, "{number}");
        }
        for number in 0..10 {
            let rest = frame(DATA, END_STREAM, stream(number), &[0; 5]);
            attacker.send_bytes(&rest).await.unwrap();
            let status = attacker
                .wait_for("an answer", |heard| {
                    let answered = heard.frames.iter().any(|f| f.stream == stream(number));
                    (answered || heard.closed).then_some(answered)
                })
                .await;
            assert!(status, "{number}");
        }
    };
    arena.beside(attack).await;
    let metrics = arena.collector.metrics().await;
    let limit = [("limit", "max_concurrent_streams"), ("transport", "grpc")];
    assert_eq!(metrics.sum("tributary_server_limited", &limit), 5.0);
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn thousand_endless_requests_do_not_affect_other_clients() {
    let arena = Arena::start("", "").await;
    let attack = async {
        let mut attackers = Vec::new();
        for _ in 0..10 {
            let mut attacker = Attacker::greet(arena.collector.grpc()).await;
            // The first bytes of a message of 4 MiB. An unprotected server would allocate the whole message.
            let said = attacker
                .flood(100, |number| {
                    [
                        frame(HEADERS, END_HEADERS, stream(number), &call(path())),
                        frame(DATA, 0, stream(number), &[0, 0, 0x40, 0, 0]),
                    ]
                    .concat()
                })
                .await;
            assert_eq!(said, 100);
            attackers.push(attacker);
        }
        for attacker in &mut attackers {
            assert!(attacker.is_alive().await);
        }
        attackers
    };
    let _attackers = arena.beside(attack).await;
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn clients_with_unfinished_requests_are_disconnected() {
    let limits = "handshake_timeout: 500ms, header_timeout: 500ms";
    let arena = Arena::start(limits, "").await;
    let beginnings = [
        ("nothing", Vec::new()),
        ("half of the preface", PREFACE[..10].to_vec()),
        ("no SETTINGS", PREFACE.to_vec()),
        (
            "half of a head",
            [
                PREFACE,
                &frame(SETTINGS, 0, 0, &[]),
                &frame(HEADERS, 0, 1, &call(path())),
            ]
            .concat(),
        ),
    ];
    for (what, beginning) in beginnings {
        let attack = async {
            let mut attacker = Attacker::connect(arena.collector.grpc()).await;
            attacker.send_bytes(&beginning).await.unwrap();
            attacker.ended().await
        };
        let code = arena.beside(attack).await;
        let expected = [None, Some(0), Some(PROTOCOL_ERROR), Some(ENHANCE_YOUR_CALM)];
        assert!(expected.contains(&code), "{what}: {code:?}");
    }
    let attack = async {
        let mut attacker = Attacker::greet(arena.collector.grpc()).await;
        let slow = frame(HEADERS, END_HEADERS, 1, &call(path()));
        let mut tick = tokio::time::interval(Duration::from_millis(50));
        for byte in slow {
            tick.tick().await;
            if attacker.send_bytes(&[byte]).await.is_err() {
                break;
            }
        }
        attacker.ended().await
    };
    arena.beside(attack).await;
    arena.assert_unharmed().await;
}

/// Sends these frames on a new connection. Returns the code with which the server closes the connection.
async fn violate(arena: &Arena, frames: &[Vec<u8>]) -> Option<u32> {
    let attack = async {
        let mut attacker = Attacker::greet(arena.collector.grpc()).await;
        // An error may already be the response to an earlier frame.
        let _ = attacker.send_bytes(&frames.concat()).await;
        attacker.ended().await
    };
    arena.beside(attack).await
}

/// A name, the frames, and the allowed error codes.
type Case = (&'static str, Vec<Vec<u8>>, &'static [u32]);

#[tokio::test]
async fn protocol_violations_end_the_connection_with_their_code() {
    let arena = Arena::start("", "").await;
    let headers = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &call(path()));
    let open = |stream| frame(HEADERS, END_HEADERS, stream, &call(path()));
    const PROTOCOL: &[u32] = &[PROTOCOL_ERROR];
    // RFC 9113, 4.2 says FRAME_SIZE_ERROR; h2 says PROTOCOL_ERROR for frames of a fixed size.
    const SIZE: &[u32] = &[FRAME_SIZE_ERROR, PROTOCOL_ERROR];
    let cases: Vec<Case> = vec![
        ("an even stream", vec![headers(2)], PROTOCOL),
        // RFC 9113, 5.1.1: a stream below the highest was closed.
        (
            "a lower stream",
            vec![headers(5), headers(3)],
            &[PROTOCOL_ERROR, STREAM_CLOSED],
        ),
        (
            "a stream again",
            vec![headers(1), headers(1)],
            &[PROTOCOL_ERROR, STREAM_CLOSED],
        ),
        ("DATA on stream 0", vec![frame(DATA, 0, 0, b"x")], PROTOCOL),
        (
            "DATA on an idle stream",
            vec![frame(DATA, 0, 9, b"x")],
            PROTOCOL,
        ),
        ("HEADERS on stream 0", vec![headers(0)], PROTOCOL),
        (
            "PRIORITY on stream 0",
            vec![frame(PRIORITY, 0, 0, &[0; 5])],
            PROTOCOL,
        ),
        (
            "RST_STREAM on stream 0",
            vec![frame(RST_STREAM, 0, 0, &[0; 4])],
            PROTOCOL,
        ),
        (
            "RST_STREAM on an idle stream",
            vec![frame(RST_STREAM, 0, 9, &[0; 4])],
            PROTOCOL,
        ),
        (
            "SETTINGS on a stream",
            vec![frame(SETTINGS, 0, 1, b"")],
            PROTOCOL,
        ),
        (
            "PING on a stream",
            vec![frame(PING, 0, 1, &[0; 8])],
            PROTOCOL,
        ),
        (
            "GOAWAY on a stream",
            vec![frame(GOAWAY, 0, 1, &[0; 8])],
            PROTOCOL,
        ),
        (
            "a CONTINUATION of nothing",
            vec![frame(CONTINUATION, END_HEADERS, 1, b"")],
            PROTOCOL,
        ),
        (
            "another frame within a header block",
            vec![
                frame(HEADERS, 0, 1, &call(path())),
                frame(PING, 0, 0, &[0; 8]),
            ],
            PROTOCOL,
        ),
        (
            "another stream within a header block",
            vec![
                frame(HEADERS, 0, 1, &call(path())),
                frame(CONTINUATION, END_HEADERS, 3, b""),
            ],
            PROTOCOL,
        ),
        (
            "a promise from a client",
            vec![frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])],
            PROTOCOL,
        ),
        (
            "padding longer than the frame",
            vec![open(1), frame(DATA, 0x8, 1, &[200, 0, 0])],
            PROTOCOL,
        ),
        ("a window of 0 more", vec![window_update(0, 0)], PROTOCOL),
        (
            "a window above 2^31",
            vec![frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])],
            &[FLOW_CONTROL_ERROR, PROTOCOL_ERROR],
        ),
        (
            "header compression that is none",
            vec![frame(HEADERS, END_HEADERS, 1, &[0xff; 20])],
            &[COMPRESSION_ERROR, PROTOCOL_ERROR],
        ),
        ("a PING of 7 bytes", vec![frame(PING, 0, 0, &[0; 7])], SIZE),
        (
            "SETTINGS of 5 bytes",
            vec![frame(SETTINGS, 0, 0, &[0; 5])],
            SIZE,
        ),
        (
            "RST_STREAM of 3 bytes",
            vec![open(1), frame(RST_STREAM, 0, 1, &[0; 3])],
            SIZE,
        ),
        (
            "WINDOW_UPDATE of 3 bytes",
            vec![frame(WINDOW_UPDATE, 0, 0, &[0; 3])],
            SIZE,
        ),
        (
            "a frame above the largest",
            vec![open(1), head((16 << 20) - 1, DATA, 0, 1), vec![0; 1 << 20]],
            SIZE,
        ),
    ];
    for (what, frames, expected) in cases {
        let code = violate(&arena, &frames).await;
        // A server that closes while data is in flight may lose its last message.
        let told = code.is_some_and(|code| expected.contains(&code));
        assert!(told, "{what}: {code:?}");
    }
    arena.assert_unharmed().await;
}
