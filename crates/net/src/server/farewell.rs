//! What a client hears for whom there is no place: the answer of its own protocol, without a handshake.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::gate::Gate;
use super::guard::{Guard, Spoken, go_away};
use super::peer::Peer;

/// Tells the client to come back later, in its own protocol, within two seconds; `tls`: on a port with TLS. When too
/// many are being told already, the connection is just closed.
pub(super) async fn say(gate: &Arc<Gate>, stream: TcpStream, peer: Peer, tls: bool) {
    let Some(_place) = gate.farewell() else {
        return;
    };
    if tls {
        // Clients look for an alert once they have said hello.
        if timeout(PATIENCE, stream.readable()).await.is_ok() {
            guard(stream, peer).part(TLS_ALERT).await;
        }
        return;
    }
    let mut guard = guard(stream, peer);
    match timeout(PATIENCE, guard.greet()).await {
        Ok(Ok(Spoken::Http1)) => guard.part(BUSY).await,
        Ok(Ok(Spoken::Http2)) => {
            let go_away = go_away(0, "too many connections; try again later");
            guard.part([SETTINGS, &go_away].concat()).await;
        }
        _ => {}
    }
}

fn guard(stream: TcpStream, peer: Peer) -> Guard<TcpStream> {
    Guard::new(stream, Arc::new(peer), None)
}

/// What a client that speaks HTTP/1 hears on a port for gRPC.
pub(super) const NOT_HTTP1: Bytes = Bytes::from_static(
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 71\r\n\r\nthis port speaks OTLP/gRPC (HTTP/2); OTLP/HTTP is usually on port 4318\n",
);
const BUSY: Bytes = Bytes::from_static(
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-type: text/plain\r\n\
    connection: close\r\ncontent-length: 38\r\n\r\ntoo many connections; try again later\n",
);
/// An empty SETTINGS frame, with which an HTTP/2 server begins (RFC 9113, 3.4).
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A fatal alert, internal_error (RFC 8446, 6): none says "busy", and this one blames nobody's certificate.
const TLS_ALERT: Bytes = Bytes::from_static(&[21, 3, 3, 0, 2, 2, 80]);
/// How long a client may take to say what it speaks.
const PATIENCE: Duration = Duration::from_secs(1);
