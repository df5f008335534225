//! Responses to connections refused by a limit, in the client's protocol and without a handshake.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::gate::Gate;
use super::guard::{DetectedProtocol, Guard, go_away};
use super::peer::Peer;

/// Sends the client a message in its own protocol: retry later. Takes at most two seconds. `tls` marks a port with TLS.
/// If too many such messages are in progress, the connection is closed without a message.
pub(super) async fn send(gate: &Arc<Gate>, stream: TcpStream, peer: Peer, tls: bool) {
    let Some(_place) = gate.begin_refusal() else {
        return;
    };
    if tls {
        // Clients read an alert only after they have sent their hello.
        if timeout(SEND_TIMEOUT, stream.readable()).await.is_ok() {
            guard(stream, peer).close_with(TLS_ALERT).await;
        }
        return;
    }
    let mut guard = guard(stream, peer);
    match timeout(SEND_TIMEOUT, guard.greet()).await {
        Ok(Ok(DetectedProtocol::Http1)) => guard.close_with(HTTP1_UNAVAILABLE).await,
        Ok(Ok(DetectedProtocol::Http2)) => {
            let go_away = go_away(0, "too many connections; try again later");
            guard.close_with([SETTINGS, &go_away].concat()).await;
        }
        _ => {}
    }
}

fn guard(stream: TcpStream, peer: Peer) -> Guard<TcpStream> {
    Guard::new(stream, Arc::new(peer), None)
}

/// Response to an HTTP/1 client on a port for gRPC.
pub(super) const NOT_HTTP1: Bytes = Bytes::from_static(
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 71\r\n\r\nthis port speaks OTLP/gRPC (HTTP/2); OTLP/HTTP is usually on port 4318\n",
);
const HTTP1_UNAVAILABLE: Bytes = Bytes::from_static(
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-type: text/plain\r\n\
    connection: close\r\ncontent-length: 38\r\n\r\ntoo many connections; try again later\n",
);
/// An empty SETTINGS frame, the first frame of an HTTP/2 server (RFC 9113, 3.4).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The fatal alert internal_error (RFC 8446, 6). TLS has no alert for an overload, and internal_error does not blame a
/// certificate.
const TLS_ALERT: Bytes = Bytes::from_static(&[21, 3, 3, 0, 2, 2, 80]);
/// Timeout for the client to reveal its protocol.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
