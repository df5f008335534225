//! Violations of HTTP: floods of frames, ambiguous requests, path traversal.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::attacks::{self, Flood, HIDDEN};
use super::http2::{Attacker, END_HEADERS, END_STREAM, HEADERS, call, frame, greeting};
use super::report::Finding;
use super::target::{Protocol, Server, Side, Target};
use super::{Deadline, Signal, raw};

/// Floods of frames, each of which must end its connection.
pub const FLOODS: [(&str, Flood); 11] = [
    ("rapid reset", attacks::rapid_reset),
    ("made-you-reset", attacks::made_you_reset),
    ("CONTINUATION flood", attacks::endless_block),
    ("empty CONTINUATION flood", attacks::empty_continuation),
    ("PING flood", attacks::ping),
    ("PING ACK flood", attacks::unasked_ping_ack),
    ("SETTINGS flood", attacks::settings),
    ("empty DATA flood", attacks::empty_data),
    ("PRIORITY flood", attacks::priority),
    ("WINDOW_UPDATE flood", attacks::small_window_update),
    ("unknown frames", attacks::unknown_frame),
];

/// Most frames of a flood: ten times the burst that `max_control_frames` allows by default.
const FRAMES: u32 = 100_000;
/// Time for the end of an HTTP/1 connection.
const QUIET: Duration = Duration::from_millis(500);

/// Floods one connection after the other, and expects the server to close each.
pub async fn flood(target: &Target, server: Server, flood: Flood, end: Deadline) -> Vec<Finding> {
    let open = frame(HEADERS, END_HEADERS, 1, &call(raw::method(Signal::Traces)));
    let longest_wait = Duration::from_millis(target.options.max_wait_ms);
    let (mut alive, mut failed) = (0, 0);
    for _ in 0..3 {
        let attack = async {
            let stream = target
                .connect(server.address, Protocol::Http2, Side::Attacker)
                .await
                .ok()?;
            let mut attacker = Attacker::on(stream);
            let beginning = [greeting(&[]), open.clone()].concat();
            if attacker.send_bytes(&beginning).await.is_ok() {
                attacker.flood(FRAMES, flood).await;
            }
            Some(attacker)
        };
        match end.within(attack).await {
            // The deadline may end a flood below the limit.
            None => {}
            Some(None) => failed += 1,
            Some(Some(mut attacker)) => {
                alive += usize::from(timeout(longest_wait, attacker.ended()).await.is_err());
            }
        }
    }
    vec![
        Finding::none_of("connections not ended", alive),
        Finding::none_of("connections refused", failed),
    ]
}

/// Sends header blocks that unpack to 40 MB, and expects no success.
pub async fn header_bomb(target: &Target, server: Server, end: Deadline) -> Vec<Finding> {
    let bomb = attacks::header_bomb();
    let mut served = 0;
    for _ in 0..20 {
        let attack = async {
            let stream = target
                .connect(server.address, Protocol::Http2, Side::Attacker)
                .await
                .ok()?;
            let mut attacker = Attacker::on(stream);
            attacker.send_bytes(&greeting(&[])).await.ok()?;
            let bombs = attacker.flood(20, |number| {
                let stream = attacks::stream(number);
                frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)
            });
            bombs.await;
            attacker.answered(1).await
        };
        if end.within(attack).await.flatten() == Some(200) {
            served += 1;
        }
    }
    vec![Finding::none_of("header bombs accepted", served)]
}

/// Sends requests that two parsers could read differently, and expects at most one response.
pub async fn smuggling(target: &Target, server: Server, end: Deadline) -> Vec<Finding> {
    let plain = attacks::AMBIGUOUS.map(|more| format!("{}{HIDDEN}", attacks::post(more)));
    let both =
        attacks::BOTH_LENGTHS.map(|more| format!("{}0\r\n\r\n{HIDDEN}", attacks::post(more)));
    let mut smuggled = 0;
    for request in plain.iter().chain(&both) {
        let request = request.replace("/v1/traces", server.path);
        let answer = exchange(target, server, request.as_bytes(), end).await;
        if attacks::statuses(&answer).len() > 1 {
            smuggled += 1;
        }
    }
    vec![Finding::none_of("requests smuggled", smuggled)]
}

/// Paths of files outside of any directory that a server may serve.
const PATHS: [&str; 9] = [
    "/../../../../../../../../etc/passwd",
    "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
    "/..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/%252e%252e/%252e%252e/%252e%252e/etc/passwd",
    "/....//....//....//....//etc/passwd",
    "//etc/passwd",
    "/v1/../../../../../../etc/passwd",
    "/v1/symbols/..%2f..%2f..%2f..%2fetc%2fpasswd",
    "/buildid/../../../../etc/passwd/debuginfo",
];

/// Requests files of the system.
pub async fn traversal(target: &Target, server: Server, end: Deadline) -> Vec<Finding> {
    let mut read = 0;
    for path in PATHS {
        for method in ["GET", "POST", "PUT"] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nhost: collector\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let answer = exchange(target, server, request.as_bytes(), end).await;
            if String::from_utf8_lossy(&answer).contains("root:") {
                read += 1;
            }
        }
    }
    vec![Finding::none_of("files read", read)]
}

/// Sends bytes over HTTP/1 and returns the response, up to the end of the connection or half a second without a byte.
async fn exchange(target: &Target, server: Server, bytes: &[u8], end: Deadline) -> Vec<u8> {
    let mut answer = Vec::new();
    let saying = async {
        let stream = target
            .connect(server.address, Protocol::Http1, Side::Attacker)
            .await
            .ok()?;
        let (mut read, mut write) = tokio::io::split(stream);
        // The server may close the connection before it has read everything.
        let _ = write.write_all(bytes).await;
        let _ = write.flush().await;
        while let Ok(Ok(1..)) = timeout(QUIET, read.read_buf(&mut answer)).await {}
        Some(())
    };
    end.within(saying).await;
    answer
}
