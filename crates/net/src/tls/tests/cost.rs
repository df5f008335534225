//! Measures the cost of a handshake: `cargo test --release --lib tls::tests::cost -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, HandshakeKind, ServerConnection};

use super::refusals::Authority;
use crate::tls::certificate;
use crate::tls::notes;

/// Performs one handshake in memory. Returns its kind, and the time that the server worked.
fn handshake(
    client: &Arc<rustls::ClientConfig>,
    server: &Arc<rustls::ServerConfig>,
) -> (HandshakeKind, Duration) {
    let name = "127.0.0.1".try_into().unwrap();
    let mut client = ClientConnection::new(client.clone(), name).unwrap();
    let began = Instant::now();
    let mut server = ServerConnection::new(server.clone()).unwrap();
    let mut worked = began.elapsed();
    let mut wire = Vec::new();
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        wire.clear();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let began = Instant::now();
        let mut read = wire.as_slice();
        while !read.is_empty() {
            server.read_tls(&mut read).unwrap();
            server.process_new_packets().unwrap();
        }
        let mut answer = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut answer).unwrap();
        }
        if let Some(certificates) = server.peer_certificates() {
            // Read once, as the server does after the handshake.
            if !server.is_handshaking() {
                certificate::describe(&certificates[0]).unwrap();
            }
        }
        worked += began.elapsed();
        let mut read = answer.as_slice();
        while !read.is_empty() {
            client.read_tls(&mut read).unwrap();
            client.process_new_packets().unwrap();
        }
    }
    (server.handshake_kind().unwrap(), worked)
}

#[tokio::test]
#[ignore = "a measurement"]
async fn handshakes_per_second_on_one_core() {
    let ours = Authority::new("our CA");
    let mut server = ours.server();
    server.allowed_client_names = vec!["spiffe://zone.example/ns/*/sa/agent".to_owned()];
    let server = Arc::new(server.build(&[b"h2"]).unwrap());
    let mut client = ours
        .client(super::refusals::spiffe)
        .build(&[b"h2"])
        .unwrap();
    for resume in [false, true] {
        client.resumption = match resume {
            false => rustls::client::Resumption::disabled(),
            true => rustls::client::Resumption::in_memory_sessions(8),
        };
        let client = Arc::new(client.clone());
        let measured = async {
            let mut worked = Duration::ZERO;
            let mut resumed = 0;
            for _ in 0..HANDSHAKES {
                let (kind, time) = handshake(&client, &server);
                resumed += u32::from(kind == HandshakeKind::Resumed);
                worked += time;
            }
            (worked, resumed)
        };
        let ((worked, resumed), _) = notes::taken(measured).await;
        let each = worked / HANDSHAKES;
        println!(
            "{resumed} of {HANDSHAKES} resumed: {each:?} each, {:.0} a second",
            1.0 / each.as_secs_f64()
        );
    }
}

const HANDSHAKES: u32 = 2000;
