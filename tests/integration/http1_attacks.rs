//! HTTP/1 attacks: the server refuses the requests or closes the connection, no request is ambiguous to two parsers,
//! and other clients are not affected.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::floods::Arena;
use crate::harness::attacks::{AMBIGUOUS, BOTH_LENGTHS, HIDDEN, post, statuses};
use crate::harness::within;

/// Sends these bytes and reads until the server closes the connection. Returns the statuses of the responses.
async fn exchange(address: SocketAddr, bytes: &[u8]) -> Vec<u16> {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    let writing = async {
        // The server may close before it has read everything.
        let _ = write.write_all(bytes).await;
        write
    };
    let mut answer = Vec::new();
    let reading = read.read_to_end(&mut answer);
    let (_write, _) = within("the end of the connection", async {
        tokio::join!(writing, reading)
    })
    .await;
    statuses(&answer)
}

#[tokio::test]
async fn ambiguous_http1_requests_are_refused() {
    let arena = Arena::start("header_timeout: 1s", "").await;
    let address = arena.collector.http();
    for more in AMBIGUOUS {
        let request = format!("{}{HIDDEN}", post(more));
        let statuses = arena.beside(exchange(address, request.as_bytes())).await;
        assert_eq!(statuses, [400], "{more:?}");
    }
    for more in BOTH_LENGTHS {
        let request = format!("{}0\r\n\r\n{HIDDEN}", post(more));
        let statuses = arena.beside(exchange(address, request.as_bytes())).await;
        assert!(
            statuses == [400] || statuses == [200],
            "{more:?}: {statuses:?}"
        );
    }
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn invalid_chunks_end_the_connection() {
    let arena = Arena::start("header_timeout: 1s", "").await;
    let address = arena.collector.http();
    let endless = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x=y;".repeat(1 << 18));
    let trailers = format!("0\r\n{}\r\n", "x: y\r\n".repeat(1 << 18));
    for chunks in [
        "-1\r\n\r\n",
        "g\r\n\r\n",
        "\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n",
        "5\r\nhelloo\r\n0\r\n\r\n",
        "5 \n hello",
        &endless,
        &trailers,
    ] {
        let request = format!("{}{chunks}", post("transfer-encoding: chunked\r\n"));
        let statuses = arena.beside(exchange(address, request.as_bytes())).await;
        let refused = statuses.iter().all(|status| (400..500).contains(status));
        let shown: String = chunks.chars().take(20).collect();
        assert!(refused && statuses.len() <= 1, "{shown:?}: {statuses:?}");
    }
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn unterminated_heads_are_refused() {
    let arena = Arena::start("header_timeout: 1s", "").await;
    let address = arena.collector.http();
    let long = "y".repeat(1 << 20);
    for (what, request, expected) in [
        ("one header", post(&format!("x: {long}\r\n")), 431),
        ("many headers", post(&"x: y\r\n".repeat(1 << 17)), 431),
        (
            "the target",
            format!("POST /{long} HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
            414,
        ),
        ("the method", format!("{long} / HTTP/1.1\r\n\r\n"), 400),
        ("no line", long.clone(), 400),
    ] {
        let statuses = arena.beside(exchange(address, request.as_bytes())).await;
        // Closing with unread data resets the connection, and the response may be lost.
        let refused = statuses.is_empty() || [[expected], [431], [400]].contains(&[statuses[0]]);
        assert!(refused && statuses.len() <= 1, "{what}: {statuses:?}");
    }
    arena.assert_unharmed().await;
}

/// Sends these bytes, and then one more byte every 100 ms. Returns when the server closes the connection.
async fn trickle(address: SocketAddr, beginning: &str, then: &[u8]) -> Vec<u16> {
    let (mut read, mut write) = TcpStream::connect(address).await.unwrap().into_split();
    write.write_all(beginning.as_bytes()).await.unwrap();
    let writing = async {
        let mut tick = tokio::time::interval(Duration::from_millis(100));
        loop {
            tick.tick().await;
            if write.write_all(then).await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let mut answer = Vec::new();
    let reading = read.read_to_end(&mut answer);
    within("the end of the connection", async {
        tokio::select! {
            _ = reading => {}
            () = writing => {}
        }
    })
    .await;
    statuses(&answer)
}

#[tokio::test]
async fn slow_heads_end_the_connection() {
    let arena = Arena::start("header_timeout: 500ms, handshake_timeout: 500ms", "").await;
    let address = arena.collector.http();
    let slow = (0..100).map(|_| trickle(address, "POST /v1/traces HTTP/1.1\r\nx: ", b"y"));
    for statuses in arena.beside(join_all(slow)).await {
        assert!(statuses.is_empty() || statuses == [408], "{statuses:?}");
    }
    let silent = (0..100).map(|_| exchange(address, b""));
    for statuses in arena.beside(join_all(silent)).await {
        assert!(statuses.is_empty() || statuses == [408], "{statuses:?}");
    }
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn slow_bodies_end_the_connection() {
    let limits = "body_grace: 500ms, min_body_rate: 1MiB";
    let arena = Arena::start(limits, "").await;
    let address = arena.collector.http();
    let declared = post("content-length: 1000000\r\n");
    let chunked = post("transfer-encoding: chunked\r\n");
    let slow = (0..50).flat_map(|_| {
        [
            trickle(address, &declared, b"y"),
            trickle(address, &chunked, b"1\r\ny\r\n"),
        ]
    });
    for statuses in arena.beside(join_all(slow)).await {
        let told = [vec![], vec![408], vec![503]];
        assert!(told.contains(&statuses), "{statuses:?}");
    }
    arena.assert_unharmed().await;
}

#[tokio::test]
async fn pipelined_requests_are_served_in_order() {
    let arena = Arena::start("", "").await;
    let requests = post("content-length: 0\r\n").repeat(999)
        + &post("content-length: 0\r\nconnection: close\r\n");
    let attack = exchange(arena.collector.http(), requests.as_bytes());
    assert_eq!(arena.beside(attack).await, vec![200; 1000]);
    arena.assert_unharmed().await;
}
