//! Clients that do not read their responses, or open idle connections: the collector stays within its memory,
//! disconnects them, and serves all other clients.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::harness::attacks;
use crate::harness::collector::Line;
use crate::harness::http2::{Attacker, ENHANCE_YOUR_CALM, call, get};
use crate::harness::{Client, Collector, Oracle, POLL_INTERVAL, Signal, raw, within};

const LIMIT: u64 = 64 << 20;
/// Maximum memory of the process above `limit_mib`, as SECURITY.md states.
const BESIDE: u64 = 48 << 20;

/// A collector with every server that there is.
async fn start() -> Collector {
    let yaml = "receivers:
  otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}, http: {endpoint: '127.0.0.1:0'}}}
  pprof: {server: {endpoint: '127.0.0.1:0'}}
processors: {memory_limiter: {limit_mib: 80, spike_limit_mib: 16}}
exporters: {nop: {}}
extensions: {health_check: {endpoint: '127.0.0.1:0'}}
service:
  extensions: [health_check]
  pipelines:
    traces: {receivers: [otlp], processors: [memory_limiter], exporters: [nop]}
    profiles: {receivers: [otlp, pprof], processors: [memory_limiter], exporters: [nop]}
";
    Collector::start(yaml).await
}

/// Opens connections with the maximum number of requests each, and reads no response: the window has no room for
/// bodies, or the client reads nothing at all. Returns the number of sent requests.
async fn flood(address: SocketAddr, block: &[u8], connections: usize, reads: bool) -> u32 {
    let mut held = Vec::new();
    let mut sent = 0;
    for _ in 0..connections {
        let mut attacker = match reads {
            true => Attacker::connect(address).await,
            false => Attacker::unread_on(TcpStream::connect(address).await.unwrap()),
        };
        if let Some(requests) = attacks::unread_requests(&mut attacker, reads, block).await {
            sent += requests;
            held.push(attacker);
        }
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_responses_stay_within_the_memory_limit() {
    let collector = start().await;
    let oracle = Oracle::default();
    let good = Client::grpc("good", collector.grpc(), &oracle).await;
    let export = call(raw::method(Signal::Traces));
    let targets = [
        ("grpc", collector.grpc(), export),
        ("http", collector.http(), get("/v1/traces")),
        (
            "pprof",
            collector.server("Starting HTTP server", "pprof"),
            get("/v1/pprof"),
        ),
        (
            "health",
            collector.server("Starting HTTP server", "health_check"),
            get("/"),
        ),
        (
            "metrics",
            collector.server("Starting metrics server", "service"),
            get("/metrics"),
        ),
    ];
    for (name, address, block) in targets {
        for reads in [true, false] {
            let attack = flood(address, &block, 40, reads);
            let (sent, ()) = tokio::join!(attack, async {
                // A client with one request at a time is never refused.
                let request = good.request(Signal::Traces, 1);
                good.send(&request).await.unwrap();
            });
            let peak = collector.peak_memory();
            println!(
                "{name}, reads {reads}: {sent} requests, peak {} MiB",
                peak >> 20
            );
            assert!(peak < LIMIT + BESIDE, "{name}: {peak} bytes");
        }
    }
    let peak = collector.peak_memory();
    assert!(peak < LIMIT, "nothing of it is telemetry: {peak} bytes");
    let began = Instant::now();
    assert!(collector.terminate().await.status.success());
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "the shutdown took {took:?}");
}

#[tokio::test]
async fn unsolicited_ping_acks_end_the_connection_without_log() {
    let collector = start().await;
    let mut attacker = Attacker::greet(collector.grpc()).await;
    attacker.flood(10_000, attacks::unasked_ping_ack).await;
    assert_eq!(attacker.ended().await, Some(ENHANCE_YOUR_CALM));
    let lines = collector.lines();
    let of_h2 = |line: &&Line| line.text.contains("PING ack");
    assert_eq!(lines.iter().filter(of_h2).count(), 0);
}

#[tokio::test]
async fn idle_connections_of_one_address_do_not_block_others() {
    let collector = start().await;
    let address = collector.http();
    // More connections than the memory limit allows one address, all of them idle.
    let mut idle = Vec::new();
    for _ in 0..180 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    within("a place for a newcomer", async {
        loop {
            let answer = raw::http(address, Method::GET, "/v1/traces", &[], "").await;
            if answer.status == 405 {
                return;
            }
            assert_eq!(answer.status, 503);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
    .await;
    drop(idle);
}
