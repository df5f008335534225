//! Tests of the server with a handler that counts its requests.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: server\r\n\r\n";

fn start(handler: SimpleHandler, options: ServerOptions) -> (Server, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let id = "health_check".parse().unwrap();
    let owner = Owner::new(&id, "extension").with_transport("http");
    let server = serve(listener.into(), handler, options, owner).unwrap();
    let address = server.local_address().unwrap();
    (server, address)
}

fn counting() -> SimpleHandler {
    let asked = AtomicUsize::new(0);
    Arc::new(move |_| {
        let number = asked.fetch_add(1, Relaxed) + 1;
        Box::pin(async move { Response::new(Full::from(number.to_string())) })
    })
}

fn get() -> Request<Empty<Bytes>> {
    Request::get("http://server/")
        .header("host", "server")
        .body(Empty::new())
        .unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn simple_handler_serves_both_protocols_on_one_port() {
    let (server, address) = start(counting(), ServerOptions::default());
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = http1::handshake(io).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(text(client.send_request(get()).await.unwrap()).await, "1");
    assert_eq!(text(client.send_request(get()).await.unwrap()).await, "2");

    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(text(client.send_request(get()).await.unwrap()).await, "3");

    server
        .shutdown(Instant::now() + Duration::from_secs(60))
        .await;
    assert!(client.send_request(get()).await.is_err());
    assert!(
        TcpStream::connect(address).await.is_err(),
        "the socket is closed"
    );
}

#[tokio::test(start_paused = true)]
async fn lingering_clients_do_not_delay_shutdown() {
    let handler: SimpleHandler = Arc::new(|_| {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Response::new(Full::default())
        })
    });
    let (server, address) = start(handler.clone(), ServerOptions::default());
    let mut deaf = TcpStream::connect(address).await.unwrap();
    let greeting = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    deaf.write_all(greeting).await.unwrap();
    deaf.read_exact(&mut [0; 9]).await.unwrap();
    let began = Instant::now();
    server.shutdown(began + Duration::from_secs(60)).await;
    let took = began.elapsed().as_secs();
    assert!((5..=6).contains(&took), "{took} s");

    let (server, address) = start(handler, ServerOptions::default());
    let mut busy = TcpStream::connect(address).await.unwrap();
    busy.write_all(GET).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    server.shutdown(began + Duration::from_secs(60)).await;
    assert_eq!(began.elapsed().as_secs(), 19);
    let mut answer = String::new();
    busy.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_and_busy_connection_stays() {
    let release = Arc::new(Semaphore::new(0));
    let gate = release.clone();
    let handler: SimpleHandler = Arc::new(move |_| {
        let gate = gate.clone();
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            Response::new(Full::default())
        })
    });
    let options = ServerOptions {
        max_idle: Some(Duration::from_secs(10)),
        ..ServerOptions::default()
    };
    let (_server, address) = start(handler, options);
    let mut client = TcpStream::connect(address).await.unwrap();
    let began = Instant::now();
    client.write_all(GET).await.unwrap();
    tokio::time::sleep(Duration::from_secs(100)).await;
    release.add_permits(1);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let closed = began.elapsed().as_secs();
    assert!((110..=120).contains(&closed), "closed after {closed} s");
}

#[tokio::test(start_paused = true)]
async fn aged_connection_ends_after_grace_of_open_requests() {
    let handler: SimpleHandler = Arc::new(|_| Box::pin(std::future::pending()));
    let options = ServerOptions {
        protocol: Protocol::Http2,
        max_age: Some(Duration::from_secs(100)),
        grace: Some(Duration::from_secs(7)),
        ..ServerOptions::default()
    };
    let (_server, address) = start(handler, options);
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let began = Instant::now();
    let request = tokio::spawn(async move { client.send_request(get()).await.map(|_| ()) });
    let _ = connection.await;
    let closed = began.elapsed().as_secs();
    assert!(
        (90 + 7..=110 + 7).contains(&closed),
        "closed after {closed} s"
    );
    assert!(request.await.unwrap().is_err());
}

#[tokio::test]
async fn tls_is_used_only_with_a_tls_configuration() {
    let (config, connector) = tls();
    let name = || "server".try_into().unwrap();
    let options = ServerOptions {
        protocol: Protocol::Http2,
        tls: Some(Arc::new(config)),
        ..ServerOptions::default()
    };
    let (_server, address) = start(counting(), options);
    let stream = TcpStream::connect(address).await.unwrap();
    let stream = connector.connect(name(), stream).await.unwrap();
    let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut client, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    assert_eq!(text(client.send_request(get()).await.unwrap()).await, "1");

    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(GET).await.unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");

    let (_server, address) = start(counting(), ServerOptions::default());
    let stream = TcpStream::connect(address).await.unwrap();
    assert!(connector.connect(name(), stream).await.is_err());
}

#[tokio::test]
async fn protocol_detection_ignores_segment_boundaries() {
    use super::guard::{DetectedProtocol, Guard};
    let said: [(&[u8], DetectedProtocol); 5] = [
        (b"\x16\x03\x01\x02\0\x01", DetectedProtocol::Tls),
        (frames::PREFACE, DetectedProtocol::Http2),
        (GET, DetectedProtocol::Http1),
        (b"PRI * HTTP/1.1\r\n", DetectedProtocol::Http1),
        (b"\x16", DetectedProtocol::Nothing),
    ];
    for (bytes, expected) in said {
        for most in [1, 2, 64] {
            let (mut client, stream) = tokio::io::duplex(most);
            let mut guard = Guard::new(stream, Arc::new(Peer::unconnected()), None);
            tokio::spawn(async move { client.write_all(bytes).await });
            let found = guard.greet().await.unwrap();
            assert_eq!(found, expected, "{bytes:?} in pieces of {most}");
        }
    }
}

/// Returns a server's configuration, and a client that trusts it as `server`.
fn tls() -> (Arc<rustls::ServerConfig>, tokio_rustls::TlsConnector) {
    let certified = rcgen::generate_simple_self_signed(["server".to_owned()]).unwrap();
    let certificate = certified.cert.der().clone();
    let key = rustls_pki_types::PrivateKeyDer::try_from(certified.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.unwrap())
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).unwrap();
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec()];
    (Arc::new(config), Arc::new(client).into())
}

mod limits;
