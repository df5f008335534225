//! Attacks on TLS and within TLS: a misbehaving client is disconnected before, during or after its
//! handshake, costs little, and does not disturb clients with a certificate.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tributary_net::tls::ClientTls;

use crate::harness::attacks::{self, Flood};
use crate::harness::http2::{Attacker, ENHANCE_YOUR_CALM};
use crate::harness::{
    Authority, Backend, Client, Collector, Oracle, Signal, grpc_at, grpc_to, within, yaml,
};

/// A collector that requires client certificates, a collector that sends to it with a certificate, and a client of the
/// sending collector.
struct Fort {
    authority: Authority,
    backend: Backend,
    rack: Collector,
    _sidecar: Collector,
    oracle: Oracle,
    client: Client,
    memory: u64,
    processor: Duration,
}

impl Fort {
    /// `limits` are keys of that section.
    async fn start(limits: &str) -> Self {
        let authority = Authority::new();
        let backend = Backend::start().await;
        let tls = format!(
            "endpoint: '127.0.0.1:0', limits: {{{limits}}}, tls: {{{}, client_ca_file: '{}'}}",
            authority.certificate("rack"),
            authority.file("ca.pem").display()
        );
        let yaml_of_rack = yaml(&[], &[("otlp_grpc", &grpc_to(&backend, ""))])
            .replace("endpoint: '127.0.0.1:0'", &tls);
        let rack = Collector::start(&yaml_of_rack).await;
        let to_rack = grpc_at(rack.grpc(), "").replace(
            "insecure: true",
            &format!(
                "ca_file: '{}', {}",
                authority.file("ca.pem").display(),
                authority.certificate("sidecar")
            ),
        );
        let sidecar = Collector::start(&yaml(&[], &[("otlp_grpc", &to_rack)])).await;
        let oracle = Oracle::default();
        let client = Client::grpc("client", sidecar.grpc(), &oracle).await;
        let mut fort = Fort {
            authority,
            backend,
            rack,
            _sidecar: sidecar,
            oracle,
            client,
            memory: 0,
            processor: Duration::ZERO,
        };
        fort.good().await;
        fort.memory = fort.rack.peak_memory();
        fort.processor = fort.rack.processor_time();
        fort
    }

    fn tls(&self) -> Arc<rustls::ClientConfig> {
        let leaf = self.authority.leaf();
        let section = ClientTls {
            ca_pem: self.authority.pem().to_owned(),
            cert_pem: leaf.certificate,
            key_pem: leaf.key.as_str().into(),
            ..ClientTls::default()
        };
        Arc::new(section.build(&[b"h2"]).unwrap())
    }

    /// A connection with TLS, and with a certificate.
    async fn inside(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.rack.grpc()).await.unwrap();
        let name = "127.0.0.1".try_into().unwrap();
        let connecting = TlsConnector::from(self.tls()).connect(name, stream);
        within("a handshake", connecting).await.unwrap()
    }

    /// Returns the ClientHello of a client.
    fn hello(&self) -> Vec<u8> {
        let name = "127.0.0.1".try_into().unwrap();
        let mut client = ClientConnection::new(self.tls(), name).unwrap();
        let mut hello = Vec::new();
        client.write_tls(&mut hello).unwrap();
        hello
    }

    /// Sends as clients with a certificate do, on an existing and on a new connection, and expects
    /// success.
    async fn good(&self) {
        let request = self.client.request(Signal::Traces, 5);
        self.client.send(&request).await.unwrap();
        let mut new = Attacker::on(self.inside().await).greeted().await;
        assert!(new.is_alive().await);
    }

    /// Runs an attack, while good clients are served.
    async fn beside<T>(&self, attack: impl Future<Output = T>) -> T {
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

    /// Returns how often clients exceeded a limit.
    async fn limited(&self, limit: &str) -> f64 {
        let metrics = self.rack.metrics().await;
        metrics.sum("tributary_server_limited", &[("limit", limit)])
    }

    async fn assert_unharmed(self) {
        let grown = self.rack.peak_memory().saturating_sub(self.memory);
        assert!(grown < MOST_MEMORY, "the process grew by {grown} bytes");
        let taken = self.rack.processor_time() - self.processor;
        assert!(taken < MOST_PROCESSOR_TIME, "the attack took {taken:?}");
        self.oracle.wait_for_delivery(&self.backend).await;
        self.rack.assert_conservation().await;
    }
}

/// Memory that an attack and the well-behaved clients may cost the process, in bytes; for an
/// unoptimized build, as in tests.
const MOST_MEMORY: u64 = 48 << 20;
const MOST_PROCESSOR_TIME: Duration = Duration::from_secs(15);

/// Connects from an address that no other client of the test uses.
async fn connect_from_other_address(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    socket.connect(address).await.unwrap()
}

/// Reads until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A reset ends the connection too.
    let _ = within("the end of the connection", stream.read_to_end(&mut heard)).await;
    heard
}

/// A TLS record (RFC 8446, 5.1).
fn record(kind: u8, fragment: &[u8]) -> Vec<u8> {
    let length = u16::try_from(fragment.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3][..], &length, fragment].concat()
}

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// Floods a connection, and expects the server to close it within the protocol.
async fn too_much(fort: &Fort, what: &str, flood: Flood) {
    let attack = async {
        let mut attacker = Attacker::on(fort.inside().await).greeted().await;
        let said = attacker.flood(10_000, flood).await;
        let code = attacker.ended().await;
        // If the connection was reset while frames were in flight, the final GOAWAY may be lost.
        let told = code.is_none() && said < 10_000 || code == Some(ENHANCE_YOUR_CALM);
        assert!(told, "{what}: {code:?} after {said}");
    };
    fort.beside(attack).await;
}

#[tokio::test]
async fn floods_of_certified_clients_end_their_connection() {
    let fort = Fort::start("max_control_frames: 200").await;
    too_much(&fort, "rapid resets", attacks::rapid_reset).await;
    too_much(&fort, "pings", attacks::ping).await;
    too_much(&fort, "endless header blocks", attacks::endless_block).await;
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn key_update_floods_do_not_affect_other_clients() {
    let fort = Fort::start("").await;
    let attack = async {
        let mut inside = fort.inside().await;
        for _ in 0..5000 {
            let updated = inside.get_mut().1.refresh_traffic_keys();
            if updated.is_err() || inside.flush().await.is_err() {
                break;
            }
        }
    };
    fort.beside(attack).await;
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn unfinished_handshakes_are_disconnected() {
    let fort = Fort::start("handshake_timeout: 1s").await;
    let hello = fort.hello();
    let beginnings = [
        ("nothing", &[][..]),
        ("one byte", &hello[..1]),
        ("half of a hello", &hello[..hello.len() / 2]),
        ("a hello, and no more", &hello),
    ];
    for (what, beginning) in beginnings {
        let began = Instant::now();
        let attack = async {
            let mut stream = connect_from_other_address(fort.rack.grpc()).await;
            stream.write_all(beginning).await.unwrap();
            rest(&mut stream).await;
        };
        fort.beside(attack).await;
        assert!(began.elapsed() >= Duration::from_millis(900), "{what}");
    }
    // Sends byte by byte, below the minimum rate.
    let attack = async {
        let mut stream = connect_from_other_address(fort.rack.grpc()).await;
        stream.set_nodelay(true).unwrap();
        let mut tick = interval(Duration::from_millis(20));
        for byte in &hello {
            tick.tick().await;
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        rest(&mut stream).await;
    };
    let began = Instant::now();
    fort.beside(attack).await;
    let whole = Duration::from_millis(20) * u32::try_from(hello.len()).unwrap();
    assert!(began.elapsed() < whole, "it was cut before the end");
    assert_eq!(fort.limited("handshake_timeout").await, 5.0);
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn fragmented_client_hello_is_accepted() {
    let fort = Fort::start("").await;
    let hello = fort.hello();
    let mut stream = connect_from_other_address(fort.rack.grpc()).await;
    stream.set_nodelay(true).unwrap();
    for byte in &hello {
        stream.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut first = [0];
    let answer = stream.read_exact(&mut first);
    within("the server's hello", answer).await.unwrap();
    assert_eq!(first, [HANDSHAKE]);
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn invalid_handshake_is_refused_at_once() {
    let fort = Fort::start("handshake_timeout: 60s").await;
    let hello = fort.hello();
    // A handshake message (RFC 8446, 4): the type, three bytes of length.
    let mut huge = record(
        HANDSHAKE,
        &[&[1, 0xff, 0xff, 0xff][..], &[0; 16_000]].concat(),
    );
    for _ in 0..64 {
        huge.extend(record(HANDSHAKE, &[0; 16_000]));
    }
    let after_hello = |more: Vec<u8>| [hello.clone(), more].concat();
    let attacks = [
        ("garbage after the hello", after_hello(vec![0x5a; 4096])),
        ("a second hello", after_hello(hello.clone())),
        ("empty records", record(HANDSHAKE, &[]).repeat(20_000)),
        (
            "empty records after the hello",
            after_hello(record(APPLICATION_DATA, &[]).repeat(20_000)),
        ),
        ("a hello of 16 MB", huge),
        (
            "a record that is too long",
            [&[HANDSHAKE, 3, 1, 0xff, 0xff][..], &[1; 70_000]].concat(),
        ),
        (
            "warnings",
            after_hello(record(ALERT, &[1, 100]).repeat(20_000)),
        ),
        (
            "changes of the cipher",
            after_hello(record(CHANGE_CIPHER_SPEC, &[1]).repeat(20_000)),
        ),
        ("a hello of nothing", record(HANDSHAKE, &[1, 0, 0, 0])),
        (
            "another message first",
            record(HANDSHAKE, &[20, 0, 0, 1, 0]),
        ),
    ];
    for (what, bytes) in attacks {
        let attack = async {
            let (mut read, mut write) = connect_from_other_address(fort.rack.grpc())
                .await
                .into_split();
            let writing = async {
                // The server may close before all bytes are sent.
                let _ = write.write_all(&bytes).await;
            };
            let mut heard = Vec::new();
            let reading = read.read_to_end(&mut heard);
            let both = async { tokio::join!(writing, reading) };
            drop(within(what, both).await);
            heard
        };
        let heard = fort.beside(attack).await;
        // A reset may lose the alert, but the server sends no more than its hello and the alert.
        assert!(heard.len() < 16_000, "{what}: {} bytes", heard.len());
    }
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn disconnected_handshakes_leave_no_state() {
    let fort = Fort::start("max_handshakes: 8").await;
    let hello = fort.hello();
    let attack = async {
        for number in 0..200 {
            let mut stream = connect_from_other_address(fort.rack.grpc()).await;
            let said = hello.len() * (number % 5) / 4;
            stream.write_all(&hello[..said]).await.unwrap();
            if number % 2 == 0 {
                // Closes with a reset.
                stream.set_zero_linger().unwrap();
            }
        }
    };
    fort.beside(attack).await;
    // All handshakes have ended: their address has its slots again.
    let connector = TlsConnector::from(fort.tls());
    let stream = connect_from_other_address(fort.rack.grpc()).await;
    let connecting = connector.connect("127.0.0.1".try_into().unwrap(), stream);
    within("a handshake", connecting).await.unwrap();
    fort.assert_unharmed().await;
}

#[tokio::test]
async fn concurrent_handshakes_do_not_lock_out_other_clients() {
    let fort = Fort::start("max_handshakes: 8, handshake_timeout: 60s").await;
    let hello = fort.hello();
    let mut hanging = JoinSet::new();
    for _ in 0..300 {
        let (address, hello) = (fort.rack.grpc(), hello.clone());
        hanging.spawn(async move {
            let mut stream = connect_from_other_address(address).await;
            let _ = stream.write_all(&hello).await;
            rest(&mut stream).await
        });
    }
    // One address gets two of the eight slots; all other handshakes are refused at once.
    let attack = async {
        for _ in 0..298 {
            let heard = hanging.join_next().await.unwrap().unwrap();
            assert!(heard.is_empty() || heard[0] == ALERT, "{heard:?}");
        }
    };
    fort.beside(attack).await;
    assert_eq!(hanging.len(), 2);
    assert_eq!(fort.limited("max_handshakes").await, 298.0);
    hanging.abort_all();
    fort.assert_unharmed().await;
}
