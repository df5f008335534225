//! The memory of the collector stays within its budget and a fixed overhead for any input, and other clients are
//! served.

use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use http::{Method, Request};
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tonic::Code;

use crate::harness::attacks::{message, pprof_bombs, request};
use crate::harness::{
    Backend, Client, Collector, Oracle, POLL_INTERVAL, Signal, codec, grpc_at, grpc_to, raw, within,
};

const MIB: usize = 1 << 20;
/// Limit of `memory_limiter` in the configuration, in bytes.
const BUDGET: usize = 64 * MIB;
/// Other memory of the process in bytes: threads, connections, and memory kept by the allocator.
const OVERHEAD: usize = 24 * MIB;
/// Bytes that every heap of the allocator but the first may keep; there is a heap for every two
/// processors.
const KEPT_BY_A_HEAP: usize = 8 * MIB;
/// Without optimizations attacks are smaller: work that takes an optimized build a second would take a minute.
const SCALE: usize = if cfg!(debug_assertions) { 1 } else { 8 };
/// The largest request, as sent and unpacked.
const LARGEST: usize = SCALE * MIB / 2;

/// The largest pprof file, unpacked; compressed the attacks have some KB.
const PROFILE: usize = 4 * SCALE * MIB;

/// A collector on a hostile network. Traces go to a backend. Logs have no next hop. Metrics go to a server that accepts
/// connections and never responds, so that they stay in the queue.
struct Target {
    collector: Collector,
    backend: Backend,
    oracle: Oracle,
    _silent: TcpListener,
}

impl Target {
    async fn start() -> Self {
        let backend = Backend::start().await;
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let queue = format!(
            "timeout: 60s, sending_queue: {{num_consumers: 2, sizer: bytes, queue_size: {}}}",
            4 * LARGEST
        );
        let yaml = format!(
            "receivers:
  otlp:
    protocols:
      grpc: {{endpoint: '127.0.0.1:0', max_recv_msg_size_mib: 4, include_metadata: true}}
      http: {{endpoint: '127.0.0.1:0', max_request_body_size: {LARGEST}, include_metadata: true}}
  pprof: {{server: {{endpoint: '127.0.0.1:0', max_request_body_size: {PROFILE}}}}}
processors:
  memory_limiter: {{limit_mib: 80, spike_limit_mib: 16}}
  dedup: {{}}
  filter: {{profile_conditions: ['profile.period == 12345']}}
  attributes: {{actions: [{{key: a, value: b, action: update}}]}}
  batch: {{send_batch_max_size: 10000}}
  compression: {{}}
  compression/summaries: {{mode: aggregate, interval: 1s, max_bytes: 8MiB}}
exporters:
  otlp_grpc/kept: {}
  otlp_grpc/silent: {}
  nop: {{}}
service:
  pipelines:
    traces: {{receivers: [otlp], processors: [memory_limiter], exporters: [otlp_grpc/kept]}}
    metrics: {{receivers: [otlp], processors: [memory_limiter], exporters: [otlp_grpc/silent]}}
    logs: {{receivers: [otlp], processors: [memory_limiter], exporters: [nop]}}
    profiles: {{receivers: [otlp], processors: [memory_limiter, dedup, filter, attributes, batch, compression], exporters: [nop]}}
    profiles/summaries: {{receivers: [otlp, pprof], processors: [memory_limiter, compression/summaries], exporters: [nop]}}
",
            grpc_to(&backend, ""),
            grpc_at(silent.local_addr().unwrap(), &queue),
        );
        Target {
            collector: Collector::start(&yaml).await,
            backend,
            oracle: Oracle::default(),
            _silent: silent,
        }
    }

    /// Runs an attack while other clients send small requests, and checks the clients and the memory.
    async fn under(&self, name: &str, attack: impl Future<Output = ()>) -> usize {
        let over = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let (collector, oracle) = (&self.collector, &self.oracle);
        let clients = [
            Client::grpc(&format!("{name}/grpc"), collector.grpc(), oracle).await,
            Client::http(&format!("{name}/http"), collector.http(), oracle),
        ];
        let others = clients.map(|client| send_small_requests(client, over.clone()));
        attack.await;
        over.store(true, Relaxed);
        let mut refused = 0;
        for other in others {
            refused += other.await.unwrap();
        }
        let (peak, now) = (self.collector.peak_memory(), self.collector.memory());
        println!(
            "{name}: {:?}, peak {} MiB, now {} MiB",
            began.elapsed(),
            peak >> 20,
            now >> 20
        );
        assert!(
            peak < (BUDGET + OVERHEAD) as u64,
            "{name}: the process had {peak} bytes"
        );
        refused
    }
}

impl Target {
    /// Waits until the process uses at most `bytes` of memory.
    async fn wait_for_memory_below(&self, bytes: u64) {
        within("memory to be given back", async {
            while self.collector.memory() > bytes {
                sleep(POLL_INTERVAL).await;
            }
        })
        .await;
    }
}

/// Sends small requests until `over`. Each request is accepted, or refused with a retry delay. Returns the number of
/// refused requests.
fn send_small_requests(client: Client, over: Arc<AtomicBool>) -> JoinHandle<usize> {
    tokio::spawn(async move {
        let (mut served, mut refusals) = (0, 0);
        while served == 0 || !over.load(Relaxed) {
            match client.send(&client.request(Signal::Traces, 1)).await {
                Ok(()) => served += 1,
                Err(refused) => {
                    assert_eq!(refused.code, Code::ResourceExhausted, "{refused:?}");
                    assert!(refused.retry_after.is_some(), "{refused:?}");
                    refusals += 1;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
        refusals
    })
}

/// Records without content, two bytes each.
fn empty_records(bytes: usize) -> Vec<u8> {
    [0x12, 0].repeat(bytes / 2)
}

/// Returns a log record whose body repeats one letter.
fn long_text(bytes: usize) -> Vec<u8> {
    message(2, &message(5, &message(1, &vec![b'a'; bytes])))
}

/// Returns log records whose bodies are lists nested to the maximum depth.
fn deep_records(bytes: usize) -> Vec<u8> {
    let mut value = Vec::new();
    for _ in 0..46 {
        value = message(5, &message(1, &value));
    }
    let record = message(2, &message(5, &value));
    record.repeat(bytes / record.len())
}

/// Bodies that are much larger unpacked: too large, and just small enough.
fn bombs(encoding: &str) -> Vec<Vec<u8>> {
    [
        request(&long_text(3 * LARGEST)),
        request(&long_text(LARGEST - 100)),
        request(&empty_records(LARGEST - 100)),
    ]
    .map(|plain| codec::compress(encoding, &plain))
    .into()
}

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

async fn post(address: SocketAddr, signal: Signal, kind: &str, encoding: &str, body: Bytes) -> u16 {
    let headers = [("content-type", kind), ("content-encoding", encoding)];
    let headers = match encoding {
        "identity" => &headers[..1],
        _ => &headers[..],
    };
    let response = raw::http(address, Method::POST, raw::path(signal), headers, body).await;
    response.status.as_u16()
}

async fn decompression_bombs(target: &Target, at_once: usize) {
    let (grpc, http) = (target.collector.grpc(), target.collector.http());
    let encodings = codec::HTTP.into_iter().filter(|name| *name != "identity");
    let bodies: Vec<(&str, Bytes)> = encodings
        .flat_map(|name| bombs(name).into_iter().map(move |bomb| (name, bomb.into())))
        .collect();
    let attacks = (0..at_once).zip(bodies.iter().cycle());
    join_all(attacks.map(|(number, (encoding, body))| async move {
        if number % 2 == 1 && codec::GRPC.contains(encoding) {
            let frame = raw::frame(true, body);
            let headers = [("grpc-encoding", *encoding)];
            raw::grpc(grpc, raw::method(Signal::Logs), &headers, frame).await;
        } else {
            let status = post(http, Signal::Logs, PROTOBUF, encoding, body.clone()).await;
            assert!([200, 413, 429].contains(&status), "{encoding}: {status}");
        }
    }))
    .await;
}

async fn structures(target: &Target) {
    let http = target.collector.http();
    let text = |head: &str, middle: &str, tail: &str| {
        let fits = (LARGEST - 200) / middle.len();
        Bytes::from([head, &middle.repeat(fits), tail].concat())
    };
    let depth = 100_000 * SCALE;
    let twice = [
        message(1, &[]),
        message(1, &[]),
        message(2, &empty_records(MIB)),
    ]
    .concat();
    let bodies: [(&str, Bytes); 8] = [
        (PROTOBUF, request(&deep_records(LARGEST - 100)).into()),
        (PROTOBUF, request(&empty_records(LARGEST - 100)).into()),
        // Unknown fields.
        (
            PROTOBUF,
            request(&[0xfa, 0x7f, 0].repeat(LARGEST / 4)).into(),
        ),
        // A singular message that occurs twice.
        (PROTOBUF, message(1, &twice).into()),
        (
            JSON,
            ["{\"x\":", &"[".repeat(depth), &"]".repeat(depth), "}"]
                .concat()
                .into(),
        ),
        (
            JSON,
            text(
                "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{}",
                ",{}",
                "]}]}]}",
            ),
        ),
        (
            JSON,
            text(
                "{\"resourceMetrics\":[{\"scopeMetrics\":[{\"metrics\":[{\"histogram\":{\"dataPoints\":[{\"explicitBounds\":[0",
                ",0",
                "]}]}}]}]}]}",
            ),
        ),
        (
            JSON,
            text(
                "{\"resourceLogs\":[{\"scopeLogs\":[{\"logRecords\":[{\"body\":{\"stringValue\":\"",
                "\\n",
                "\"}}]}]}]}",
            ),
        ),
    ];
    join_all(bodies.iter().map(|(kind, body)| async move {
        for _ in 0..2 {
            post(http, Signal::Logs, kind, "identity", body.clone()).await;
        }
    }))
    .await;
}

/// Requests of profiles, and pprof files, in which a few bytes stand for large structs.
async fn profiles(target: &Target, at_once: usize) {
    let http = target.collector.http();
    let pprof = target.collector.server("Starting HTTP server", "pprof");
    // A profile with one sample, so that there is an item to deliver, and many profiles without samples.
    let sample = message(2, &message(2, &[0x22, 1, 1]));
    let beside_it = |many: Vec<u8>| message(1, &message(2, &[sample.clone(), many].concat()));
    let fits = LARGEST - 200;
    let requests = [
        beside_it(empty_records(fits)),
        [message(1, &message(2, &sample)), empty_scopes(fits)].concat(),
        [message(1, &message(2, &sample)), [0x0a, 0].repeat(fits / 2)].concat(),
        [
            message(1, &message(2, &sample)),
            message(2, &[0x12, 0].repeat(fits / 2)),
        ]
        .concat(),
        message(
            1,
            &[message(1, &[0x0a, 0].repeat(fits / 2)), message(2, &sample)].concat(),
        ),
    ];
    let files: Vec<Bytes> = pprof_bombs(PROFILE).into_iter().map(Bytes::from).collect();
    let requests = requests.map(Bytes::from);
    let by_otlp = (0..at_once).zip(requests.iter().cycle());
    let by_otlp = by_otlp.map(|(_, body)| async move {
        let status = post(http, Signal::Profiles, PROTOBUF, "identity", body.clone()).await;
        assert!([200, 400, 413, 429, 503].contains(&status), "{status}");
    });
    let by_pprof = (0..at_once).zip(files.iter().cycle());
    let by_pprof = by_pprof.map(|(_, file)| async move {
        let answer = raw::http(pprof, Method::POST, "/v1/pprof", &[], file.clone()).await;
        let status = answer.status.as_u16();
        assert!([400, 413, 429, 503].contains(&status), "{answer:?}");
    });
    tokio::join!(join_all(by_otlp), join_all(by_pprof));
}

/// Resources with scopes without anything.
fn empty_scopes(bytes: usize) -> Vec<u8> {
    message(1, &[0x12, 0].repeat(bytes / 2))
}

type Pieces = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

async fn connect(address: SocketAddr) -> SendRequest<Pieces> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A call that sends `begin` of a body. The body never ends unless it is complete.
fn call(address: SocketAddr, begin: Bytes, complete: bool) -> Request<Pieces> {
    let begin = stream::iter([Ok(Frame::data(begin))]);
    let body = if complete {
        begin.boxed()
    } else {
        begin.chain(stream::pending()).boxed()
    };
    Request::post(format!("http://{address}{}", raw::method(Signal::Logs)))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(StreamBody::new(body))
        .unwrap()
}

/// Sends requests of one log record, over many connections.
async fn tiny_requests(target: &Target, requests: usize) {
    const CONNECTIONS: usize = 20;
    let (grpc, http) = (target.collector.grpc(), target.collector.http());
    let body = request(&[0x12, 0]);
    let frame = Bytes::from(raw::frame(false, &body));
    let each = requests / CONNECTIONS / 2;
    let by_grpc = join_all((0..CONNECTIONS).map(|_| async {
        let sender = connect(grpc).await;
        stream::iter(0..each)
            .for_each_concurrent(100, |_| {
                let mut sender = sender.clone();
                let call = call(grpc, frame.clone(), true);
                async move {
                    sender.ready().await.unwrap();
                    sender.send_request(call).await.unwrap();
                }
            })
            .await;
    }));
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let post = [head.as_bytes(), &body].concat();
    let by_http = join_all((0..CONNECTIONS).map(|_| async {
        let mut stream = TcpStream::connect(http).await.unwrap();
        let (mut reader, mut writer) = stream.split();
        let write = async {
            for _ in 0..each {
                writer.write_all(&post).await.unwrap();
            }
            writer.shutdown().await.unwrap();
        };
        let read = async { while reader.read(&mut [0; 4096]).await.unwrap() > 0 {} };
        tokio::join!(write, read);
    }));
    tokio::join!(by_grpc, by_http);
}

/// Opens connections that send nothing, or stop in the middle of a request. They stay open until the drop of the
/// result. They come from two addresses without other clients, because one address gets only half of the connections
/// that memory allows.
async fn connections(
    address: SocketAddr,
    from: [u8; 2],
    count: usize,
    begin: &[u8],
) -> Vec<TcpStream> {
    join_all((0..count).map(|number| async move {
        let socket = TcpSocket::new_v4().unwrap();
        let source = Ipv4Addr::new(127, 0, 0, from[number % 2]);
        socket.bind((source, 0).into()).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(begin).await.unwrap();
        stream
    }))
    .await
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn idle_connections(target: &Target, count: usize) {
    let (grpc, http) = (target.collector.grpc(), target.collector.http());
    let _held = (
        connections(grpc, [2, 3], count / 2, PREFACE).await,
        connections(http, [2, 3], count / 2, b"POST /v1/logs HTTP/1.1\r\n").await,
    );
    sleep(Duration::from_millis(300)).await;
}

async fn unfinished_requests(target: &Target, count: usize) {
    let http = target.collector.http();
    let mut begin = format!("POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: {PROTOBUF}\r\ncontent-length: {LARGEST}\r\n\r\n").into_bytes();
    begin.extend(vec![0; 10_000]);
    let _held = connections(http, [4, 5], count, &begin).await;
    sleep(Duration::from_millis(300)).await;
}

/// Opens streams of one connection that declare a large message and send no more than a few bytes of it.
async fn declared_and_not_sent(target: &Target, streams: usize, sent: usize) {
    let grpc = target.collector.grpc();
    let mut begin = vec![0];
    begin.extend_from_slice(&u32::to_be_bytes(4 << 20));
    begin.extend(vec![0; sent]);
    let begin = Bytes::from(begin);
    let mut sender = connect(grpc).await;
    let calls: Vec<_> = (0..streams)
        .map(|_| sender.send_request(call(grpc, begin.clone(), false)))
        .collect();
    let calls = tokio::spawn(join_all(calls));
    sleep(Duration::from_millis(300)).await;
    calls.abort();
}

/// As many large headers as a request may have.
async fn large_headers(target: &Target, requests: usize) {
    let grpc = target.collector.grpc();
    let frame = Bytes::from(raw::frame(false, &request(&[0x12, 0])));
    let sender = connect(grpc).await;
    stream::iter(0..requests)
        .for_each_concurrent(100, |_| {
            let mut sender = sender.clone();
            let mut call = call(grpc, frame.clone(), true);
            for number in 0..100 {
                let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
                call.headers_mut()
                    .insert(name, "a".repeat(100).parse().unwrap());
            }
            async move {
                sender.ready().await.unwrap();
                let _ = sender.send_request(call).await;
            }
        })
        .await;
}

/// Metrics that stay in the queue until that is full.
async fn fill_the_queue(target: &Target) {
    let http = target.collector.http();
    let points = [0x0a, 0].repeat(LARGEST / 8);
    let body = Bytes::from(request(&message(2, &message(5, &points))));
    for _ in 0..100 {
        let status = post(http, Signal::Metrics, PROTOBUF, "identity", body.clone()).await;
        if status != 200 {
            assert_eq!(status, 429);
            return;
        }
    }
    panic!("nothing fills the queue");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attacks_stay_within_memory_limit() {
    let target = Target::start().await;
    assert_eq!(target.under("nothing", async {}).await, 0);
    let idle = target.collector.memory();
    // Idle and slow clients take no capacity from other clients.
    let refused = [
        target
            .under("idle connections", idle_connections(&target, 200))
            .await,
        target
            .under("unfinished requests", unfinished_requests(&target, 200))
            .await,
        target
            .under("declared, not sent", declared_and_not_sent(&target, 900, 0))
            .await,
        target
            .under(
                "declared and begun",
                declared_and_not_sent(&target, 900, 3000),
            )
            .await,
        target
            .under("tiny requests", tiny_requests(&target, 1000 * SCALE))
            .await,
        target
            .under("large headers", large_headers(&target, 100 * SCALE))
            .await,
    ];
    assert_eq!(refused, [0; 6]);
    target.under("structures", structures(&target)).await;
    target.under("profiles", profiles(&target, 20)).await;
    target
        .under("bombs", decompression_bombs(&target, 64))
        .await;
    let heaps = std::thread::available_parallelism().map_or(1, |count| count.get().div_ceil(2));
    let kept = OVERHEAD / 2 + (heaps - 1) * KEPT_BY_A_HEAP;
    target.wait_for_memory_below(idle + kept as u64).await;
    target
        .under("a backend that stalls", fill_the_queue(&target))
        .await;
    let all = async {
        tokio::join!(
            idle_connections(&target, 100),
            unfinished_requests(&target, 100),
            declared_and_not_sent(&target, 900, 3000),
            tiny_requests(&target, 250 * SCALE),
            large_headers(&target, 100),
            structures(&target),
            decompression_bombs(&target, 64),
        );
    };
    target.under("all at once", all).await;
    target.oracle.wait_for_delivery(&target.backend).await;
}
